"""ListConfigResources (key 74), versions 0-1.

v0  client metrics subscriptions only
v1  resources of the types that are asked for, or of all
"""

from typing import Final

from odradek.api.broker_loggers import BROKER_LOGGER_RESOURCE
from odradek.api.context import Context
from odradek.api.metadata import reachable
from odradek.core.controller.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ListConfigResourcesRequest, ListConfigResourcesResponse

KEY = 74
ALL_SINCE: Final = 1

TYPES: Final = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE)


def handle(request: ListConfigResourcesRequest, ctx: Context) -> ListConfigResourcesResponse:
    supported = TYPES if ctx.version >= ALL_SINCE else (CLIENT_METRICS_RESOURCE,)
    if not set(request.resource_types) <= set(supported):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=type_)
            for type_ in supported
            if not request.resource_types or type_ in request.resource_types
            for name in names(type_, ctx)
        ]
    )


def names(type_: int, ctx: Context) -> list[str]:
    image = ctx.node.image
    if type_ in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(broker.id) for broker, _ in reachable(image, ctx.connection.listener)]
    if type_ == TOPIC_RESOURCE:
        return list(image.topics)
    return [name for kind, name in image.configs if kind == type_]

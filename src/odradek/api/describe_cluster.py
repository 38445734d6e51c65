"""DescribeCluster (key 60), versions 0-2.

v1  brokers or controllers
v2  fenced brokers too
"""

from odradek.api.context import Context
from odradek.api.metadata import reachable
from odradek.api.operations import ON_CLUSTER
from odradek.core.metadata.brokers import Broker, Endpoint
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.operations import NOT_ASKED

KEY = 60
BROKERS = 1
CONTROLLERS = 2

BrokerAnswer = DescribeClusterResponse.DescribeClusterBroker


def handle(request: DescribeClusterRequest, ctx: Context) -> DescribeClusterResponse:
    served = CONTROLLERS if ctx.connection.is_controller else BROKERS
    if request.endpoint_type != served:
        known = request.endpoint_type in (BROKERS, CONTROLLERS)
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"this listener tells of {'controllers' if served == CONTROLLERS else 'brokers'} only",
        )
    answers = controllers(ctx) if served == CONTROLLERS else brokers(request, ctx)
    return DescribeClusterResponse(
        endpoint_type=served,
        cluster_id=ctx.node.cluster_id,
        controller_id=ctx.node.controller.status().leader_id
        if served == CONTROLLERS
        else next((each.broker_id for each in answers), -1),
        brokers=answers,
        cluster_authorized_operations=ON_CLUSTER if request.include_cluster_authorized_operations else NOT_ASKED,
    )


def brokers(request: DescribeClusterRequest, ctx: Context) -> list[BrokerAnswer]:
    image, listener = ctx.node.image, ctx.connection.listener
    found: list[tuple[Broker, Endpoint]] = reachable(image, listener)
    if request.include_fenced_brokers:
        found += [
            (broker, broker.listeners[listener])
            for broker in image.brokers.values()
            if broker.fenced and listener in broker.listeners
        ]
    return [
        BrokerAnswer(broker_id=broker.id, host=at.host, port=at.port, rack=broker.rack, is_fenced=broker.fenced)
        for broker, at in found
    ]


def controllers(ctx: Context) -> list[BrokerAnswer]:
    listener = ctx.connection.listener
    return [
        BrokerAnswer(broker_id=controller.id, host=at.host, port=at.port)
        for controller in ctx.node.image.controllers.values()
        if (at := controller.listeners.get(listener)) is not None
    ]

"""DescribeConfigs (key 32), versions 1-4.

v1  where a value comes from, and synonyms on demand
v3  the type of a key, and its documentation on demand
v4  flexible encoding
"""

from odradek.api.broker_loggers import BROKER_LOGGER_RESOURCE, describe_loggers
from odradek.api.config_resources import check_node
from odradek.api.context import Context
from odradek.core.config.describe import (
    Entry,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from odradek.core.controller.configs import CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, Resource
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from odradek.core.metadata.topic_names import name_fault
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import DescribeConfigsRequest, DescribeConfigsResponse

KEY = 32

Wanted = DescribeConfigsRequest.DescribeConfigsResource
Answer = DescribeConfigsResponse.DescribeConfigsResult
EntryAnswer = DescribeConfigsResponse.DescribeConfigsResourceResult
SynonymAnswer = DescribeConfigsResponse.DescribeConfigsSynonym


def handle(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[described(wanted, request, ctx) for wanted in request.resources])


def described(wanted: Wanted, request: DescribeConfigsRequest, ctx: Context) -> Answer:
    answer = Answer(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    try:
        entries = entries_of(Resource(wanted.resource_type, wanted.resource_name), ctx)
    except Refused as refusal:
        answer.error_code, answer.error_message = refusal.code, refusal.message
        return answer
    names = set(wanted.configuration_keys or ())
    answer.configs = [entry_answer(entry, request) for entry in entries if not names or entry.name in names]
    return answer


def entries_of(resource: Resource, ctx: Context) -> list[Entry]:
    type_, name = resource
    config, overrides = ctx.node.config, ctx.node.image.configs.get(resource, {})
    if type_ == TOPIC_RESOURCE:
        if fault := name_fault(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
        if name not in ctx.node.image.topics:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name} does not exist")
        return describe_topic(config, overrides)
    if type_ == BROKER_RESOURCE:
        if not name:
            return describe_cluster(config)
        check_node(name, ctx)
        return describe_broker(config)
    if type_ == BROKER_LOGGER_RESOURCE:
        check_node(name, ctx)
        return describe_loggers(ctx.node.loggers.levels())
    if type_ in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "a name must be given")
        return describe_group(config, overrides) if type_ == GROUP_RESOURCE else describe_client_metrics(overrides)
    raise Refused(ErrorCode.INVALID_REQUEST, f"there are no configurations of the type {type_}")


def entry_answer(entry: Entry, request: DescribeConfigsRequest) -> EntryAnswer:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return EntryAnswer(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[SynonymAnswer(name=each.name, value=each.value, source=each.source) for each in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )

"""IncrementalAlterConfigs (0-1) and AlterConfigs (0-2): which records change configurations, and every reason why not.

The one changes single keys, the other replaces all keys of a resource. What concerns a running broker was checked by that broker.

Invariants
 1. A resource is changed as a whole or not at all; the others of the request do not depend on it.
 2. A change of min.insync.replicas forgets the eligible leader replicas that were chosen under the old one, but for the last that
    may lead where nobody is in the ISR.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from odradek.core.config.alteration import Change, altered, check_sizes, merged
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.client_metrics import check_client_metrics
from odradek.core.config.group import check_group
from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.table import broker_keys, topic_keys
from odradek.core.config.topic import check_topic
from odradek.core.controller.decision import RECORDS_MAX, Decision, Versioned
from odradek.core.metadata.features import ELR_VERSION, METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from odradek.core.metadata.topic_names import name_fault
from odradek.core.metadata.topics import NO_LEADER
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ClearElrRecord,
    ConfigRecord,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    PartitionChangeRecord,
)

CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
CORDONED_SINCE: Final = 30  # metadata.version
INT32_MAX: Final = 2**31 - 1

ALTERABLE: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE)
# Where lists can be appended to: Apache Kafka knows no lists of groups and subscriptions.
KEYS: Final[dict[int, Callable[[], Mapping[str, Key]]]] = {TOPIC_RESOURCE: topic_keys, BROKER_RESOURCE: broker_keys}


class Resource(NamedTuple):
    type: int
    name: str


class Outcome(NamedTuple):
    resource: Resource
    error: ErrorCode
    reason: str | None


Values: TypeAlias = dict[str, str | None]  # the new value of each key that changes; None where it has none any more
Wanted: TypeAlias = tuple[Resource, Callable[[Mapping[str, str]], Values]]  # and what becomes of its values until now


def incremental_alter_configs(
    image: MetadataImage, request: IncrementalAlterConfigsRequest, broker: BrokerConfig
) -> Decision[IncrementalAlterConfigsResponse]:
    """`broker` is the configuration of the controller, with which topics and groups are checked."""

    def changes(wanted: IncrementalAlterConfigsRequest.AlterConfigsResource, before: Mapping[str, str]) -> Values:
        listed = [Change(each.name, each.config_operation, each.value) for each in wanted.configs]
        return altered(KEYS[wanted.resource_type]() if wanted.resource_type in KEYS else {}, before, listed)

    wanted = [(Resource(each.resource_type, each.resource_name), partial(changes, each)) for each in request.resources]
    records, outcomes = decide(image, wanted, broker)
    answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    responses = [
        answer(error_code=error, error_message=reason, resource_type=resource.type, resource_name=resource.name)
        for resource, error, reason in outcomes
    ]
    return Decision([] if request.validate_only else records, IncrementalAlterConfigsResponse(responses=responses))


def alter_configs(image: MetadataImage, request: AlterConfigsRequest, broker: BrokerConfig) -> Decision[AlterConfigsResponse]:
    def replacement(wanted: AlterConfigsRequest.AlterConfigsResource, before: Mapping[str, str]) -> Values:
        given: Values = {each.name: each.value for each in wanted.configs}
        return given | {name: None for name in before if name not in given}

    wanted = [(Resource(each.resource_type, each.resource_name), partial(replacement, each)) for each in request.resources]
    records, outcomes = decide(image, wanted, broker)
    answer = AlterConfigsResponse.AlterConfigsResourceResponse
    responses = [
        answer(error_code=error, error_message=reason, resource_type=resource.type, resource_name=resource.name)
        for resource, error, reason in outcomes
    ]
    return Decision([] if request.validate_only else records, AlterConfigsResponse(responses=responses))


def decide(image: MetadataImage, wanted: Sequence[Wanted], broker: BrokerConfig) -> tuple[list[Versioned], list[Outcome]]:
    records: list[ConfigRecord] = []
    outcomes = []
    for resource, values_after in wanted:
        before = image.configs.get(resource, {})
        try:
            if resource.type not in ALTERABLE:
                raise Refused(ErrorCode.INVALID_REQUEST, f"there are no configurations of the type {resource.type}")
            records += altered_resource(image, resource, before, values_after(before), broker)
            outcomes.append(Outcome(resource, ErrorCode.NONE, None))
        except Refused as refusal:
            outcomes.append(Outcome(resource, refusal.code, refusal.message))
    if len(records) > RECORDS_MAX:
        reason = f"the request makes more than {RECORDS_MAX} changes; send several"
        return [], [Outcome(resource, ErrorCode.POLICY_VIOLATION, reason) for resource, _ in wanted]
    return [*((record, 0) for record in records), *forgotten_replicas(image, records)], outcomes


def altered_resource(
    image: MetadataImage, resource: Resource, before: Mapping[str, str], values: Values, broker: BrokerConfig
) -> list[ConfigRecord]:
    # A broker reads files again whose names did not change, so that its records are written in any case.
    changed = {name: value for name, value in values.items() if value != before.get(name) or resource.type == BROKER_RESOURCE}
    check_cluster(image, resource, changed)
    check_sizes(changed)
    try:
        check_resource(resource, merged(before, changed), before, broker)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    check_existence(image, resource)
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in changed.items()
    ]


def check_cluster(image: MetadataImage, resource: Resource, changed: Mapping[str, str | None]) -> None:
    """What depends on the features of the cluster."""
    if resource.type != BROKER_RESOURCE:
        return
    if MIN_INSYNC_REPLICAS in changed and image.features.get(ELR_VERSION, 0) > 0:
        if resource.name:
            reason = "with eligible leader replicas it is one for the whole cluster; set it for all brokers, or for a topic"
            raise Refused(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS}: {reason}")
        if changed[MIN_INSYNC_REPLICAS] is None:
            reason = "with eligible leader replicas the cluster needs one; set another instead of deleting it"
            raise Refused(ErrorCode.INVALID_CONFIG, f"{MIN_INSYNC_REPLICAS}: {reason}")
    if CORDONED_LOG_DIRS in changed and image.features.get(METADATA_VERSION, 0) < CORDONED_SINCE:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{CORDONED_LOG_DIRS}: the cluster's metadata.version is below {CORDONED_SINCE}")


def check_resource(resource: Resource, after: Mapping[str, str], before: Mapping[str, str], broker: BrokerConfig) -> None:
    type_, name = resource
    if not name and type_ != BROKER_RESOURCE:
        raise Refused(ErrorCode.INVALID_REQUEST, "a name must be given; what holds for all is set for the brokers")
    if type_ == TOPIC_RESOURCE:
        if fault := name_fault(name):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
        check_topic(broker, after, before)
    elif type_ == GROUP_RESOURCE:
        check_group(broker, after)
    elif type_ == CLIENT_METRICS_RESOURCE:
        check_client_metrics(name, after)
    elif name and broker_id(name) is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name!r} is no broker; name its id, or nothing for all of them")


def broker_id(name: str) -> int | None:
    """The id that a resource's name says; None when it says none."""
    if not name.lstrip("+").isdecimal() or not 0 <= int(name) <= INT32_MAX:
        return None
    return int(name)


def check_existence(image: MetadataImage, resource: Resource) -> None:
    if resource.type == TOPIC_RESOURCE and resource.name not in image.topics:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {resource.name} does not exist")
    if resource.type == BROKER_RESOURCE and resource.name:
        node = broker_id(resource.name)
        if node not in image.brokers and node not in image.controllers:
            raise Refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"the cluster has no node {resource.name}")


def forgotten_replicas(image: MetadataImage, records: Sequence[ConfigRecord]) -> list[Versioned]:
    if image.features.get(ELR_VERSION, 0) < 1:
        return []
    names = [
        record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
        for record in records
        if record.name == MIN_INSYNC_REPLICAS
    ]
    return [*((ClearElrRecord(topic_name=name), 0) for name in names), *last_hopes(image, {*names})]


def last_hopes(image: MetadataImage, topics: set[str]) -> list[Versioned]:
    """Where nobody is in the ISR, of these topics or of all (""), nobody ever would be again. One stays eligible, whom nobody can
    overtake meanwhile, and the last leader stays known."""
    versions, records = RecordVersions(image.features[METADATA_VERSION]), list[Versioned]()
    for topic_id, number in image.locations.leaders.get(NO_LEADER, ()):
        known = image.topics_by_id[topic_id]
        partition = known.partitions[number]
        if topics.isdisjoint(("", known.name)) or partition.isr or not (partition.elr or partition.last_known_elr):
            continue
        last = partition.last_known_elr
        eligible = [broker for broker in (*last, *partition.elr) if broker in partition.elr][:1]
        change = PartitionChangeRecord(
            topic_id=topic_id, partition_id=number, eligible_leader_replicas=eligible, last_known_elr=list(last)
        )
        records.append((change, versions.partition))
    return records

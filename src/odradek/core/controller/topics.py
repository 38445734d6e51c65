"""CreateTopics (2-7): which records make topics, and every reason why not.

v5 answers with the topic's configurations, v7 with its id.

Invariants
 1. A topic's records stand together: the topic, its configurations, its partitions.
 2. Every topic that was named is answered for, once.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from odradek.core.config.key import InvalidConfig
from odradek.core.controller.decision import RECORDS_MAX, Decision, Versioned
from odradek.core.controller.partitions import TOO_MANY, assigned_isr, check_assignment, new_partition, placed_isr
from odradek.core.controller.placement import Chance, Placement
from odradek.core.metadata.image import TOPIC_RESOURCE, MetadataImage
from odradek.core.metadata.topic_names import CLUSTER_METADATA, may_collide, name_fault, unified
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ConfigRecord, CreateTopicsRequest, CreateTopicsResponse, TopicRecord

CreatableTopic = CreateTopicsRequest.CreatableTopic
CreatableTopicResult = CreateTopicsResponse.CreatableTopicResult
CreatableTopicConfigs = CreateTopicsResponse.CreatableTopicConfigs


class TopicRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the creation of topics needs to know besides the metadata."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    check_configs: Callable[[str, dict[str, str]], None]  # InvalidConfig when a topic may not have them
    describe_configs: Callable[[dict[str, str]], list[CreatableTopicConfigs]]  # all of a topic's, by name
    chance: Chance
    unique_id: Callable[[], bytes]  # 16 bytes that nobody had before


def create_topics(image: MetadataImage, request: CreateTopicsRequest, rules: TopicRules) -> Decision[CreateTopicsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    wanted = [topic for topic in request.topics if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA]
    collisions = {unified(name): name for name in image.topics if may_collide(name)}
    is_too_large = sum(map(partition_count(rules), wanted)) > RECORDS_MAX
    records: list[Versioned] = []
    results = []
    for topic in wanted:
        try:
            if is_too_large:
                raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
            check_name(image, topic.name, collisions)
            configs = checked_configs(topic, rules)
            made, result = created(image, topic, configs, rules)
            records += made
        except Refused as refusal:
            result = refused(topic.name, refusal.code, refusal.message or None)
        results.append(result)
    for name, count in counts.items():
        if count > 1:
            results.append(refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == CLUSTER_METADATA:
            reason = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            results.append(refused(name, ErrorCode.INVALID_REQUEST, reason))
    return Decision([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def refused(name: str, error: ErrorCode, reason: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=reason, configs=[])


def partition_count(rules: TopicRules) -> Callable[[CreatableTopic], int]:
    def count(topic: CreatableTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return rules.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)

    return count


def check_name(image: MetadataImage, name: str, collisions: dict[str, str]) -> None:
    if name in image.topics:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if may_collide(name) and (other := collisions.get(unified(name))) is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    if fault := name_fault(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")


def checked_configs(topic: CreatableTopic, rules: TopicRules) -> dict[str, str]:
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        reason = f"Null value not supported for topic configs: {','.join(without_value)}"
        raise Refused(ErrorCode.INVALID_CONFIG, reason)
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    try:
        rules.check_configs(topic.name, configs)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return configs


def created(
    image: MetadataImage, topic: CreatableTopic, configs: dict[str, str], rules: TopicRules
) -> tuple[list[Versioned], CreatableTopicResult]:
    """The records of a new topic, and what its creator is told."""
    assignments = assigned(image, topic) if topic.assignments else placed(image, topic, rules)
    topic_id = new_topic_id(rules.unique_id)
    records: list[Versioned] = [(TopicRecord(name=topic.name, topic_id=topic_id), 0)]
    for name, value in configs.items():
        records.append((ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value), 0))
    records += [new_partition(image, topic_id, number, *pair) for number, pair in enumerate(assignments)]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0][0]),
        configs=rules.describe_configs(configs),
    )
    return records, result


def new_topic_id(unique_id: Callable[[], bytes]) -> bytes:
    """An id that no option parser takes for a flag: in base64 it does not begin with a minus."""
    while (topic_id := unique_id())[0] >> 2 == 0b111110:
        pass
    return topic_id


def assigned(image: MetadataImage, topic: CreatableTopic) -> list[tuple[list[int], list[int]]]:
    """Replicas and ISR of each partition, as the client wants them."""
    if topic.replication_factor != -1:
        reason = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, reason)
    if topic.num_partitions != -1:
        reason = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refused(ErrorCode.INVALID_REQUEST, reason)
    found: dict[int, tuple[list[int], list[int]]] = {}
    replication_factor = None
    for assignment in topic.assignments:
        number, replicas = assignment.partition_index, assignment.broker_ids
        if number in found:
            reason = f"Found multiple manual partition assignments for partition {number}"
            raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        check_assignment(image, replicas, replication_factor)
        replication_factor = len(replicas)
        found[number] = (replicas, assigned_isr(image, replicas, number))
    if sorted(found) != list(range(len(found))):
        reason = "partitions should be a consecutive 0-based integer sequence"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return [found[number] for number in range(len(found))]


def placed(image: MetadataImage, topic: CreatableTopic, rules: TopicRules) -> list[tuple[list[int], list[int]]]:
    """Replicas and ISR of each partition, where the client leaves it to us."""
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        reason = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        reason = "Number of partitions was set to an invalid non-positive value."
        raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
    replication_factor = topic.replication_factor
    if replication_factor == -1:
        replication_factor = rules.default_replication_factor
    placement = Placement(image.brokers.values(), rules.chance)
    try:
        placement.check(replication_factor)
    except Refused as refusal:
        reason = f"Unable to replicate the partition {replication_factor} time(s): {refusal.message}"
        raise Refused(refusal.code, reason) from refusal
    count = partition_count(rules)(topic)
    return [(replicas, placed_isr(image, replicas)) for replicas in (placement.next(replication_factor) for _ in range(count))]

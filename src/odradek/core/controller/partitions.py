"""New partitions: CreatePartitions (0-3), and what it shares with CreateTopics.

Invariants
 1. A new partition's leader is the first of its replicas that is active; all that are active are in the ISR.
 2. All partitions of a topic are created with the same number of replicas.
"""

from collections import Counter
from collections.abc import Sequence

from odradek.core.controller.decision import RECORDS_MAX, Decision, Versioned
from odradek.core.controller.placement import Chance, Placement
from odradek.core.metadata.features import METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Topic
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import CreatePartitionsRequest, CreatePartitionsResponse, PartitionRecord

TOO_MANY = "Excessively large number of partitions per request."


def check_assignment(image: MetadataImage, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Refuses what a client may not assign a partition to."""

    def refused(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}")

    if not replicas:
        raise refused("an empty replica list.")
    previous = None
    for broker in sorted(replicas):
        if broker not in image.brokers:
            raise refused(f"broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise refused(f"the broker {broker} more than once.")
        previous = broker
    if replication_factor is not None and len(replicas) != replication_factor:
        reason = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
            f"which have {replication_factor} replica(s)."
        )
        raise refused(reason)


def active_replicas(image: MetadataImage, replicas: Sequence[int]) -> list[int]:
    return [broker for broker in replicas if broker in image.brokers and image.brokers[broker].is_active]


def assigned_isr(image: MetadataImage, replicas: Sequence[int], partition: int) -> list[int]:
    """The first ISR of a partition that a client assigned."""
    isr = active_replicas(image, replicas)
    if not isr:
        reason = (
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return isr


def placed_isr(image: MetadataImage, replicas: Sequence[int]) -> list[int]:
    """The first ISR of a partition that was placed."""
    isr = active_replicas(image, replicas)
    if not isr:
        reason = (
            f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in controlled "
            "shutdown."
        )
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    return isr


def new_partition(image: MetadataImage, topic_id: bytes, number: int, replicas: Sequence[int], isr: Sequence[int]) -> Versioned:
    """The record of a partition that begins its life."""
    versions = RecordVersions(image.features[METADATA_VERSION])
    record = PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(image, broker) for broker in replicas] if versions.has_directories else [],
    )
    return record, versions.partition


def default_directory(image: MetadataImage, broker_id: int) -> bytes:
    """The folder that a broker will choose, where it has no choice."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED_DIRECTORY
    if not broker.log_dirs:
        return MIGRATING_DIRECTORY
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED_DIRECTORY


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, chance: Chance
) -> Decision[CreatePartitionsResponse]:
    """Partitions that are added to topics."""
    Result = CreatePartitionsResponse.CreatePartitionsTopicResult  # noqa: N806
    by_name = {topic.name: topic for topic in request.topics}
    counts = Counter(topic.name for topic in request.topics)
    duplicates = {name: None for name, count in counts.items() if count > 1}
    results = [
        Result(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.") for name in duplicates
    ]
    records: list[Versioned] = []
    for name, wanted in by_name.items():
        if name in duplicates:
            continue
        result = Result(name=name, error_message=None)
        try:
            added = added_partitions(image, wanted, chance)
            if len(records) + len(added) > RECORDS_MAX:
                raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
            records += added
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message or None
        results.append(result)
    return Decision([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def added_partitions(
    image: MetadataImage, wanted: CreatePartitionsRequest.CreatePartitionsTopic, chance: Chance
) -> list[Versioned]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    count = len(topic.partitions)
    check_count(topic, wanted)
    replication_factor = len(next(iter(topic.partitions.values())).replicas)
    records = []
    if wanted.assignments is not None:
        for number, assignment in enumerate(wanted.assignments, start=count):
            check_assignment(image, assignment.broker_ids, replication_factor)
            isr = assigned_isr(image, assignment.broker_ids, number)
            records.append(new_partition(image, topic.id, number, assignment.broker_ids, isr))
        return records
    placement = Placement(image.brokers.values(), chance)
    for number in range(count, wanted.count):
        replicas = placement.next(replication_factor)
        records.append(new_partition(image, topic.id, number, replicas, placed_isr(image, replicas)))
    return records


def check_count(topic: Topic, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> None:
    count = len(topic.partitions)
    if wanted.count == count:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.count < count:
        reason = f"The topic {topic.name} currently has {count} partition(s); {wanted.count} would not be an increase."
        raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
    added = wanted.count - count
    if added > RECORDS_MAX:
        raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
    if wanted.assignments is not None and len(wanted.assignments) != added:
        reason = (
            f"Attempted to add {added} additional partition(s), but only {len(wanted.assignments)} assignment(s) were specified."
        )
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

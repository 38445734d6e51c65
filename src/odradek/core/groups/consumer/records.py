"""The records of a consumer group, in the versions of Kafka 4.3."""

from typing import Final

from odradek.core.groups.assignors.members import Partitions
from odradek.core.groups.consumer.member import ConsumerMember, OwnedPartitions, StoredPartitions
from odradek.core.groups.records import NO_VALUE_VERSION
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

VERSION: Final = 0


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value, VERSION)


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None, NO_VALUE_VERSION)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Of the record that coordinators before 4.1 wrote instead of the hash."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None, NO_VALUE_VERSION)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = None
    if member.classic is not None:
        protocol = ConsumerGroupMemberMetadataValue.ClassicProtocol
        classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[protocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value, VERSION)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None, NO_VALUE_VERSION)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value, VERSION)


def target_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None, NO_VALUE_VERSION)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    topic = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[topic(topic_id=topic_id, partitions=sorted(found)) for topic_id, found in partitions.items()]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value, VERSION)


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None, NO_VALUE_VERSION)


def assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=stored(member.assigned),
        partitions_pending_revocation=stored(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value, VERSION)


def stored(partitions: OwnedPartitions) -> list[StoredPartitions]:
    rows = []
    for topic_id, found in partitions.items():
        numbers = sorted(found)
        rows.append(
            StoredPartitions(topic_id=topic_id, partitions=numbers, assignment_epochs=[found[number] for number in numbers])
        )
    return rows


def assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return CoordinatorRecord(key, None, NO_VALUE_VERSION)


def regex_record(group_id: str, regex: str, topics: frozenset[str], version: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value, VERSION)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return CoordinatorRecord(key, None, NO_VALUE_VERSION)


def removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member goes: first what it has, then what it should have, then itself."""
    return [
        assignment_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]

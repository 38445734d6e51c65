"""The group that a member of the new protocol joins: a consumer group, a new one, or a classic one that becomes a consumer group.

An empty classic group is deleted for it. One with members is converted while they work: its generation becomes the epoch, its
members are classic members of the consumer group from then on, and join as they did.

Invariants
 1. A conversion is one write: the classic group's tombstone, then all of the consumer group.
 2. Nobody loses a partition by it: what a member was assigned is its target, and is what it has.
"""

from odradek.core.coordinator.events import Turn
from odradek.core.groups.assignors.members import Partitions
from odradek.core.groups.classic.group import ClassicGroup
from odradek.core.groups.classic.member import ClassicMember
from odradek.core.groups.classic.rebalance import answer_sync, refuse_join
from odradek.core.groups.classic.rebalance import restart_session as restart_classic_session
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import ClassicMetadata, ConsumerMember
from odradek.core.groups.consumer.records import (
    assignment_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from odradek.core.groups.consumer.timers import cancel_timers, restart_session
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.log_records import decode_consumer_protocol
from odradek.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, SyncGroupResponse


def joined_group(shard: Shard, group_id: str, turn: Turn) -> Draft:
    group = shard.groups.get(group_id)
    if group is None:
        return Draft(ConsumerGroup(group_id), is_new=True)
    if isinstance(group, ConsumerGroup):
        return Draft(group)
    if not isinstance(group, ClassicGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is no consumer group.")
    draft = Draft(ConsumerGroup(group_id), is_new=True)
    draft.add(*group.tombstones())
    if not group.is_empty:
        check_upgrade(group, shard.config)
        convert(shard, group, draft, turn)
    return draft


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    reason = None
    if not config.is_upgrade_enabled:
        reason = "group.consumer.migration.policy does not allow it"
    elif not group.uses_consumer_protocol:
        reason = "its members are no consumers"
    elif len(group.members) > config.group_consumer_max_size:
        reason = "it has more members than group.consumer.max.size"
    if reason is not None:
        raise cannot_upgrade(group, reason)


def cannot_upgrade(group: ClassicGroup, reason: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Classic group {group.group_id} cannot become a consumer group: {reason}.")


def convert(shard: Shard, group: ClassicGroup, draft: Draft, turn: Turn) -> None:
    members: dict[str, ConsumerMember] = {}
    targets: dict[str, Partitions] = {}
    try:
        for found in group.members.values():
            partitions = assigned_partitions(group, found, shard.image)
            targets[found.member_id] = {topic_id: frozenset(numbers) for topic_id, numbers in partitions.items()}
            members[found.member_id] = converted_member(group, found, partitions)
    except ProtocolError:
        raise cannot_upgrade(group, "what a member said when it joined cannot be read") from None
    epoch, group_id = group.generation_id, group.group_id
    draft.add(*(member_record(group_id, member) for member in members.values()))
    draft.add(epoch_record(group_id, epoch, shard.metadata_hash(draft.group.subscribed_topics)))
    draft.add(*(target_record(group_id, member_id, target) for member_id, target in targets.items()))
    draft.add(target_epoch_record(group_id, epoch, 0))
    draft.add(*(assignment_record(group_id, member) for member in members.values()))
    for member in group.members.values():
        if member.needs_no_heartbeat:  # its session may have been let pass: it counts again, if the group stays a classic one
            restart_classic_session(group, member, turn)
        # who waits for the next generation is to join the converted group
        refuse_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, turn)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), turn)
        cancel_timers(group_id, member.member_id, turn)  # of a consumer group that this one was before
        restart_session(shard, group_id, members[member.member_id], turn)


def assigned_partitions(group: ClassicGroup, member: ClassicMember, image: MetadataImage) -> dict[bytes, dict[int, int]]:
    """What the leader gave it. What an assignor of its own adds to that would be lost."""
    if not member.assignment:
        return {}
    found = decode_consumer_protocol(ConsumerProtocolAssignment, member.assignment)
    if found.user_data:
        raise cannot_upgrade(group, "its assignor adds data of its own to assignments: use one of Kafka's assignors first")
    partitions = {}
    for topic in found.assigned_partitions:
        known = image.topics.get(topic.topic)
        numbers = [number for number in topic.partitions if known is not None and number in known.partitions]
        if known is not None and numbers:
            partitions[known.id] = dict.fromkeys(numbers, group.generation_id)
    return partitions


def converted_member(group: ClassicGroup, member: ClassicMember, partitions: dict[bytes, dict[int, int]]) -> ConsumerMember:
    subscription = decode_consumer_protocol(
        ConsumerProtocolSubscription, member.metadata(group.protocol_name or member.protocols[0][0])
    )
    return ConsumerMember(
        member_id=member.member_id,
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=partitions,
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols)),
    )

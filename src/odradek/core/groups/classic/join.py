"""JoinGroup to a classic group: who may come in, as whom, and whether that begins a rebalance. A consumer group takes it itself.

Invariants
 1. A dynamic member is let in only with an id that it was given (from version 4 on), so that a lost answer leaves no ghost.
 2. A static member that joins without an id takes the place of the one with its group instance id, and fences it.
 3. A rejoin in Stable begins a rebalance only for the leader, or with other protocols.
"""

from odradek.core.coordinator.events import Nothing, Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.member import ClassicMember, joining_member, protocols_of, rebalance_timeout_ms
from odradek.core.groups.classic.rebalance import (
    Records,
    answer_sync,
    generation_answer,
    prepare_rebalance,
    rebalance_or_complete_join,
    refuse_join,
    restart_session,
    session_timer,
)
from odradek.core.groups.classic.stored import GroupStored, StaticMemberStored
from odradek.core.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS
from odradek.core.groups.consumer.classic_members import join_consumer_group
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.records import group_record, new_group_record
from odradek.core.groups.refusals import join_refusal
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import JoinGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4  # KIP-394


def join_group(shard: Shard, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    config = shard.config
    if not message.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID, message.member_id, turn)
    if not config.group_min_session_timeout_ms <= message.session_timeout_ms <= config.group_max_session_timeout_ms:
        return refuse(request, ErrorCode.INVALID_SESSION_TIMEOUT, message.member_id, turn)
    found = shard.groups.get(message.group_id)
    if found is None:
        if message.member_id:
            return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, message.member_id, turn)
        return join_new_group(shard, request, message, turn)
    if isinstance(found, ConsumerGroup) and not found.is_empty:
        return join_consumer_group(shard, found, request, message, turn)
    if isinstance(found, ConsumerGroup):
        if message.member_id:
            return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID, message.member_id, turn)
        return join_new_group(shard, request, message, turn, found)
    if not isinstance(found, ClassicGroup):
        return refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "", turn)
    return join_classic_group(shard, found, request, message, turn)


def refuse(request: Request, error: ErrorCode, member_id: str, turn: Turn) -> None:
    turn.reply(request.ticket, join_refusal(request.version, error, member_id))


def join_new_group(
    shard: Shard, request: Request, message: JoinGroupRequest, turn: Turn, replaced: ConsumerGroup | None = None
) -> None:
    """The group exists from now on, and its record says so; the join goes on meanwhile. An empty consumer group gives way."""
    group = ClassicGroup(message.group_id, turn.now.wall_ms)
    shard.groups[group.group_id] = group
    records = [] if replaced is None else replaced.tombstones()
    records.append(new_group_record(group))
    join_classic_group(shard, group, request, message, turn)
    turn.write(records, GroupStored(shard, group, replaced))


def join_classic_group(shard: Shard, group: ClassicGroup, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    if not has_room(group, message.member_id, shard.config.group_max_size):
        group.remove(message.member_id)
        return refuse(request, ErrorCode.GROUP_MAX_SIZE_REACHED, "", turn)
    if not group.supports(message.protocol_type, protocols_of(message)):
        return refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message.member_id, turn)
    if message.member_id:
        return rejoin(shard, group, request, message, turn)
    name = request.client_id if message.group_instance_id is None else message.group_instance_id
    new_member_id = f"{name}-{shard.new_id()}"
    if message.group_instance_id in group.static_members:
        return replace_static_member(shard, group, request, message, new_member_id, turn)
    if message.group_instance_id is None and request.version >= MEMBER_ID_REQUIRED_FROM:
        group.pending_members[new_member_id] = None
        turn.set_timer(session_timer(group.group_id, new_member_id), message.session_timeout_ms)
        return refuse(request, ErrorCode.MEMBER_ID_REQUIRED, new_member_id, turn)
    return add_member(shard, group, request, message, new_member_id, turn)


def has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """In a rebalance those who joined first stay: the group may be larger than a limit that was lowered."""
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        return (member is not None and member.waiting_join is not None) or group.waiting_joins < size_max
    return group.is_empty or member is not None or len(group.members) < size_max


def add_member(
    shard: Shard, group: ClassicGroup, request: Request, message: JoinGroupRequest, member_id: str, turn: Turn
) -> None:
    if not group.members:
        group.protocol_type = message.protocol_type
    member = joining_member(request, member_id)
    member.is_new = True
    if group.is_in_initial_rebalance:
        group.has_new_member = True
    group.add(member)
    group.park_join(member, request)
    turn.set_timer(session_timer(group.group_id, member_id), NEW_MEMBER_JOIN_TIMEOUT_MS)
    write(rebalance_or_complete_join(shard, group, turn), turn)


def rejoin(shard: Shard, group: ClassicGroup, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    member_id = message.member_id
    if member_id in group.pending_members and message.group_instance_id is None:
        return add_member(shard, group, request, message, member_id, turn)
    error = group.check_member(member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return refuse(request, error, member_id, turn)
    member = group.members[member_id]
    is_changed = member.protocols != protocols_of(message)
    is_leader_in_stable = group.state is State.STABLE and member_id == group.leader_id
    if group.state is State.PREPARING_REBALANCE or is_changed or is_leader_in_stable:
        update_member(group, member, request, message, turn)
        return write(rebalance_or_complete_join(shard, group, turn), turn)
    # it may have missed the answer: tell it again which generation it is in
    answer = generation_answer(group, member, request)
    turn.reply(request.ticket, answer)
    return None


def update_member(group: ClassicGroup, member: ClassicMember, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    """The member joins again, perhaps with other words. An older join of it that still waits is given up."""
    refuse_join(group, member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, turn)
    group.set_protocols(member, protocols_of(message))
    member.rebalance_timeout_ms = rebalance_timeout_ms(message, request.version)
    member.session_timeout_ms = message.session_timeout_ms
    group.park_join(member, request)


def replace_static_member(
    shard: Shard, group: ClassicGroup, request: Request, message: JoinGroupRequest, new_id: str, turn: Turn
) -> None:
    assert message.group_instance_id is not None
    old_id = group.static_members[message.group_instance_id]
    old_leader_id = group.leader_id
    old_member = group.members[old_id]
    old = (old_member.protocols, old_member.rebalance_timeout_ms, old_member.session_timeout_ms)
    refuse_join(group, old_member, ErrorCode.FENCED_INSTANCE_ID, old_id, turn)
    answer_sync(old_member, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID), turn)
    member = group.replace_static(old_id, new_id)
    turn.cancel_timer(session_timer(group.group_id, old_id))
    restart_session(group, member, turn)
    update_member(group, member, request, message, turn)
    if group.state is State.STABLE and group.protocol_name == group.elected_protocol():
        # nothing changes for the others: the new id is stored, and the member goes on with the old one's assignment
        group.subscribed_topics = group.find_subscribed_topics()
        assignments = {found.member_id: found.assignment for found in group.members.values()}
        stored = StaticMemberStored(group, member, request, old_id, old_leader_id, old)
        return turn.write([group_record(group, assignments)], stored)
    if group.state is State.COMPLETING_REBALANCE:
        # the leader knows the old id, and would assign to nobody
        return write(prepare_rebalance(shard, group, turn), turn)
    return write(rebalance_or_complete_join(shard, group, turn), turn)


def write(records: Records, turn: Turn) -> None:
    if records:
        turn.write(records, Nothing())

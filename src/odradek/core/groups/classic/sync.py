"""SyncGroup and Heartbeat: how the members of a generation get their assignment, and say that they live.

Invariants
 1. Only a member of the current generation is answered with an assignment.
 2. The assignment that members get is the one that is committed.
"""

from odradek.core.coordinator.events import Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.rebalance import answer_sync, restart_session, sync_timer
from odradek.core.groups.classic.stored import AssignmentStored, sync_answer
from odradek.core.groups.consumer.classic_members import beat_in_consumer_group, sync_consumer_group
from odradek.core.groups.records import group_record
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest, SyncGroupResponse


def sync_group(shard: Shard, request: Request, message: SyncGroupRequest, turn: Turn) -> None:
    consumer = shard.consumer(message.group_id)
    if consumer is not None:
        return sync_consumer_group(shard, consumer, request, message, turn)
    group = shard.classic(message.group_id)
    error = check_sync(group, message)
    if group is None or error is not ErrorCode.NONE:
        return turn.reply(request.ticket, SyncGroupResponse(error_code=error))
    member = group.members[message.member_id]
    member.is_sync_pending = False
    if not any(found.is_sync_pending for found in group.members.values()):
        turn.cancel_timer(sync_timer(group.group_id))
    if group.state is State.STABLE:
        return turn.reply(request.ticket, sync_answer(group, member))
    # a sync that was sent twice: the first is given up
    answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), turn)
    member.waiting_sync = request
    if member.member_id == group.leader_id:
        given = {assigned.member_id: assigned.assignment for assigned in message.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        turn.write([group_record(group, assignments)], AssignmentStored(shard, group, assignments))
    return None


def check_sync(group: ClassicGroup | None, message: SyncGroupRequest) -> ErrorCode:
    if not message.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(message.member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if message.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if differ(message.protocol_type, group.protocol_type) or differ(message.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE


def differ(said: str | None, known: str | None) -> bool:
    """Both are known, and are not the same."""
    return said is not None and known is not None and said != known


def heartbeat(shard: Shard, request: Request, message: HeartbeatRequest, turn: Turn) -> None:
    consumer = shard.consumer(message.group_id)
    if consumer is not None:
        return beat_in_consumer_group(shard, consumer, request, message, turn)
    group = shard.classic(message.group_id)
    error = check_heartbeat(group, message)
    if group is not None and error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        restart_session(group, group.members[message.member_id], turn)
    return turn.reply(request.ticket, HeartbeatResponse(error_code=error))


def check_heartbeat(group: ClassicGroup | None, message: HeartbeatRequest) -> ErrorCode:
    if not message.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(message.member_id, message.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if message.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

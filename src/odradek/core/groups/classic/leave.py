"""LeaveGroup: members that go, and static ones that an administrator removes by their group instance ids.

Invariants
 1. Each named member gets its own answer; those that could leave have left.
 2. However many leave, one rebalance begins.
"""

from odradek.core.coordinator.events import Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.rebalance import maybe_complete_join, prepare_rebalance, remove_member
from odradek.core.groups.consumer.classic_members import leave_answer, leave_consumer_group
from odradek.core.groups.refusals import SEVERAL_MEMBERS_FROM
from odradek.core.groups.sequels import Answer
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.messages import LeaveGroupRequest, LeaveGroupResponse


def leave_group(shard: Shard, request: Request, message: LeaveGroupRequest, turn: Turn) -> None:
    if not message.group_id:
        return turn.reply(request.ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
    members = leaving_members(message, request.version)
    consumer = shard.consumer(message.group_id)
    if consumer is not None:
        return leave_consumer_group(shard, consumer, request, members, turn)
    group = shard.classic(message.group_id)
    answers = [
        LeaveGroupResponse.MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else leave(group, member, turn),
        )
        for member in members
    ]
    response = leave_answer(answers, request.version)
    records: list[CoordinatorRecord] = []
    if group is not None and any(answer.error_code == ErrorCode.NONE for answer in answers):
        records = after_leaving(shard, group, turn)
    if records:
        return turn.write(records, Answer(request, response))
    return turn.reply(request.ticket, response)


def leaving_members(message: LeaveGroupRequest, version: int) -> list[LeaveGroupRequest.MemberIdentity]:
    if version < SEVERAL_MEMBERS_FROM:
        return [LeaveGroupRequest.MemberIdentity(member_id=message.member_id)]
    return message.members


def leave(group: ClassicGroup, member: LeaveGroupRequest.MemberIdentity, turn: Turn) -> ErrorCode:
    member_id = member.member_id
    if not member_id:
        # an administrator names no member id
        static_id = None if member.group_instance_id is None else group.static_members.get(member.group_instance_id)
        if static_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = static_id
    elif member_id not in group.pending_members:
        error = group.check_member(member_id, member.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    remove_member(group, member_id, turn)
    return ErrorCode.NONE


def after_leaving(shard: Shard, group: ClassicGroup, turn: Turn) -> list[CoordinatorRecord]:
    if group.state is State.PREPARING_REBALANCE:
        return maybe_complete_join(group, turn)
    return [] if group.is_empty else prepare_rebalance(shard, group, turn)

"""How a classic group goes from one generation to the next.

A rebalance begins (`prepare_rebalance`), members join until all have or the time is over (`complete_join`), then the leader's
assignment is awaited; who does not sync in time is removed, which begins the next rebalance. The first rebalance of a group
waits a little for more members, and a little longer while they come.

The functions that can empty a group give the record of its empty generation, for their caller to write with its answer.

Invariants
 1. A join that waits is answered when its generation begins, or when its member goes.
 2. A sync that waits is answered when the assignment is committed, or when a rebalance begins.
 3. Every member has a session timer.
"""

from odradek.core.coordinator.events import Request, TimerKey, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.member import ClassicMember
from odradek.core.groups.records import group_record
from odradek.core.groups.refusals import join_answer, join_refusal
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.messages import JoinGroupResponse, SyncGroupResponse

Records = list[CoordinatorRecord]


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return ("classic-session", group_id, member_id)


def join_timer(group_id: str) -> TimerKey:
    return ("classic-join", group_id)


def sync_timer(group_id: str) -> TimerKey:
    return ("classic-sync", group_id)


def restart_session(group: ClassicGroup, member: ClassicMember, turn: Turn) -> None:
    turn.set_timer(session_timer(group.group_id, member.member_id), member.session_timeout_ms)


# A member goes


def refuse_join(group: ClassicGroup, member: ClassicMember, error: ErrorCode, member_id: str, turn: Turn) -> None:
    request = group.take_join(member)
    if request is not None:
        turn.reply(request.ticket, join_refusal(request.version, error, member_id))


def answer_sync(member: ClassicMember, response: SyncGroupResponse, turn: Turn) -> bool:
    request, member.waiting_sync = member.waiting_sync, None
    if request is not None:
        turn.reply(request.ticket, response)
    return request is not None


def remove_member(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """Forgets a member or one that is pending, answers what waits, stops its timer."""
    member = group.members.get(member_id)
    if member is not None:
        refuse_join(group, member, ErrorCode.UNKNOWN_MEMBER_ID, "", turn)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), turn)
    group.remove(member_id)
    turn.cancel_timer(session_timer(group.group_id, member_id))


# The join phase


def rebalance_or_complete_join(shard: Shard, group: ClassicGroup, turn: Turn) -> Records:
    """Something about the members has changed."""
    if group.state is State.PREPARING_REBALANCE:
        return maybe_complete_join(group, turn)
    return prepare_rebalance(shard, group, turn)


def prepare_rebalance(shard: Shard, group: ClassicGroup, turn: Turn) -> Records:
    if group.state is State.COMPLETING_REBALANCE:
        reset_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    clear_pending_syncs(group, turn)
    is_initial = group.state is State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, turn.now.wall_ms)
    if is_initial:
        group.has_new_member = False
        group.initial_delay_ms = shard.config.group_initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        turn.set_timer(join_timer(group.group_id), group.initial_delay_ms)
        return []
    if group.have_all_joined:
        return complete_join(group, turn)
    turn.set_timer(join_timer(group.group_id), group.rebalance_timeout_ms)
    return []


def maybe_complete_join(group: ClassicGroup, turn: Turn) -> Records:
    """Completes the join phase if all are there; the first one always waits for its time."""
    if group.is_in_initial_rebalance or not group.have_all_joined:
        return []
    return complete_join(group, turn)


def end_join_phase(shard: Shard, group: ClassicGroup, turn: Turn) -> Records:
    """The time for joining is over; the first rebalance takes some more while members come."""
    if not (group.is_in_initial_rebalance and group.has_new_member and group.initial_remaining_ms):
        return complete_join(group, turn)
    group.has_new_member = False
    delay_ms = min(shard.config.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
    group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
    group.initial_delay_ms = delay_ms
    turn.set_timer(join_timer(group.group_id), delay_ms)
    return []


def complete_join(group: ClassicGroup, turn: Turn) -> Records:
    """The next generation begins with those who have joined, and with the static members, who may be restarting."""
    turn.cancel_timer(join_timer(group.group_id))
    for member in list(group.members.values()):
        if member.waiting_join is None and not member.is_static:
            remove_member(group, member.member_id, turn)
    if group.members and not group.elect_joined_leader():
        # nobody is there to assign: wait until somebody joins, or until the sessions of all have expired
        turn.set_timer(join_timer(group.group_id), group.rebalance_timeout_ms)
        return []
    group.next_generation(turn.now.wall_ms)
    if group.state is State.EMPTY:
        return [group_record(group, {})]
    for member in group.members.values():
        request = group.take_join(member)
        if request is not None:
            turn.reply(request.ticket, generation_answer(group, member, request))
        restart_session(group, member, turn)
        member.is_new = False
        member.is_sync_pending = True
    turn.set_timer(sync_timer(group.group_id), group.rebalance_timeout_ms)
    return []


def generation_answer(group: ClassicGroup, member: ClassicMember, request: Request) -> JoinGroupResponse:
    """Which generation the member is in; its leader learns all members, to assign."""
    described: list[JoinGroupResponse.JoinGroupResponseMember] = []
    if member.member_id == group.leader_id:
        protocol = group.protocol_name or ""
        described = [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=found.member_id, group_instance_id=found.group_instance_id, metadata=found.metadata(protocol)
            )
            for found in group.members.values()
        ]
    return join_answer(
        request.version,
        JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=described,
        ),
    )


# The sync phase


def clear_pending_syncs(group: ClassicGroup, turn: Turn) -> None:
    for member in group.members.values():
        member.is_sync_pending = False
    turn.cancel_timer(sync_timer(group.group_id))


def reset_assignment(group: ClassicGroup, error: ErrorCode, turn: Turn) -> None:
    """The generation gets no assignment: those who wait for one are to join again."""
    assert group.state is State.COMPLETING_REBALANCE
    for member in group.members.values():
        member.assignment = b""
        if answer_sync(member, SyncGroupResponse(error_code=error), turn):
            restart_session(group, member, turn)


def end_sync_phase(shard: Shard, group: ClassicGroup, turn: Turn) -> Records:
    """The time for syncing is over: who has not is removed."""
    late = [member.member_id for member in group.members.values() if member.is_sync_pending]
    if not late or group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
        return []
    for member_id in late:
        remove_member(group, member_id, turn)
    return prepare_rebalance(shard, group, turn)


# Sessions


def expire_session(shard: Shard, group: ClassicGroup, member_id: str, turn: Turn) -> Records:
    """A member was not heard of for too long, or one that got an id did not come back with it."""
    member = group.members.get(member_id)
    if member is not None and member.needs_no_heartbeat:
        return []
    if member is None and member_id not in group.pending_members:
        return []
    remove_member(group, member_id, turn)
    if group.state is State.PREPARING_REBALANCE:
        return complete_join(group, turn) if group.have_all_joined else []
    return [] if member is None else prepare_rebalance(shard, group, turn)

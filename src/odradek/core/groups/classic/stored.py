"""What follows when a classic group's record is committed, or could not be written.

The group has gone on meanwhile: each first looks whether what it waited for is still of interest.

Invariants
 1. A group becomes Stable only when its assignment is committed: no member works on one that could be lost.
"""

from odradek.core.coordinator.events import Nothing, Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.member import ClassicMember
from odradek.core.groups.classic.rebalance import (
    answer_sync,
    generation_answer,
    join_timer,
    prepare_rebalance,
    reset_assignment,
    restart_session,
    session_timer,
)
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.refusals import coordinator_error, join_answer, join_refusal
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import JoinGroupResponse, SyncGroupResponse

SKIP_ASSIGNMENT_FROM = 9  # KIP-814


class GroupStored:
    """The record of a new group, which holds nobody up."""

    __slots__ = ("group", "replaced", "shard")

    def __init__(self, shard: Shard, group: ClassicGroup, replaced: ConsumerGroup | None) -> None:
        self.shard = shard
        self.group = group
        self.replaced = replaced  # an empty group that gave way to it

    def committed(self, turn: Turn) -> None: ...

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        """Without its record the group would be gone after a failover, and with it who joins: it does not come to be."""
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return  # it is in the log
        group = self.group
        if self.shard.groups.get(group.group_id) is not group or group.generation_id:
            return
        for member in group.members.values():
            request = group.take_join(member)
            if request is not None:
                turn.reply(request.ticket, join_refusal(request.version, coordinator_error(error)))
        for member_id in (*group.members, *group.pending_members):
            turn.cancel_timer(session_timer(group.group_id, member_id))
        turn.cancel_timer(join_timer(group.group_id))
        group.move_to(State.DEAD, turn.now.wall_ms)
        if self.replaced is None:
            del self.shard.groups[group.group_id]
        else:
            self.shard.groups[group.group_id] = self.replaced


class AssignmentStored:
    """The leader's assignment: all who wait for theirs get it."""

    __slots__ = ("assignments", "generation_id", "group", "shard")

    def __init__(self, shard: Shard, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        self.shard = shard
        self.group = group
        self.generation_id = group.generation_id
        self.assignments = assignments

    @property
    def is_awaited(self) -> bool:
        return self.group.state is State.COMPLETING_REBALANCE and self.group.generation_id == self.generation_id

    def committed(self, turn: Turn) -> None:
        if not self.is_awaited:
            return
        group = self.group
        for member in group.members.values():
            member.assignment = self.assignments.get(member.member_id, b"")
            if answer_sync(member, sync_answer(group, member), turn):
                # a session that ended while it waited was let pass, and nothing else would begin the next
                restart_session(group, member, turn)
        group.move_to(State.STABLE, turn.now.wall_ms)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        if not self.is_awaited:
            return
        reset_assignment(self.group, coordinator_error(error), turn)
        records = prepare_rebalance(self.shard, self.group, turn)
        if records:
            turn.write(records, Nothing())


def sync_answer(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment)


class StaticMemberStored:
    """The new id of a static member that came back to a stable group."""

    __slots__ = ("group", "member", "old", "old_id", "old_leader_id", "request")

    def __init__(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: Request,
        old_id: str,
        old_leader_id: str | None,
        old: tuple[list[tuple[str, bytes]], int, int],
    ) -> None:
        self.group = group
        self.member = member
        self.request = request
        self.old_id = old_id
        self.old_leader_id = old_leader_id
        self.old = old  # protocols, rebalance and session timeout of the replaced member

    @property
    def is_awaited(self) -> bool:
        """A rebalance that began meanwhile answers the join instead."""
        return self.group.state is State.STABLE and self.member.waiting_join is self.request

    def committed(self, turn: Turn) -> None:
        if not self.is_awaited:
            return
        group, member = self.group, self.member
        group.take_join(member)
        restart_session(group, member, turn)
        response = generation_answer(group, member, self.request)
        if self.request.version >= SKIP_ASSIGNMENT_FROM:
            response.skip_assignment = member.member_id == group.leader_id
        else:
            # who does not know its own id as the leader's does not assign: a stable group would not take it
            response.leader = self.old_leader_id or ""
            response.members = []
        turn.reply(self.request.ticket, response)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        """The new member may try again. If the log does not have it, the old one goes on."""
        if not self.is_awaited:
            return
        group, member = self.group, self.member
        group.take_join(member)
        if error is not ErrorCode.REQUEST_TIMED_OUT:
            protocols, member.rebalance_timeout_ms, member.session_timeout_ms = self.old
            group.set_protocols(member, protocols)
            group.subscribed_topics = group.find_subscribed_topics()
            turn.cancel_timer(session_timer(group.group_id, member.member_id))
            group.replace_static(member.member_id, self.old_id)
        restart_session(group, member, turn)
        refused = JoinGroupResponse(
            error_code=coordinator_error(error),
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=self.old_leader_id or "",
        )
        turn.reply(self.request.ticket, join_answer(self.request.version, refused))

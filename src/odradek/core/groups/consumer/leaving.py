"""How members leave a consumer group: by themselves, because they were not heard of, or because they do not give up partitions.

A static member may leave for a while: it keeps what it has until its session is over, for the one that comes back in its place.

Invariants
 1. Who goes gives up all it had, and the group's epoch rises.
 2. Where only classic members are left, the group becomes a classic one (group.consumer.migration.policy).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from odradek.core.coordinator.events import Request, Sequel, Turn
from odradek.core.groups.consumer.downgrade import can_downgrade, downgrade
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import STATIC_LEAVE_EPOCH, ConsumerMember
from odradek.core.groups.consumer.records import assignment_record, epoch_record, removal
from odradek.core.groups.consumer.regexes import forgotten_regexes
from odradek.core.groups.consumer.timers import cancel_timers, rebalance_timer, restart_session
from odradek.core.groups.sequels import Answer, Followed
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def leave(shard: Shard, request: Request, message: ConsumerGroupHeartbeatRequest, turn: Turn) -> None:
    group = shard.consumer(message.group_id)
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {message.group_id}.")
    member = leaving_member(group, message.member_id, message.instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=message.member_epoch)
    if message.member_epoch == STATIC_LEAVE_EPOCH:
        away = replace(member, epoch=STATIC_LEAVE_EPOCH, revoking={})
        turn.cancel_timer(rebalance_timer(group.group_id, member.member_id))
        turn.write([assignment_record(group.group_id, away)], Answer(request, response))
    else:
        remove_members(shard, group, [member], Answer(request, response), turn)


def leaving_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, may_be_unnamed: bool = False
) -> ConsumerMember:
    """An administrator knows only the instance id of whom it removes."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in group {group.group_id}.")
        return member
    member = group.members.get(group.static_members.get(instance_id, ""))
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id and not (may_be_unnamed and not member_id):
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} was replaced: its instance id {instance_id} belongs to member {member.member_id}.",
        )
    return member


def remove_members(shard: Shard, group: ConsumerGroup, members: Sequence[ConsumerMember], sequel: Sequel, turn: Turn) -> None:
    draft = Draft(group)
    if can_downgrade(shard, group, leaving=members):
        return downgrade(shard, draft, sequel, turn, leaving=members, is_rebalancing=True)
    for member in members:
        draft.add(*removal(group.group_id, member.member_id))
    forgotten_regexes(draft)
    found_hash = shard.metadata_hash(draft.group.subscribed_topics)
    draft.add(epoch_record(group.group_id, group.epoch + 1, found_hash))
    return turn.write(draft.records, Removed(shard, group.group_id, members, sequel))


class Removed(Followed):
    """Members are gone, and so are their timers; or they are still there, and their sessions begin anew."""

    __slots__ = ("group_id", "members", "shard")

    def __init__(self, shard: Shard, group_id: str, members: Sequence[ConsumerMember], sequel: Sequel) -> None:
        super().__init__(sequel)
        self.shard = shard
        self.group_id = group_id
        self.members = members

    def committed(self, turn: Turn) -> None:
        self._care_for_timers(turn)
        super().committed(turn)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        self._care_for_timers(turn)
        super().failed(error, turn)

    def _care_for_timers(self, turn: Turn) -> None:
        group = self.shard.consumer(self.group_id)
        for member in self.members:
            found = None if group is None else group.members.get(member.member_id)
            if found is None:
                cancel_timers(self.group_id, member.member_id, turn)
            elif found is member:
                restart_session(self.shard, self.group_id, member, turn)

"""A classic group: its members, its generation, and which state may follow which. rebalance, join, sync and leave move it.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance -> ... -> Empty -> Dead
    a first member joins   all have joined   the leader's assignment is committed   somebody comes, goes or changes

Invariants
 1. Each state follows only those in `PREVIOUS`.
 2. Every member supports some protocol that all members support.
 3. `protocol_counts` and `waiting_joins` count what the members have.
 4. The leader is a member, and there is one while there are members.
 5. Only PreparingRebalance has members whose join waits, but for a static one that is being replaced in Stable.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from odradek.core.groups.classic.member import ClassicMember, stored_member
from odradek.core.groups.group import GroupType
from odradek.core.groups.offsets import CommittedOffset
from odradek.core.groups.records import group_tombstone
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.log_records import VERSION, CoordinatorRecord
from odradek.wire.messages import ConsumerProtocolSubscription, GroupMetadataValue

if TYPE_CHECKING:
    from odradek.core.coordinator.events import Request

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_TIMESTAMP: Final = -1


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
    State.PREPARING_REBALANCE: frozenset({State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
    State.DEAD: frozenset(State),
}


class ClassicGroup:
    """One group of the classic protocol, or one that only keeps offsets (no protocol type, never a member)."""

    __slots__ = (
        "generation_id",
        "group_id",
        "has_new_member",
        "initial_delay_ms",
        "initial_remaining_ms",
        "leader_id",
        "members",
        "pending_members",
        "previous_state",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "waiting_joins",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_timestamp_ms = state_timestamp_ms  # on the wall clock; NO_TIMESTAMP in groups of old records
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}  # in the order in which they came
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending_members: dict[str, None] = {}  # ids that were given out, whose owners have not come back
        self.protocol_counts: dict[str, int] = {}  # how many members support each
        self.waiting_joins = 0
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.has_new_member = False  # somebody came while the first rebalance is delayed
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_simple(self) -> bool:
        """It is there because somebody committed offsets, and no record of it is."""
        return self.protocol_type is None and self.is_empty and not self.pending_members

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_in_initial_rebalance(self) -> bool:
        return self.state is State.PREPARING_REBALANCE and self.previous_state is State.EMPTY

    @property
    def have_all_joined(self) -> bool:
        return len(self.members) == self.waiting_joins and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def move_to(self, state: State, wall_ms: int) -> None:
        assert self.state in PREVIOUS[state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    # Members

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.waiting_joins += member.waiting_join is not None
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Forgets a member, or one that never came. A join of it that waits must have been answered."""
        self.pending_members.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.waiting_join is None
        self._count_protocols(member, -1)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """The static member has a new id; it stands in the old one's place."""
        member = self.members[old_id]
        assert member.waiting_join is None
        assert member.waiting_sync is None
        assert member.group_instance_id is not None
        member.member_id = new_id
        member.is_new = False
        self.members = {found.member_id: found for found in self.members.values()}
        self.static_members[member.group_instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def set_protocols(self, member: ClassicMember, protocols: list[tuple[str, bytes]]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def park_join(self, member: ClassicMember, request: "Request") -> None:
        assert member.waiting_join is None
        member.waiting_join = request
        self.waiting_joins += 1

    def take_join(self, member: ClassicMember) -> "Request | None":
        """The join that waits, which is now to be answered."""
        request, member.waiting_join = member.waiting_join, None
        self.waiting_joins -= request is not None
        return request

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one who has joined; False when nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].waiting_join is None:
            joined = (member.member_id for member in self.members.values() if member.waiting_join is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if group_instance_id is not None:
            current_id = self.static_members.get(group_instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Protocols

    def supports(self, protocol_type: str, protocols: list[tuple[str, bytes]]) -> bool:
        """Whether somebody with these may join."""
        if self.is_empty:
            return bool(protocol_type and protocols)
        common = (name for name, _ in protocols if self.protocol_counts.get(name, 0) == len(self.members))
        return self.protocol_type == protocol_type and next(common, None) is not None

    def elected_protocol(self) -> str:
        """Of the protocols that all support, the one that most like best."""
        candidates = {name for name, count in self.protocol_counts.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _count_protocols(self, member: ClassicMember, count: int) -> None:
        for name in {name: None for name, _ in member.protocols}:
            counted = self.protocol_counts.get(name, 0) + count
            if counted:
                self.protocol_counts[name] = counted
            else:
                del self.protocol_counts[name]

    def next_generation(self, wall_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.elected_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, wall_ms)

    def find_subscribed_topics(self) -> frozenset[str] | None:
        """What the members' subscriptions say; None when they are no consumers, or cannot be read."""
        if not self.uses_consumer_protocol or (self.members and self.protocol_name is None):
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:  # all versions begin like version 0
                subscription = member.metadata(self.protocol_name or "")
                topics.update(ConsumerProtocolSubscription.decode_head(subscription, 0, VERSION.size)[0].topics)
            except ProtocolError:
                return None
        return frozenset(topics)

    # What others ask

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, is_transactional: bool, version: int
    ) -> ErrorCode:
        del version  # other types of groups answer old clients otherwise
        if generation_id < 0 and self.is_empty:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns itself
        if generation_id >= 0 or member_id or group_instance_id is not None:
            error = self.check_member(member_id, group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation_id != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional and not self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_partition_commit(self, member_id: str, generation_id: int, topic_id: bytes, partition: int) -> ErrorCode:
        del member_id, generation_id, topic_id, partition  # who may commit may commit what it likes
        return ErrorCode.NONE

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        del member_id, member_epoch  # members of classic groups do not say who they are
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty or self.uses_consumer_protocol else ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return self.uses_consumer_protocol if self.subscribed_topics is None else topic in self.subscribed_topics

    def retention_start_ms(self, offset: CommittedOffset) -> int | None:
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.is_empty:
            return offset.commit_timestamp_ms if self.state_timestamp_ms == NO_TIMESTAMP else self.state_timestamp_ms
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is State.STABLE:
            return offset.commit_timestamp_ms
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        return [group_tombstone(self.group_id)]


def stored_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group that a record has."""
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for member in value.members:
        group.add(stored_member(value.protocol, member))
    if value.leader in group.members:
        group.leader_id = value.leader
    if group.members:
        group.state = State.STABLE
    group.subscribed_topics = group.find_subscribed_topics()
    return group

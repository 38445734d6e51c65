"""A consumer group (KIP-848): its epoch, its members, what each should have, and what each has.

The coordinator assigns: it raises the group's epoch when something changes, computes a target for that epoch, and moves each
member to it, one heartbeat at a time. A partition is given to a member only when nobody else owns it any more.

    Empty        no members
    Assigning    the epoch is ahead of the target
    Reconciling  some member is not where the target says
    Stable       all are

Invariants
 1. `replay` is the only thing that changes a group, but for `refreshed_epoch`, which is no part of it.
 2. `owners` has every partition that a member has, or is to give up and may still own.
 3. `static_members` has the member of each instance id.
"""

from enum import StrEnum
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.core.groups.assignors.members import NO_PARTITIONS, Partitions
from odradek.core.groups.consumer.member import LEAVE_EPOCH, ConsumerMember, MemberState
from odradek.core.groups.consumer.records import (
    assignment_tombstone,
    epoch_tombstone,
    member_tombstone,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_tombstone,
    target_tombstone,
)
from odradek.core.groups.group import GroupType
from odradek.core.groups.offsets import CommittedOffset
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import Message
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

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
MEMBER_EPOCHS_FROM: Final = 9  # the version of OffsetCommit that has them
NO_TARGET: Final = -1

CONSUMER_KEYS: Final = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
CACHED: Final = ("subscribed_topics", "regex_counts")


class State(StrEnum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ResolvedRegex(Struct, frozen=True):
    """Which topics a regular expression stood for, in which version of the metadata, and when."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0  # when the target was computed
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.target: dict[str, Partitions] = {}  # by member id
        self.owners: dict[tuple[bytes, int], str] = {}  # by topic id and partition
        self.regexes: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False  # a record of coordinators before 4.1, to be deleted
        self.refreshed_epoch: int | None = None  # the epoch with the hash of the topics as they are; None: it is to be looked at

    def copy(self) -> "ConsumerGroup":
        """A group that goes its own way from here on."""
        made = ConsumerGroup(self.group_id)
        made.__dict__.update(self.__dict__)
        for name in ("members", "static_members", "target", "owners", "regexes"):
            setattr(made, name, getattr(self, name).copy())
        return made

    # What a record says

    def replay(self, key: Message, value: Message | None) -> None:
        match key:
            case ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_assignment(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._replay_target(key.member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_epoch = NO_TARGET if value is None else value.assignment_epoch
                self.target_timestamp_ms = 0 if value is None else value.assignment_timestamp
            case ConsumerGroupMetadataKey():
                assert isinstance(value, ConsumerGroupMetadataValue)  # a tombstone ends the group, which the shard does
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupRegularExpressionKey():
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                self._replay_regex(key.regular_expression, value)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None

    def _replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            return self._put(member, (member or ConsumerMember(member_id=member_id)).with_metadata(value))
        if member is not None:
            self._disown(member)
            del self.members[member_id]
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]
            self._forget()
        return None

    def _replay_assignment(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self._put(member, (member or ConsumerMember(member_id=member_id)).with_assignment(value))
        elif member is not None:
            self._put(member, replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}))

    def _put(self, old: ConsumerMember | None, new: ConsumerMember) -> None:
        if old is not None:
            self._disown(old)
        for topics in (new.assigned, new.revoking):
            for topic_id, partitions in topics.items():
                for partition in partitions:
                    self.owners[topic_id, partition] = new.member_id
        self.members[new.member_id] = new
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        if old is None or (old.topics, old.regex) != (new.topics, new.regex):
            self._forget()

    def _disown(self, member: ConsumerMember) -> None:
        for topics in (member.assigned, member.revoking):
            for topic_id, partitions in topics.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    def _replay_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions if topic.partitions
            }

    def _replay_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        self._forget()

    def _forget(self) -> None:
        """What is derived from subscriptions is to be derived anew."""
        for name in CACHED:
            self.__dict__.pop(name, None)

    # What follows from it

    @property
    def state(self) -> State:
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return State.STABLE
        return State.RECONCILING

    @cached_property
    def subscribed_topics(self) -> frozenset[str]:
        """Those that members named, and those that their regular expressions stand for."""
        named = (member.topics for member in self.members.values())
        return frozenset().union(*named, *(found.topics for found in self.regexes.values()))

    @cached_property
    def regex_counts(self) -> dict[str, int]:
        """How many members are subscribed to each regular expression."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if member.regex:
                counts[member.regex] = counts.get(member.regex, 0) + 1
        return counts

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """A regular expression that is not resolved yet stands for none."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def is_metadata_stale(self) -> bool:
        """Its topics may have changed, or the record that said so was not written."""
        return self.refreshed_epoch is None or self.epoch < self.refreshed_epoch

    def target_of(self, member: ConsumerMember) -> Partitions:
        """What it should have; who replaces a static member takes that one's."""
        found = self.target.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = self.target.get(self.static_members.get(member.instance_id, ""))
        return NO_PARTITIONS if found is None else found

    def is_waiting_for_release(self, member: ConsumerMember) -> bool:
        """Somebody still owns what the member should have."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self.owners
            for topic_id, partitions in self.target_of(member).items()
            for partition in partitions
        )

    def preferred_assignor(self) -> str | None:
        """The one that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.server_assignor is not None:
                votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    @property
    def classic_members(self) -> int:
        return sum(member.is_classic for member in self.members.values())

    def supports_classic(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a classic member with these protocols may join: all classic ones have one in common."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        classic = [{name for name, _ in member.classic.protocols} for member in self.members.values() if member.classic]
        return bool(names.intersection(*classic))

    # What others ask

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, is_transactional: bool, version: int
    ) -> ErrorCode:
        if generation_id < 0 and not self.members:
            return ErrorCode.NONE  # an administrator
        if is_transactional and generation_id == -1 and not member_id and group_instance_id is None:
            return ErrorCode.NONE  # an old producer says nothing of its consumer
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not member.is_classic and version < MEMBER_EPOCHS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return stale(member) if generation_id > member.epoch else ErrorCode.NONE

    def check_partition_commit(self, member_id: str, generation_id: int, topic_id: bytes, partition: int) -> ErrorCode:
        """A member of an older epoch may commit what it has owned since before that."""
        member = self.members.get(member_id)
        if member is None or generation_id == member.epoch:
            return ErrorCode.NONE
        epoch = member.assignment_epoch(topic_id, partition)
        return stale(member) if epoch is None or generation_id < epoch else ErrorCode.NONE

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE  # an administrator
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else stale(member)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def retention_start_ms(self, offset: CommittedOffset) -> int | None:
        return offset.commit_timestamp_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        group_id = self.group_id
        return [
            *(assignment_tombstone(group_id, member_id) for member_id in self.members),
            *(target_tombstone(group_id, member_id) for member_id in self.members),
            target_epoch_tombstone(group_id),
            *(member_tombstone(group_id, member_id) for member_id in self.members),
            *(regex_tombstone(group_id, regex) for regex in self.regexes),
            partition_metadata_tombstone(group_id),
            epoch_tombstone(group_id),
        ]


def stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

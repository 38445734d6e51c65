"""A consumer group that has only classic members left becomes a classic group again.

It happens while they work: the classic group lives ahead of its record, as classic groups do, and begins a rebalance, in which
its members get an assignment of their own making.

Invariants
 1. A conversion is one write: the tombstones of the consumer group, then the classic group's record.
 2. If it cannot be written, the consumer group goes on.
"""

from collections.abc import Sequence

from odradek.core.coordinator.events import Sequel, Turn
from odradek.core.groups.assignors.members import Partitions
from odradek.core.groups.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup, State
from odradek.core.groups.classic.member import ClassicMember
from odradek.core.groups.classic.rebalance import answer_sync, join_timer, prepare_rebalance, refuse_join
from odradek.core.groups.classic.rebalance import restart_session as restart_classic_session
from odradek.core.groups.classic.rebalance import session_timer as classic_session_timer
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import ConsumerMember
from odradek.core.groups.consumer.timers import restart_session
from odradek.core.groups.records import group_record
from odradek.core.groups.sequels import Followed
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.log_records import encode_versioned, read_version
from odradek.wire.messages import ConsumerProtocolAssignment, SyncGroupResponse

ASSIGNMENT_VERSION_MAX = 3


def can_downgrade(shard: Shard, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """When these have gone only classic members are left, and not none."""
    left = len(group.members) - len(leaving)
    native_left = left - (group.classic_members - sum(member.is_classic for member in leaving))
    return left > 0 and native_left == 0 and is_allowed(shard, left)


def can_downgrade_by_replacing(shard: Shard, group: ConsumerGroup, static: ConsumerMember | None) -> bool:
    """It is the last native member, and a classic one takes its place."""
    if static is None or static.is_classic or group.classic_members != len(group.members) - 1:
        return False
    return is_allowed(shard, len(group.members))


def is_allowed(shard: Shard, size: int) -> bool:
    return shard.config.is_downgrade_enabled and size <= shard.config.group_max_size


def downgrade(
    shard: Shard, draft: Draft, sequel: Sequel, turn: Turn, *, leaving: Sequence[ConsumerMember] = (), is_rebalancing: bool
) -> None:
    """The members of the draft, without those who leave, go on in a classic group."""
    live, group = shard.consumer(draft.group.group_id), draft.group
    assert live is not None
    gone = {member.member_id for member in leaving}
    left = [member for member in group.members.values() if member.member_id not in gone]
    classic = classic_group(group, left, shard.image, turn.now.wall_ms)
    record = group_record(classic, {member.member_id: member.assignment for member in classic.members.values()})
    take_over(shard, classic, turn)
    turn.write([*draft.records, *group.tombstones(), record], Downgraded(shard, live, classic, sequel))
    if is_rebalancing:
        records = prepare_rebalance(shard, classic, turn)
        assert not records, "nobody has joined it yet"


def take_over(shard: Shard, classic: ClassicGroup, turn: Turn) -> None:
    """The timers of the consumer group run on: they fire for nobody now, and are needed if it comes back."""
    for member in classic.members.values():
        restart_classic_session(classic, member, turn)
    shard.groups[classic.group_id] = classic


def classic_group(group: ConsumerGroup, members: Sequence[ConsumerMember], image: MetadataImage, wall_ms: int) -> ClassicGroup:
    """In the generation that is the group's epoch, each with what it should have."""
    made = ClassicGroup(group.group_id, wall_ms)
    made.generation_id = group.epoch
    made.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in members:
        assert member.classic is not None
        protocols = list(member.classic.protocols)
        found = ClassicMember(member.member_id, member.instance_id, member.client_id, member.client_host, protocols)
        found.rebalance_timeout_ms = member.rebalance_timeout_ms
        found.session_timeout_ms = member.classic.session_timeout_ms
        made.add(found)
    made.protocol_name = made.elected_protocol()
    made.state = State.STABLE
    made.subscribed_topics = made.find_subscribed_topics()
    for member in members:
        subscription = made.members[member.member_id].metadata(made.protocol_name)
        target = group.target_of(member)
        made.members[member.member_id].assignment = classic_assignment(target, subscription, image)
    return made


def classic_assignment(partitions: Partitions, subscription: bytes, image: MetadataImage) -> bytes:
    """In the version in which the member says its subscription."""
    topic = ConsumerProtocolAssignment.TopicPartition
    found = [
        topic(topic=image.topics_by_id[topic_id].name, partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in image.topics_by_id
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=found), assignment_version(subscription))


def assignment_version(subscription: bytes) -> int:
    """That of the subscription; the first, where it cannot be read: it may be for another protocol than the one by which the
    member was let in."""
    try:
        version = read_version(subscription, "subscription")
    except ProtocolError:
        return 0
    return max(0, min(version, ASSIGNMENT_VERSION_MAX))


class Downgraded(Followed):
    """The conversion is stored, or the consumer group comes back."""

    __slots__ = ("classic", "group", "shard")

    def __init__(self, shard: Shard, group: ConsumerGroup, classic: ClassicGroup, sequel: Sequel) -> None:
        super().__init__(sequel)
        self.shard = shard
        self.group = group
        self.classic = classic

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        group = self.group
        if error is not ErrorCode.REQUEST_TIMED_OUT and self.shard.groups.get(group.group_id) is self.classic:
            turn.cancel_timer(join_timer(group.group_id))
            for found in self.classic.members.values():
                refuse_join(self.classic, found, ErrorCode.REBALANCE_IN_PROGRESS, found.member_id, turn)
                answer_sync(found, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), turn)
                turn.cancel_timer(classic_session_timer(group.group_id, found.member_id))
            for member in group.members.values():
                restart_session(self.shard, group.group_id, member, turn)
            self.shard.groups[group.group_id] = group
        super().failed(error, turn)

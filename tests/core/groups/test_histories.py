"""Random lives of groups: members join, sync, beat, commit, leave and die; time passes, the coordinator moves, the log is cut.

What must hold through all of them
 1. Every request is answered exactly once.
 2. No two members of one generation own one partition.
 3. What was acknowledged is there after a failover that cuts off all that was not committed.
 4. A coordinator that replays the log has the groups and offsets of the one that wrote it.
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import decode_consumer_protocol, encode_versioned
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitResponse,
    SyncGroupResponse,
)
from tests.core.groups.clients import GROUP, Clients, join_request, subscription
from tests.core.groups.durable import durable_classic
from tests.core.groups.host import Host

PARTITIONS = {"t": 4, "u": 3}
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE]
MEMBERS_MAX = 5

Partition = tuple[str, int]


def range_assignment(members: list[JoinGroupResponse.JoinGroupResponseMember]) -> dict[str, bytes]:
    """Kafka's range assignor: each topic in runs over its subscribers, static ones by instance."""
    topics = {
        member.member_id: decode_consumer_protocol(ConsumerProtocolSubscription, member.metadata).topics for member in members
    }
    order = [member.member_id for member in sorted(members, key=lambda found: found.group_instance_id or found.member_id)]
    given: dict[str, list[ConsumerProtocolAssignment.TopicPartition]] = {member_id: [] for member_id in order}
    for topic, count in PARTITIONS.items():
        readers = [member_id for member_id in order if topic in topics[member_id]]
        bounds = [count * index // len(readers) for index in range(len(readers) + 1)] if readers else []
        for member_id, start, end in zip(readers, bounds, bounds[1:]):
            part = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(range(start, end)))
            given[member_id].append(part)
    return {name: encode_versioned(ConsumerProtocolAssignment(assigned_partitions=found), 1) for name, found in given.items()}


def owned(data: bytes) -> list[Partition]:
    if not data:
        return []
    found = decode_consumer_protocol(ConsumerProtocolAssignment, data).assigned_partitions
    return [(part.topic, partition) for part in found for partition in part.partitions]


class Member:
    """A client that wants to be in the group. It does one thing at a time."""

    def __init__(self, instance: str | None, version: int) -> None:
        self.instance = instance
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.topics: tuple[str, ...] = ("t",)
        self.waiting: int | None = None  # the ticket of a join or sync
        self.to_assign: dict[str, bytes] | None = None
        self.state = "out"  # out, joining, joined, syncing, working

    def forget(self) -> None:
        self.member_id, self.generation, self.state = "", -1, "out"

    def hear(self, answer: Message) -> list[Partition]:
        """What an answer tells it; the partitions that it owns from now on."""
        self.waiting = None
        if isinstance(answer, JoinGroupResponse):
            self.hear_join(answer)
        elif isinstance(answer, SyncGroupResponse):
            if answer.error_code == ErrorCode.NONE:
                self.state = "working"
                return owned(answer.assignment)
            self.hear_error(ErrorCode(answer.error_code))
        return []

    def hear_join(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            self.member_id, self.generation, self.state = answer.member_id, answer.generation_id, "joined"
            is_assigning = answer.leader == answer.member_id and not answer.skip_assignment
            self.to_assign = range_assignment(answer.members) if is_assigning else {}
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.state = answer.member_id, "out"
        else:
            self.hear_error(ErrorCode(answer.error_code))

    def hear_error(self, error: ErrorCode) -> None:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
        else:
            self.state = "out"


class Histories(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3_000]), size=st.sampled_from([3, 100]), is_replicated=st.booleans())
    def begin(self, delay_ms: int, size: int, is_replicated: bool) -> None:
        config = GroupConfig(group_initial_rebalance_delay_ms=delay_ms, group_max_size=size)
        self.host = Host(config, is_replicated)
        self.clients = Clients(self.host)
        self.members: list[Member] = []
        self.owners: dict[tuple[int, Partition], str] = {}  # (generation, partition) -> who
        self.commits: dict[int, dict[int, int]] = {}  # ticket -> what it commits
        self.acknowledged: dict[int, int] = {}  # partition -> the newest offset that was acknowledged
        self.next_offset = 0
        self.was_refused = False

    def pick(self, index: int) -> Member:
        return self.members[index % len(self.members)]

    def listen(self) -> None:
        """Everybody hears what was answered meanwhile."""
        if GROUP not in self.host.coordinator.shard.groups:
            self.owners.clear()  # it expired: generations begin anew
        for member in self.members:
            if member.waiting is not None and member.waiting in self.host.answers:
                generation = member.generation
                for partition in member.hear(self.host.answers[member.waiting]):
                    name = member.instance or member.member_id
                    other = self.owners.setdefault((generation, partition), name)
                    assert other == name, f"{name} and {other} own {partition} in generation {generation}"
        for ticket in [found for found in self.commits if found in self.host.answers]:
            answer = self.host.answers[ticket]
            assert isinstance(answer, OffsetCommitResponse)
            offsets = self.commits.pop(ticket)
            for committed in answer.topics[0].partitions:
                if committed.error_code == ErrorCode.NONE:
                    index = committed.partition_index
                    self.acknowledged[index] = max(self.acknowledged.get(index, -1), offsets[index])

    # What members do

    @precondition(lambda self: len(self.members) < MEMBERS_MAX)
    @rule(instance=st.sampled_from([None, None, "i", "j"]), version=st.sampled_from([3, 4, 5, 9]))
    def come(self, instance: str | None, version: int) -> None:
        self.members.append(Member(instance if version >= 5 else None, version))

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), topics=st.sampled_from([("t",), ("t", "u"), ("u",)]))
    def join(self, index: int, topics: tuple[str, ...]) -> None:
        member = self.pick(index)
        if member.waiting is None:
            member.topics = topics
            self.send_join(member)

    def send_join(self, member: Member) -> None:
        protocols = {"range": subscription(*member.topics)}
        request = join_request(member.member_id, instance=member.instance, protocols=protocols)
        member.state = "joining"
        member.waiting = self.clients.send_join(request, member.version)
        self.listen()

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX))
    def go_on(self, index: int) -> None:
        """A member does what is next for it."""
        member = self.pick(index)
        if member.waiting is not None:
            return
        if member.state == "joined":
            member.state = "syncing"
            member.waiting = self.clients.send_sync(member.member_id, member.generation, member.to_assign)
        elif member.state == "working":
            error = self.clients.beat(member.member_id, member.generation, member.instance)
            if error is not ErrorCode.NONE:
                member.hear_error(error)
        else:
            self.send_join(member)
        self.listen()

    @precondition(lambda self: self.members)
    @rule(rounds=st.integers(1, 12))
    def work(self, rounds: int) -> None:
        """All go on for a while, and nothing goes wrong."""
        self.host.refusing = None
        for _ in range(rounds):
            for index in range(len(self.members)):
                self.go_on(index)
            self.host.pass_time(1_000)
            self.host.commit()
            self.listen()

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), partitions=st.sets(st.integers(0, 3), min_size=1))
    def commit(self, index: int, partitions: set[int]) -> None:
        member = self.pick(index)
        self.next_offset += 1
        offsets = dict.fromkeys(sorted(partitions), self.next_offset)
        ticket = self.clients.send_commit(offsets, member.member_id, member.generation, instance=member.instance)
        self.commits[ticket] = offsets
        self.listen()

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), is_leaving=st.booleans())
    def go(self, index: int, is_leaving: bool) -> None:
        """A member leaves, or is heard of no more."""
        member = self.members.pop(index % len(self.members))
        if is_leaving and member.member_id:
            leaving = LeaveGroupRequest.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance)
            self.host.send(LeaveGroupRequest(group_id=GROUP, members=[leaving]), 5)
        self.listen()

    # What the world does

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 9_999, 30_000, 70_000]))
    def pass_time(self, ms: int) -> None:
        self.host.pass_time(ms)
        self.listen()

    @precondition(lambda self: self.host.high_watermark < len(self.host.log))
    @rule(data=st.data())
    def move_high_watermark(self, data: st.DataObject) -> None:
        self.host.commit(data.draw(st.integers(self.host.high_watermark + 1, len(self.host.log))))
        self.listen()

    @rule(error=st.sampled_from(REFUSALS))
    def refuse(self, error: ErrorCode) -> None:
        """The partition takes no appends, until the next `work`."""
        self.host.refusing = error
        self.was_refused = True

    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another node becomes the leader, perhaps without what was not committed."""
        length = data.draw(st.integers(self.host.high_watermark, len(self.host.log)))
        del self.host.log[length:]
        self.host.refusing = None
        self.host.fail_over()
        self.was_refused = False
        self.listen()

    # What always holds

    @invariant()
    def what_was_acknowledged_is_shown(self) -> None:
        if hasattr(self, "host"):
            shown = self.clients.fetch([0, 1, 2, 3])
            assert all(shown["t", index] >= offset for index, offset in self.acknowledged.items())

    @invariant()
    def a_replay_gives_the_live_state(self) -> None:
        if hasattr(self, "host") and not self.was_refused:
            fresh, live = self.host.loaded_again(), self.host.coordinator
            assert fresh.shard.groups.keys() == live.shard.groups.keys()
            assert fresh.shard.offsets.by_group == live.shard.offsets.by_group
            assert dict(fresh.shard.offsets.committed_of(GROUP)) == dict(live.shard.offsets.committed_of(GROUP))
            for found in settled(live):
                again = fresh.shard.classic(found.group_id)
                assert again is not None
                assert durable(again) == durable(found)

    @invariant()
    def a_group_counts_what_it_has(self) -> None:
        group = self.host.coordinator.shard.classic(GROUP) if hasattr(self, "host") else None
        if group is not None:
            assert group.waiting_joins == sum(member.waiting_join is not None for member in group.members.values())
            assert (group.leader_id in group.members) == bool(group.members)
            assert group.static_members == {m.group_instance_id: m.member_id for m in group.members.values() if m.is_static}
            timed = {key[2] for key in self.host.timers if key[0] == "classic-session"}
            silent = [m.member_id for m in group.members.values() if m.member_id not in timed and not m.needs_no_heartbeat]
            assert not silent, "a member without a timer would never be missed"

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.host.do(self.host.coordinator.unloaded(self.host.now))
            assert self.host.answers.keys() == self.host.asked.keys()


def settled(coordinator: GroupCoordinator) -> Iterator[ClassicGroup]:
    """The groups that are no further than their records."""
    for group in coordinator.shard.groups.values():
        assert isinstance(group, ClassicGroup)
        if group.state in (State.EMPTY, State.STABLE):
            yield group


def durable(group: ClassicGroup) -> tuple[Any, ...]:
    is_counting = group.is_empty and group.protocol_type is not None  # the time since when nobody needs the offsets
    return (group.state, *durable_classic(group), group.state_timestamp_ms if is_counting else None)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

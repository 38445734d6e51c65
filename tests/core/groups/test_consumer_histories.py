"""Random lives of consumer groups: members of both protocols join, beat, lose answers, leave and die; topics grow, come and go;
the coordinator moves, the log is cut.

What must hold through all of them
 1. Every request is answered exactly once.
 2. No two members of the group own one partition, by what they were told and have not given up.
 3. When nothing goes wrong for a while the group becomes stable, and every partition has an owner.
 4. A coordinator that replays the log has the groups of the one that wrote it.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.core.groups.classic.group import ClassicGroup
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupHeartbeatResponse, HeartbeatRequest, LeaveGroupRequest
from tests.core.groups.clients import GROUP, Clients, subscription
from tests.core.groups.clients import join_request as classic_join_request
from tests.core.groups.consumers import Consumers, Topics, beat_request, partitions_of
from tests.core.groups.host import Host
from tests.core.groups.test_histories import REFUSALS, Member, Partition

MEMBERS_MAX = 5
CALM_ROUNDS_MAX = 80
SUBSCRIPTIONS = [(("t",), None), (("t", "u"), None), (("u",), None), ((), "[tu]"), (("t",), "u.*")]

Subscription = tuple[tuple[str, ...], str | None]


class Native:
    """A consumer of the new protocol. What it is to give up it owns until it has the time."""

    def __init__(self, member_id: str, instance: str | None, subscribed: Subscription) -> None:
        self.member_id = member_id
        self.instance = instance
        self.topics, self.regex = subscribed
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.target: dict[bytes, list[int]] = {}
        self.waiting: int | None = None
        self.is_full = True  # it says everything again

    def forget(self) -> None:
        self.epoch, self.owned, self.target, self.is_full = 0, {}, {}, True

    def send(self, consumers: Consumers) -> None:
        full: dict[str, Any] = {}
        if self.is_full or self.epoch == 0:
            regex = self.regex or ""
            full = {"topics": list(self.topics), "regex": regex, "rebalance_ms": 60_000}
        request = beat_request(self.member_id, self.epoch, owned=self.owned, instance=self.instance, **full)
        self.waiting = consumers.send(request)

    def hear(self, answer: Message) -> None:
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        self.waiting = None
        self.is_full = bool(answer.error_code)
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
        elif answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            self.forget()  # it became a classic group meanwhile, or is gone
        elif not answer.error_code:
            self.epoch = answer.member_epoch
            found = partitions_of(answer)
            if found is not None:
                self.target = found

    def reconcile(self) -> None:
        self.owned = self.target

    def owns(self) -> list[tuple[bytes, int]]:
        return [(topic, index) for topic, found in self.owned.items() for index in found]


class Classic(Member):
    """A classic consumer of the eager kind: it owns nothing while it joins."""

    def __init__(self, instance: str | None) -> None:
        super().__init__(instance, 9)
        self.owned: list[tuple[bytes, int]] = []

    def take(self, told: list[Partition], image: MetadataImage) -> None:
        """It knows names; which topics they are of now counts, and not those that are made under them later."""
        known = image.topics
        self.owned = [(known[name].id, index) for name, index in told if name in known and index in known[name].partitions]

    def owns(self) -> list[tuple[bytes, int]]:
        return self.owned


class Histories(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, 1_000]), size=st.sampled_from([3, 100]), is_replicated=st.booleans())
    def begin(self, interval_ms: int, size: int, is_replicated: bool) -> None:
        config = GroupConfig(
            group_initial_rebalance_delay_ms=0,
            group_consumer_assignment_interval_ms=interval_ms,
            group_consumer_max_size=size,
        )
        self.host = Host(config, is_replicated)
        self.topics = Topics(self.host)
        self.topics.make("t", 4)
        self.topics.make("u", 3)
        self.clients = Clients(self.host)
        self.consumers = Consumers(self.host)
        self.members: list[Native | Classic] = []
        self.came = 0
        self.was_refused = False

    def pick(self, index: int) -> "Native | Classic":
        return self.members[index % len(self.members)]

    def listen(self) -> None:
        for member in self.members:
            if member.waiting is not None and member.waiting in self.host.answers:
                answer = self.host.answers[member.waiting]
                if isinstance(member, Native):
                    member.hear(answer)
                else:
                    was_syncing = member.state == "syncing"
                    told = member.hear(answer)
                    member.take(told if was_syncing and member.state == "working" else [], self.host.image)
        self.no_partition_has_two_owners()

    # What members do

    @precondition(lambda self: len(self.members) < MEMBERS_MAX)
    @rule(instance=st.sampled_from([None, None, "i", "j"]), subscribed=st.sampled_from(SUBSCRIPTIONS), is_native=st.booleans())
    def come(self, instance: str | None, subscribed: Subscription, is_native: bool) -> None:
        self.came += 1
        if instance in [member.instance for member in self.members]:
            instance = None  # two of one instance would replace each other for ever
        if is_native or self.came % 3:
            self.members.append(Native(f"n{self.came}", instance, subscribed))
        else:
            self.members.append(Classic(instance))

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), is_busy=st.booleans(), is_lost=st.sampled_from([False, False, True]))
    def go_on(self, index: int, is_busy: bool = False, is_lost: bool = False) -> None:
        """A member does what is next for it; it may never hear the answer."""
        member = self.pick(index)
        if member.waiting is not None:
            return
        if isinstance(member, Native):
            if not is_busy:
                member.reconcile()
            member.send(self.consumers)
            if is_lost:
                member.waiting, member.is_full = None, True
        else:
            self.classic_goes_on(member)
        self.listen()

    def classic_goes_on(self, member: Classic) -> None:
        if member.state == "joined":
            member.state = "syncing"
            member.waiting = self.clients.send_sync(member.member_id, member.generation, member.to_assign)
        elif member.state == "working":
            ticket = self.send_beat(member)
            error = ErrorCode(getattr(self.host.answers.get(ticket), "error_code", 0))
            if error is not ErrorCode.NONE:
                member.owned = []
                member.hear_error(error)
        else:
            member.owned = []
            protocols = {"range": subscription(*member.topics)}
            request = classic_join_request(member.member_id, instance=member.instance, protocols=protocols)
            member.state = "joining"
            member.waiting = self.clients.send_join(request, member.version)

    def send_beat(self, member: Classic) -> int:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance,
        )
        return self.host.send(request, 4)

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), subscribed=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index: int, subscribed: Subscription) -> None:
        member = self.pick(index)
        if isinstance(member, Native):
            member.topics, member.regex = subscribed
            member.is_full = True

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, MEMBERS_MAX), epoch=st.sampled_from([None, -1, -2]))
    def go(self, index: int, epoch: int | None) -> None:
        """A member leaves, for good or for a while, or is heard of no more."""
        member = self.members.pop(index % len(self.members))
        if epoch is not None and isinstance(member, Native):
            leaving = -1 if member.instance is None else epoch
            self.consumers.send(beat_request(member.member_id, leaving, instance=member.instance))
        elif epoch is not None and member.member_id:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member.member_id, group_instance_id=member.instance)
            self.host.send(LeaveGroupRequest(group_id=GROUP, members=[identity]), 5)
        self.listen()

    # What the world does

    @rule(ms=st.integers(0, 20_000))
    def pass_time(self, ms: int) -> None:
        self.host.pass_time(ms)
        self.listen()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.host.commit(data.draw(st.sampled_from(self.host.open_ends())))
        self.listen()

    @rule(name=st.sampled_from("tu"), count=st.integers(1, 3))
    def change_topics(self, name: str, count: int) -> None:
        topic = self.host.image.topics.get(name)
        if topic is None:
            self.topics.make(name, count)
        elif len(topic.partitions) < 8:
            self.topics.grow(name, len(topic.partitions) + count)
        else:
            self.topics.delete(name)
        self.listen()

    @rule(error=st.sampled_from(REFUSALS))
    def refuse(self, error: ErrorCode) -> None:
        """The partition takes no appends, until the next calm."""
        self.host.refusing = error
        self.was_refused = True

    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another node becomes the leader, perhaps without what was not committed."""
        self.host.cut(data.draw(st.sampled_from(self.host.open_ends())))
        self.host.refusing = None
        self.host.fail_over()
        self.was_refused = False
        self.listen()

    @rule()
    def calm_down(self) -> None:
        """Nothing goes wrong for a while: everybody comes to have what it should."""
        self.host.refusing = None
        for _ in range(CALM_ROUNDS_MAX):
            for index in range(len(self.members)):
                self.go_on(index)
            self.host.pass_time(2_000)
            self.host.commit()
            self.listen()
            if self.is_settled():
                return
        raise AssertionError(f"the group does not settle: {self.consumers.group.__dict__}")

    def is_settled(self) -> bool:
        group = self.host.coordinator.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or not group.members:
            return True  # the classic protocol has histories of its own
        if group.state_name != "Stable" or group.regex_counts.keys() != group.regexes.keys():
            return False
        here = {member.member_id: member for member in self.members}
        if not group.members.keys() <= here.keys():
            return False
        known = self.host.image.topics
        wanted = {
            (known[name].id, index) for name in group.subscribed_topics if name in known for index in known[name].partitions
        }
        return wanted == {found for member_id in group.members for found in here[member_id].owns()}

    # What always holds

    def no_partition_has_two_owners(self) -> None:
        group = self.host.coordinator.shard.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup | ClassicGroup):
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.members:
            if member.member_id in group.members:
                for found in member.owns():
                    other = owners.setdefault(found, member.member_id)
                    assert other == member.member_id, f"{other} and {member.member_id} own {found}"

    @invariant()
    def a_replay_gives_the_live_state(self) -> None:
        if not hasattr(self, "host") or self.was_refused:
            return
        fresh, live = self.host.loaded_again().shard, self.host.coordinator.shard
        assert fresh.groups.keys() == live.groups.keys()
        for group_id, group in live.groups.items():
            again = fresh.groups[group_id]
            assert again.type is group.type
            if isinstance(group, ConsumerGroup) and isinstance(again, ConsumerGroup):
                assert durable(again) == durable(group)

    @invariant()
    def a_consumer_group_is_consistent(self) -> None:
        group = self.host.coordinator.shard.consumer(GROUP) if hasattr(self, "host") else None
        if group is None:
            return
        owners = {
            (topic, index): member.member_id
            for member in group.members.values()
            for owned in (member.assigned, member.revoking)
            for topic, found in owned.items()
            for index in found
        }
        assert group.owners == owners
        assert group.static_members == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
        assert group.target.keys() <= group.members.keys()
        timed = {key[2] for key in self.host.timers if key[0] == "consumer-session"}
        assert group.members.keys() <= timed, "a member without a timer would never be missed"

    def teardown(self) -> None:
        if hasattr(self, "host"):
            self.host.do(self.host.coordinator.unloaded(self.host.now))
            assert self.host.answers.keys() == self.host.asked.keys()


def durable(group: ConsumerGroup) -> dict[str, Any]:
    derived = ("refreshed_epoch", "subscribed_topics", "regex_counts")
    return {name: value for name, value in vars(group).items() if name not in derived}


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)

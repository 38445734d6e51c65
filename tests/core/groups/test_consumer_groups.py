"""Consumer groups (KIP-848), rule by rule: joining, epochs, reconciliation, leaving, timeouts."""

import pytest

from odradek.core.coordinator.events import Now
from odradek.core.groups.config import ConsumerOverrides, GroupConfig
from odradek.core.groups.consumer.member import MemberState
from odradek.core.groups.events import ConfigChanged
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupHeartbeatRequest
from tests.core.groups.consumers import Consumer, Consumers, Topics, beat_request, join_request, partitions_of, settle, topic_id
from tests.core.groups.host import Host

SESSION_MS = 45_000
INTERVAL_MS = 5_000


@pytest.fixture
def host() -> Host:
    return Host(GroupConfig())


@pytest.fixture
def topics(host: Host) -> Topics:
    made = Topics(host)
    made.make("t", 4)
    made.make("u", 2)
    return made


@pytest.fixture
def consumers(host: Host, topics: Topics) -> Consumers:
    return Consumers(host)


def pair(consumers: Consumers) -> tuple[Consumer, Consumer]:
    """Two members that share the four partitions of t."""
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    b.join()
    settle(a, b)
    return a, b


# Joining


def test_the_first_member_gets_everything_at_once(consumers: Consumers) -> None:
    a = Consumer(consumers, "a", "t", "u")
    answer = a.join()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", 1)
    assert answer.heartbeat_interval_ms == INTERVAL_MS
    assert a.partitions == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("u", 1)]
    assert consumers.group.state_name == "Stable"


def test_version_0_gets_its_member_id_from_the_coordinator(consumers: Consumers) -> None:
    answer = consumers.call(join_request("", "t"), 0)
    assert answer.member_id
    assert consumers.group.members.keys() == {answer.member_id}


@pytest.mark.parametrize(
    "request_",
    [
        join_request("", "t"),
        join_request(" ", "t"),
        join_request("a", "t", instance=" "),
        join_request("a", "t", rack=""),
        beat_request("a", 0, owned={}, topics=["t"]),
        beat_request("a", 0, owned=None, topics=["t"], rebalance_ms=1),
        beat_request("a", 0, owned={bytes(16): [0]}, topics=["t"], rebalance_ms=1),
        beat_request("a", 0, owned={}, rebalance_ms=1),
        beat_request("a", -2),
        beat_request("a", -3),
    ],
)
def test_a_request_that_does_not_say_what_it_must_is_invalid(
    consumers: Consumers, request_: ConsumerGroupHeartbeatRequest
) -> None:
    assert consumers.error(request_) is ErrorCode.INVALID_REQUEST


def test_an_empty_group_id_is_invalid(host: Host) -> None:
    assert Consumers(host, "").error(join_request("a", "t")) is ErrorCode.INVALID_REQUEST


def test_an_assignor_that_is_not_configured_is_not_supported(consumers: Consumers) -> None:
    assert consumers.error(join_request("a", "t", assignor="sticky")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_assignor_that_most_members_ask_for_assigns(consumers: Consumers, topics: Topics) -> None:
    a, b = Consumer(consumers, "a", "t", "u"), Consumer(consumers, "b", "t", "u")
    a.join(assignor="range")
    b.join(assignor="range")
    settle(a, b)
    assert a.partitions == [("t", 0), ("t", 1), ("u", 0)]
    assert consumers.describe().assignor_name == "range"


def test_a_full_group_takes_nobody_else(topics: Topics) -> None:
    host = Host(GroupConfig(group_consumer_max_size=1), image=topics.host.image)
    consumers = Consumers(host)
    Consumer(consumers, "a", "t").join()
    assert consumers.error(join_request("b", "t")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert consumers.error(join_request("a", "t")) is ErrorCode.NONE


def test_who_is_not_in_the_group_is_unknown(consumers: Consumers) -> None:
    assert consumers.error(beat_request("a", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(consumers, "b", "t").join()
    assert consumers.error(beat_request("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_come_within_the_assignment_interval_are_assigned_together(consumers: Consumers, host: Host) -> None:
    a, b, c = (Consumer(consumers, name, "t") for name in "abc")
    for consumer in (a, b, c):
        consumer.join()
    assert (consumers.group.epoch, consumers.group.target_epoch) == (3, 1)
    assert consumers.group.state_name == "Assigning"
    assert b.epoch == 1
    assert b.partitions == []
    host.pass_time(1_000)
    b.beat()
    assert (consumers.group.epoch, consumers.group.target_epoch) == (3, 3)
    settle(a, b, c)
    assert [len(found.partitions) for found in (a, b, c)] == [2, 1, 1]


def test_a_clock_that_was_set_back_holds_no_assignment_up(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.now = Now(host.now.monotonic_ms, host.now.wall_ms - 86_400_000)
    b.join()
    assert (consumers.group.epoch, consumers.group.target_epoch) == (2, 2)


def test_without_an_assignment_interval_each_is_assigned_at_once(topics: Topics) -> None:
    consumers = Consumers(Host(GroupConfig(group_consumer_assignment_interval_ms=0), image=topics.host.image))
    Consumer(consumers, "a", "t").join()
    Consumer(consumers, "b", "t").join()
    assert consumers.group.target_epoch == 2


# Reconciliation


def test_a_partition_is_given_only_when_its_owner_has_given_it_up(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    assert (b.epoch, b.partitions) == (2, [])
    assert consumers.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    answer = a.beat()
    assert (answer.member_epoch, len(a.partitions)) == (1, 2)
    assert consumers.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    b.beat()
    assert b.partitions == [], "a has not said that it has given them up"
    assert consumers.group.state_name == "Reconciling"
    assert a.beat().member_epoch == 2
    b.beat()
    assert len(b.partitions) == 2
    assert not set(a.partitions) & set(b.partitions)
    assert consumers.group.state_name == "Stable"


def test_a_member_that_does_not_say_what_it_owns_has_given_up_nothing(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    a.beat()
    consumers.call(beat_request("a", 1))
    assert consumers.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_the_assignment_is_told_when_it_changed_and_when_all_is_said_anew(consumers: Consumers) -> None:
    a = Consumer(consumers, "a", "t")
    a.join()
    assert consumers.call(beat_request("a", 1)).assignment is None
    full = beat_request("a", 1, owned=a.owned, topics=["t"], rebalance_ms=1_000)
    assert partitions_of(consumers.call(full)) == a.owned
    again = join_request("a", "t")
    assert partitions_of(consumers.call(again)) == a.owned


def test_a_heartbeat_that_changes_nothing_writes_nothing(consumers: Consumers, host: Host) -> None:
    a, b = pair(consumers)
    length = len(host.log)
    for _ in range(5):
        a.beat()
        b.beat()
    assert len(host.log) == length


def test_another_subscription_makes_another_epoch(consumers: Consumers, host: Host) -> None:
    a, _ = pair(consumers)
    epoch = consumers.group.epoch
    host.pass_time(1_000)
    a.hear(consumers.call(beat_request("a", a.epoch, owned=a.owned, topics=["u"])))
    assert consumers.group.epoch == epoch + 1
    assert a.partitions == [], "it gives up what it is not subscribed to"
    a.beat()
    assert a.partitions == [("u", 0), ("u", 1)]


def test_a_topic_that_is_left_is_given_up_before_there_is_a_target(consumers: Consumers, host: Host) -> None:
    a = Consumer(consumers, "a", "t", "u")
    a.join()
    a.hear(consumers.call(beat_request("a", 1, owned=a.owned, topics=["t"])))
    assert consumers.group.target_epoch == 1, "the interval is not over"
    assert {name for name, _ in a.partitions} == {"t"}


# Epochs


def test_a_member_with_another_epoch_is_fenced(consumers: Consumers) -> None:
    a, _ = pair(consumers)
    assert consumers.error(beat_request("a", a.epoch + 1)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.epoch == 2
    assert consumers.error(beat_request("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_lost_answer_is_forgiven_while_the_member_owns_nothing_else(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    a.beat()
    lost = consumers.call(beat_request("a", 1, owned=a.owned))
    assert lost.member_epoch == 2
    assert consumers.call(beat_request("a", 1, owned=a.owned)).member_epoch == 2
    more = {topic_id("t"): [0, 1, 2, 3]}
    assert consumers.error(beat_request("a", 1, owned=more)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert consumers.error(beat_request("a", 1)) is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"


def test_who_joins_again_under_its_id_keeps_its_place(consumers: Consumers) -> None:
    a, b = pair(consumers)
    before = a.partitions
    epoch = consumers.group.epoch
    a.join()
    settle(a, b)
    assert a.partitions == before
    assert consumers.group.epoch == epoch


# Topics


def test_new_partitions_and_topics_make_the_group_rebalance(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a", "t", "later")
    a.join()
    epoch = consumers.group.epoch
    topics.grow("t", 6)
    host.pass_time(1_000)
    a.beat()
    assert (consumers.group.epoch, len(a.partitions)) == (epoch + 1, 6)
    topics.make("later", 1)
    host.pass_time(1_000)
    a.beat()
    assert (consumers.group.epoch, len(a.partitions)) == (epoch + 2, 7)


def test_a_topic_that_is_none_of_the_groups_changes_nothing(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a", "t")
    a.join()
    epoch = consumers.group.epoch
    topics.grow("u", 9)
    host.pass_time(1_000)
    a.beat()
    assert consumers.group.epoch == epoch


def test_a_deleted_topic_is_given_up_and_one_made_again_is_another(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a", "t", "u")
    a.join()
    topics.delete("u")
    for _ in range(3):
        host.pass_time(1_000)
        a.beat()
    assert len(a.partitions) == 4
    topics.make("u", 3)
    for _ in range(3):
        host.pass_time(1_000)
        a.beat()
    assert len(a.partitions) == 7
    assert topic_id("u", 1) in a.owned


# Leaving


def test_what_a_leaving_member_had_goes_to_the_others(consumers: Consumers, host: Host) -> None:
    a, b = pair(consumers)
    answer = b.leave()
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    host.pass_time(1_000)
    settle(a)
    assert len(a.partitions) == 4
    assert consumers.error(beat_request("b", b.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group(consumers: Consumers) -> None:
    a = Consumer(consumers, "a", "t")
    a.join()
    a.leave()
    assert consumers.group.state_name == "Empty"
    assert not consumers.group.owners


def test_leaving_a_group_that_is_not_there(consumers: Consumers) -> None:
    assert consumers.error(beat_request("a", -1)) is ErrorCode.GROUP_ID_NOT_FOUND
    Consumer(consumers, "a", "t").join()
    assert consumers.error(beat_request("b", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_not_heard_of_is_fenced(consumers: Consumers, host: Host) -> None:
    a, b = pair(consumers)
    host.pass_time(SESSION_MS - 2_000)
    a.beat()
    host.pass_time(2_000)
    assert consumers.group.members.keys() == {"a"}
    assert consumers.error(beat_request("b", b.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_may_have_a_session_timeout_of_its_own(topics: Topics) -> None:
    host = Host(image=topics.host.image)
    config = GroupConfig(overrides={"g": ConsumerOverrides(10_000, 3_000, 0)})
    host.step(ConfigChanged(config))
    consumers = Consumers(host)
    assert Consumer(consumers, "a", "t").join().heartbeat_interval_ms == 3_000
    host.pass_time(10_000)
    assert not consumers.group.members


def test_who_does_not_give_up_its_partitions_in_time_is_fenced(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    a.beat()
    for _ in range(6):
        host.pass_time(10_000)
        consumers.call(beat_request("a", 1))
        b.beat()
    assert consumers.group.members.keys() == {"b"}
    host.pass_time(1_000)
    settle(b)
    assert len(b.partitions) == 4


def test_who_could_not_be_fenced_for_what_it_does_not_give_up_is_fenced_later(consumers: Consumers, host: Host) -> None:
    """It is heard of all the time: nothing else would make others get what it has."""
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    a.beat()
    for passed_s in range(0, 130, 10):
        host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS if 50 <= passed_s < 70 else None
        host.pass_time(10_000)
        consumers.call(beat_request("a", 1))
        b.beat()
    assert consumers.group.members.keys() == {"b"}


def test_giving_up_in_time_ends_the_rebalance_timer(consumers: Consumers, host: Host) -> None:
    pair(consumers)
    assert not [key for key in host.timers if key[0] == "consumer-rebalance"]


# Static members


def test_a_static_member_that_leaves_for_a_while_finds_its_partitions_again(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t", instance="i"), Consumer(consumers, "b", "t")
    a.join()
    b.join()
    settle(a, b)
    before, epoch = a.partitions, consumers.group.epoch
    assert a.leave(-2).member_epoch == -2
    b.beat()
    assert len(b.partitions) == 2
    again = Consumer(consumers, "a2", "t", instance="i")
    again.join()
    assert again.partitions == before
    assert consumers.group.epoch == epoch
    assert consumers.group.static_members == {"i": "a2"}
    assert consumers.error(beat_request("a", a.epoch, instance="i")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_has_not_left_is_not_replaced(consumers: Consumers) -> None:
    Consumer(consumers, "a", "t", instance="i").join()
    assert consumers.error(join_request("a2", "t", instance="i")) is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_fenced(consumers: Consumers, host: Host) -> None:
    a = Consumer(consumers, "a", "t", instance="i")
    a.join()
    a.leave(-2)
    host.pass_time(SESSION_MS)
    assert not consumers.group.members
    assert consumers.error(beat_request("a", 1, instance="i")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_only_the_static_member_itself_can_leave_for_a_while(consumers: Consumers) -> None:
    Consumer(consumers, "a", "t", instance="i").join()
    assert consumers.error(beat_request("b", -2, instance="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert consumers.error(beat_request("", -2, instance="i"), 0) is ErrorCode.FENCED_INSTANCE_ID
    assert consumers.error(beat_request("b", -2, instance="j")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_for_good_is_gone(consumers: Consumers) -> None:
    a = Consumer(consumers, "a", "t", instance="i")
    a.join()
    a.leave(-1)
    assert not consumers.group.members
    assert not consumers.group.static_members


# Commit


def test_the_answer_waits_until_what_it_says_is_committed(topics: Topics) -> None:
    host = Host(is_replicated=True, image=topics.host.image)
    consumers = Consumers(host)
    ticket = consumers.send(join_request("a", "t"))
    again = consumers.send(join_request("a", "t"))
    assert not host.answers
    host.commit()
    assert host.answers.keys() == {ticket, again}


def test_a_write_that_is_refused_changes_nothing(consumers: Consumers, host: Host) -> None:
    a, _ = pair(consumers)
    before = consumers.group.members.copy()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = consumers.call(beat_request("a", a.epoch, owned=a.owned, topics=["u"]))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert consumers.group.members == before
    host.refusing = None
    consumers.call(beat_request("a", a.epoch, owned=a.owned, topics=["u"]))
    assert consumers.group.members["a"].topics == {"u"}


def test_a_topic_change_is_not_forgotten_when_its_record_was_refused(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a", "t")
    a.join()
    topics.grow("t", 8)
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    a.beat()
    host.refusing = None
    host.pass_time(1_000)
    a.beat()
    assert len(a.partitions) == 8


# After loading


def test_a_loaded_group_goes_on_and_its_members_have_their_time(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a", "t"), Consumer(consumers, "b", "t")
    a.join()
    host.pass_time(1_000)
    b.join()
    a.beat()
    host.fail_over()
    assert {key[:3] for key in host.timers if key[0].startswith("consumer-")} == {
        ("consumer-session", "g", "a"),
        ("consumer-session", "g", "b"),
        ("consumer-rebalance", "g", "a"),
    }
    settle(a, b)
    assert sorted(a.partitions + b.partitions) == [("t", index) for index in range(4)]

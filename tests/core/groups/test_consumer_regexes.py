"""Subscriptions by regular expression: what they stand for, when that is looked at again, and when it is forgotten."""

import pytest

from odradek.core.coordinator.events import Now
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.group import ResolvedRegex
from odradek.wire.errors import ErrorCode
from tests.core.groups.consumers import Consumer, Consumers, Topics, beat_request, join_request, settle
from tests.core.groups.host import Host


@pytest.fixture
def host() -> Host:
    return Host(GroupConfig(group_consumer_assignment_interval_ms=0))


@pytest.fixture
def topics(host: Host) -> Topics:
    made = Topics(host)
    made.make("red", 1)
    made.make("reed", 1)
    made.make("blue", 1)
    return made


@pytest.fixture
def consumers(host: Host, topics: Topics) -> Consumers:
    return Consumers(host)


def names(consumer: Consumer) -> list[str]:
    return [name for name, _ in consumer.partitions]


def test_a_regex_stands_for_the_topics_that_it_matches_as_a_whole(consumers: Consumers) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re+d")
    settle(a)
    assert names(a) == ["red", "reed"]
    assert consumers.group.regexes["re+d"].topics == {"red", "reed"}


def test_it_stands_for_internal_topics_too_as_with_kafka(consumers: Consumers, topics: Topics) -> None:
    topics.make("__consumer_offsets", 1)
    a = Consumer(consumers, "a")
    a.join(regex=".*")
    settle(a)
    assert "__consumer_offsets" in names(a)


def test_a_member_may_have_both_names_and_a_regex(consumers: Consumers) -> None:
    a = Consumer(consumers, "a", "blue")
    a.join(regex="red")
    settle(a)
    assert names(a) == ["blue", "red"]


def test_what_is_no_regex_is_refused_and_leaves_nothing(consumers: Consumers, host: Host) -> None:
    assert consumers.error(join_request("a", regex="(")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert consumers.error(join_request("a", regex="(?=a)")) is ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2 has no lookahead"
    assert not host.log


def test_a_regex_that_matches_nothing_yet_waits_for_topics(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="green.*")
    settle(a)
    assert (a.epoch > 0, names(a)) == (True, [])
    host.pass_time(10_001)
    topics.make("greenish", 2)
    settle(a)
    a.beat()
    assert names(a) == ["greenish", "greenish"]


def test_new_topics_are_found_but_not_sooner_than_ten_seconds_after_the_last_look(
    consumers: Consumers, topics: Topics, host: Host
) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re.*")
    settle(a)
    topics.make("reddish", 1)
    host.pass_time(5_000)
    settle(a)
    assert names(a) == ["red", "reed"]
    host.pass_time(5_001)
    a.beat()
    host.pass_time(0)
    settle(a)
    a.beat()
    assert names(a) == ["red", "reddish", "reed"]


def test_a_clock_that_was_set_back_keeps_no_regex_from_being_resolved(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re.*")
    settle(a)
    host.now = Now(host.now.monotonic_ms, host.now.wall_ms - 86_400_000)
    topics.make("reddish", 1)
    settle(a)
    a.beat()
    assert names(a) == ["red", "reddish", "reed"]
    assert consumers.group.regexes["re.*"].timestamp_ms <= host.now.wall_ms


def test_a_look_that_finds_the_same_makes_no_new_epoch(consumers: Consumers, host: Host) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re.*")
    settle(a)
    before = consumers.group.regexes["re.*"]
    epoch = consumers.group.epoch
    for _ in range(25):
        host.pass_time(30_000)
        a.beat()
    host.pass_time(0)
    after = consumers.group.regexes["re.*"]
    assert after.timestamp_ms > before.timestamp_ms, "group.consumer.regex.refresh.interval.ms is over"
    assert after.topics == before.topics
    assert consumers.group.epoch == epoch


def test_a_deleted_topic_is_no_longer_matched(consumers: Consumers, topics: Topics, host: Host) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re.*")
    settle(a)
    topics.delete("reed")
    settle(a)
    a.beat()
    assert names(a) == ["red"]


def test_a_regex_that_another_member_has_is_resolved_already(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a"), Consumer(consumers, "b")
    a.join(regex="re.*")
    settle(a)
    epoch = consumers.group.epoch
    b.join(regex="re.*")
    assert consumers.group.epoch == epoch + 1
    settle(a, b)
    assert sorted(names(a) + names(b)) == ["red", "reed"]


def test_a_regex_that_nobody_has_any_more_is_forgotten(consumers: Consumers, host: Host) -> None:
    a, b = Consumer(consumers, "a"), Consumer(consumers, "b")
    a.join(regex="re.*")
    b.join(regex="re.*")
    settle(a, b)
    a.leave()
    assert consumers.group.regexes.keys() == {"re.*"}
    b.hear(consumers.call(beat_request("b", b.epoch, owned=b.owned, topics=["blue"], regex="")))
    assert not consumers.group.regexes
    settle(b)
    assert names(b) == ["blue"]


def test_resolved_regexes_are_loaded_again(consumers: Consumers, host: Host) -> None:
    a = Consumer(consumers, "a")
    a.join(regex="re.*")
    settle(a)
    before = consumers.group.regexes
    assert isinstance(before["re.*"], ResolvedRegex)
    host.fail_over()
    assert consumers.group.regexes == before
    settle(a)
    assert names(a) == ["red", "reed"]

"""confluent-kafka (librdkafka) in groups of the classic protocol: commits, rebalances, static members."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import NewPartitions

from tests.clients.confluent import POLL_SECONDS, Row, admin, code_of, consuming, create, fill, patiently, row, rows
from tests.clients.waiting import until
from tests.kafka.broker import Broker

STRATEGIES = ["range", "roundrobin", "cooperative-sticky"]
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200, "topic_metadata_refresh_interval_ms": 500}


class Member:
    """A consumer of a group that remembers what it was given, and what was taken from it."""

    def __init__(self, consumer: Consumer, *topics: str) -> None:
        self.consumer = consumer
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self.lost: list[list[int]] = []
        self.seen: list[Row] = []
        self.errors: list[int] = []
        consumer.subscribe(list(topics), on_assign=note(self.assigned), on_revoke=note(self.revoked), on_lost=note(self.lost))

    def poll(self) -> None:
        message = self.consumer.poll(POLL_SECONDS / 4)
        if message is None:
            return
        if (error := message.error()) is not None:
            self.errors.append(error.code())
        else:
            self.seen.append(row(message))

    @property
    def owned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())


def note(into: list[list[int]]) -> Callable[[Consumer, list[TopicPartition]], None]:
    return lambda _, partitions: into.append(sorted(partition.partition for partition in partitions))


def poll_until(members: Sequence[Member], look: Callable[[], object], what: str) -> None:
    def polled() -> object:
        for member in members:
            member.poll()
        return look()

    until(polled, what)


def settle(members: Sequence[Member], shares: list[int]) -> None:
    """Polls them all until each has its share of the partitions."""

    def look() -> bool:
        owned = [index for member in members for index in member.owned]
        return sorted(len(member.owned) for member in members) == shares and sorted(owned) == list(range(sum(shares)))

    poll_until(members, look, f"shares of {shares}")


def committed(consumer: Consumer, topic: str, partitions: int = 1) -> list[int]:
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    found = patiently(lambda: consumer.committed(wanted, timeout=30))
    return [each.offset for each in found]


def test_a_group_goes_on_where_it_committed(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 30)
    with consuming(server.bootstrap, name) as consumer:
        assert committed(consumer, name) == [OFFSET_INVALID]
        consumer.subscribe([name])
        assert rows(consumer, 10) == sent[:10]
        (answer,) = consumer.commit(asynchronous=False) or []
        assert (answer.offset, answer.error) == (10, None)
        assert committed(consumer, name) == [10]
    with consuming(server.bootstrap, name) as consumer:
        consumer.subscribe([name])
        assert rows(consumer, 20) == sent[10:]


def test_offsets_are_committed_in_the_background(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    reports: list[tuple[Any, int]] = []
    settings = {"on_commit": lambda error, partitions: reports.append((error, partitions[0].offset))}
    with consuming(server.bootstrap, name, **settings) as consumer:
        consumer.subscribe([name])
        rows(consumer, 4)
        consumer.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=True)
        consumer.pause([TopicPartition(name, 0)])
        until(lambda: consumer.poll(POLL_SECONDS) is None and reports, "the report")
        assert reports[0] == (None, 4)


def test_auto_commit_keeps_what_was_read(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    with consuming(server.bootstrap, name, enable_auto_commit=True, auto_commit_interval_ms=50) as consumer:
        consumer.subscribe([name])
        rows(consumer, 10)
        until(lambda: consumer.poll(POLL_SECONDS) is None and committed(consumer, name) == [10], "the commit")


def test_metadata_and_leader_epoch_of_a_commit_come_back(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    with consuming(server.bootstrap, name) as consumer:
        offset = TopicPartition(name, 0, 7, metadata="up to here", leader_epoch=0)
        consumer.commit(offsets=[offset], asynchronous=False)
        (found,) = consumer.committed([TopicPartition(name, 0)], timeout=30)
        assert (found.offset, found.metadata, found.leader_epoch) == (7, "up to here", 0)


def test_metadata_of_a_commit_has_a_limit(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    with consuming(server.bootstrap, name) as consumer:
        offset = TopicPartition(name, 0, 7, metadata="x" * 4097)
        assert code_of(lambda: consumer.commit(offsets=[offset], asynchronous=False)) == KafkaError.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_partitions_are_shared_anew_when_members_come_and_go(server: Broker, name: str, strategy: str) -> None:
    create(server.bootstrap, name, 6)
    settings = {"partition_assignment_strategy": strategy, **QUICK}
    with consuming(server.bootstrap, name, **settings) as one:
        first = Member(one, name)
        settle([first], [6])
        with consuming(server.bootstrap, name, **settings) as two, consuming(server.bootstrap, name, **settings) as three:
            others = [Member(two, name), Member(three, name)]
            settle([first, *others], [2, 2, 2])
        settle([first], [6])
        assert first.assigned[0] == list(range(6))
        assert not first.lost
        taken = sorted(chain.from_iterable(first.revoked))
        if strategy == "cooperative-sticky":
            assert len(taken) == 4
            assert sorted(chain.from_iterable(first.assigned[1:])) == taken  # what it kept was never taken away
        else:
            assert all(len(given) for given in first.assigned)
            assert taken[-1] == 5


def test_members_without_a_partition_stand_by(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    sent = fill(server.bootstrap, name, 10, partition=1)
    with (
        consuming(server.bootstrap, name, **QUICK) as one,
        consuming(server.bootstrap, name, **QUICK) as two,
        consuming(server.bootstrap, name, **QUICK) as three,
    ):
        members = [Member(each, name) for each in (one, two, three)]
        settle(members, [0, 1, 1])
        poll_until(members, lambda: {seen for member in members for seen in member.seen} == set(sent), "all records")


def test_a_pattern_finds_topics_that_come_later(server: Broker, name: str) -> None:
    create(server.bootstrap, f"{name}-1")
    with consuming(server.bootstrap, name, **QUICK) as consumer:
        consumer.subscribe([f"^{name}-[0-9]"])
        fill(server.bootstrap, f"{name}-1", 1)
        assert rows(consumer, 1)
        consumer.commit(asynchronous=False)
        create(server.bootstrap, f"{name}-2")
        sent = fill(server.bootstrap, f"{name}-2", 3)
        assert rows(consumer, 3) == sent


def test_a_static_member_comes_back_without_a_rebalance(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 4)
    with consuming(server.bootstrap, name, group_instance_id="stays", **QUICK) as one:
        staying = Member(one, name)
        with consuming(server.bootstrap, name, group_instance_id="leaves", **QUICK) as two:
            leaving = Member(two, name)
            settle([staying, leaving], [2, 2])
            share, rebalances = leaving.owned, len(staying.assigned)
        with consuming(server.bootstrap, name, group_instance_id="leaves", **QUICK) as two:
            back = Member(two, name)
            poll_until([staying, back], lambda: back.owned == share, "its old partitions")
        assert len(staying.assigned) == rebalances


def test_a_static_member_is_fenced_by_another_of_its_name(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 4)
    with consuming(server.bootstrap, name, group_instance_id="same", **QUICK) as one:
        first = Member(one, name)
        settle([first], [4])
        with consuming(server.bootstrap, name, group_instance_id="same", **QUICK) as two:
            second = Member(two, name)
            poll_until([first, second], lambda: first.errors and second.owned, "the end of the first")
            assert second.owned == [0, 1, 2, 3]
        assert KafkaError._FATAL in first.errors


def test_a_member_commits_after_another_came_and_went(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)
    client = admin(server.bootstrap)
    with consuming(server.bootstrap, name, **QUICK) as one:
        first = Member(one, name)
        settle([first], [1])
        with consuming(server.bootstrap, name, **QUICK) as two:
            second = Member(two, name)
            settle([first, second], [0, 1])
            description = client.describe_consumer_groups([name])[name].result()
            assert len(description.members) == 2
        settle([first], [1])
        one.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
        assert committed(one, name) == [3]


def test_a_topic_of_a_group_can_grow(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    with consuming(server.bootstrap, name, **QUICK) as one:
        member = Member(one, name)
        settle([member], [2])
        client = admin(server.bootstrap)
        client.create_partitions([NewPartitions(name, 5)])[name].result()
        settle([member], [5])
        sent = fill(server.bootstrap, name, 3, partition=4)
        poll_until([member], lambda: len(member.seen) == 3, "records of the new partition")
        assert member.seen == sent

"""The scenarios that transactions of every client have to go through, over one node and over three.

A file of tests makes a class of these, with a fixture `client`. What Apache Kafka does is what is expected.
"""

import pytest

from tests.clients.confluent import create, fill
from tests.clients.transactions import UNCOMMITTED, Client, Fenced, Place, look, offset_of, settled, transacting
from tests.clients.waiting import until

PARTITIONS = 2
NO_OFFSET = -1001


def values(label: str, count: int) -> list[str]:
    return [f"{label} {number}" for number in range(count)]


class TransactionScenarios:
    def test_what_is_committed_is_seen_together_and_what_is_aborted_never(self, client: Client, place: Place, name: str) -> None:
        topics = [f"{name}-{number}" for number in range(2)]
        for topic in topics:
            create(place.bootstrap, topic, PARTITIONS)
        rounds = [("one", True), ("two", False), ("three", True), ("four", False)]
        with transacting(client, place.bootstrap, name) as transactor:
            for label, is_committed in rounds:
                transactor.begin()
                before = [look(place.bootstrap, topic, PARTITIONS) for topic in topics]
                for topic in topics:
                    for index in range(PARTITIONS):
                        transactor.send(topic, index, values(label, 5 + index))
                for topic, seen in zip(topics, before):
                    assert look(place.bootstrap, topic, PARTITIONS).values == seen.values
                    everything = look(place.bootstrap, topic, PARTITIONS, UNCOMMITTED).values
                    assert all(found[-5 - index :] == values(label, 5 + index) for index, found in enumerate(everything))
                transactor.commit() if is_committed else transactor.abort()
                for topic in topics:
                    settled(place.bootstrap, topic, PARTITIONS)
        for topic in topics:
            committed = [[*values("one", 5 + index), *values("three", 5 + index)] for index in range(PARTITIONS)]
            assert settled(place.bootstrap, topic, PARTITIONS) == committed
            everything = [[value for label, _ in rounds for value in values(label, 5 + index)] for index in range(PARTITIONS)]
            assert look(place.bootstrap, topic, PARTITIONS, UNCOMMITTED).values == everything

    def test_offsets_are_committed_with_the_transaction_or_not_at_all(self, client: Client, place: Place, name: str) -> None:
        source, target = f"{name}-source", f"{name}-target"
        create(place.bootstrap, source)
        create(place.bootstrap, target)
        fill(place.bootstrap, source, 10)
        with transacting(client, place.bootstrap, name) as transactor:
            transactor.begin()
            transactor.send(target, 0, [f"first {value}" for value in transactor.consume(name, source, 10)])
            transactor.send_offsets()
            transactor.abort()
        assert offset_of(place.bootstrap, name, source) == NO_OFFSET
        with transacting(client, place.bootstrap, name) as transactor:
            for _ in range(2):  # the group has committed nothing, and so all of them are there again
                transactor.begin()
                transactor.send(target, 0, [f"second {value}" for value in transactor.consume(name, source, 5)])
                transactor.send_offsets()
                transactor.commit()
        assert offset_of(place.bootstrap, name, source) == 10
        assert settled(place.bootstrap, target, 1) == [values("second", 10)]

    def test_a_zombie_is_fenced(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name)
        with transacting(client, place.bootstrap, name) as zombie:
            zombie.begin()
            zombie.send(name, 0, values("zombie", 3))
            with transacting(client, place.bootstrap, name) as successor:
                successor.begin()
                successor.send(name, 0, values("successor", 3))
                with pytest.raises(Fenced):
                    zombie.commit()
                successor.commit()
        assert settled(place.bootstrap, name, 1) == [values("successor", 3)]

    def test_a_transaction_that_takes_too_long_is_aborted(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name)
        with transacting(client, place.bootstrap, name, transaction_timeout_ms=1_000) as slow:
            slow.begin()
            slow.send(name, 0, values("late", 3))
            until(lambda: look(place.bootstrap, name, 1).ends == [4], "the marker of the coordinator")
            with pytest.raises(client.too_late):
                slow.commit()
        with transacting(client, place.bootstrap, name) as transactor:
            transactor.begin()
            transactor.send(name, 0, values("in time", 3))
            transactor.commit()
        assert settled(place.bootstrap, name, 1) == [values("in time", 3)]

    def test_what_a_killed_process_left_open_is_aborted_by_its_successor(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name)
        client.abandon(place.bootstrap, name, name, values("killed", 3))
        assert look(place.bootstrap, name, 1, UNCOMMITTED).values == [values("killed", 3)]
        assert look(place.bootstrap, name, 1).ends == [0]
        with transacting(client, place.bootstrap, name) as transactor:
            until(lambda: look(place.bootstrap, name, 1).ends == [4], "the end of what was left open")
            transactor.begin()
            transactor.send(name, 0, values("successor", 3))
            transactor.commit()
        assert settled(place.bootstrap, name, 1) == [values("successor", 3)]

    def test_empty_transactions_end(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name)
        with transacting(client, place.bootstrap, name) as transactor:
            for end in (transactor.commit, transactor.abort, transactor.commit):
                transactor.begin()
                end()
            transactor.begin()
            transactor.send(name, 0, values("after", 3))
            transactor.commit()
        assert settled(place.bootstrap, name, 1) == [values("after", 3)]

    def test_many_transactions_follow_each_other(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name, PARTITIONS)
        with transacting(client, place.bootstrap, name) as transactor:
            for number in range(place.many):
                transactor.begin()
                transactor.send(name, number % PARTITIONS, [str(number)])
                transactor.abort() if number % 10 == 9 else transactor.commit()
        committed = [str(number) for number in range(place.many) if number % 10 != 9]
        assert settled(place.bootstrap, name, PARTITIONS) == [committed_in(index, committed) for index in range(PARTITIONS)]

    def test_a_transaction_outlives_its_coordinator(self, client: Client, place: Place, name: str) -> None:
        create(place.bootstrap, name, PARTITIONS)
        with transacting(client, place.bootstrap, name) as transactor:
            for label, is_committed in (("one", True), ("two", False), ("three", True)):
                transactor.begin()
                transactor.send(name, 0, values(f"{label} before", 3))
                place.crash(name)
                transactor.send(name, 1, values(f"{label} after", 3))
                transactor.commit() if is_committed else transactor.abort()
                place.heal()
        wanted = [
            [f"{label} {when} {number}" for label in ("one", "three") for number in range(3)] for when in ("before", "after")
        ]
        assert settled(place.bootstrap, name, PARTITIONS) == wanted


def committed_in(index: int, numbers: list[str]) -> list[str]:
    return [number for number in numbers if int(number) % PARTITIONS == index]

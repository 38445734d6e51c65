"""The consumer as a member of groups of both protocols, on a node of ours and on Apache Kafka."""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest
from confluent_kafka.cimpl import NewPartitions

from odradek import sync
from odradek.client.admin import NewTopic
from odradek.client.consumer import Consumer
from odradek.client.errors import Fenced, InvalidOption, KafkaError, Refused, TimedOut
from odradek.client.group.classic import ClassicMember
from odradek.client.group.modern import ModernMember
from odradek.client.producer import Producer
from odradek.client.records import Committed, Record, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.consuming import (
    GROUP_SETTINGS,
    SECONDS_MAX,
    committed_by_others,
    consumer,
    make_anew,
    poll_until,
    run,
    take,
    until,
    values,
)
from tests.client.servers import Server
from tests.clients.confluent import admin, consuming, create, fill, read, rows

SETTINGS = GROUP_SETTINGS
PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "classic"])
AWAY_ROUNDS = 30  # in which another member asks, and gets nothing


class Member:
    """A consumer of a group, and what its callbacks were told."""

    def __init__(self, server: Server | str, group: str, *topics: str, **options: Any) -> None:
        self.assigned: list[list[int]] = []
        self.revoked: list[list[int]] = []
        self.lost: list[list[int]] = []
        callbacks = {
            "on_assigned": self._noting(self.assigned),
            "on_revoked": self._noting(self.revoked),
            "on_lost": self._noting(self.lost),
        }
        self.consumer = consumer(server, *topics, group=group, **{**callbacks, **options})

    def _noting(self, told: list[list[int]]) -> Callable[[list[TopicPartition]], None]:
        return lambda places: told.append([place.partition for place in places])

    @property
    def has(self) -> list[int]:
        return [place.partition for place in self.consumer.assignment()]

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        return self

    async def __aexit__(self, *error: Any) -> None:  # noqa: PYI036
        await self.consumer.__aexit__(*error)


async def settle(sizes: list[int], *members: Member) -> list[Record]:
    """Until they have so many partitions, all of them together."""

    def look() -> bool:
        everything = [index for member in members for index in member.has]
        return [len(member.has) for member in members] == sizes and len(everything) == len(set(everything))

    return await poll_until(look, *(member.consumer for member in members))


@PROTOCOLS
def test_members_come_and_go_and_nobody_stops_reading_what_it_keeps(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name, 6)

    async def story() -> None:
        terms = {"group_protocol": protocol}
        async with Member(server, name, name, **terms) as one:
            await settle([6], one)
            async with Member(server, name, name, **terms) as two:
                await settle([3, 3], one, two)
                assert sum(map(len, one.revoked)) == 3
                assert not set(one.has) & {index for told in one.revoked for index in told}
                assert [index for told in one.assigned for index in told] == list(range(6))
            await settle([6], one)
            await poll_until(lambda: sum(map(len, one.assigned)) == 9, one.consumer)
            assert not one.lost
            assert sum(map(len, one.revoked)) == 3

    run(story())


async def fail_at(offset: int, reader: Consumer) -> None:
    async with reader:
        async for record in reader:
            if record.offset == offset:
                raise LookupError("the program cannot do this one")


@PROTOCOLS
def test_a_group_goes_on_after_what_was_done_with(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 100)

    async def story() -> None:
        terms = {"group_protocol": protocol, "group": name}
        async with consumer(server, name, **terms) as reader:
            assert values(await take(reader, 40)) == list(range(40))
        assert committed_by_others(server, name, name, 0) == [40]
        with pytest.raises(LookupError):
            await fail_at(50, consumer(server, name, **terms))
        assert committed_by_others(server, name, name, 0) == [50]
        async with consumer(server, name, **terms) as reader:
            assert values(await take(reader, 50)) == list(range(50, 100))

    run(story())
    with consuming(server.bootstrap, name) as other:  # and another client goes on from there
        other.subscribe([name])
        fill(server.bootstrap, name, 1)
        assert [row.offset for row in rows(other, 1)] == [100]


@PROTOCOLS
def test_what_the_program_has_in_hand_is_not_committed(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 100)

    async def story() -> None:
        async with consumer(server, name, group=name, group_protocol=protocol, auto_commit_interval_ms=20) as reader:
            place = TopicPartition(name, 0)

            async def settled(offset: int) -> bool:
                return {place: Committed(offset, "", 0)} == await reader.committed(place)

            await take(reader, 10)
            assert reader._reader is not None
            assert reader._reader.commits is not None
            for _ in range(3):  # intervals pass, whatever it takes
                await reader._reader.commits.commit_last([place])
            assert not await settled(10)
            await take(reader, 10)
            while not await settled(10):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async for record in reader:
                if record.offset == 30:
                    break
            while not await settled(30):  # noqa: ASYNC110 - the record that is looked at is not done with
                await asyncio.sleep(0.01)
            assert not await settled(31)

    run(story())


@PROTOCOLS
def test_partitions_are_handed_over_when_the_program_is_done_with_what_it_has(server: Server, name: str, protocol: str) -> None:
    with sync.Admin(server.bootstrap) as administrator:
        administrator.create_topics([NewTopic(name, assignments={0: [1], 1: [1]})])  # so that both come with one answer
    for index in range(2):
        fill(server.bootstrap, name, 10, index)

    async def story() -> None:
        terms = {"group_protocol": protocol}
        async with Member(server, name, name, **terms) as one:
            seen = await one.consumer.poll(timeout_ms=30_000)
            assert len(seen) == 20  # both partitions are in its hand
            async with Member(server, name, name, **terms) as two:
                for _ in range(AWAY_ROUNDS):
                    assert await two.consumer.poll(timeout_ms=20) == []
                    assert (one.revoked, two.has) == ([], [])
                seen += await settle([1, 1], one, two)
                for index in range(2):
                    await asyncio.to_thread(fill, server.bootstrap, name, 10, index)
                seen += await poll_until(lambda: len(two.consumer.positions()) == 1, one.consumer, two.consumer)
                while len(seen) < 40:
                    seen += await one.consumer.poll(timeout_ms=20) + await two.consumer.poll(timeout_ms=20)
                found = sorted((record.partition, record.offset) for record in seen)
                assert found == [(index, offset) for index in range(2) for offset in range(20)]

    run(story())


@PROTOCOLS
def test_a_static_member_comes_back_to_its_share_and_nobody_else_hears_of_it(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name, 4)

    async def story() -> None:
        terms = {"group_protocol": protocol}
        async with Member(server, name, name, group_instance_id="one", **terms) as one:
            two = Member(server, name, name, group_instance_id="two", **terms)
            async with two:
                await settle([2, 2], one, two)
                share = two.has
            told = len(one.assigned), len(one.revoked)
            async with Member(server, name, name, group_instance_id="two", **terms) as again:
                await settle([2, 2], one, again)
                assert again.has == share
                assert (len(one.assigned), len(one.revoked)) == told

    run(story())


def test_a_member_whose_instance_another_one_has_is_at_its_end(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def story() -> None:
        terms = {"group_protocol": "classic", "group_instance_id": "the one"}
        async with Member(server, name, name, **terms) as one:
            await settle([1], one)
            async with Member(server, name, name, **terms) as two:
                await settle([1], two)
                for _ in range(2):  # and stays there
                    with pytest.raises(Fenced) as raised:
                        await poll_until(lambda: False, one.consumer)
                    assert raised.value.group == name
                await two.consumer.poll(timeout_ms=10)

    run(story())


@PROTOCOLS
def test_topics_of_a_pattern_are_read_as_they_come(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, f"{name}-a")
    create(server.bootstrap, f"not-{name}-a")
    fill(server.bootstrap, f"{name}-a", 3)
    fill(server.bootstrap, f"not-{name}-a", 3)

    async def story() -> None:
        pattern = re.compile(f"{name}-[a-z]")
        async with consumer(server, group=name, pattern=pattern, group_protocol=protocol) as reader:
            assert {record.topic for record in await take(reader, 3)} == {f"{name}-a"}
            if protocol == "consumer":
                return  # Kafka's coordinators look for new topics every ten seconds at most
            await asyncio.to_thread(create, server.bootstrap, f"{name}-b")
            await asyncio.to_thread(fill, server.bootstrap, f"{name}-b", 3)
            assert {record.topic for record in await take(reader, 3)} == {f"{name}-b"}

    run(story())


@PROTOCOLS
def test_partitions_that_are_added_are_shared_out_and_deleted_topics_are_let_go(server: Server, name: str, protocol: str) -> None:
    gone = f"{name}-gone"
    create(server.bootstrap, name)
    create(server.bootstrap, gone)
    fill(server.bootstrap, gone, 3)

    async def story() -> None:
        async with Member(server, name, name, gone, group_protocol=protocol) as one:
            await poll_until(lambda: len(one.consumer.assignment()) == 2, one.consumer)
            client = admin(server.bootstrap)
            await asyncio.to_thread(client.create_partitions([NewPartitions(name, 3)])[name].result)
            await poll_until(lambda: len(one.consumer.assignment()) == 4, one.consumer)
            await asyncio.to_thread(fill, server.bootstrap, name, 5, 2)
            seen: list[Record] = []
            while len(seen) < 5:
                seen += [record for record in await one.consumer.poll(timeout_ms=100) if record.topic == name]
            assert values(seen) == list(range(5))
            await asyncio.to_thread(client.delete_topics([gone])[gone].result)
            await poll_until(lambda: len(one.consumer.assignment()) == 3, one.consumer)
            assert {place.topic for place in one.consumer.assignment()} == {name}

    run(story())


@PROTOCOLS
def test_a_topic_that_is_made_anew_is_shared_out_anew_and_read_from_its_begin(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)

    async def story() -> None:
        async with Member(server, name, name, group_protocol=protocol) as one:
            assert values(await take(one.consumer, 5)) == list(range(5))
            await one.consumer.commit()
            await make_anew(server, name, 3)
            assert values(await take(one.consumer, 3)) == list(range(3))
            await one.consumer.commit()
            committed = await one.consumer.committed((name, 0))
            assert [each.offset for each in committed.values()] == [3]
            if protocol == "consumer":
                assert one.assigned == [[0], [0]], "by its id, it is another one"

    run(story())


@PROTOCOLS
def test_a_program_that_stays_away_loses_its_share_until_it_comes_back(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)

    async def story() -> None:
        terms = {"group_protocol": protocol}
        async with Member(server, name, name, max_poll_interval_ms=1_500, **terms) as one:
            assert values(await take(one.consumer, 5)) == list(range(5))
            async with Member(server, name, name, **terms) as two:
                assert values(await take(two.consumer, 5)) == list(range(5))  # nobody said that they were done with
                assert one.lost == [[0]]
                assert one.has == []
            await settle([1], one)
            await poll_until(lambda: one.assigned == [[0], [0]], one.consumer)

    run(story())


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_agree_by_every_assignor(server: Server, name: str, assignor: str) -> None:
    create(server.bootstrap, name, 4)

    async def story() -> None:
        terms = {"assignor": assignor}
        async with Member(server, name, name, **terms) as one, Member(server, name, name, **terms) as two:
            await settle([2, 2], one, two)
            assert isinstance(one.consumer._reader and one.consumer._reader.member, ClassicMember)
            if assignor == "range":
                assert sorted([one.has, two.has]) == [[0, 1], [2, 3]]
            had = one.has
            async with Member(server, name, name, **terms) as three:
                members = (one, two, three)
                sizes = [1, 1, 2]
                await poll_until(lambda: sorted(len(each.has) for each in members) == sizes, *(each.consumer for each in members))
                if assignor != "cooperative-sticky":  # everything is given up before it is shared out anew
                    assert one.revoked[-1] == had

    run(story())


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_of_librdkafka_are_in_the_same_group(server: Server, name: str, assignor: str) -> None:
    create(server.bootstrap, name, 4)

    async def story() -> None:
        settings = {"partition_assignment_strategy": assignor, "heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
        with consuming(server.bootstrap, name, **settings) as other:
            other.subscribe([name])
            await asyncio.to_thread(other.poll, 0.1)
            async with Member(server, name, name, assignor=assignor) as one:

                def look() -> bool:
                    other.poll(0.01)
                    return len(one.has) == 2 and len(other.assignment()) == 2

                await poll_until(look, one.consumer)
                shares = {place.partition for place in other.assignment()} | set(one.has)
                assert shares == {0, 1, 2, 3}

    run(story())


def test_a_group_has_the_new_protocol_unless_somebody_wants_it_otherwise(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def story() -> None:
        for wanted, kind in (({}, ModernMember), ({"assignor": "range"}, ClassicMember)):
            async with consumer(server, name, group=f"{name}-{kind.__name__}", **wanted) as reader:
                await poll_until(reader.assignment, reader)
                assert reader._reader is not None
                assert isinstance(reader._reader.member, kind)
                found = reader.group_metadata()
                assert (found.group, found.generation > 0, bool(found.member_id)) == (f"{name}-{kind.__name__}", True, True)

    run(story())


@PROTOCOLS
def test_offsets_are_committed_by_hand_also_while_partitions_are_given_up(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 20)
    place = TopicPartition(name, 0)

    async def story() -> None:
        reader: Consumer

        async def on_revoked(places: list[TopicPartition]) -> None:
            await reader.commit({place: Committed(17, "because it goes")})

        terms = {"group": name, "group_protocol": protocol, "auto_commit": False, "on_revoked": on_revoked}
        async with consumer(server, name, **terms) as reader:
            await take(reader, 10)
            assert await reader.committed(place) == {}
            await reader.commit()
            assert await reader.committed() == {place: Committed(10, "", 0)}
            await reader.commit({(name, 0): 5})
            assert (await reader.committed(place))[place].offset == 5
        assert committed_by_others(server, name, name, 0) == [17]
        async with consumer(server, group=name) as reader:
            assert (await reader.committed(place))[place].metadata == "because it goes"
            await reader.assign([place])
            assert values(await take(reader, 3)) == [17, 18, 19]

    run(story())


def test_what_a_callback_raises_is_raised_by_the_next_step(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 1)

    def on_assigned(places: list[TopicPartition]) -> None:
        raise LookupError("no place for these")

    async def story() -> None:
        async with consumer(server, name, group=name, on_assigned=on_assigned) as reader:
            with pytest.raises(LookupError, match="no place"):
                await take(reader, 1)
            assert values(await take(reader, 1)) == [0]

    run(story())


@PROTOCOLS
def test_a_callback_that_would_wait_for_its_own_end_is_told_so(server: Server, name: str, protocol: str) -> None:
    create(server.bootstrap, name, 2)

    async def story() -> None:
        async def on_revoked(_: list[TopicPartition]) -> None:
            await one.close()

        one = consumer(server, name, group=name, on_revoked=on_revoked, group_protocol=protocol)
        async with one:
            await poll_until(lambda: len(one.assignment()) == 2, one)
            async with Member(server, name, name, group_protocol=protocol) as two:
                with pytest.raises(InvalidOption, match="a callback cannot close"):
                    await poll_until(lambda: False, one, two.consumer)
                await poll_until(lambda: len(one.assignment()) == len(two.has) == 1, one, two.consumer)

    run(story())


@PROTOCOLS
def test_a_subscription_is_changed_and_given_up(server: Server, name: str, protocol: str) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        create(server.bootstrap, topic)
        fill(server.bootstrap, topic, 2)

    async def story() -> None:
        async with consumer(server, topics[0], group=name, group_protocol=protocol) as reader:
            assert {record.topic for record in await take(reader, 2)} == {topics[0]}
            await reader.subscribe(topics[1])
            assert {record.topic for record in await take(reader, 2)} == {topics[1]}
            assert reader._reader is not None
            member = reader._reader.member
            assert member is not None
            while not member.may_commit:  # noqa: ASYNC110 - while partitions are shared out nobody can commit
                await asyncio.sleep(0.01)
            await reader.unsubscribe()
            assert reader.assignment() == []
        assert committed_by_others(server, name, topics[0], 0) == [2]
        assert committed_by_others(server, name, topics[1], 0) == [2]

    run(story())


@PROTOCOLS
def test_offsets_are_committed_in_transactions(server: Server, name: str, protocol: str) -> None:
    target = f"{name}-target"
    create(server.bootstrap, name)
    create(server.bootstrap, target)
    fill(server.bootstrap, name, 20)

    async def story() -> None:
        terms = {"group": name, "group_protocol": protocol, "auto_commit": False}
        async with (
            consumer(server, name, **terms) as reader,
            Producer(server.bootstrap, transactional_id=name) as producer,
        ):
            for count, is_good in ((8, True), (12, False)):
                records = await take(reader, count)
                try:
                    async with producer.transaction():
                        for record in records:
                            await producer.send(target, record.value)
                        await producer.send_offsets(reader.positions(), reader.group_metadata())
                        if not is_good:
                            raise LookupError
                except LookupError:
                    pass
            assert (await reader.committed())[TopicPartition(name, 0)].offset == 8

    run(story())
    assert [int(each.value() or b"") for each in read(server.bootstrap, target, 8)] == list(range(8))


@PROTOCOLS
def test_what_was_lost_while_the_program_had_it_in_hand_is_in_no_transaction(server: Server, name: str, protocol: str) -> None:
    target = f"{name}-target"
    create(server.bootstrap, name)
    create(server.bootstrap, target)
    fill(server.bootstrap, name, 8)

    async def story() -> None:
        async with (
            Member(server, name, name, group_protocol=protocol, auto_commit=False, max_poll_interval_ms=1_500) as one,
            Producer(server.bootstrap, transactional_id=name) as producer,
        ):
            reader = one.consumer

            async def copy(records: list[Record]) -> None:
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value)
                    await producer.send_offsets(reader.positions(), reader.group_metadata())

            records = await take(reader, 8)
            await until(lambda: one.lost == [[0]], "the program stayed away, and its share is lost")
            with pytest.raises(Refused) as caught:
                await copy(records)
            assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
            with pytest.raises(Refused):
                await reader.commit()
            await copy(await take(reader, 8))
            assert (await reader.committed())[TopicPartition(name, 0)].offset == 8

    run(story())
    assert [int(each.value() or b"") for each in read(server.bootstrap, target, 8)] == list(range(8))


def test_what_was_lost_is_not_given_from_what_an_iteration_has_taken_ahead(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 8)
    lost = threading.Event()
    options: dict[str, Any] = {"bootstrap": server.bootstrap, "group": name, "auto_commit": False, "max_poll_interval_ms": 1_500}
    with sync.Consumer(name, **options, on_lost=lambda _: lost.set()) as reader:
        assert [next(reader).offset for _ in range(3)] == [0, 1, 2]
        assert lost.wait(SECONDS_MAX)
        for look in (reader.positions, reader.commit):
            with pytest.raises(Refused):
                look()
        assert [next(reader).offset for _ in range(3)] == [0, 1, 2], "nothing was committed, and it has it again"
        assert reader.positions()[TopicPartition(name, 0)].offset == 3


def test_offsets_of_an_open_transaction_are_waited_for(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    place = TopicPartition(name, 0)

    async def story() -> None:
        async with (
            consumer(server, group=name) as reader,
            consumer(server, group=name, isolation="read_uncommitted") as hasty,
            Producer(server.bootstrap, transactional_id=name) as producer,
        ):
            await hasty.commit({place: 1})
            await producer.begin_transaction()
            await producer.send_offsets({place: Committed(5)}, name)
            assert (await hasty.committed(place))[place].offset == 1
            with pytest.raises(TimedOut, match="UNSTABLE_OFFSET_COMMIT"):
                await reader.committed(place, timeout_ms=200)
            waiting = asyncio.create_task(reader.committed(place))
            await producer.commit_transaction()
            assert (await waiting)[place].offset == 5

    run(story())


def test_failures_of_a_group_are_one_family_that_says_whether_to_try_again(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def story() -> None:
        async with consumer(server, name, group=name, assignor="range") as one:
            await poll_until(one.assignment, one)
            async with consumer(server, name, group=name, assignor="roundrobin") as two:
                with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL") as raised:
                    await poll_until(lambda: False, two)
                assert (raised.value.group, raised.value.is_retriable) == (name, False)

    run(story())

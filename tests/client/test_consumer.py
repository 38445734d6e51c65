"""The consumer by itself: what it reads and from where, on a node of ours and on Apache Kafka. librdkafka writes for it."""

import asyncio
import random
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.cimpl import NewPartitions

from odradek.client.consumer import Consumer
from odradek.client.errors import Closed, InvalidOption, NoOffset
from odradek.client.records import Record, TopicPartition
from odradek.client.unpacking import Unpacking
from tests.client.consuming import consumer, make_anew, poll_until, run, take, until, values
from tests.client.servers import Server
from tests.clients.confluent import Sender, admin, create, fill

SETTINGS = {"auto_create_topics_enable": "false"}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec_are_read_as_they_were_sent(server: Server, name: str, codec: str) -> None:
    create(server.bootstrap, name)
    sender = Sender(server.bootstrap, compression_type=codec)
    for number in range(300):
        headers = [("n", b"%d" % number), ("n", None), ("é", b"")] if number % 3 == 0 else None
        key = b"%d" % (number % 7) if number % 2 else None
        sender.send(name, b"x" * number if number else None, key, timestamp=1_700_000_000_000 + number, headers=headers)
    sender.finish()

    async def story() -> None:
        async with consumer(server, name) as reader:
            found = await take(reader, 300)
        expected = [
            Record(
                name,
                0,
                number,
                1_700_000_000_000 + number,
                b"%d" % (number % 7) if number % 2 else None,
                b"x" * number if number else None,
                (("n", b"%d" % number), ("n", None), ("é", b"")) if number % 3 == 0 else (),
            )
            for number in range(300)
        ]
        assert found == expected

    run(story())


def test_an_iteration_gives_all_partitions_each_in_its_order(server: Server, name: str) -> None:
    create(server.bootstrap, name, 3)
    for index in range(3):
        fill(server.bootstrap, name, 400, index)

    async def story() -> None:
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with consumer(server, name) as reader:
            async for record in reader:
                found[record.partition].append(record.offset)
                if sum(map(len, found.values())) == 1200:
                    break
        assert found == {index: list(range(400)) for index in range(3)}

    run(story())


def test_closing_ends_an_iteration(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 3)

    async def story() -> None:
        reader = consumer(server, name)
        found: list[int] = []

        async def read() -> None:
            async for record in reader:
                found.append(record.offset)  # noqa: PERF401 - it is looked at meanwhile

        reading = asyncio.create_task(read())
        await until(lambda: len(found) == 3, "all were read")
        await reader.close()
        await reading
        with pytest.raises(Closed):
            await reader.poll()

    run(story())


def test_a_position_is_moved_by_offset_by_time_and_to_both_ends(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    sender = Sender(server.bootstrap)
    for number in range(100):
        sender.send(name, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + 10 * number)
    sender.finish()
    place = TopicPartition(name, 0)

    async def story() -> None:
        async with consumer(server) as reader:
            await reader.assign({place: 40})
            assert values(await take(reader, 2)) == [40, 41]
            reader.seek(place, 7)
            assert await reader.position(place) == 7
            assert values(await take(reader, 2)) == [7, 8]
            reader.seek_to_time(1_700_000_000_995 - 500, place)
            assert values(await take(reader, 1)) == [50]
            reader.seek_to_time(1_800_000_000_000, place)
            assert await reader.position(place) == 100
            reader.seek_to_beginning()
            assert values(await take(reader, 100)) == list(range(100))
            reader.seek_to_end(place)
            assert await reader.position(place) == 100
            fill(server.bootstrap, name, 1)
            assert values(await take(reader, 1)) == [0]
            other = TopicPartition(name, 1)
            times = {place: 1_700_000_000_001, other: 0, (name, 0): 1_700_000_000_001}
            assert await reader.offsets_for_times(times) == {place: 1, other: None}
            assert await reader.beginning_offsets(place, other) == {place: 0, other: 0}
            assert await reader.end_offsets(place, other) == {place: 101, other: 0}

    run(story())


def test_where_there_is_no_offset_the_policy_says_where_to_begin(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    place = TopicPartition(name, 0)

    async def story() -> None:
        async with consumer(server, auto_offset_reset="latest") as reader:
            await reader.assign([place])
            assert await reader.position(place) == 10
            reader.seek(place, 500)  # out of range
            await poll_until(lambda: place in (there := reader.positions()) and there[place].offset == 10, reader)
        async with consumer(server, auto_offset_reset="none") as reader:
            await reader.assign([place])
            with pytest.raises(NoOffset, match="auto_offset_reset") as raised:
                await reader.poll()
            assert (raised.value.topic, raised.value.partition, raised.value.is_retriable) == (name, 0, False)
            reader.seek(place, 4)
            assert values(await take(reader, 1)) == [4]

    run(story())


def test_what_is_paused_is_not_given_and_nothing_of_it_is_lost(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, 1000, 0)
    fill(server.bootstrap, name, 50, 1)
    busy, quiet = TopicPartition(name, 0), TopicPartition(name, 1)

    async def story() -> None:
        async with consumer(server, prefetch_bytes=4096, max_partition_fetch_bytes=2048) as reader:
            await reader.assign([busy])
            first = await take(reader, 3)
            await reader.assign({busy: 3, quiet: 0})
            reader.pause(busy)
            assert reader.paused() == [busy]
            assert {record.partition for record in await take(reader, 50)} == {1}
            assert not await reader.poll(timeout_ms=50)
            reader.resume(busy)
            assert values(first + await take(reader, 997)) == list(range(1000))

    run(story())


def test_a_pause_in_an_iteration_holds_from_the_next_record_on(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    for index in range(2):
        fill(server.bootstrap, name, 100, index)

    async def story() -> None:
        found = []
        async with consumer(server, name) as reader:
            async for record in reader:
                found.append((record.partition, record.offset))
                if len(found) == 5:
                    reader.pause((name, record.partition))
                if len(found) == 105:
                    reader.resume()
                if len(found) == 200:
                    break
        first = found[0][0]
        assert {partition for partition, _ in found[5:105]} == {1 - first}
        assert [offset for partition, offset in found if partition == first] == list(range(100))

    run(story())


def test_the_lag_is_what_is_ahead_of_the_position(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 100)
    place = TopicPartition(name, 0)

    async def story() -> None:
        async with consumer(server) as reader:
            await reader.assign([place])
            assert reader.lag(place) is None
            await take(reader, 30)
            assert reader.lag(place) == 70
            await take(reader, 70)
            assert reader.lag(place) == 0

    run(story())


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_what_was_aborted_is_read_only_by_who_wants_it(server: Server, name: str, isolation: Any) -> None:
    create(server.bootstrap, name)
    producer = ConfluentProducer({"bootstrap.servers": server.bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(30)
    expected = []
    for round_ in range(6):
        producer.begin_transaction()
        for number in range(20):
            producer.produce(name, b"%d" % (100 * round_ + number), partition=0)
        producer.flush()
        fill(server.bootstrap, name, 1)
        if round_ % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        is_read = isolation == "read_uncommitted" or round_ % 2 == 0
        expected += [*([100 * round_ + number for number in range(20)] if is_read else []), 0]

    async def story() -> None:
        async with consumer(server, name, isolation=isolation) as reader:
            found: list[Record] = []
            await poll_until(lambda: reader.positions().get(TopicPartition(name, 0)) is not None, reader)
            reader.seek_to_beginning()
            found = await take(reader, len(expected))
            assert values(found) == expected
            end = (await reader.end_offsets((name, 0)))[TopicPartition(name, 0)]
            await poll_until(lambda: reader.positions()[TopicPartition(name, 0)].offset == end, reader)
            assert reader.lag((name, 0)) == 0

    run(story())


def test_an_open_transaction_hides_what_comes_after_it(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    producer = ConfluentProducer({"bootstrap.servers": server.bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(30)
    fill(server.bootstrap, name, 1)
    producer.begin_transaction()
    producer.produce(name, b"7", partition=0)
    producer.flush()
    fill(server.bootstrap, name, 1)

    async def story() -> None:
        async with consumer(server, name) as reader:
            assert values(await take(reader, 1)) == [0]
            assert not await reader.poll(timeout_ms=100)
            await asyncio.to_thread(producer.commit_transaction, 30)
            assert values(await take(reader, 2)) == [7, 0]

    run(story())


def test_a_cancelled_step_takes_nothing(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    for index in range(2):
        fill(server.bootstrap, name, 1500, index)
    chance = random.Random(7)

    async def story() -> None:
        found: dict[int, list[int]] = {0: [], 1: []}
        is_polling = True
        async with consumer(server, name, max_partition_fetch_bytes=3000) as reader:

            async def step() -> None:
                if is_polling:
                    records = await reader.poll(20)
                else:
                    records = [await anext(reader)]
                for record in records:
                    found[record.partition].append(record.offset)

            while sum(map(len, found.values())) < 3000:
                is_polling = chance.random() < 0.5
                stepping = asyncio.create_task(step())
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                stepping.cancel()
                await asyncio.wait([stepping])
        assert found == {0: list(range(1500)), 1: list(range(1500))}

    run(story())


def test_memory_of_what_is_fetched_ahead_is_bounded(server: Server, name: str) -> None:
    create(server.bootstrap, name, 3)
    for index in range(3):
        fill(server.bootstrap, name, 5000, index, batch_size=2000)
    bound = 20_000

    async def story() -> None:
        async with consumer(server, name, prefetch_bytes=bound) as reader:
            count, most = 0, 0
            async for _ in reader:
                count += 1
                if count % 100 == 0:
                    await asyncio.sleep(0)
                assert reader._reader is not None
                most = max(most, reader._reader.fetcher.buffer.bytes_held)
                if count == 15_000:
                    break
            assert 0 < most <= bound + 3 * 2100  # and one batch of each broker

    run(story())


def test_partitions_that_are_added_are_read_from_their_begin(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)

    async def story() -> None:
        async with consumer(server, name, auto_offset_reset="latest") as reader:
            await poll_until(lambda: len(reader.positions()) == 1, reader)
            client = admin(server.bootstrap)
            await asyncio.to_thread(client.create_partitions([NewPartitions(name, 3)])[name].result)
            await asyncio.to_thread(fill, server.bootstrap, name, 10, 2)
            assert values(await take(reader, 10)) == list(range(10))

    run(story())


def test_a_topic_that_is_made_anew_is_read_from_its_begin(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 20)

    async def story() -> None:
        async with consumer(server, name) as reader:
            assert values(await take(reader, 20)) == list(range(20))
            await make_anew(server, name, 30)
            assert values(await take(reader, 30)) == list(range(30))

    run(story())


def test_without_a_policy_it_is_an_error_that_a_topic_was_made_anew(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 20)

    async def story() -> None:
        async with Consumer(bootstrap=server.bootstrap, auto_offset_reset="none") as reader:
            await reader.assign({(name, 0): 0}, {(name, 0): 20})
            assert values(await take(reader, 20)) == list(range(20))
            await make_anew(server, name, 30)
            await reader.assign({(name, 0): 10})  # of which one, it cannot know
            with pytest.raises(NoOffset):
                await take(reader, 20)
            reader.seek((name, 0), 10)
            assert values(await take(reader, 20)) == list(range(10, 30))

    run(story())


def test_a_topic_that_is_not_there_yet_is_read_when_it_is(server: Server, name: str) -> None:
    async def story() -> None:
        async with consumer(server, name) as reader:
            assert await reader.poll(timeout_ms=10) == []
            await asyncio.to_thread(create, server.bootstrap, name)
            await asyncio.to_thread(fill, server.bootstrap, name, 3)
            assert values(await take(reader, 3)) == [0, 1, 2]

    run(story())


def test_batches_are_given_as_they_came_and_positions_follow(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 3000, batch_size=5000)

    async def story() -> None:
        place = TopicPartition(name, 0)
        found: list[Record] = []
        async with consumer(server, name, max_partition_fetch_bytes=20_000) as reader:
            found += await take(reader, 10)
            while len(found) < 3000:
                for batches in await reader.poll_batches(1):
                    assert batches.offset == len(found)
                    unpacking = Unpacking(batches.partition, batches.records, batches.offset, batches.aborted)
                    found += unpacking.take(1 << 30)
                    assert unpacking.next_offset == batches.next_offset
                assert reader.positions()[place].offset == len(found)
        assert values(found) == list(range(3000))

    run(story())


def test_properties_go_by_the_names_of_librdkafka_and_java(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 4)
    properties = {
        "bootstrap.servers": server.bootstrap,
        "group.id": name,
        "auto.offset.reset": "smallest",
        "enable.auto.commit": "false",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "max.poll.records": 2,
    }

    async def story() -> None:
        async with Consumer.of(properties, name) as reader:
            assert len(await take(reader, 2)) == 2
            assert (await reader.committed()) == {}

    run(story())


def test_what_cannot_be_is_refused_before_anything_is_done() -> None:
    for wrong in (
        {"isolation": "dirty"},
        {"auto_offset_reset": "middle"},
        {"group_protocol": "new"},
        {"prefetch_bytes": 0},
        {"pattern": "("},
    ):
        with pytest.raises(InvalidOption):
            Consumer(**wrong)
    with pytest.raises(InvalidOption, match="pattern="):
        Consumer("^orders.*")
    with pytest.raises(InvalidOption, match=r"auto.offset.reset"):
        Consumer.of({"auto.ofset.reset": "earliest"})

"""Reading up to an offset: exact to the record, and it ends whatever is at the end. librdkafka writes."""

from collections.abc import Mapping

from confluent_kafka import Producer as ConfluentProducer

from odradek.client.consumer import Consumer
from odradek.client.records import Record, TopicPartition
from tests.client.consuming import consumer, run, until
from tests.client.servers import Server
from tests.clients.confluent import create, fill

SETTINGS = {"auto_create_topics_enable": "false", "log_cleaner_enable": "true", "log_cleaner_backoff_ms": "100"}
Range = tuple[int, int]


async def read(reader: Consumer, place: TopicPartition, start: int, end: int) -> list[int]:
    """The offsets of a range, by polls for records until the position is at its end."""
    await reader.assign({place: start}, {place: end})
    found: list[int] = []
    while await reader.position(place) < end:
        found += [each.offset for each in await reader.poll(timeout_ms=100)]
    assert await reader.poll(timeout_ms=50) == []
    return found


async def read_arrow(reader: Consumer, place: TopicPartition, start: int, end: int) -> list[int]:
    """The same, by whole batches."""
    await reader.assign({place: start}, {place: end})
    found: list[int] = []
    while await reader.position(place) < end:
        found += (await reader.poll_arrow(timeout_ms=100, columns=["offset"])).column("offset").to_pylist()
    return found


def ranges_are_read(server: Server, name: str, expected: Mapping[Range, list[int]], isolation: str = "read_committed") -> None:
    async def story() -> None:
        place = TopicPartition(name, 0)
        async with consumer(server, isolation=isolation) as reader:
            for (start, end), offsets in expected.items():
                assert await read(reader, place, start, end) == offsets, (start, end)
                assert await read_arrow(reader, place, start, end) == offsets, (start, end)

    run(story())


def test_a_range_ends_inside_a_batch(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 100, linger_ms=200)
    fill(server.bootstrap, name, 100, linger_ms=200)
    wanted = [(0, 1), (0, 50), (37, 38), (50, 150), (99, 101), (150, 200), (7, 7), (200, 200)]
    ranges_are_read(server, name, {(start, end): [*range(start, end)] for start, end in wanted})


def test_nothing_from_the_end_of_a_range_on_is_given_when_it_comes_later(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)

    async def story() -> None:
        place = TopicPartition(name, 0)
        async with consumer(server) as reader:
            await reader.assign({place: 3}, {place: 7})
            found: list[Record] = []
            while len(found) < 2:
                found += await reader.poll(timeout_ms=100)
            fill(server.bootstrap, name, 5)
            while await reader.position(place) < 7:
                found += await reader.poll(timeout_ms=100)
            assert [each.offset for each in found] == [3, 4, 5, 6]
            assert await reader.poll(timeout_ms=50) == []

    run(story())


def test_one_partition_ends_and_another_goes_on(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    for index in range(2):
        fill(server.bootstrap, name, 20, index)

    async def story() -> None:
        places = [TopicPartition(name, index) for index in range(2)]
        async with consumer(server) as reader:
            await reader.assign(dict.fromkeys(places, 0), {places[0]: 6})
            found: list[Record] = []
            while len(found) < 26:
                found += await reader.poll(timeout_ms=100)
            assert [each.offset for each in found if each.partition == 0] == [*range(6)]
            assert [each.offset for each in found if each.partition == 1] == [*range(20)]
            assert reader.lag(places[1]) == 0

    run(story())


def test_a_range_may_end_with_transactions_whatever_became_of_them(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 2)
    producer = ConfluentProducer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for end in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(name, b"x", partition=0)
        producer.flush(60)
        end(60)
    # 0 1 | 2 3 4 aborted, 5 | 6 7 8 committed, 9 | 10 11 12 aborted, 13
    everything = [0, 1, 2, 3, 4, 6, 7, 8, 10, 11, 12]
    ends = [(0, 14), (0, 13), (0, 11), (0, 9), (0, 5), (3, 4), (4, 8), (10, 14), (13, 14)]
    committed = {(start, end): [each for each in (0, 1, 6, 7, 8) if start <= each < end] for start, end in ends}
    ranges_are_read(server, name, committed)
    uncommitted = {(start, end): [each for each in everything if start <= each < end] for start, end in ends}
    ranges_are_read(server, name, uncommitted, "read_uncommitted")


def test_a_range_whose_end_was_compacted_away_ends(server: Server, name: str) -> None:
    create(server.bootstrap, name, cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    sender = ConfluentProducer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    for number in range(40):
        sender.produce(name, b"v", b"%d" % (number % 10), partition=0)
        sender.flush(60)

    async def story() -> None:
        place = TopicPartition(name, 0)
        async with consumer(server) as reader:
            while len(found := await read(reader, place, 0, 40)) > 10:
                sender.produce(name, b"v", b"last", partition=0)  # which begins a segment: the one before it can be cleaned
                sender.flush(60)
            assert found == [*range(30, 40)]
            for start, end in ((0, 10), (5, 29), (0, 30), (29, 30)):
                assert await read(reader, place, start, end) == []
                assert await read_arrow(reader, place, start, end) == []
            assert await read_arrow(reader, place, 12, 35) == [30, 31, 32, 33, 34]

    run(story())


def test_a_position_beyond_the_end_is_at_the_end(server: Server, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 5)

    async def story() -> None:
        place = TopicPartition(name, 0)
        async with consumer(server) as reader:
            await reader.assign({place: 5}, {place: 3})
            assert await reader.poll(timeout_ms=50) == []
            await until(lambda: reader.assignment() == [place], "it is assigned")

    run(story())

"""Every client library with every codec: what one of them produced is read by all of them, and lies compressed on disk.

Each library brings its own codecs and frames them in its own way (snappy as one block or as Xerial's blocks, zstd with the size
or without), so a node that looks into batches, as it does when a topic asks for another codec, has to know all of them.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from odradek.wire.batch import headers
from odradek.wire.compression import Codec
from tests.clients.confluent import Sender, create, read
from tests.clients.waiting import SECONDS_MAX, until
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle

BLOCKS_BYTES = 100_000  # more than one block of every codec's framing: Xerial's have 32 kB, lz4's 64 kB
LINGER_MS = 50
NAMES = {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}


class Row(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


ROWS = [
    *(Row(1_600_000_000_000 + number, b"key %d" % (number % 5), b"value %d " % number * 20) for number in range(50)),
    Row(1_600_000_000_100, None, b""),
    Row(1_600_000_000_101, b"", None),
    Row(1_600_000_000_102, b"wide", b"".join(b"%d " % number for number in range(BLOCKS_BYTES // 5))),
]


class Trip(NamedTuple):
    """One topic, as all the libraries come to it."""

    server: Broker
    oracle: Oracle
    topic: str


def produce_by_confluent(trip: Trip, codec: str) -> None:
    sender = Sender(trip.server.bootstrap, compression_type=codec, linger_ms=LINGER_MS)
    for row in ROWS:
        sender.send(trip.topic, row.value, row.key, partition=0, timestamp=row.timestamp_ms)
    assert len(sender.all_delivered()) == len(ROWS)


def consume_by_confluent(trip: Trip) -> list[Row]:
    found = read(trip.server.bootstrap, trip.topic, len(ROWS))
    return [Row(message.timestamp()[1], message.key(), message.value()) for message in found]


def produce_by_kafka_python(trip: Trip, codec: str) -> None:
    settings = {"compression_type": None if codec == "none" else codec, "linger_ms": LINGER_MS}
    with closing(KafkaProducer(bootstrap_servers=trip.server.bootstrap, **settings)) as producer:
        sent = [producer.send(trip.topic, row.value, row.key, partition=0, timestamp_ms=row.timestamp_ms) for row in ROWS]
        producer.flush()
        assert [each.get(SECONDS_MAX).offset for each in sent] == list(range(len(ROWS)))


def consume_by_kafka_python(trip: Trip) -> list[Row]:
    found: list[Any] = []
    with closing(KafkaConsumer(bootstrap_servers=trip.server.bootstrap, auto_offset_reset="earliest")) as consumer:
        consumer.assign([PythonPartition(trip.topic, 0)])

        def look() -> bool:
            for some in consumer.poll(SECONDS_MAX * 1000).values():
                found.extend(some)
            return len(found) >= len(ROWS)

        until(look, "all rows")
    return [Row(record.timestamp, record.key, record.value) for record in found]


def produce_by_aiokafka(trip: Trip, codec: str) -> None:
    async def run() -> None:
        settings = {"compression_type": None if codec == "none" else codec, "linger_ms": LINGER_MS}
        async with AIOKafkaProducer(bootstrap_servers=trip.server.bootstrap, **settings) as producer:
            sent = [
                await producer.send(trip.topic, row.value, row.key, partition=0, timestamp_ms=row.timestamp_ms) for row in ROWS
            ]
            assert [each.offset for each in await asyncio.gather(*sent)] == list(range(len(ROWS)))

    asyncio.run(asyncio.wait_for(run(), SECONDS_MAX))


def consume_by_aiokafka(trip: Trip) -> list[Row]:
    async def run() -> list[Row]:
        async with AIOKafkaConsumer(bootstrap_servers=trip.server.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([AioPartition(trip.topic, 0)])
            found = [await consumer.getone() for _ in ROWS]
        return [Row(record.timestamp, record.key, record.value) for record in found]

    return asyncio.run(asyncio.wait_for(run(), SECONDS_MAX))


def produce_by_java(trip: Trip, codec: str) -> None:
    settings = {"compression.type": codec, "linger.ms": str(LINGER_MS)}
    at = {"bootstrap": trip.server.bootstrap, "topic": trip.topic, "partition": 0}
    rows = [[row.timestamp_ms, *(None if part is None else part.hex() for part in row[1:])] for row in ROWS]
    assert trip.oracle.call("Clients.produce", **at, rows=rows, settings=settings) == list(range(len(ROWS)))


def consume_by_java(trip: Trip) -> list[Row]:
    found = trip.oracle.call("Clients.consume", bootstrap=trip.server.bootstrap, topic=trip.topic, partition=0)
    return [Row(row[1], *(None if part is None else bytes.fromhex(part) for part in row[2:])) for row in found]


PRODUCERS: dict[str, Callable[[Trip, str], None]] = {
    "confluent-kafka": produce_by_confluent,
    "kafka-python": produce_by_kafka_python,
    "aiokafka": produce_by_aiokafka,
    "java": produce_by_java,
}
CONSUMERS: dict[str, Callable[[Trip], list[Row]]] = {
    "confluent-kafka": consume_by_confluent,
    "kafka-python": consume_by_kafka_python,
    "aiokafka": consume_by_aiokafka,
    "java": consume_by_java,
}


def codecs_on_disk(server: Broker, topic: str) -> set[int]:
    (path,) = (server.data / f"{topic}-0").glob("*.log")
    return {header.codec for _, header in headers(path.read_bytes())}


@pytest.mark.parametrize("codec", NAMES, ids=NAMES.values())
@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_a_client_produced_with_a_codec_every_client_reads(
    server: Broker, oracle: Oracle, name: str, producer: str, codec: Codec
) -> None:
    create(server.bootstrap, name)
    trip = Trip(server, oracle, name)
    PRODUCERS[producer](trip, NAMES[codec])
    assert codecs_on_disk(server, name) == {codec}
    for consumer, consume in CONSUMERS.items():
        assert consume(trip) == ROWS, consumer


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_topic_has_what_a_client_produced_in_its_own_codec(server: Broker, oracle: Oracle, name: str, producer: str) -> None:
    for codec, label in NAMES.items():
        own = Codec.GZIP if codec is not Codec.GZIP else Codec.ZSTD
        trip = Trip(server, oracle, f"{name}-{label}")
        create(server.bootstrap, trip.topic, compression_type=NAMES[own])
        PRODUCERS[producer](trip, label)
        assert codecs_on_disk(server, trip.topic) == {own}
        assert consume_by_confluent(trip) == ROWS

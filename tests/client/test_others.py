"""What this client writes others read, and the other way round: aiokafka and kafka-python, on our cluster and on Apache Kafka."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.records import Record
from tests.client.servers import Server
from tests.clients.confluent import create
from tests.clients.waiting import until

COUNT = 300
PARTITIONS = 3
CODECS = pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
Row = tuple[int, int, bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


def row(record: Any) -> Row:
    """Of any client's record."""
    at_ms = record.timestamp_ms if isinstance(record, Record) else record.timestamp
    return record.partition, record.offset, record.key, record.value, at_ms, tuple(tuple(each) for each in record.headers)


def given(number: int) -> dict[str, Any]:
    return {
        "value": b"%d" % number if number % 11 else None,
        "key": b"key %d" % (number % 17) if number % 5 or not number % 11 else None,  # aiokafka sends no record without both
        "headers": [("n", b"%d" % number)] if number % 2 else [],
        "timestamp_ms": 1_700_000_000_000 + number,
    }


async def written(server: Server, topic: str, codec: str) -> None:
    async with Producer(server.bootstrap, compression=codec, batch_size=2_000) as producer:
        for number in range(COUNT):
            await producer.send(topic, **given(number))


async def read(server: Server, topic: str) -> list[Row]:
    found: list[Record] = []
    async with Consumer(topic, bootstrap=server.bootstrap) as consumer:
        while len(found) < COUNT:
            found += await consumer.poll(timeout_ms=500)
    return sorted(map(row, found))


async def read_by_aiokafka(server: Server, topic: str) -> list[Row]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: list[Any] = []
    try:
        while len(found) < COUNT:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
    finally:
        await consumer.stop()
    return sorted(map(row, found))


def read_by_kafka_python(server: Server, topic: str) -> list[Row]:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    found: list[Any] = []

    def look() -> bool:
        for records in consumer.poll(500).values():
            found.extend(records)
        return len(found) >= COUNT

    try:
        until(look, f"{COUNT} records")
    finally:
        consumer.close()
    return sorted(map(row, found))


@CODECS
def test_what_this_client_writes_others_read_as_this_one_does(server: Server, name: str, codec: str) -> None:
    create(server.bootstrap, name, PARTITIONS)
    run(written(server, name, codec))
    here = run(read(server, name))
    assert sorted((each[3] or b"", each[4]) for each in here) == sorted(
        (given(number)["value"] or b"", given(number)["timestamp_ms"]) for number in range(COUNT)
    )
    assert run(read_by_aiokafka(server, name)) == here
    assert read_by_kafka_python(server, name) == here


@CODECS
def test_what_aiokafka_writes_this_client_reads_as_others_do(server: Server, name: str, codec: str) -> None:
    create(server.bootstrap, name, PARTITIONS)

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap, compression_type=None if codec == "none" else codec)
        await producer.start()
        try:
            for number in range(COUNT):
                await producer.send(name, **given(number))
        finally:
            await producer.stop()

    run(write())
    here = run(read(server, name))
    assert len(here) == COUNT
    assert run(read_by_aiokafka(server, name)) == here
    assert read_by_kafka_python(server, name) == here


def test_keys_go_where_others_send_them(server: Server, name: str) -> None:
    create(server.bootstrap, name, PARTITIONS)

    async def work() -> dict[bytes | None, set[int]]:
        keys = [b"key %d" % number for number in range(100)]
        async with Producer(server.bootstrap) as producer:
            for key in keys:
                await producer.send(name, b"ours", key=key)
        other = AIOKafkaProducer(bootstrap_servers=server.bootstrap)
        await other.start()
        for key in keys:
            await other.send(name, b"aiokafka's", key=key)
        await other.stop()
        third = KafkaProducer(bootstrap_servers=server.bootstrap)
        for key in keys:
            third.send(name, b"kafka-python's", key=key)
        third.close()
        found: dict[bytes | None, set[int]] = {}
        seen = 0
        async with Consumer(name, bootstrap=server.bootstrap) as consumer:
            while seen < 300:
                for record in await consumer.poll(timeout_ms=500):
                    found.setdefault(record.key, set()).add(record.partition)
                    seen += 1
        return found

    found = run(work())
    assert len(found) == 100
    assert all(len(places) == 1 for places in found.values())

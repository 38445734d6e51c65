"""The Python client beside confluent-kafka, aiokafka and kafka-python: records/s produced and consumed, on one node.

python bench/client.py [--rounds 5] [--records 200000] [--only produce|consume] [--kafka]

All produce with acks=all and idempotence, batches of 128 KB, 5 ms of linger, no compression, record by record, and are done when
all is acknowledged; `arrow` sends one table, and `from a table` the same one, row by row. All consume a topic of one partition
from its beginning, without a group, and look at every record; `arrow` counts rows of tables, and `to a table` makes such tables.
Each run is a process of its own, which is warm before it is measured; the clients take turns, and a ratio is of the medians
of the rounds. With --kafka the broker is Apache Kafka 4.3.1.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from bench.broker import create
from bench.servers import Kafka, Odradek

SIZES: Final = (100, 1000)
WARM: Final = 20_000
BATCH: Final = 128 * 1024
POLL: Final = 500
TABLE_POLL: Final = 50_000
Timed = Callable[[str, str, int, int], float]  # address, topic, size of a value, count -> seconds


# -- produce


def produce_odradek(address: str, topic: str, size: int, count: int) -> float:
    from odradek import Producer

    async def work() -> float:
        value = bytes(size)
        async with Producer(address, compression="none", batch_size=BATCH) as producer:
            for _ in range(WARM):
                await producer.send(topic, value)
            await producer.flush()
            begin = time.perf_counter()
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
            return time.perf_counter() - begin

    return asyncio.run(work())


def produce_arrow(address: str, topic: str, size: int, count: int) -> float:
    import pyarrow as pa

    from odradek import Producer

    async def work() -> float:
        table = pa.table({"value": pa.array([bytes(size)] * count, pa.binary())})
        async with Producer(address, compression="none", buffer_memory=64 * 1024 * 1024) as producer:
            await (await producer.send_arrow(topic, table[:WARM]))
            begin = time.perf_counter()
            await (await producer.send_arrow(topic, table))
            return time.perf_counter() - begin

    return asyncio.run(work())


def confluent_sender(address: str, topic: str) -> Callable[[Iterable[bytes]], None]:
    """Sends values one by one, and is done when all are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": BATCH,
            "queue.buffering.max.messages": 1_000_000,
        }
    )

    def send(values: Iterable[bytes]) -> None:
        for value in values:
            while True:
                try:
                    producer.produce(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        assert producer.flush(60) == 0

    return send


def produce_confluent(address: str, topic: str, size: int, count: int) -> float:
    send, value = confluent_sender(address, topic), bytes(size)
    send(repeat(value, WARM))
    begin = time.perf_counter()
    send(repeat(value, count))
    return time.perf_counter() - begin


def produce_confluent_table(address: str, topic: str, size: int, count: int) -> float:
    """What a program does that has a table: its values, row by row."""
    import pyarrow as pa

    send = confluent_sender(address, topic)
    table = pa.table({"value": pa.array([bytes(size)] * count, pa.binary())})
    send(table[:WARM].column("value").to_pylist())
    begin = time.perf_counter()
    send(table.column("value").to_pylist())
    return time.perf_counter() - begin


def produce_aiokafka(address: str, topic: str, size: int, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def work() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, enable_idempotence=True, acks="all", linger_ms=5, max_batch_size=BATCH
        )
        await producer.start()
        value = bytes(size)
        try:
            for _ in range(WARM):
                await producer.send(topic, value)
            await producer.flush()
            begin = time.perf_counter()
            for _ in range(count):
                await producer.send(topic, value)
            await producer.flush()
            return time.perf_counter() - begin
        finally:
            await producer.stop()

    return asyncio.run(work())


def produce_kafka_python(address: str, topic: str, size: int, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True, linger_ms=5, batch_size=BATCH)
    value = bytes(size)
    for _ in range(WARM):
        producer.send(topic, value)
    producer.flush()
    begin = time.perf_counter()
    for _ in range(count):
        producer.send(topic, value)
    producer.flush()
    seconds = time.perf_counter() - begin
    producer.close()
    return seconds


# -- consume


def consume_odradek(address: str, topic: str, _: int, count: int) -> float:
    """One record after the other."""
    from odradek import Consumer

    async def work() -> float:
        async with Consumer(topic, bootstrap=address) as consumer:
            seen = 0
            begin = 0.0
            async for record in consumer:
                assert record.value is not None
                seen += 1
                if seen == WARM:
                    begin = time.perf_counter()
                elif seen == WARM + count:
                    break
            return time.perf_counter() - begin

    return asyncio.run(work())


def consume_odradek_poll(address: str, topic: str, _: int, count: int) -> float:
    from odradek import Consumer

    async def work() -> float:
        async with Consumer(topic, bootstrap=address) as consumer:

            async def read(records: int) -> None:
                seen = 0
                while seen < records:
                    for record in await consumer.poll(min(POLL, records - seen)):
                        assert record.value is not None
                        seen += 1

            return await timed(read, count)

    return asyncio.run(work())


def consume_arrow(address: str, topic: str, _: int, count: int) -> float:
    from odradek import Consumer

    async def work() -> float:
        async with Consumer(topic, bootstrap=address, max_partition_fetch_bytes=8 * 1024 * 1024) as consumer:
            seen, begin, first = 0, 0.0, 0
            while seen < WARM + count:
                seen += (await consumer.poll_arrow()).num_rows
                if not begin and seen >= WARM:
                    begin, first = time.perf_counter(), seen
            return (time.perf_counter() - begin) * count / (seen - first)

    return asyncio.run(work())


def consume_confluent(address: str, topic: str, _: int, count: int) -> float:
    def look(messages: list[Any]) -> None:
        for message in messages:
            assert message.value() is not None

    return consume_by_confluent(address, topic, count, POLL, look)


def consume_confluent_table(address: str, topic: str, _: int, count: int) -> float:
    """What a program does that wants a table: large polls, and the columns that `poll_arrow` gives."""
    import pyarrow as pa

    from odradek.client.arrow.columns import schema

    def build(messages: list[Any]) -> None:
        times = [message.timestamp() for message in messages]
        columns = {
            "key": [message.key() for message in messages],
            "value": [message.value() for message in messages],
            "topic": [message.topic() for message in messages],
            "partition": [message.partition() for message in messages],
            "offset": [message.offset() for message in messages],
            "timestamp": [1000 * timestamp_ms for _, timestamp_ms in times],
            "timestampType": [kind - 1 for kind, _ in times],  # librdkafka counts from 1
        }
        assert pa.table(columns, schema()).num_rows == len(messages)

    return consume_by_confluent(address, topic, count, TABLE_POLL, build)


def consume_by_confluent(address: str, topic: str, count: int, poll: int, use: Callable[[list[Any]], None]) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read(records: int) -> None:
        seen = 0
        while seen < records:
            messages = consumer.consume(min(poll, records - seen), 1.0)
            use(messages)
            seen += len(messages)

    read(WARM)
    begin = time.perf_counter()
    read(count)
    seconds = time.perf_counter() - begin
    consumer.close()
    return seconds


def consume_aiokafka(address: str, topic: str, _: int, count: int) -> float:
    """One record after the other."""
    from aiokafka import AIOKafkaConsumer

    async def work() -> float:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()
        seen, begin = 0, 0.0
        try:
            async for record in consumer:
                assert record.value is not None
                seen += 1
                if seen == WARM:
                    begin = time.perf_counter()
                elif seen == WARM + count:
                    break
            return time.perf_counter() - begin
        finally:
            await consumer.stop()

    return asyncio.run(work())


def consume_aiokafka_many(address: str, topic: str, _: int, count: int) -> float:
    from aiokafka import AIOKafkaConsumer

    async def work() -> float:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
        await consumer.start()

        async def read(records: int) -> None:
            seen = 0
            while seen < records:
                found = await consumer.getmany(timeout_ms=1000, max_records=min(POLL, records - seen))
                for each in found.values():
                    for record in each:
                        assert record.value is not None
                        seen += 1

        try:
            return await timed(read, count)
        finally:
            await consumer.stop()

    return asyncio.run(work())


def consume_kafka_python(address: str, topic: str, _: int, count: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()

    def read(records: int) -> None:
        seen = 0
        while seen < records:
            for each in consumer.poll(1000, max_records=min(POLL, records - seen)).values():
                for record in each:
                    assert record.value is not None
                    seen += 1

    read(WARM)
    begin = time.perf_counter()
    read(count)
    seconds = time.perf_counter() - begin
    consumer.close()
    return seconds


async def timed(read: Callable[[int], Coroutine[Any, Any, None]], count: int) -> float:
    await read(WARM)
    begin = time.perf_counter()
    await read(count)
    return time.perf_counter() - begin


WORK: Final[dict[str, dict[str, Timed]]] = {
    "produce": {
        "odradek": produce_odradek,
        "aiokafka": produce_aiokafka,
        "kafka-python": produce_kafka_python,
        "confluent": produce_confluent,
        "confluent from a table": produce_confluent_table,
        "odradek arrow": produce_arrow,
    },
    "consume": {
        "odradek": consume_odradek,
        "aiokafka": consume_aiokafka,
        "odradek poll": consume_odradek_poll,
        "aiokafka getmany": consume_aiokafka_many,
        "kafka-python poll": consume_kafka_python,
        "confluent consume": consume_confluent,
        "confluent to a table": consume_confluent_table,
        "odradek arrow": consume_arrow,
    },
}
AGAINST: Final = {  # the client, and those that it is to be ahead of, by how much
    "produce": [
        ("odradek", "aiokafka", 1),
        ("odradek", "kafka-python", 1),
        ("odradek arrow", "confluent", 5),
        ("odradek arrow", "confluent from a table", 5),
    ],
    "consume": [
        ("odradek", "aiokafka", 1),
        ("odradek poll", "aiokafka getmany", 1),
        ("odradek poll", "kafka-python poll", 1),
        ("odradek arrow", "confluent consume", 5),
        ("odradek arrow", "confluent to a table", 5),
    ],
}


def run(work: str, client: str, address: str, topic: str, size: int, count: int) -> float:
    """In a process of its own; records/s."""
    command = [sys.executable, __file__, "--worker", work, client, address, topic, str(size), str(count)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=300)
    return count / float(found.stdout.split()[-1])


def measure(work: str, size: int, rounds: int, count: int, address: str, port: int) -> None:
    many = count * 10  # for those that are through in no time
    topic = f"{work}-{size}"
    create(port, {topic: 1})
    if work == "consume":
        run("produce", "odradek arrow", address, topic, size, many + 2 * WARM)
    found: dict[str, list[float]] = {client: [] for client in WORK[work]}
    clients = [*found]
    for number in range(rounds):
        for client in clients[number % len(clients) :] + clients[: number % len(clients)]:
            found[client].append(run(work, client, address, topic, size, many if "arrow" in client else count))
    for client, rates in found.items():
        print(f"{work} {size:5} B  {client:22} {statistics.median(rates):12,.0f} records/s", flush=True)
    for client, other, wanted in AGAINST[work]:
        ratio = statistics.median(found[client]) / statistics.median(found[other])
        print(f"{work} {size:5} B  {client} / {other}: {ratio:.1f} (wanted {wanted})", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        work, client, address, topic, bytes_each, records = sys.argv[2:]
        print(WORK[work][client](address, topic, int(bytes_each), int(records)))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", choices=WORK)
    parser.add_argument("--kafka", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = (Kafka if given.kafka else Odradek)(Path(folder) / "server")
        server.start()
        try:
            for work in [given.only] if given.only else WORK:
                for size, count in zip(SIZES, (given.records, given.records // 2)):
                    measure(work, size, given.rounds, count, f"127.0.0.1:{server.port}", server.port)
        finally:
            server.stop()


if __name__ == "__main__":
    main()

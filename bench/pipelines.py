"""Spark on topics: `format("odradek")` beside Spark's own connector, on the same topics of one node, in the same session.

    python bench/pipelines.py [--rounds 5] [--rows 4000000] [--only NAME ...]

The JVM connector has its fetches tuned (`max.poll.records` 10000, `max.partition.fetch.bytes` 8 MB). Both sides have idempotence,
and no compression, where they write. The two take turns, the first of a round is the other in the next; a ratio is of the
medians. What is read goes to Spark's `noop` sink. All times are of one JVM that is warm: the first of each is thrown away.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bench.broker import create
from bench.servers import Odradek
from odradek import Consumer, Producer
from odradek.pipelines.session import session
from odradek.spark.exactly_once import to_topics
from tools.kafka_jars import spark_connector_class_path

PARTITIONS: Final = 4
BATCH_ROWS: Final = 400_000
CHUNK_ROWS: Final = 100_000
TUNED: Final = {"kafka.max.poll.records": "10000", "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024)}
SETTINGS: Final = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "2"}
WANTED: Final = {
    "read 100 B": 2.0,
    "read 1 KB": 1.5,
    "read 100 B zstd": 1.3,
    "read value only": 3.0,
    "from_json, group by": 1.5,
    "availableNow": 1.2,
    "micro-batches": 1.2,
    "write": 1.5,
    "write once": 1.0,
    "write once, same place": 1.0,
}
OURS, THEIRS = "odradek", "kafka"
Work = Callable[[str], float]  # the connector -> seconds


class Bench:
    def __init__(self, rows: int, folder: Path) -> None:
        self.rows, self.folder = rows, folder
        self.server = Odradek(folder / "node")
        self.server.start()
        self.bootstrap = f"127.0.0.1:{self.server.port}"
        settings = {**SETTINGS, "spark.driver.extraClassPath": spark_connector_class_path()}
        self.spark = session("bench", master="local[2]", settings=settings)
        self.number = 0

    # -- topics

    def topic(self, name: str, rows: int, values: Callable[[int], pa.Array], compression: str = "none") -> str:
        create(self.server.port, {name: PARTITIONS})

        async def fill() -> None:
            async with Producer(self.bootstrap, compression=compression, buffer_memory=64 * 1024 * 1024) as producer:
                for start in range(0, rows, CHUNK_ROWS):
                    keys = pa.array(range(start, min(start + CHUNK_ROWS, rows))).cast(pa.string())
                    await producer.send_arrow(name, pa.table({"key": keys, "value": values(start)[: len(keys)]}))

        asyncio.run(fill())
        return name

    def read(self, connector: str, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(connector).options(**self.options(connector), **options).option("subscribe", topic)
        return reader.load()

    def stream(self, connector: str, topic: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format(connector).options(**self.options(connector), **options)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def options(self, connector: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **(TUNED if connector == THEIRS else {})}

    def fresh(self, what: str) -> str:
        self.number += 1
        return str(self.folder / f"{what}-{self.number}")

    # -- work

    def batch(self, topic: str, columns: str | None = None) -> Work:
        def work(connector: str) -> float:
            begin = time.perf_counter()
            if columns is not None and connector == OURS:
                reader = self.spark.read.format(OURS).options(**self.options(OURS)).option("subscribe", topic)
                frame = reader.schema(", ".join(f"{name} binary" for name in columns.split(","))).load()
            else:
                frame = self.read(connector, topic)
                frame = frame.select(*columns.split(",")) if columns is not None else frame
            done(frame)
            return time.perf_counter() - begin

        return work

    def json(self, topic: str) -> Work:
        schema = "customer string, amount double, number long"

        def work(connector: str) -> float:
            begin = time.perf_counter()
            if connector == OURS:
                reader = self.spark.read.format(OURS).options(**self.options(OURS)).option("subscribe", topic)
                frame = reader.schema("value binary").load()
            else:
                frame = self.read(connector, topic)
            found = frame.select(F.from_json(F.col("value").cast("string"), schema).alias("v")).groupBy("v.customer")
            done(found.agg(F.sum("v.amount")))
            return time.perf_counter() - begin

        return work

    def available_now(self, topic: str, offsets_max: int | None = None) -> Work:
        """All of it, or how long a batch of so many takes."""

        def work(connector: str) -> float:
            limit = {} if offsets_max is None else {"maxOffsetsPerTrigger": str(offsets_max)}
            writer = self.stream(connector, topic, **limit).writeStream.format("noop").trigger(availableNow=True)
            begin = time.perf_counter()
            query = writer.option("checkpointLocation", self.fresh("checkpoint")).start()
            query.awaitTermination()
            seconds = time.perf_counter() - begin
            if offsets_max is None:
                return seconds
            return statistics.median([each.batchDuration for each in query.recentProgress][1:]) / 1000

        return work

    def query_start(self, topic: str) -> Work:
        """Until the first batch is through."""

        def work(connector: str) -> float:
            writer = self.stream(connector, topic, maxOffsetsPerTrigger="1000").writeStream.format("noop")
            begin = time.perf_counter()
            query = writer.option("checkpointLocation", self.fresh("checkpoint")).start()
            while query.lastProgress is None:
                time.sleep(0.005)
            seconds = time.perf_counter() - begin
            query.stop()
            return seconds

        return work

    def write(self, rows: int) -> Work:
        def work(connector: str) -> float:
            self.number += 1
            topic = f"written-{self.number}"
            create(self.server.port, {topic: PARTITIONS})
            frame = self.spark.range(0, rows, 1, PARTITIONS).select(
                F.col("id").cast("string").alias("key"), F.rpad(F.col("id").cast("string"), 100, "x").alias("value")
            )
            options = {**self.options(OURS), "kafka.enable.idempotence": "true", "kafka.compression.type": "none"}
            begin = time.perf_counter()
            frame.write.format(connector).options(**options).option("topic", topic).mode("append").save()
            return time.perf_counter() - begin

        return work

    def copy(self, topic: str, *, co_partitioned: bool = False) -> Work:
        """From topic to topic: ours exactly once, theirs at least once."""

        def work(connector: str) -> float:
            self.number += 1
            target, checkpoint = f"copied-{self.number}", self.fresh("checkpoint")
            create(self.server.port, {target: PARTITIONS})
            if connector == OURS:
                reader = self.spark.readStream.format(OURS).options(**self.options(OURS)).option("subscribe", topic)
                frame = reader.schema("key binary, value binary").option("startingOffsets", "earliest").load()
                properties = {"compression.type": "none"}
                writer = to_topics(
                    frame,
                    name=target,
                    checkpoint=checkpoint,
                    bootstrap=self.bootstrap,
                    topic=target,
                    group=target,
                    co_partitioned=co_partitioned,
                    properties=properties,
                )
            else:
                frame = self.stream(connector, topic).select("key", "value")
                writer = frame.writeStream.format(THEIRS).option("checkpointLocation", checkpoint).option("topic", target)
                writer = writer.options(**self.options(OURS), **{"kafka.compression.type": "none"})
            begin = time.perf_counter()
            writer.trigger(availableNow=True).start().awaitTermination()
            return time.perf_counter() - begin

        return work

    def latency(self, *, is_once: bool, seconds: float = 20.0, rate: int = 100) -> Work:
        """p50 from the send of a record to the receipt of what a stateless query makes of it; ours exactly once, or at least
        once, as theirs is."""

        def work(connector: str) -> float:
            self.number += 1
            source, target, checkpoint = f"sent-{self.number}", f"received-{self.number}", self.fresh("checkpoint")
            create(self.server.port, {source: 1, target: 1})
            options = {**self.options(connector), "subscribe": source, "startingOffsets": "latest"}
            reader = self.spark.readStream.format(connector).options(**options)
            frame = reader.schema("value binary").load() if connector == OURS else reader.load().select("value")
            if connector == OURS and is_once:
                writer = to_topics(
                    frame, name=target, checkpoint=checkpoint, bootstrap=self.bootstrap, topic=target, group=target
                )
            else:
                writer = frame.writeStream.format(connector).option("checkpointLocation", checkpoint).option("topic", target)
                writer = writer.options(**self.options(OURS))
            query = writer.start()
            try:
                return asyncio.run(delays(self.bootstrap, source, target, seconds, rate))
            finally:
                query.stop()

        return work


async def delays(bootstrap: str, source: str, target: str, seconds: float, rate: int) -> float:
    found: list[float] = []
    is_over = asyncio.Event()

    async def receive() -> None:
        async with Consumer(target, bootstrap=bootstrap, fetch_max_wait_ms=50) as consumer:
            while not is_over.is_set():
                records = await consumer.poll(timeout_ms=100)
                found.extend(time.time() - float(record.value or 0) for record in records)

    receiving = asyncio.create_task(receive())
    async with Producer(bootstrap, linger_ms=0) as producer:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            await producer.send(source, f"{time.time():.6f}")
            await asyncio.sleep(1 / rate)
    is_over.set()
    await receiving
    return statistics.median(found[len(found) // 2 :])


def done(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def plain(size: int) -> Callable[[int], pa.Array]:
    return lambda start: pa.array([f"{start + row:010}".encode() * (size // 10) for row in range(CHUNK_ROWS)], pa.binary())


def orders(start: int) -> pa.Array:
    values = [
        json.dumps({"customer": f"c{row % 1000}", "amount": row % 97 / 7, "number": start + row, "note": "x" * 30}).encode()
        for row in range(CHUNK_ROWS)
    ]
    return pa.array(values, pa.binary())


def compare(name: str, work: Work, rounds: int, rows: int | None) -> None:
    """Both in turns; a ratio above 1 is ours ahead."""
    found: dict[str, list[float]] = {OURS: [], THEIRS: []}
    for each in found:
        work(each)
    for number in range(rounds):
        for each in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):
            found[each].append(work(each))
    ours, theirs = (statistics.median(found[each]) for each in (OURS, THEIRS))
    rate = (
        f"{rows / ours / 1e6:6.2f} M rows/s, {rows / theirs / 1e6:6.2f} M"
        if rows
        else f"{ours * 1000:7.0f} ms, {theirs * 1000:7.0f} ms"
    )
    wanted = f", wanted {WANTED[name]}" if name in WANTED else ""
    print(f"{name:22} ours {rate} of Spark's own   ratio {theirs / ours:5.2f}{wanted}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    rows = given.rows
    folder = Path(tempfile.mkdtemp(prefix="odradek-bench-"))
    bench = Bench(rows, folder)
    topics: dict[str, str] = {}

    def topic(name: str) -> str:
        kinds: dict[str, tuple[int, Callable[[int], pa.Array], str]] = {
            "small": (rows, plain(100), "none"),
            "large": (rows // 4, plain(1000), "none"),
            "zstd": (rows, plain(100), "zstd"),
            "json": (rows // 2, orders, "none"),
        }
        if name not in topics:
            count, values, compression = kinds[name]
            topics[name] = bench.topic(name, count, values, compression)
        return topics[name]

    works: dict[str, tuple[Callable[[], Work], int | None]] = {
        "read 100 B": (lambda: bench.batch(topic("small")), rows),
        "read 1 KB": (lambda: bench.batch(topic("large")), rows // 4),
        "read 100 B zstd": (lambda: bench.batch(topic("zstd")), rows),
        "read value only": (lambda: bench.batch(topic("small"), "value"), rows),
        "from_json, group by": (lambda: bench.json(topic("json")), rows // 2),
        "availableNow": (lambda: bench.available_now(topic("small")), rows),
        "micro-batches": (lambda: bench.available_now(topic("small"), BATCH_ROWS), None),
        "start of a query": (lambda: bench.query_start(topic("small")), None),
        "write": (lambda: bench.write(rows // 2), rows // 2),
        "write once": (lambda: bench.copy(topic("small")), rows),
        "write once, same place": (lambda: bench.copy(topic("small"), co_partitioned=True), rows),
        "latency": (lambda: bench.latency(is_once=False), None),
        "latency, once": (lambda: bench.latency(is_once=True), None),
    }
    try:
        for name, (make, count) in works.items():
            if not given.only or name in given.only:
                compare(name, make(), given.rounds, count)
    finally:
        bench.spark.stop()
        bench.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Exactly once into topics, when something fails: each row of the table of failures, and every way for rows to their partitions.

A sink is handed batches as Spark hands them, with a number each; whole queries are in `test_exactly_once_queries.py`. librdkafka
reads what is committed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from odradek import sync
from odradek.client.admin import Resource, ResourceKind
from odradek.client.errors import Fenced, KafkaError, TimedOut
from odradek.client.producer import Producer
from odradek.client.transaction import State, Transactions
from odradek.spark import clients, exactly_once, markers
from odradek.spark.exactly_once import Outdated, RefusedTwice, Sink, TooSlow, Writing
from tests.spark.faults import FailsAfterwards, Faulty, LosesItsInput, OutlivesItsTransaction
from tests.spark.topics import made, messages, numbers

PARTITIONS = 3
BATCH_ROWS = 20
ON_OURS = pytest.mark.parametrize("server", ["three"], indirect=True)  # where Kafka has no say


@pytest.fixture
def sinks(server: str, name: str) -> Iterator[Callable[..., Sink]]:
    """Makes sinks of one name, into a topic of this test."""
    made(server, name, PARTITIONS)
    found: list[Sink] = []

    def make(**options: Any) -> Sink:
        given: dict[str, Any] = {"checkpoint": f"/{name}", "topic": name, "group": None, **options}
        properties = {"bootstrap.servers": server, **given.pop("properties", {})}
        found.append(Sink(name, properties, **given))
        return found[-1]

    yield make
    for sink in found:
        sink.close()


def rows(spark: SparkSession, batch: int, *more: str) -> DataFrame:
    """Numbers that no other batch has."""
    frame = spark.range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS, 1, 2)
    return frame.selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value", *more)


def upto(batches: int) -> list[int]:
    return [*range(batches * BATCH_ROWS)]


def struck_by(fault: type[Faulty], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "folder", str(folder))
    monkeypatch.setattr(exactly_once, "Writing", fault)


def dies_at(monkeypatch: pytest.MonkeyPatch, sink: Sink, *, is_committed: bool) -> None:
    """The driver is gone, and what it had begun stays as it was: it tidies nothing up."""
    assert sink._producer is not None
    commit = sink._producer.commit_transaction

    async def die() -> None:
        if is_committed:
            await commit()
        raise RuntimeError("the driver dies")

    monkeypatch.setattr(sink._producer, "commit_transaction", die)
    monkeypatch.setattr(exactly_once, "ATTEMPTS_MAX", 1)
    monkeypatch.setattr(sink, "_leave", lambda: None)
    monkeypatch.setattr(sink, "_part", lambda: None)


def begun(sink: Sink, spark: SparkSession) -> Sink:
    """One that has written the first batch."""
    sink.write(rows(spark, 0), 0)
    return sink


# -- how rows go to partitions


def in_every_way(spark: SparkSession, name: str) -> dict[str, tuple[dict[str, Any], Callable[[int], DataFrame]]]:
    return {
        "keyed": ({}, lambda batch: rows(spark, batch)),
        "keyless": ({}, lambda batch: rows(spark, batch).select("value")),
        "partition column": ({}, lambda batch: rows(spark, batch, f"cast(id % {PARTITIONS} as int) as partition")),
        "topic column": ({"topic": None}, lambda batch: rows(spark, batch, f"'{name}' as topic")),
        "co-partitioned": (
            {"co_partitioned": True},
            lambda batch: rows(spark, batch, "cast(id % 2 as int) as partition").repartition(2, "partition"),
        ),
    }


@ON_OURS
@pytest.mark.parametrize("way", ["keyed", "keyless", "partition column", "topic column", "co-partitioned"])
def test_batches_go_out_once_each_at_the_first_try(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, frame = in_every_way(spark, name)[way]
    sink = sinks(**options)
    monkeypatch.setattr(exactly_once, "ATTEMPTS_MAX", 1)
    for batch in range(3):
        sink.write(frame(batch), batch)
        assert sink.records_written == len(upto(batch + 1))
    assert numbers(server, name) == numbers(server, name, "read_uncommitted") == upto(3)


@ON_OURS
def test_rows_with_keys_go_where_java_sends_them_and_keep_their_order(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str
) -> None:
    sink = sinks()
    for batch in range(3):
        sink.write(rows(spark, batch).coalesce(1), batch)
    found: dict[bytes | None, list[tuple[int | None, int]]] = {}
    for each in messages(server, name):
        found.setdefault(each.key(), []).append((each.partition(), int(each.value() or b"")))
    with sync.Producer(server) as producer:
        other = made(server, f"{name}-2", PARTITIONS)
        expected = {key: producer.send(other, b"", key=key).result().partition for key in found}
    for key, places in found.items():
        assert {partition for partition, _ in places} == {expected[key]}
        assert [number for _, number in places] == sorted(number for _, number in places)


@ON_OURS
def test_a_batch_without_rows_is_a_batch(spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str) -> None:
    sink = sinks()
    sink.write(rows(spark, 0).limit(0), 0)
    sink.write(rows(spark, 0), 1)
    assert numbers(server, name) == upto(1)


# -- the table of failures


def test_a_task_that_is_tried_again_writes_nothing_and_the_batch_is_done_again(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck_by(FailsAfterwards, tmp_path, monkeypatch)
    sink = begun(sinks(), spark)
    sink.write(rows(spark, 1), 1)
    assert (tmp_path / "FailsAfterwards").exists()
    assert numbers(server, name) == upto(2)
    assert len(numbers(server, name, "read_uncommitted")) > len(upto(2)), "what the task had written was aborted"


@ON_OURS
def test_a_stage_that_is_run_again_is_a_batch_that_is_done_again(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck_by(LosesItsInput, tmp_path, monkeypatch)
    monkeypatch.setattr(LosesItsInput, "shuffled", spark.conf.get("spark.local.dir"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")  # tasks read one record batch after the other
    try:
        frame = spark.range(0, 40, 1, 4).selectExpr("cast(id as string) as key", "repeat(uuid(), 10000) as value")
        sink = sinks(properties={"compression.type": "none"})
        sink.write(frame, 0)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "LosesItsInput").exists()
    assert sorted(int(each.key() or b"") for each in messages(server, name)) == [*range(40)]


def test_a_second_writer_of_a_partition_refuses(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a copy of a task would be, of which Spark says that it is the first."""
    sink = begun(sinks(), spark)
    assert sink._producer is not None
    clients.run(sink._producer.begin_transaction())
    writing = Writing(sink.properties, name, sink._producer.share_transaction())
    batch = pa.RecordBatch.from_pydict({"value": [b"1"], "partition": pa.array([1], pa.int32())})
    assert [each.to_pylist() for each in writing.encode_and_write([batch])] == [
        [{"topic": name, "partition": 1, "record_count": 1, "stage": 0}]
    ]
    with pytest.raises(RefusedTwice, match=f"{name}-1 has been written to in this transaction"):
        [*writing.encode_and_write([batch])]
    clients.run(sink._producer.abort_transaction())
    sink.write(rows(spark, 1), 1)
    assert numbers(server, name) == upto(2)


@ON_OURS
def test_two_tasks_that_write_to_one_partition_are_a_batch_that_does_not_go_out(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(exactly_once, "ATTEMPTS_MAX", 2)
    sink = sinks(co_partitioned=True)  # which is not true of these rows
    with pytest.raises((RefusedTwice, PySparkException)):
        sink.write(rows(spark, 0, "1 as partition"), 0)
    assert numbers(server, name) == []


def test_what_a_driver_had_begun_when_it_died_is_aborted_and_done_again(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(sinks(), spark)
    dies_at(monkeypatch, first, is_committed=False)
    with pytest.raises(RuntimeError, match="dies"):
        first.write(rows(spark, 1), 1)
    second = sinks()
    second.write(rows(spark, 1), 1)
    second.write(rows(spark, 2), 2)
    assert numbers(server, name) == upto(3)


def test_a_batch_whose_marker_is_there_is_not_written_again_and_is_computed_nevertheless(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(sinks(), spark)
    dies_at(monkeypatch, first, is_committed=True)
    with pytest.raises(RuntimeError, match="dies"):
        first.write(rows(spark, 1), 1)
    computed = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            computed.add(batch.num_rows)
            yield batch

    second = sinks()
    second.write(rows(spark, 1).mapInArrow(count, "key string, value string"), 1)
    assert computed.value == BATCH_ROWS
    second.write(rows(spark, 2), 2)
    assert numbers(server, name) == upto(3)
    assert second.records_written == BATCH_ROWS


@ON_OURS
def test_a_query_that_is_started_again_from_the_same_writer_writes_no_batch_twice(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = begun(sinks(), spark)
    sink.write(rows(spark, 1), 1)
    evaluated: list[DataFrame] = []
    monkeypatch.setattr(exactly_once, "evaluate", evaluated.append)
    sink.write(rows(spark, 1), 1)
    assert len(evaluated) == 1, "what it knew of the batch went with the query"
    sink.write(rows(spark, 2), 2)
    with pytest.raises(Outdated):
        sink.write(rows(spark, 1), 1)
    assert numbers(server, name) == numbers(server, name, "read_uncommitted") == upto(3)


@ON_OURS
def test_a_batch_that_is_out_is_computed_also_where_the_first_look_at_the_marker_failed(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(sinks(), spark)
    evaluated: list[DataFrame] = []
    looks: list[int] = []
    last = markers.last

    async def look(properties: dict[str, str], transactional_id: str) -> Any:
        looks.append(1)
        if len(looks) == 1:
            raise TimedOut("nobody is there")
        return await last(properties, transactional_id)

    monkeypatch.setattr(markers, "last", look)
    monkeypatch.setattr(exactly_once, "evaluate", evaluated.append)
    sinks().write(rows(spark, 0), 0)
    assert (len(looks), len(evaluated)) == (2, 1)
    assert numbers(server, name) == upto(1)


@pytest.mark.parametrize("was_done", [True, False])
def test_when_nobody_knows_whether_a_transaction_was_committed_the_marker_says(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch, was_done: bool
) -> None:
    sink = begun(sinks(), spark)
    ends: list[int] = []
    end = Transactions._end

    async def lose_answer(self: Transactions, *, is_commit: bool) -> None:
        if not is_commit or ends:
            await end(self, is_commit=is_commit)
            return
        ends.append(1)
        if was_done:
            await end(self, is_commit=is_commit)
        self.state = State.NEW
        raise TimedOut("to commit did not succeed")

    monkeypatch.setattr(Transactions, "_end", lose_answer)
    try:
        sink.write(rows(spark, 1), 1)
    except Fenced:  # Kafka takes a producer that left its transaction open for another one: whoever comes next decides
        assert not was_done
        sink = sinks()
        sink.write(rows(spark, 1), 1)
    sink.write(rows(spark, 2), 2)
    assert len(ends) == 1
    assert numbers(server, name) == upto(3)


@ON_OURS
def test_of_two_drivers_the_older_is_fenced_between_batches(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str
) -> None:
    older, newer = begun(sinks(), spark), sinks()
    newer.write(rows(spark, 1), 1)
    with pytest.raises(Fenced):
        older.write(rows(spark, 2), 2)
    newer.write(rows(spark, 2), 2)
    assert numbers(server, name) == upto(3)


def test_of_two_drivers_the_older_is_fenced_in_the_middle_of_a_batch(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = begun(sinks(), spark), sinks()
    tasks = older._job

    def overtaken(*given: Any) -> DataFrame:
        newer.write(rows(spark, 1), 1)
        return tasks(*given)

    monkeypatch.setattr(older, "_job", overtaken)
    with pytest.raises(Fenced):
        older.write(rows(spark, 1), 1)
    newer.write(rows(spark, 2), 2)
    assert numbers(server, name) == upto(3)


def test_a_late_write_of_a_task_that_everybody_has_forgotten_is_refused(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    struck_by(Faulty, tmp_path, monkeypatch)
    sink = begun(sinks(), spark)
    assert Faulty.shared_last is not None
    zombie = Writing({**sink.properties, "delivery.timeout.ms": "3000"}, name, Faulty.shared_last)
    monkeypatch.setattr(zombie, "_check", lambda _: None)  # it has looked before the others wrote
    late = pa.RecordBatch.from_pydict({"value": [b"-1"] * PARTITIONS, "partition": pa.array([0, 1, 2], pa.int32())})
    with pytest.raises(KafkaError):
        [*zombie.encode_and_write([late])]
    sink.write(rows(spark, 1), 1)
    with pytest.raises(KafkaError):
        [*zombie.encode_and_write([late])]
    sink.write(rows(spark, 2), 2)
    assert numbers(server, name) == upto(3)


def test_a_batch_that_takes_longer_than_its_transaction_may_is_not_out_and_says_what_to_do(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun(sinks(), spark)
    struck_by(OutlivesItsTransaction, tmp_path, monkeypatch)
    with pytest.raises(TooSlow, match=r"transaction\.timeout\.ms=1000\. Set it higher"):
        sinks(properties={"transaction.timeout.ms": "1000"}).write(rows(spark, 1), 1)
    assert numbers(server, name) == upto(1)
    sinks().write(rows(spark, 1), 1)
    assert numbers(server, name) == upto(2)


@ON_OURS
def test_a_checkpoint_that_is_older_than_what_is_out_is_refused(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str
) -> None:
    sink = begun(sinks(), spark)
    sink.write(rows(spark, 1), 1)
    with pytest.raises(Outdated, match="batch 1 of this query is out"):
        sinks().write(rows(spark, 0), 0)
    assert numbers(server, name) == upto(2)


@ON_OURS
def test_another_query_of_the_same_name_begins_anew(
    spark: SparkSession, sinks: Callable[..., Sink], server: str, name: str
) -> None:
    begun(sinks(), spark)
    sinks(checkpoint="/another").write(rows(spark, 1), 0)
    assert numbers(server, name) == upto(2)


# -- markers


def test_a_marker_counts_when_its_transaction_was_committed_whatever_others_have_open(server: str, name: str) -> None:
    properties = {"bootstrap.servers": server}

    async def story() -> None:
        made = await exactly_once.start({**properties, "transactional.id": name}, properties)
        other = await exactly_once.start({**properties, "transactional.id": f"{name}-2"}, properties)
        try:
            await other.begin_transaction()
            await markers.send(other, f"{name}-2", markers.Marker("other", 1))
            await other.flush()
            assert await markers.last(properties, name) is None
            for batch, is_commit in enumerate((True, True, False)):
                await made.begin_transaction()
                await markers.send(made, name, markers.Marker("query", batch))
                await made.flush()
                await (made.commit_transaction if is_commit else made.abort_transaction)()
            await made.begin_transaction()  # by which the last one has ended
            assert await markers.last(properties, name) == markers.Marker("query", 1)
            assert await markers.last(properties, f"{name}-2") is None
            await other.abort_transaction()
        finally:
            await made.close(is_hasty=True)
            await other.close(is_hasty=True)

    clients.run(story())


def test_markers_are_on_as_many_brokers_as_transactions_and_do_not_expire(bootstrap: str, name: str) -> None:
    properties = {"bootstrap.servers": bootstrap}
    producer: Producer = clients.run(exactly_once.start({**properties, "transactional.id": name}, properties))
    clients.run(producer.close())
    with sync.Admin(bootstrap) as admin:
        (partition,) = admin.describe_topics([markers.TOPIC])[markers.TOPIC].partitions
        assert len(partition.replicas) == 3
        configs = admin.describe_configs([Resource(ResourceKind.TOPIC, markers.TOPIC)])[
            Resource(ResourceKind.TOPIC, markers.TOPIC)
        ]
        assert {name: configs[name].value for name in ("cleanup.policy", "min.insync.replicas")} == {
            "cleanup.policy": "compact",
            "min.insync.replicas": "2",
        }

"""Whole queries that write exactly once: with state and without, restarted where it hurts, with the offsets of their input."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, window

from odradek.client.producer import Producer
from odradek.client.records import TopicPartition
from odradek.spark.exactly_once import Sink, to_topics
from tests.clients.waiting import until
from tests.spark.topics import fill, group_offsets, made, messages, numbers

KEYS = 3


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    found = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    return found.options(**{"startingOffsets": "earliest", **options}).load()


def counted(frame: DataFrame) -> DataFrame:
    """How many of each key, so far: `update` gives those that have changed."""
    key = (col("value").cast("string").cast("int") % KEYS).cast("string").alias("key")
    return frame.groupBy(key).agg(count("*").cast("string").alias("value"))


def drain(frame: DataFrame, mode: str = "append", **options: Any) -> None:
    query = to_topics(frame, **options).outputMode(mode).trigger(availableNow=True).start()
    assert query.awaitTermination(120), query.status


def counts(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """Which each key had, one after the other."""
    found: dict[str, list[int]] = {}
    for each in messages(bootstrap, topic):
        found.setdefault((each.key() or b"").decode(), []).append(int(each.value() or b"-1"))
    return found


@pytest.mark.parametrize("server", ["three"], indirect=True)
@pytest.mark.parametrize("is_keyed", [True, False])
def test_what_a_query_reads_goes_out_once_with_the_offsets_of_its_input(
    spark: SparkSession, server: str, name: str, checkpoint: str, is_keyed: bool
) -> None:
    made(server, name, 2)
    target = made(server, f"{name}-out", 3)
    for first in (0, 10):
        for partition in range(2):
            fill(server, name, range(first + partition * 100, first + partition * 100 + 10), partition)
        frame = stream(spark, server, name, maxOffsetsPerTrigger="8").select(*(["key"] if is_keyed else []), "value")
        drain(frame, name=name, checkpoint=checkpoint, bootstrap=server, topic=target, group=name)
    assert numbers(server, target) == [*range(20), *range(100, 120)]
    assert group_offsets(server, name) == {TopicPartition(name, 0): 20, TopicPartition(name, 1): 20}


def die(monkeypatch: pytest.MonkeyPatch, at_commit: int, *, is_committed: bool) -> Callable[[], None]:
    """The driver is gone at its so-manieth commit, before it or after it, and tidies nothing up. Gives how to undo this."""
    commits, commit = [], Producer.commit_transaction

    async def end(self: Producer) -> None:
        commits.append(1)
        if len(commits) < at_commit:
            await commit(self)
            return
        if is_committed:
            await commit(self)
        raise RuntimeError("the driver dies")

    monkeypatch.setattr(Producer, "commit_transaction", end)
    monkeypatch.setattr(Sink, "_leave", lambda _: None)
    monkeypatch.setattr("odradek.spark.exactly_once.ATTEMPTS_MAX", 1)
    monkeypatch.setattr(Sink, "_part", lambda _: None)
    return monkeypatch.undo


@pytest.mark.parametrize(("server", "is_committed"), [("three", True), ("three", False), ("kafka", True)], indirect=["server"])
def test_a_query_with_state_is_right_after_its_driver_died_at_a_commit(
    spark: SparkSession, server: str, name: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    made(server, name)
    target = made(server, f"{name}-out", 2)
    fill(server, name, range(30))
    options: dict[str, Any] = {"name": name, "checkpoint": checkpoint, "bootstrap": server, "topic": target, "group": name}
    alive_again = die(monkeypatch, 2, is_committed=is_committed)
    with pytest.raises(StreamingQueryException, match="the driver dies"):
        drain(counted(stream(spark, server, name, maxOffsetsPerTrigger="12")), "update", **options)
    alive_again()
    drain(counted(stream(spark, server, name, maxOffsetsPerTrigger="12")), "update", **options)
    found = counts(server, target)
    assert found == {str(key): [4, 8, 10] for key in range(KEYS)}
    assert group_offsets(server, name) == {TopicPartition(name, 0): 30}


def test_windows_that_are_final_go_out_once_in_append_mode(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, name)
    target = made(bootstrap, f"{name}-out", 2)
    t0 = 1_700_000_000_000 // 60_000 * 60_000
    for minute in range(4):
        fill(bootstrap, name, range(5), timestamp_ms=t0 + minute * 60_000)
        frame = stream(spark, bootstrap, name).withWatermark("timestamp", "0 seconds")
        per_minute = frame.groupBy(window("timestamp", "1 minute")).agg(count("*").alias("n"))
        values = per_minute.selectExpr(f"cast((unix_millis(window.start) - {t0}) / 60000 * 100 + n as int) as v")
        drain(
            values.selectExpr("cast(v as string) as value"), name=name, checkpoint=checkpoint, bootstrap=bootstrap, topic=target
        )
    assert numbers(bootstrap, target) == [5, 105, 205]


def test_a_query_that_is_stopped_ends_soon_and_goes_on_later(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, name)
    target = made(bootstrap, f"{name}-out", 2)
    options: dict[str, Any] = {"name": name, "checkpoint": checkpoint, "bootstrap": bootstrap, "topic": target}
    fill(bootstrap, name, range(10))
    frame = stream(spark, bootstrap, name, maxOffsetsPerTrigger="5").select("key", "value")
    query = to_topics(frame, **options).trigger(processingTime="0 seconds").start()
    until(lambda: query.lastProgress is not None or not query.isActive, "a batch")
    query.stop()
    assert query.exception() is None
    fill(bootstrap, name, range(10, 20))
    drain(stream(spark, bootstrap, name).select("key", "value"), **options)
    assert numbers(bootstrap, target) == [*range(20)]


def test_a_query_without_a_topic_as_its_source_has_its_marker_all_the_same(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    target = made(bootstrap, name, 2)
    folder = tmp_path / "files"
    folder.mkdir()
    options: dict[str, Any] = {"name": name, "checkpoint": checkpoint, "bootstrap": bootstrap, "topic": target, "group": name}
    frame = spark.readStream.schema("value string").text(str(folder))
    (folder / "a.txt").write_text("1\n2\n")
    alive_again = die(monkeypatch, 1, is_committed=True)
    with pytest.raises(StreamingQueryException, match="the driver dies"):
        drain(frame, **options)
    alive_again()
    drain(frame, **options)
    assert numbers(bootstrap, target) == [1, 2]

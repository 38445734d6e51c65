"""Topics read as a stream: how much a batch takes, what appears and disappears meanwhile, and where a restart goes on."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek import sync
from odradek.client.records import TopicPartition
from tests.clients.waiting import until
from tests.spark.topics import fill, group_offsets, made


class Seen:
    """What a query gave, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def take(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [row.value.decode() for row in frame.select("value").collect()]

    @property
    def numbers(self) -> list[int]:
        return sorted(int(value) for values in self.batches.values() for value in values)

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in self.batches.values() if values]


def stream(spark: SparkSession, bootstrap: str, topic: str = "", **options: Any) -> DataFrame:
    found = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    if topic:
        found = found.option("subscribe", topic)
    return found.options(**{"startingOffsets": "earliest", **options}).load()


def drained(frame: DataFrame, checkpoint: str, seen: Seen | None = None) -> Seen:
    """All that there is now."""
    seen = seen or Seen()
    query = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(seen.take).trigger(availableNow=True).start()
    ended(query)
    return seen


def ended(query: StreamingQuery) -> None:
    assert query.awaitTermination(120), query.status


@contextmanager
def going(frame: DataFrame, checkpoint: str, seen: Seen) -> Iterator[StreamingQuery]:
    writer = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(seen.take)
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        yield query
    finally:
        query.stop()


def has(query: StreamingQuery, seen: Seen, numbers: list[int]) -> None:
    def look() -> bool:
        assert query.isActive, query.exception()
        return seen.numbers == numbers

    until(look, f"{numbers}")


def failure(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    return str(raised.value)


def test_all_that_is_available_is_read_in_batches_of_the_size_that_was_asked_for(
    spark: SparkSession, server: str, name: str, checkpoint: str
) -> None:
    made(server, name, 2)
    for partition in range(2):
        fill(server, name, range(partition * 10, partition * 10 + 10), partition)
    seen = drained(stream(spark, server, name, maxOffsetsPerTrigger="6", groupId=name), checkpoint)
    assert seen.numbers == [*range(20)]
    assert seen.sizes == [6, 6, 6, 2]
    assert group_offsets(server, name) == {TopicPartition(name, 0): 10, TopicPartition(name, 1): 10}


def test_a_restart_goes_on_where_the_checkpoint_is(spark: SparkSession, bootstrap: str, name: str, checkpoint: str) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(5))
    assert drained(stream(spark, bootstrap, name), checkpoint).numbers == [*range(5)]
    fill(bootstrap, name, range(5, 8))
    assert drained(stream(spark, bootstrap, name, startingOffsets="latest"), checkpoint).numbers == [5, 6, 7]
    assert drained(stream(spark, bootstrap, name), checkpoint).numbers == []


def test_offsets_in_a_checkpoint_are_written_as_sparks_connector_writes_them(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    made(bootstrap, name, 2)
    for partition in range(2):
        fill(bootstrap, name, range(3), partition)
    found = {}
    for kind in ("odradek", "kafka"):
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        drained(reader.option("startingOffsets", "earliest").load(), str(tmp_path / kind))
        found[kind] = [json.loads(line) for line in (tmp_path / kind / "offsets" / "0").read_text().splitlines()[2:]]
    assert found["odradek"] == found["kafka"] == [{name: {"0": 3, "1": 3}}]


def test_a_query_of_sparks_connector_goes_on_with_ours_and_the_other_way_round(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, name)
    seen = Seen()
    for number, kind in enumerate(("kafka", "odradek", "kafka")):
        fill(bootstrap, name, range(number * 3, number * 3 + 3))
        reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        drained(reader.option("startingOffsets", "earliest").load(), checkpoint, seen)
    assert seen.numbers == [*range(9)]


def test_partitions_and_topics_that_appear_are_read_from_their_beginning(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, f"{name}-0")
    fill(bootstrap, f"{name}-0", [0])
    seen = Seen()
    with going(stream(spark, bootstrap, subscribePattern=f"{name}-.*", startingOffsets="latest"), checkpoint, seen) as query:
        until(lambda: query.lastProgress is not None or not query.isActive, "a first look")
        fill(bootstrap, f"{name}-0", [1])
        has(query, seen, [1])
        made(bootstrap, f"{name}-1", 2)
        fill(bootstrap, f"{name}-1", [2, 3], 1)
        has(query, seen, [1, 2, 3])
        with sync.Admin(bootstrap) as admin:
            admin.add_partitions({f"{name}-0": 2})
        fill(bootstrap, f"{name}-0", [4], 1)
        has(query, seen, [1, 2, 3, 4])


def test_a_batch_waits_for_enough_but_not_for_ever(spark: SparkSession, bootstrap: str, name: str, checkpoint: str) -> None:
    made(bootstrap, name)
    seen = Seen()
    frame = stream(spark, bootstrap, name, minOffsetsPerTrigger="5", maxTriggerDelay="1h")
    with going(frame, checkpoint, seen) as query:
        fill(bootstrap, name, range(3))
        until(lambda: query.lastProgress is not None, "a look that finds too little")
        assert seen.numbers == []
        fill(bootstrap, name, range(3, 6))
        has(query, seen, [*range(6)])
    fill(bootstrap, name, [6])
    frame = stream(spark, bootstrap, name, minOffsetsPerTrigger="5", maxTriggerDelay="1s")
    with going(frame, checkpoint, seen) as query:
        has(query, seen, [*range(7)])


def test_the_group_has_the_last_batch_of_a_query_that_goes_on(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, name)
    seen = Seen()
    with going(stream(spark, bootstrap, name, groupId=name), checkpoint, seen) as query:
        for number in range(2):
            fill(bootstrap, name, [number])
            has(query, seen, [*range(number + 1)])
            wanted = {TopicPartition(name, 0): number + 1}
            until(lambda: group_offsets(bootstrap, name) == wanted, f"{wanted} in the group")  # noqa: B023


def test_a_query_begins_where_a_group_is(spark: SparkSession, bootstrap: str, name: str, checkpoint: str) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(6))
    with sync.Admin(bootstrap) as admin:
        admin.alter_group_offsets(name, {TopicPartition(name, 0): 4})
    assert drained(stream(spark, bootstrap, name, startingOffsets="group", groupId=name), checkpoint).numbers == [4, 5]


def test_a_topic_that_is_gone_ends_a_query_unless_that_was_chosen(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    for number in range(2):
        made(bootstrap, f"{name}-{number}")
        fill(bootstrap, f"{name}-{number}", [number])
    both = f"{name}-0,{name}-1"
    careful, careless = Seen(), Seen()
    with (
        going(stream(spark, bootstrap, both), str(tmp_path / "careful"), careful) as first,
        going(stream(spark, bootstrap, both, failOnDataLoss="false"), str(tmp_path / "careless"), careless) as second,
    ):
        has(first, careful, [0, 1])
        has(second, careless, [0, 1])
        with sync.Admin(bootstrap) as admin:
            admin.delete_topics([f"{name}-0"])
        said = failure(first)
        assert f"{name}-0" in said
        assert "failOnDataLoss=false" in said
        fill(bootstrap, f"{name}-1", [2])
        has(second, careless, [0, 1, 2])


def test_a_topic_that_is_made_anew_ends_a_query_unless_that_was_chosen(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(5))
    for each in ("careful", "careless"):
        assert drained(stream(spark, bootstrap, name), str(tmp_path / each)).numbers == [*range(5)]
    with sync.Admin(bootstrap) as admin:
        admin.delete_topics([name])
        until(lambda: name not in admin.list_topics(), "no topic")
    made(bootstrap, name)
    fill(bootstrap, name, [10])
    with pytest.raises(StreamingQueryException, match=f"{name}-0: the log ends at 1 now, and has been read to 5"):
        drained(stream(spark, bootstrap, name), str(tmp_path / "careful"))
    careless = stream(spark, bootstrap, name, failOnDataLoss="false")
    assert drained(careless, str(tmp_path / "careless")).numbers == []  # as with Spark's connector: it goes on from the end
    fill(bootstrap, name, [11, 12])
    assert drained(careless, str(tmp_path / "careless")).numbers == [11, 12]


def test_records_that_were_deleted_before_they_were_read_end_a_query_unless_that_was_chosen(
    spark: SparkSession, bootstrap: str, name: str, tmp_path: Path
) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(3))
    for each in ("careful", "careless"):
        assert drained(stream(spark, bootstrap, name), str(tmp_path / each)).numbers == [0, 1, 2]
    fill(bootstrap, name, range(3, 8))
    with sync.Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 6})
    with pytest.raises(StreamingQueryException, match="offsets 3 to 5 are gone"):
        drained(stream(spark, bootstrap, name), str(tmp_path / "careful"))
    assert drained(stream(spark, bootstrap, name, failOnDataLoss="false"), str(tmp_path / "careless")).numbers == [6, 7]

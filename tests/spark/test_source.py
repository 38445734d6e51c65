"""Topics read at once: the columns, where a read begins and ends, what is left out, and what is said when it cannot be."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer as ConfluentProducer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from odradek import sync
from odradek.client.records import TopicPartition
from tests.clients.confluent import Sender
from tests.clients.waiting import until
from tests.spark.topics import fill, made

T0 = 1_700_000_000_000
HEADERS = [("a", b"1"), ("é", None), ("a", b"")]


def reading(spark: SparkSession, bootstrap: str, topic: str = "", **options: Any) -> DataFrame:
    found = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    if topic:
        found = found.option("subscribe", topic)
    if "schema" in options:
        found = found.schema(options.pop("schema"))
    return found.options(**{key.replace("_", "."): value for key, value in options.items()}).load()


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def said(frame_of: Any) -> str:
    """What a query that cannot be says, on the line that says it."""
    with pytest.raises(PySparkException) as raised:
        frame_of().collect()
    lines = str(raised.value).splitlines()
    return next(line for line in reversed(lines) if "odradek." in line and ": " in line)


def test_all_columns_are_those_of_sparks_connector(spark: SparkSession, server: str, name: str) -> None:
    made(server, name)
    sender = Sender(server)
    sender.send(name, b"value", b"key", timestamp=T0 + 7, headers=HEADERS)
    sender.send(name, None, None, timestamp=T0)
    sender.send(name, b"", b"", timestamp=T0 + 1)
    sender.all_delivered()
    frame = reading(spark, server, name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    first, second, third = rows(frame)
    at = datetime.fromtimestamp((T0 + 7) / 1000, UTC)
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (b"key", b"value", name, 0, 0)
    assert first.timestamp.astimezone(UTC) == at
    assert first.timestampType == 0
    assert [tuple(each) for each in first.headers] == HEADERS
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert (third.key, third.value) == (b"", b"")
    assert "headers" not in reading(spark, server, name).columns


def test_a_topic_that_stamps_records_itself_says_so(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, message_timestamp_type="LogAppendTime")
    fill(bootstrap, name, [1], timestamp_ms=T0)
    (row,) = rows(reading(spark, bootstrap, name))
    assert row.timestampType == 1
    assert row.timestamp.timestamp() * 1000 > T0


def test_only_what_a_schema_asks_for_is_read(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(5))
    assert [row.asDict() for row in reading(spark, bootstrap, name, schema="value binary").collect()] == [
        {"value": b"%d" % number} for number in range(5)
    ]
    asked = reading(spark, bootstrap, name, schema="offset bigint, headers array<struct<key:string,value:binary>>, key binary")
    assert [row.offset for row in asked.collect()] == [*range(5)]
    assert "there is no column price" in said(lambda: reading(spark, bootstrap, name, schema="price int"))
    assert "column offset is bigint, and was asked for as int" in said(
        lambda: reading(spark, bootstrap, name, schema="offset int")
    )


def test_every_codec_is_read(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        sender = Sender(bootstrap, compression_type=codec, linger_ms=100)
        for each in range(50):
            sender.send(name, b"%d" % (number * 50 + each) * 20)
        sender.all_delivered()
    found = rows(reading(spark, bootstrap, name))
    assert [row.value for row in found] == [b"%d" % number * 20 for number in range(250)]


def test_topics_are_named_in_three_ways(spark: SparkSession, bootstrap: str, name: str) -> None:
    for number in range(3):
        made(bootstrap, f"{name}-{number}", 2)
        for partition in range(2):
            fill(bootstrap, f"{name}-{number}", [number], partition)

    def found(**options: str) -> list[tuple[str, int]]:
        return [(row.topic, row.partition) for row in rows(reading(spark, bootstrap, **options))]

    assert found(subscribe=f"{name}-0,{name}-2") == [(f"{name}-{number}", index) for number in (0, 2) for index in range(2)]
    assert found(subscribePattern=f"{name}-[12]") == [(f"{name}-{number}", index) for number in (1, 2) for index in range(2)]
    assert found(assign=json.dumps({f"{name}-1": [1], f"{name}-2": [0]})) == [(f"{name}-1", 1), (f"{name}-2", 0)]
    assert found(subscribePattern=f"no-{name}") == []


def test_what_is_not_there_is_said_in_a_line_that_helps(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name)
    assert f"there is no topic no-{name}; make it with: odradek topic create" in said(
        lambda: reading(spark, bootstrap, f"no-{name}")
    )
    assert f"assign names {name}-7, and there is no such partition" in said(
        lambda: reading(spark, bootstrap, assign=json.dumps({name: [7]}))
    )
    assert "did you mean startingOffsets?" in said(lambda: reading(spark, bootstrap, name, startingOfsets="earliest"))
    assert "there is no property 'fetch.max.byte' here" in said(lambda: reading(spark, bootstrap, name, kafka_fetch_max_byte="1"))
    named = json.dumps({name: {"0": 0, "1": 0}})
    assert f"are for {name}-1" in said(lambda: reading(spark, bootstrap, name, startingOffsets=named))


def test_a_read_begins_and_ends_where_it_is_told(spark: SparkSession, server: str, name: str) -> None:
    made(server, name, 2)
    for partition in range(2):
        sender = Sender(server)
        for number in range(10):
            sender.send(name, b"v", partition=partition, timestamp=T0 + number * 1000)
        sender.all_delivered()
    with sync.Admin(server) as admin:
        admin.alter_group_offsets(name, {TopicPartition(name, 0): 8})

    def found(**options: str) -> list[tuple[int, int]]:
        return places(reading(spark, server, name, **options))

    def expected(first: range, second: range) -> list[tuple[int, int]]:
        return [(0, offset) for offset in first] + [(1, offset) for offset in second]

    def of(*numbers: int) -> str:
        return json.dumps({name: {str(index): number for index, number in enumerate(numbers)}})

    everything = range(10)
    assert found() == found(startingOffsets="earliest", endingOffsets="latest") == expected(everything, everything)
    assert found(startingOffsets=of(3, -2), endingOffsets=of(-1, 4)) == expected(range(3, 10), range(4))
    assert found(startingOffsets=of(-1, 9)) == expected(range(0), range(9, 10))
    assert found(startingOffsets=of(5, 5), endingOffsets=of(5, 4)) == []
    assert found(startingTimestamp=str(T0 + 7500)) == expected(range(8, 10), range(8, 10))
    assert found(endingTimestamp=str(T0 + 2000)) == expected(range(2), range(2))
    by_times = {"startingOffsetsByTimestamp": of(T0 + 1000, T0 + 9000), "endingOffsetsByTimestamp": of(T0 + 3000, T0 + 99_000)}
    assert found(**by_times) == expected(range(1, 3), range(9, 10))
    assert found(startingOffsets="group", groupId=name) == expected(range(8, 10), everything)
    late = str(T0 + 99_000)
    assert found(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []
    assert "startingOffsetsByTimestampStrategy=latest" in said(lambda: reading(spark, server, name, startingTimestamp=late))


def test_a_read_is_split_into_tasks_that_have_everything_once(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, 2)
    for partition, count in enumerate((40, 10)):
        fill(bootstrap, name, range(count), partition)
    expected = [(0, offset) for offset in range(40)] + [(1, offset) for offset in range(10)]
    for options, tasks in (({}, 2), ({"minPartitions": "5"}, 5), ({"maxRecordsPerPartition": "7"}, 8)):
        frame = reading(spark, bootstrap, name, **options)
        assert places(frame) == expected
        assert frame.rdd.getNumPartitions() == tasks


def test_what_was_aborted_is_not_read_and_what_is_open_not_yet(spark: SparkSession, server: str, name: str) -> None:
    made(server, name, 2)
    fill(server, name, [1], 0)
    producer = ConfluentProducer({"bootstrap.servers": server, "transactional.id": name})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        producer.produce(name, b"a", partition=0)
        producer.produce(name, b"b", partition=1)
        producer.flush(60)
        if end is not None:
            end(60)
    fill(server, name, [2], 0)
    assert places(reading(spark, server, name)) == [(0, 0), (0, 1), (1, 0)]
    everything = [(0, 0), (0, 1), (0, 3), (0, 5), (0, 6), (1, 0), (1, 2), (1, 4)]
    assert places(reading(spark, server, name, isolation="read_uncommitted")) == everything
    assert places(reading(spark, server, name, kafka_isolation_level="read_uncommitted")) == everything
    producer.abort_transaction(60)
    until(lambda: places(reading(spark, server, name)) == [(0, 0), (0, 1), (0, 6), (1, 0)], "the end of the transaction")


def test_a_compacted_topic_is_read_as_it_is(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, cleanup_policy="compact", segment_ms="50", min_cleanable_dirty_ratio="0.01")
    for _ in range(5):
        fill(bootstrap, name, range(4))
    with sync.Consumer(bootstrap=bootstrap) as consumer:

        def is_compacted() -> bool:
            fill(bootstrap, name, [9])
            consumer.assign({TopicPartition(name, 0): 0})
            return len(consumer.poll(1)) == 1 and consumer.poll(1)[0].offset >= 15

        until(is_compacted, "compaction")
    found = [row for row in rows(reading(spark, bootstrap, name)) if row.key != b"9"]
    assert [(row.key, row.offset) for row in found] == [(b"%d" % number, 16 + number) for number in range(4)]
    end = json.dumps({name: {"0": 16}})
    assert offsets(reading(spark, bootstrap, name, endingOffsets=end)) == []


def test_records_that_are_gone_fail_a_read_unless_that_was_chosen(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(10))
    with sync.Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 6})
    start = json.dumps({name: {"0": 2}})
    assert "offsets 2 to 5 are gone, the log begins at 6 now" in said(
        lambda: reading(spark, bootstrap, name, startingOffsets=start)
    )
    assert offsets(reading(spark, bootstrap, name, startingOffsets=start, failOnDataLoss="false")) == [6, 7, 8, 9]
    assert offsets(reading(spark, bootstrap, name)) == [6, 7, 8, 9]
    wide = {"startingOffsets": start, "endingOffsets": json.dumps({name: {"0": 5}})}
    assert "offsets 2 to 4 are gone" in said(lambda: reading(spark, bootstrap, name, **wide))
    assert offsets(reading(spark, bootstrap, name, **wide, failOnDataLoss="false")) == []
    beyond = {"endingOffsets": json.dumps({name: {"0": 12}})}
    assert "offsets 10 to 11 are gone, the log ends at 10 now" in said(lambda: reading(spark, bootstrap, name, **beyond))
    assert offsets(reading(spark, bootstrap, name, **beyond, failOnDataLoss="false")) == [6, 7, 8, 9]


def test_an_empty_topic_has_no_rows(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, 3)
    assert reading(spark, bootstrap, name).count() == 0


def test_a_query_that_stops_early_leaves_the_next_one_as_it_should_be(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name)
    fill(bootstrap, name, range(2_000))
    for _ in range(2):
        assert len(reading(spark, bootstrap, name).limit(3).collect()) == 3
        assert reading(spark, bootstrap, name).count() == 2_000

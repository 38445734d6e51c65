"""Rows written to topics at least once, at once and as a stream; librdkafka reads them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from tests.clients.confluent import Sender
from tests.spark.topics import fill, made, messages, numbers

FORMAT = "odradek"


def write(frame: DataFrame, bootstrap: str, **options: Any) -> None:
    named = {key.replace("_", "."): value for key, value in options.items()}
    frame.write.format(FORMAT).mode("append").option("kafka.bootstrap.servers", bootstrap).options(**named).save()


def said(frame: DataFrame, bootstrap: str, **options: Any) -> str:
    with pytest.raises(PySparkException) as raised:
        write(frame, bootstrap, **options)
    lines = str(raised.value).splitlines()
    return next((line for line in reversed(lines) if "InvalidOption" in line or "ValueError" in line), str(raised.value))


def test_keys_go_to_the_partitions_that_java_chooses(spark: SparkSession, server: str, name: str) -> None:
    made(server, name, 5)
    frame = spark.range(200).selectExpr("concat('key-', id) as key", "cast(id as string) as value")
    write(frame, server, topic=name)
    found = {each.key(): each.partition() for each in messages(server, name)}
    assert numbers(server, name) == [*range(200)]
    other = made(server, f"{name}-2", 5)
    sender = Sender(server, partitioner="murmur2_random")  # Java's
    for key in found:
        sender.send(other, b"", key)
    assert {row.key: row.partition for row in sender.all_delivered()} == found


def test_a_row_says_its_partition_topic_timestamp_and_headers(spark: SparkSession, server: str, name: str) -> None:
    topics = [made(server, f"{name}-{number}", 3) for number in range(2)]
    at = datetime(2024, 2, 3, 4, 5, 6, 789_000, UTC)
    headers = "array<struct<key:string,value:binary>>"
    kind = f"topic string, partition int, key binary, value binary, timestamp timestamp, headers {headers}"
    rows = [
        (topics[0], 2, b"k", b"v", at, [("a", b"1"), ("a", None)]),
        (topics[1], 1, None, b"", at, None),
        (topics[1], None, b"k", None, None, []),
    ]
    write(spark.createDataFrame(rows, kind), server)
    (first,) = messages(server, topics[0])
    assert (first.partition(), first.key(), first.value(), first.timestamp()[1]) == (2, b"k", b"v", 1_706_933_106_789)
    assert first.headers() == [("a", b"1"), ("a", None)]
    found = {each.key(): each for each in messages(server, topics[1])}
    assert (found[None].partition(), found[None].value()) == (1, b"")
    assert found[b"k"].value() is None
    assert found[b"k"].timestamp()[1] > at.timestamp() * 1000


def test_rows_without_keys_are_spread(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, 2)
    write(spark.range(5_000).selectExpr("cast(id as string) as value"), bootstrap, topic=name, compression="zstd")
    assert numbers(bootstrap, name) == [*range(5_000)]
    assert {each.partition() for each in messages(bootstrap, name)} == {0, 1}


def test_what_cannot_be_written_is_said_in_a_line_that_helps(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, 2)
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    assert "has a column value" in said(spark.range(1).selectExpr("'a' as key"), bootstrap, topic=name)
    assert "there is no column price in a record" in said(frame.withColumn("price", lit(1)), bootstrap, topic=name)
    assert "by the option topic, or by a column topic" in said(frame, bootstrap)
    assert "a row has no topic" in said(frame.withColumn("topic", lit(None).cast("string")), bootstrap)
    assert "partitions 7 to 7 are asked for" in said(frame.withColumn("partition", lit(7)), bootstrap, topic=name)
    assert "did you mean topic?" in said(frame, bootstrap, topics=name)
    assert "kafka.bootstrap.servers is missing" in said(frame, "", topic=name)


def test_a_stream_writes_what_it_reads_each_row_once_when_nothing_fails(
    spark: SparkSession, bootstrap: str, name: str, checkpoint: str
) -> None:
    made(bootstrap, name, 2)
    target = made(bootstrap, f"{name}-out", 2)
    for first in (0, 20):
        fill(bootstrap, name, range(first, first + 20))
        source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
        writer = source.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("odradek")
        query = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        assert query.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination(120)
    assert numbers(bootstrap, target) == [*range(40)]

"""Spark's own connector for Kafka, `format("kafka")`, on a cluster of ours; and ours beside it, row by row."""

from confluent_kafka import Producer as ConfluentProducer
from pyspark.sql import SparkSession

from tests.clients.confluent import Sender
from tests.spark.topics import made, messages, numbers


def test_both_connectors_read_the_same_rows(spark: SparkSession, bootstrap: str, name: str) -> None:
    made(bootstrap, name, 3)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        sender = Sender(bootstrap, compression_type=codec)
        for each in range(40):
            key = b"%d" % (each % 7) if each % 3 else None
            headers = [("n", b"%d" % each), ("n", None)] if each % 2 else None
            value = b"x" * each if each else None
            sender.send(name, value, key, partition=each % 3, timestamp=1_700_000_000_000 + number * 40 + each, headers=headers)
        sender.all_delivered()
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(name, b"in a transaction", partition=0)
        producer.flush(60)
        end(60)

    for isolation, count in (("read_committed", 201), ("read_uncommitted", 202)):
        found, schemas = {}, set()
        for kind in ("odradek", "kafka"):
            reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
            frame = reader.option("includeHeaders", "true").option("kafka.isolation.level", isolation).load()
            found[kind] = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
            schemas.add(frame.schema.simpleString())
        assert len(found["odradek"]) == count
        assert found["odradek"] == found["kafka"]
        assert len(schemas) == 1, schemas


def test_sparks_connector_writes_and_reads_as_a_stream(spark: SparkSession, bootstrap: str, name: str, checkpoint: str) -> None:
    made(bootstrap, name, 3)
    target = made(bootstrap, f"{name}-out", 3)
    rows = spark.range(100).selectExpr("cast(id % 5 as string) as key", "cast(id as string) as value")
    rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", name).save()
    assert numbers(bootstrap, name) == [*range(100)]
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", name)
    limited = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40").load().select("key", "value")
    writer = limited.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    assert writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination(120)
    assert numbers(bootstrap, target) == [*range(100)]


def test_both_connectors_send_keys_to_the_same_partitions(spark: SparkSession, bootstrap: str, name: str) -> None:
    rows = spark.range(50).selectExpr("concat('key', id) as key", "cast(id as string) as value")
    found = []
    for kind in ("odradek", "kafka"):
        topic = made(bootstrap, f"{name}-{kind}", 7)
        rows.write.format(kind).mode("append").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
        found.append({each.key(): each.partition() for each in messages(bootstrap, topic)})
    assert found[0] == found[1]

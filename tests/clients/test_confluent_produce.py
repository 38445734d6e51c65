"""confluent-kafka (librdkafka) as a producer."""

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError

from tests.clients.confluent import Sender, create, fill, read, row
from tests.kafka.broker import Broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_are_read_back_with_every_kind_of_acknowledgement(server: Broker, name: str, acks: str) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 300, acks=acks)
    found = [row(message) for message in read(server.bootstrap, name, 300)]
    assert [each.offset for each in found] == list(range(300))
    assert [(each.key, each.value) for each in found] == [(each.key, each.value) for each in sent]
    if acks != "0":
        assert found == sent


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_back_through_every_codec(server: Broker, name: str, codec: str) -> None:
    create(server.bootstrap, name)
    sender = Sender(server.bootstrap, compression_type=codec, linger_ms=50)
    for number in range(400):
        sender.send(name, b"the same again and again " * (number % 20), b"%d" % number)
    assert [row(message) for message in read(server.bootstrap, name, 400)] == sender.all_delivered()


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS[1:]])
def test_a_topic_may_ask_for_another_codec_than_the_producer_has(server: Broker, name: str, codec: str) -> None:
    create(server.bootstrap, name, compression_type=codec)
    for number, sent in enumerate(CODECS):
        sender = Sender(server.bootstrap, compression_type=sent)
        for _ in range(20):
            sender.send(name, b"%d" % number * 100, b"key", headers=[("a", b"b")])
        assert len(sender.all_delivered()) == 20
    found = read(server.bootstrap, name, 100)
    assert [message.value() for message in found] == [b"%d" % number * 100 for number in range(5) for _ in range(20)]
    assert {tuple(message.headers() or []) for message in found} == {(("a", b"b"),)}


def test_keys_values_headers_and_timestamps_come_back_as_they_were(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    now_ms = time.time_ns() // 1_000_000
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ünïcode", "ß".encode())]
    sender = Sender(server.bootstrap)
    sender.send(name, b"value", b"key", headers=headers, timestamp=now_ms - 1000)
    sender.send(name, None, b"deleted", timestamp=now_ms)
    sender.send(name, b"", b"", timestamp=now_ms - 500)
    sender.send(name, b"no key", None, timestamp=1)
    sender.all_delivered()
    found = read(server.bootstrap, name, 4)
    pairs = [(message.key(), message.value()) for message in found]
    assert pairs == [(b"key", b"value"), (b"deleted", None), (b"", b""), (None, b"no key")]
    assert found[0].headers() == headers
    assert [message.headers() for message in found[1:]] == [None, None, None]
    expected = [now_ms - 1000, now_ms, now_ms - 500, 1]
    assert [message.timestamp() for message in found] == [(TIMESTAMP_CREATE_TIME, each) for each in expected]


def test_the_broker_stamps_records_where_the_topic_says_so(server: Broker, name: str) -> None:
    create(server.bootstrap, name, message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    sender = Sender(server.bootstrap)
    sender.send(name, b"old", timestamp=1)
    sender.all_delivered()
    (found,) = read(server.bootstrap, name, 1)
    kind, timestamp = found.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp <= time.time_ns() // 1_000_000


def test_large_records_are_taken_up_to_the_limit_of_the_topic(server: Broker, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes="3000000")
    sender = Sender(server.bootstrap, message_max_bytes=8_000_000)
    large = bytes(range(256)) * 11_700
    for value in (b"small", large, large + bytes(10_000), b"small"):
        sender.send(name, value)
        sender.finish()
    assert sender.failed == [KafkaError.MSG_SIZE_TOO_LARGE]
    found = read(server.bootstrap, name, 3, fetch_message_max_bytes=1000)
    assert [message.value() for message in found] == [b"small", large, b"small"]


def test_an_idempotent_producer_keeps_the_order_in_every_partition(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 3)
    sender = Sender(server.bootstrap, enable_idempotence=True, max_in_flight_requests_per_connection=5, batch_num_messages=50)
    for number in range(6000):
        sender.send(name, b"%d" % number, partition=number % 3)
    assert len(sender.all_delivered()) == 6000
    found = [row(message) for message in read(server.bootstrap, name, 6000, partitions=3)]
    for index in range(3):
        values = [int(each.value or b"") for each in found if each.partition == index]
        assert values == list(range(index, 6000, 3))


def test_records_find_their_partition_by_key(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 8)
    sender = Sender(server.bootstrap, partitioner="murmur2_random")
    for number in range(800):
        sender.send(name, b"value", b"%d" % (number % 40))
    placed = {(each.key, each.partition) for each in sender.all_delivered()}
    assert len(placed) == 40
    found = {(row(message).key, row(message).partition) for message in read(server.bootstrap, name, 800, partitions=8)}
    assert found == placed


def test_a_topic_is_made_when_it_is_first_written_to(server: Broker, name: str) -> None:
    sender = Sender(server.bootstrap)
    sender.send(name, b"first")
    assert [(each.partition, each.offset) for each in sender.all_delivered()] == [(0, 0)]
    assert [message.value() for message in read(server.bootstrap, name, 1)] == [b"first"]


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(server: Broker, name: str) -> None:
    create(server.bootstrap, name, cleanup_policy="compact")
    sender = Sender(server.bootstrap)
    sender.send(name, b"nameless")
    assert sender.finish().failed == [KafkaError.INVALID_RECORD]
    sender.send(name, b"named", b"name")
    assert [each.offset for each in sender.finish().delivered] == [0]


def test_a_record_is_refused_when_its_timestamp_is_too_far_away(server: Broker, name: str) -> None:
    create(server.bootstrap, name, message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")
    now_ms = time.time_ns() // 1_000_000
    sender = Sender(server.bootstrap)
    for timestamp in (now_ms - 3_600_000, now_ms + 3_600_000, now_ms):
        sender.send(name, b"value", timestamp=timestamp)
        sender.finish()
    assert sender.failed == [KafkaError.INVALID_TIMESTAMP] * 2
    assert [each.offset for each in sender.delivered] == [0]


def test_no_more_replicas_are_asked_for_than_a_partition_has(server: Broker, name: str) -> None:
    create(server.bootstrap, name, min_insync_replicas="2")
    assert [each.offset for each in fill(server.bootstrap, name, 1, acks="all")] == [0]


def test_an_invalid_topic_name_is_refused(server: Broker) -> None:
    sender = Sender(server.bootstrap)
    sender.send("not/a/name", b"value")
    assert sender.finish().failed == [KafkaError.TOPIC_EXCEPTION]

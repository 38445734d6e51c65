"""confluent-kafka (librdkafka) as a consumer of partitions that it chose itself."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, TopicPartition

from tests.clients.confluent import POLL_SECONDS, Sender, admin, consuming, create, fill, messages, read, row, rows
from tests.clients.waiting import until
from tests.kafka.broker import Broker


def event(consumer: Consumer) -> int:
    """The code of the next thing that is not a record."""

    def look() -> int | None:
        message = consumer.poll(POLL_SECONDS)
        error = message.error() if message is not None else None
        return error.code() if error is not None else None

    return until(look, "an event") or 0


@pytest.mark.parametrize(
    ("begin", "expected"), [(OFFSET_BEGINNING, 0), (0, 0), (17, 17), (99, 99)], ids=["beginning", "first", "middle", "last"]
)
def test_reading_begins_where_the_consumer_says(server: Broker, name: str, begin: int, expected: int) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 100)
    with consuming(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(name, 0, begin)])
        assert rows(consumer, 100 - expected) == sent[expected:]


def test_from_the_end_only_what_comes_later_is_read(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    with consuming(server.bootstrap, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_END)])
        assert event(consumer) == KafkaError._PARTITION_EOF
        later = fill(server.bootstrap, name, 5)
        assert later[0].offset == 10
        assert rows(consumer, 5) == later


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_what_no_transaction_holds_back_is_read_in_both_isolation_levels(server: Broker, name: str, isolation: str) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 50, enable_idempotence=True)
    assert [row(message) for message in read(server.bootstrap, name, 50, isolation_level=isolation)] == sent


def test_offsets_are_found_by_time(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    sender = Sender(server.bootstrap)
    for number in range(20):
        sender.send(name, b"%d" % number, partition=0, timestamp=1_600_000_000_000 + number * 1000)
        sender.finish()
    with consuming(server.bootstrap) as consumer:

        def found(timestamp: int, partition: int = 0) -> int:
            (answer,) = consumer.offsets_for_times([TopicPartition(name, partition, timestamp)], timeout=30)
            assert answer.error is None
            return answer.offset

        assert found(0) == 0
        assert found(1_600_000_005_000) == 5
        assert found(1_600_000_005_001) == 6
        assert found(1_600_000_019_000) == 19
        assert found(1_600_000_019_001) == OFFSET_END
        assert found(0, partition=1) == OFFSET_END
        consumer.assign([TopicPartition(name, 0, found(1_600_000_015_000))])
        assert [each.value for each in rows(consumer, 5)] == [b"15", b"16", b"17", b"18", b"19"]


def test_a_consumer_seeks_back_and_forth(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 60)
    with consuming(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert rows(consumer, 10) == sent[:10]
        for offset in (50, 3, 0, 59):
            consumer.seek(TopicPartition(name, 0, offset))
            assert rows(consumer, 1) == sent[offset : offset + 1]


def test_a_paused_partition_gives_nothing_and_loses_nothing(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    sent = [fill(server.bootstrap, name, 30, partition=index) for index in range(2)]
    with consuming(server.bootstrap) as consumer:
        both = [TopicPartition(name, index, 0) for index in range(2)]
        consumer.assign(both)
        consumer.pause(both[:1])
        assert rows(consumer, 30) == sent[1]
        consumer.resume(both[:1])
        assert rows(consumer, 30) == sent[0]


def test_watermarks_follow_what_is_written_and_deleted(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    partition = TopicPartition(name, 0)
    with consuming(server.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(partition, timeout=30) == (0, 0)
        sent = fill(server.bootstrap, name, 40)
        assert consumer.get_watermark_offsets(partition, timeout=30) == (0, 40)
        client = admin(server.bootstrap)
        deleted = client.delete_records([TopicPartition(name, 0, 25)])[partition].result()
        assert deleted.low_watermark == 25
        assert consumer.get_watermark_offsets(partition, timeout=30) == (25, 40)
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        assert rows(consumer, 15) == sent[25:]


@pytest.mark.parametrize(
    ("policy", "expected"), [("earliest", 0), ("latest", None), ("error", None)], ids=["earliest", "latest", "error"]
)
def test_an_offset_out_of_range_is_reset_as_the_consumer_wishes(
    server: Broker, name: str, policy: str, expected: int | None
) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    with consuming(server.bootstrap, auto_offset_reset=policy, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(name, 0, 1000)])
        if expected is not None:
            assert rows(consumer, 1)[0].offset == expected
        else:
            assert event(consumer) == (KafkaError._PARTITION_EOF if policy == "latest" else KafkaError._AUTO_OFFSET_RESET)


def test_many_partitions_are_read_at_once(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 40)
    sender = Sender(server.bootstrap)
    for number in range(4000):
        sender.send(name, b"%d" % number, partition=number % 40)
    sent = sender.all_delivered()
    with consuming(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(name, index, 0) for index in range(40)])
        assert sorted(rows(consumer, 4000)) == sorted(sent)
        later = fill(server.bootstrap, name, 5, partition=39)
        assert rows(consumer, 5) == later


def test_a_consumer_that_waits_sees_every_record_as_it_comes(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    sender = Sender(server.bootstrap, linger_ms=0)
    with consuming(server.bootstrap, fetch_wait_max_ms=30_000) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        for number in range(20):
            sender.send(name, b"%d" % number)
            sender.finish()
            assert [each.value for each in rows(consumer, 1)] == [b"%d" % number]


def test_a_record_larger_than_every_limit_of_the_consumer_is_read(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    sender = Sender(server.bootstrap)
    values = [b"a" * 500_000, b"b" * 10, b"c" * 900_000]
    for value in values:
        sender.send(name, value)
        sender.finish()
    found = read(server.bootstrap, name, 3, fetch_message_max_bytes=100, fetch_max_bytes=1000, message_max_bytes=1000)
    assert [message.value() for message in found] == values


def test_a_topic_that_is_not_there_is_told(server: Broker, name: str) -> None:
    with consuming(server.bootstrap) as consumer:
        consumer.subscribe([name])
        assert event(consumer) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_and_remade_topic_is_another_one(server: Broker, name: str) -> None:
    client = admin(server.bootstrap)
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 10)
    client.delete_topics([name])[name].result()
    until(lambda: name not in client.list_topics(timeout=30).topics, "the deletion")
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 3)
    assert [each.offset for each in sent] == [0, 1, 2]
    with consuming(server.bootstrap) as consumer:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        assert [row(message) for message in messages(consumer, 3)] == sent

"""A server is stopped and killed again and again while clients write, read and commit: what was promised before holds after.

The server dies at whatever moment it has acknowledged some more records; its clients know nothing of it and go on by themselves.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.clients.confluent import Row, Sender, admin, consuming, create, fill, patiently, read, row, rows
from tests.clients.server import IS_KAFKA, new_server
from tests.clients.waiting import until
from tests.kafka.broker import Broker

ROUNDS = 4
PARTITIONS = 2
ACKNOWLEDGED_PER_ROUND = 400
UNSENT_MAX = 200
PATIENT = {"message_timeout_ms": 120_000, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20}
EAGER = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 200, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
HOW = pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])


@pytest.fixture
def restarting(tmp_path: Path) -> Iterator[Broker]:
    """A server of this scenario alone. A killed Kafka is let in again soon."""
    server = new_server(tmp_path / "server", broker_heartbeat_interval_ms="500", broker_session_timeout_ms="3000")
    server.start()
    yield server
    server.stop()


class Writer(Sender):
    """Sends its numbers to all partitions in turn, as long as it is asked to go on."""

    def __init__(self, server: Broker, topic: str, label: str, **settings: object) -> None:
        super().__init__(server.bootstrap, **PATIENT, **settings)
        self.topic = topic
        self.label = label
        self.sent = 0

    def go_on(self) -> None:
        while len(self.producer) < UNSENT_MAX:
            value = f"{self.label} {self.sent}".encode()
            self.send(self.topic, value, partition=self.sent % PARTITIONS)
            self.sent += 1
        self.producer.poll(0.01)


class Reader:
    """A member of a group that commits what it has read, and remembers both."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.seen: list[Row] = []
        self.positions: dict[int, int] = {}
        consumer.subscribe([topic])

    def go_on(self) -> None:
        for message in self.consumer.consume(100, 0.01):
            if message.error() is None:
                found = row(message)
                self.seen.append(found)
                self.positions[found.partition] = found.offset + 1
                self.consumer.commit(message=message, asynchronous=True)


def drive(parts: list[Writer | Reader], done: Callable[[], bool], what: str) -> None:
    def look() -> bool:
        for part in parts:
            part.go_on()
        return done()

    until(look, what)


@HOW
def test_nothing_acknowledged_is_lost_and_nothing_idempotent_is_there_twice(
    restarting: Broker, name: str, how: signal.Signals
) -> None:
    server = restarting
    create(server.bootstrap, name, PARTITIONS)
    careful = Writer(server, name, "careful", enable_idempotence=True, compression_type="lz4", linger_ms=0)
    plain = Writer(server, name, "plain", acks="all", enable_idempotence=False, max_in_flight=1, linger_ms=0)
    writers = [careful, plain]
    with consuming(server.bootstrap, name, **EAGER) as consumer:
        reader = Reader(consumer, name)
        drive([*writers, reader], lambda: bool(reader.seen), "the first record")
        for number in range(1, ROUNDS + 1):
            goals = [len(writer.delivered) + ACKNOWLEDGED_PER_ROUND for writer in writers]
            wanted = len(reader.seen) + ACKNOWLEDGED_PER_ROUND

            def is_reached(goals: list[int] = goals, wanted: int = wanted) -> bool:
                return len(reader.seen) >= wanted and all(len(each.delivered) >= goal for each, goal in zip(writers, goals))

            drive([*writers, reader], is_reached, f"the acknowledgements of round {number}")
            server.stop(how)
            server.start()
        for writer in writers:
            assert len(writer.all_delivered()) == writer.sent
        log = read_all(server, name)
        drive([reader], lambda: {*reader.seen} >= {*log}, "every record at the group's consumer")
    for writer in writers:
        assert set(writer.delivered) <= set(log)  # each at the offset that was promised
        for index in range(PARTITIONS):
            numbers = [number_of(each) for each in log if each.partition == index and label_of(each) == writer.label]
            assert list(dict.fromkeys(numbers)) == list(range(index, writer.sent, PARTITIONS))  # all, in order
            if writer is careful:
                assert len(numbers) == len(set(numbers))
    for index in range(PARTITIONS):
        offsets = [each.offset for each in log if each.partition == index]
        assert offsets == list(range(len(offsets)))


def read_all(server: Broker, topic: str) -> list[Row]:
    with consuming(server.bootstrap) as consumer:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=30)[1] for index in range(PARTITIONS)]
    return [row(message) for message in read(server.bootstrap, topic, sum(ends), PARTITIONS)]


def label_of(found: Row) -> str:
    return (found.value or b"").split()[0].decode()


def number_of(found: Row) -> int:
    return int((found.value or b"").split()[1])


@HOW
def test_a_member_of_a_group_goes_on_without_a_rebalance(restarting: Broker, name: str, how: signal.Signals) -> None:
    server = restarting
    create(server.bootstrap, name, PARTITIONS)
    fill(server.bootstrap, name, 5)
    given: list[int] = []
    with consuming(server.bootstrap, name, **EAGER) as consumer:
        consumer.subscribe([name], on_assign=lambda _, partitions: given.append(len(partitions)))
        rows(consumer, 5)
        consumer.commit(asynchronous=False)
        for _ in range(2):
            server.stop(how)
            server.start()
            sent = fill(server.bootstrap, name, 5, **PATIENT)
            assert rows(consumer, 5) == sent
            patiently(lambda: consumer.commit(asynchronous=False))
        (found,) = consumer.committed([TopicPartition(name, 0)], timeout=30)
        assert found.offset == 15
    assert given == [PARTITIONS]


@HOW
def test_topics_configurations_and_offsets_are_as_before(restarting: Broker, name: str, how: signal.Signals) -> None:
    server = restarting
    create(server.bootstrap, name, 3, retention_ms="12345", cleanup_policy="compact,delete")
    fill(server.bootstrap, name, 30)
    client = admin(server.bootstrap)
    may_come_back = IS_KAFKA and how is signal.SIGKILL  # Kafka writes down every minute where logs begin
    start = 0 if may_come_back else 7
    deleted = TopicPartition(name, 0, start)
    client.delete_records([deleted])[deleted].result()
    wanted = [TopicPartition(name, index, 10 + index, metadata=f"note {index}") for index in range(3)]
    client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, wanted)])[name].result()

    def seen() -> list[object]:
        client = admin(server.bootstrap)
        topic = client.describe_topics(TopicCollection([name]))[name].result()
        resource = ConfigResource(ResourceType.TOPIC, name)
        configs = client.describe_configs([resource])[resource].result()
        partitions = [TopicPartition(name, index) for index in range(3)]
        with consuming(server.bootstrap, name) as consumer:
            offsets = patiently(lambda: consumer.committed(partitions, timeout=30))
            watermarks = [consumer.get_watermark_offsets(partition, timeout=30) for partition in partitions]
        return [
            str(topic.topic_id),
            len(topic.partitions),
            sorted((key, entry.value) for key, entry in configs.items()),
            sorted((each.partition, each.offset, each.metadata) for each in offsets),
            watermarks,
            [each.offset for each in map(row, read(server.bootstrap, name, 30 - start, 3))],
        ]

    before = seen()
    assert before[4] == [(start, 30), (0, 0), (0, 0)]
    for _ in range(2):
        server.stop(how)
        server.start()
        assert seen() == before

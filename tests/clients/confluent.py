"""What the scenarios of confluent-kafka (librdkafka) share: topics, producers, consumers, and records as plain rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.waiting import SECONDS_MAX, until

Headers = list[tuple[str, bytes | None]]
POLL_SECONDS = 0.2
COORDINATOR_NOT_THERE = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
)


class Row(NamedTuple):
    """`offset` is -1 when nobody told the producer."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def row(message: Message) -> Row:
    partition, offset = message.partition(), message.offset()
    assert message.error() is None, message.error()
    assert partition is not None
    return Row(partition, -1 if offset is None else offset, message.key(), message.value())


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    client = admin(bootstrap)  # must outlive its answer
    client.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result()


class Sender:
    """A producer that remembers what became of each record."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **named})
        self.delivered: list[Row] = []
        self.failed: list[int] = []

    def send(self, topic: str, value: bytes | None, key: bytes | None = None, **more: Any) -> None:
        self.producer.produce(topic, value, key, on_delivery=self._report, **more)

    def _report(self, error: Any, message: Message) -> None:
        if error is None:
            self.delivered.append(row(message))
        else:
            self.failed.append(error.code())

    def finish(self) -> "Sender":
        assert self.producer.flush(SECONDS_MAX) == 0
        return self

    def all_delivered(self) -> list[Row]:
        self.finish()
        assert not self.failed
        return self.delivered


def fill(bootstrap: str, topic: str, count: int, partition: int = 0, **settings: Any) -> list[Row]:
    """Sends the numbers from 0 as values, in order."""
    sender = Sender(bootstrap, **settings)
    for number in range(count):
        sender.send(topic, b"%d" % number, b"%d" % (number % 7), partition=partition)
    return sender.all_delivered()


@contextmanager
def consuming(bootstrap: str, group: str = "nobody", **settings: Any) -> Iterator[Consumer]:
    named = {key if callable(value) else key.replace("_", "."): value for key, value in settings.items()}
    base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**base, "check.crcs": True, **named})
    try:
        yield consumer
    finally:
        consumer.close()


def messages(consumer: Consumer, count: int) -> list[Message]:
    """The next so many."""
    found: list[Message] = []

    def look() -> bool:
        found.extend(consumer.consume(count - len(found), POLL_SECONDS))
        return len(found) >= count

    until(look, f"{count} messages")
    return found


def rows(consumer: Consumer, count: int) -> list[Row]:
    return [row(message) for message in messages(consumer, count)]


def read(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Message]:
    """That many messages from the beginning of all partitions."""
    with consuming(bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        return messages(consumer, count)


def patiently(ask: Callable[[], Any]) -> Any:
    """Asks until the coordinator has been loaded."""
    answers: list[Any] = []

    def look() -> list[Any]:
        try:
            answers.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_NOT_THERE:
                raise
        return answers

    return until(look, "the coordinator")[0]


def code_of(ask: Callable[[], Any]) -> int:
    """The code of the error that must come."""
    try:
        answer = ask()
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    raise AssertionError(f"no error, but {answer!r}")

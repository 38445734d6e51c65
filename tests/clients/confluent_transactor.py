"""Transactions of confluent-kafka (librdkafka), as its manual wants them used; a process of its own where it is to be killed."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.clients.transactions import Fenced, MustAbort, abandon_in, be_abandoned
from tests.clients.waiting import SECONDS_MAX, until

READER = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "isolation.level": "read_committed"}
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "log_level": 0}
POLL_SECONDS = 0.1
FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def insisting(ask: Callable[[], Any]) -> None:
    """Asks again where the client says that this may help."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            ask()
            return
        except KafkaException as caught:
            error = caught.args[0]
            if error.code() in FENCED:
                raise Fenced(str(error)) from caught
            if error.txn_requires_abort():
                raise MustAbort(str(error)) from caught
            if not error.retriable() or time.monotonic() > deadline:
                raise


class ConfluentTransactor:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.bootstrap = bootstrap
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **QUICK, **named}
        )
        self.consumer: Consumer | None = None
        insisting(lambda: self.producer.init_transactions(SECONDS_MAX))

    def begin(self) -> None:
        insisting(self.producer.begin_transaction)

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        errors: list[KafkaError] = []

        def report(error: KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        for value in values:
            insisting(lambda value=value: self.producer.produce(topic, value, partition=partition, on_delivery=report))  # type: ignore[misc]
        assert self.producer.flush(SECONDS_MAX) == 0
        if errors:
            raise (Fenced if errors[0].code() in FENCED else MustAbort)(str(errors[0]))

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        if self.consumer is None:
            self.consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **READER, **QUICK})
            self.consumer.subscribe([topic])
        consumer = self.consumer
        values: list[str] = []

        def look() -> bool:
            found = consumer.consume(count - len(values), POLL_SECONDS)
            values.extend((message.value() or b"").decode() for message in found if message.error() is None)
            return len(values) >= count

        until(look, f"{count} records of {topic}")
        return values

    def send_offsets(self) -> None:
        consumer = self.consumer
        assert consumer is not None
        positions = [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]
        insisting(lambda: self.producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS_MAX))

    def commit(self) -> None:
        insisting(lambda: self.producer.commit_transaction(SECONDS_MAX))

    def abort(self) -> None:
        insisting(lambda: self.producer.abort_transaction(SECONDS_MAX))

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        with suppress(KafkaException):  # of one that was fenced
            self.producer.close()


class ConfluentClient:
    too_late = Fenced

    def open(self, bootstrap: str, transactional_id: str, **settings: Any) -> ConfluentTransactor:
        return ConfluentTransactor(bootstrap, transactional_id, **settings)

    def abandon(self, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
        abandon_in("tests.clients.confluent_transactor", bootstrap, transactional_id, topic, values)


if __name__ == "__main__":
    be_abandoned(ConfluentClient())

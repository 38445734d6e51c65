"""Transactions of `odradek.sync`, for the scenarios that all clients have; a process of its own where it is to be killed."""

from typing import Any

from odradek import sync
from odradek.client import errors
from odradek.client.records import Committed, TopicPartition
from tests.clients.transactions import Fenced, MustAbort, abandon_in, be_abandoned
from tests.clients.waiting import until

POLL_MS = 100
QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


class OdradekTransactor:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        self.bootstrap = bootstrap
        self.producer = sync.Producer(bootstrap, transactional_id=transactional_id, linger_ms=0, **QUICK, **settings)
        self.consumer: sync.Consumer | None = None
        self.read: dict[TopicPartition, Committed] = {}
        self._run(self.producer.begin_transaction)  # which takes the id over
        self.is_fresh = True

    def _run(self, work: Any, *given: Any) -> Any:
        try:
            return work(*given)
        except errors.Fenced as error:
            raise Fenced(str(error)) from error
        except (errors.TransactionFailed, errors.Refused) as error:
            raise MustAbort(str(error)) from error

    def begin(self) -> None:
        if not self.is_fresh:
            self._run(self.producer.begin_transaction)
        self.is_fresh = False

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        sent = [self.producer.send(topic, value, partition=partition) for value in values]
        for each in sent:
            self._run(each.result)

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        if self.consumer is None:
            self.consumer = sync.Consumer(topic, bootstrap=self.bootstrap, group=group, auto_commit=False, **QUICK)
        consumer = self.consumer
        values: list[str] = []

        def look() -> bool:
            for record in consumer.poll(count - len(values), POLL_MS):
                values.append((record.value or b"").decode())
                self.read[TopicPartition(record.topic, record.partition)] = Committed(record.offset + 1)
            return len(values) >= count

        until(look, f"{count} records of {topic}")
        return values

    def send_offsets(self) -> None:
        assert self.consumer is not None
        self._run(self.producer.send_offsets, self.read, self.consumer.group_metadata())

    def commit(self) -> None:
        self._run(self.producer.commit_transaction)

    def abort(self) -> None:
        self._run(self.producer.abort_transaction)

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        self.producer.close(is_hasty=True)


class OdradekClient:
    too_late = MustAbort

    def open(self, bootstrap: str, transactional_id: str, **settings: Any) -> OdradekTransactor:
        return OdradekTransactor(bootstrap, transactional_id, **settings)

    def abandon(self, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
        abandon_in("tests.client.transactor", bootstrap, transactional_id, topic, values)


if __name__ == "__main__":
    be_abandoned(OdradekClient())

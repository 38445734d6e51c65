"""Transactions of Kafka's own Java clients, by way of the oracle's process; in one of its own where it is to be killed."""

from itertools import count
from typing import Any

from tests.clients.transactions import Fenced, MustAbort, WrongState
from tests.kafka.oracle import Oracle, OracleError

QUICK = {
    "reconnect.backoff.max.ms": "200",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "100",
    "delivery.timeout.ms": "60000",
    "linger.ms": "0",
}
FENCED = ("ProducerFencedException", "InvalidProducerEpochException", "FencedInstanceIdException")
NUMBERS = count()


class JavaTransactor:
    def __init__(self, oracle: Oracle, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        self.oracle = oracle
        self.number = next(NUMBERS)
        named = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self._call("open", bootstrap=bootstrap, settings={"transactional.id": transactional_id, **QUICK, **named})

    def _call(self, name: str, **arguments: Any) -> Any:
        try:
            return self.oracle.call(f"Transactions.{name}", number=self.number, **arguments)
        except OracleError as error:
            kind = str(error).partition(":")[0].rpartition(".")[2]
            if kind in FENCED:
                raise Fenced(str(error)) from error
            if kind in ("KafkaException", "TransactionAbortableException"):
                raise MustAbort(str(error)) from error
            if kind == "InvalidTxnStateException":
                raise WrongState(str(error)) from error
            raise

    def begin(self) -> None:
        self._call("begin")

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        self._call("send", topic=topic, partition=partition, values=values)

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        values: list[str] = self._call("consume", group=group, topic=topic, count=count)
        return values

    def send_offsets(self) -> None:
        self._call("sendOffsets")

    def commit(self) -> None:
        self._call("commit")

    def abort(self) -> None:
        self._call("abort")

    def close(self) -> None:
        self._call("close")


class JavaClient:
    too_late = WrongState

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    def open(self, bootstrap: str, transactional_id: str, **settings: Any) -> JavaTransactor:
        return JavaTransactor(self.oracle, bootstrap, transactional_id, **settings)

    def abandon(self, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
        oracle = Oracle()
        transactor = JavaTransactor(oracle, bootstrap, transactional_id)
        transactor.begin()
        transactor.send(topic, 0, values)
        oracle.process.kill()
        oracle.close()

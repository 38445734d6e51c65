"""Transactions of aiokafka, each in an event loop of its own; a process of its own where it is to be killed."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)

from tests.clients.transactions import Fenced, MustAbort, abandon_in, be_abandoned
from tests.clients.waiting import SECONDS_MAX

READER = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
QUICK = {"retry_backoff_ms": 20, "request_timeout_ms": 10_000}


class AiokafkaTransactor:
    def __init__(self, bootstrap: str, transactional_id: str, **settings: Any) -> None:
        self.bootstrap = bootstrap
        self.runner = asyncio.Runner()
        self.producer: Any = None
        self.consumer: Any = None
        self._run(self._start(bootstrap, transactional_id, settings))

    async def _start(self, bootstrap: str, transactional_id: str, settings: dict[str, Any]) -> None:
        self.producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, **{**QUICK, **settings})
        await self.producer.start()

    def _run(self, what: Awaitable[Any]) -> Any:
        async def in_time() -> Any:
            return await asyncio.wait_for(what, SECONDS_MAX)

        try:
            return self.runner.run(in_time())
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise Fenced(str(error)) from error
        except OutOfOrderSequenceNumber as error:
            raise MustAbort(str(error)) from error

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        async def all_of_them() -> None:
            sent = [await self.producer.send(topic, value.encode(), partition=partition) for value in values]
            await asyncio.gather(*sent)

        self._run(all_of_them())

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        async def next_ones() -> list[str]:
            if self.consumer is None:
                self.consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.bootstrap, group_id=group, **READER)
                await self.consumer.start()
            self.group = group
            return [(await self.consumer.getone()).value.decode() for _ in range(count)]

        values: list[str] = self._run(next_ones())
        return values

    def send_offsets(self) -> None:
        async def positions() -> None:
            found = {each: await self.consumer.position(each) for each in self.consumer.assignment()}
            await self.producer.send_offsets_to_transaction(found, self.group)

        self._run(positions())

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        if self.consumer is not None:
            self._run(self.consumer.stop())
        with suppress(KafkaError, Fenced):  # of one that was fenced
            self._run(self.producer.stop())
        self.runner.close()


class AiokafkaClient:
    too_late = Fenced

    def open(self, bootstrap: str, transactional_id: str, **settings: Any) -> AiokafkaTransactor:
        return AiokafkaTransactor(bootstrap, transactional_id, **settings)

    def abandon(self, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
        abandon_in("tests.clients.aiokafka_transactor", bootstrap, transactional_id, topic, values)


if __name__ == "__main__":
    be_abandoned(AiokafkaClient())

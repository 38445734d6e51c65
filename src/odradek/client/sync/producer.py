"""Writes records to topics, for programs with threads: `odradek.Producer`, without async and await.

    with Producer("127.0.0.1:9092") as producer:
        producer.send("orders", b"a book", key=b"alice")
        print(producer.deliver("orders", b"a pen").offset)

Invariants
 1. Records that one thread sends are taken in the order in which it sends them.
 2. INBOX_MAX records at most wait to be taken; then `send` waits.
 3. A record that could not be taken is not lost in silence: `result`, the next `flush`, the commit of its transaction, or the end
    of the producer raises why.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

from odradek.client import producer
from odradek.client.batches import Delivery
from odradek.client.errors import Closed, TransactionFailed
from odradek.client.producer import HeadersGiven
from odradek.client.records import Committed, Delivered, GroupMetadata, TopicPartition
from odradek.client.sync.background import Background

INBOX_MAX: Final = 10_000
UNHEARD_MAX: Final = 100  # failures that are kept for who asks: one is told


class Sent:
    """A record on its way: `result` waits for it."""

    __slots__ = ("_delivery", "_error", "_producer", "_record")

    def __init__(self, sender: "Producer", record: tuple[Any, ...]) -> None:
        self._producer = sender
        self._record = record
        self._delivery: Delivery | None = None
        self._error: Exception | None = None

    def result(self) -> Delivered:
        """Where it is; raises why it is not there."""
        return self._producer._background.run(self._producer._result(self))


class Producer:
    def __init__(self, bootstrap: str | list[str] = "127.0.0.1:9092", **options: Any) -> None:
        """The options are those of `odradek.Producer`. It connects here: KafkaError when nobody is there."""
        self._producer = producer.Producer(bootstrap, **options)
        self._begin()

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """One with properties as librdkafka and Java name them."""
        made = cls.__new__(cls)
        made._producer = producer.Producer.of(properties)
        made._begin()
        return made

    def _begin(self) -> None:
        self._background = Background("odradek-producer")
        self._inbox: deque[Sent] = deque()
        self._unheard: dict[Sent, Exception] = {}  # why they could not be taken, where nobody has asked yet
        self._room = threading.Condition()
        self._taking: asyncio.Task[None] | None = None
        self._is_called = False
        self._is_closed = False
        try:
            self._background.run(self._producer.start())
        except BaseException:
            self._background.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(is_hasty=error is not None)

    # -- sending

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """Takes a record on its way, and waits only where too many wait already."""
        if self._is_closed:
            raise Closed("the producer was closed")
        sent = Sent(self, (topic, value, key, partition, headers, timestamp_ms))
        inbox = self._inbox
        inbox.append(sent)
        if not self._is_called:
            self._is_called = True
            self._background.loop.call_soon_threadsafe(self._take_soon)
        if len(inbox) >= INBOX_MAX:
            with self._room:
                self._room.wait_for(lambda: len(inbox) < INBOX_MAX // 2 or self._is_closed)
        return sent

    def _take_soon(self) -> None:
        self._is_called = False  # who comes after this calls again; who came before is in the inbox
        if self._taking is None or self._taking.done():
            self._taking = self._background.loop.create_task(self._take())

    async def _take(self) -> None:
        """Whatever waits, one after the other, with the room that there is."""
        inbox, send = self._inbox, self._producer.send
        while inbox:
            sent = inbox[0]
            topic, value, key, partition, headers, timestamp_ms = sent._record
            try:
                sent._delivery = await send(
                    topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
                )
            except Exception as error:  # noqa: BLE001 - of a record that cannot be: its sender is told
                sent._error = error
                if len(self._unheard) < UNHEARD_MAX:
                    self._unheard[sent] = error
            inbox.popleft()
            if len(inbox) == INBOX_MAX // 2 or not inbox:
                with self._room:
                    self._room.notify_all()

    async def _taken(self) -> None:
        while self._inbox:
            self._take_soon()
            assert self._taking is not None
            await asyncio.wait([self._taking])

    async def _result(self, sent: Sent) -> Delivered:
        while sent._delivery is None and sent._error is None:
            await self._taken()
        if sent._error is not None:
            self._unheard.pop(sent, None)
            raise sent._error
        assert sent._delivery is not None
        return await sent._delivery

    def _raise_unheard(self) -> None:
        """The first; then all count as heard of."""
        unheard, self._unheard = self._unheard, {}
        for error in unheard.values():
            raise error

    def deliver(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: HeadersGiven | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivered:
        """Sends a record, and waits until it is written."""
        sent = self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        return sent.result()

    def flush(self, timeout_ms: float | None = None) -> None:
        """Until everything that was sent before has been written."""

        async def work() -> None:
            await self._taken()
            await self._producer.flush(timeout_ms)
            self._raise_unheard()

        self._background.run(work())

    # -- transactions

    @contextmanager
    def transaction(self) -> Iterator["Producer"]:
        """What is sent within it is visible to others together, when it is left, or not at all, when that is by an exception."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            self.abort_transaction()
            raise

    def begin_transaction(self) -> None:
        self._background.run(self._producer.begin_transaction())

    def commit_transaction(self) -> None:
        async def work() -> None:
            await self._taken()
            for error in self._unheard.values():
                raise TransactionFailed(f"a record could not be taken into the transaction: {error}") from error
            await self._producer.commit_transaction()

        self._background.run(work())

    def abort_transaction(self) -> None:
        async def work() -> None:
            await self._taken()
            self._unheard.clear()
            await self._producer.abort_transaction()

        self._background.run(work())

    def send_offsets(self, offsets: Mapping[TopicPartition, Committed | int], group: GroupMetadata | str) -> None:
        self._background.run(self._producer.send_offsets(offsets, group))

    # -- the end

    def close(self, *, is_hasty: bool = False) -> None:
        """Writes what was sent, and leaves. With `is_hasty`, what is not written yet is given up."""
        if self._is_closed:
            return
        self._is_closed = True

        async def work() -> None:
            if not is_hasty:
                await self._taken()
            await self._producer.close(is_hasty=is_hasty)
            if self._taking is not None:
                await asyncio.wait([self._taking])
            if not is_hasty:
                self._raise_unheard()

        try:
            self._background.run(work())
        finally:
            self._background.close()

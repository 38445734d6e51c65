"""The client of this house, `odradek.Producer`, in the programs of a run: whatever it says of a record is told to the history.

Invariants
 1. A record ends as acknowledged when its delivery says so; as refused when it was never sent, or was sent once and answered with
    a no; and as unknown otherwise.
 2. Records are sent in the order in which they were begun.
 3. Who stops sending has not sent what the producer had not taken.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

import msgspec

from odradek.client.batches import Delivery
from odradek.client.errors import KafkaError, Refused
from odradek.client.machine import Machine
from odradek.client.producer import Producer
from tests.checker.history import UNKNOWN_OFFSET, Outcome, SendBegun, SendEnded, text
from tests.sim.clients.producer import Manner
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks

OPTIONS: Final[dict[str, Any]] = {
    "request_timeout_ms": 4_000,
    "default_timeout_ms": 20_000,
    "connect_timeout_ms": 2_000,
    "delivery_timeout_ms": 30_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 1_000,
    "metadata_max_age_ms": 10_000,
    "linger_ms": 20,
    "batch_size": 300,
    "buffer_memory": 4_000,
}
LOOK_SECONDS: Final = 0.05

Begun = tuple[int, bytes | None, bytes | None]  # id, key, value


class Sending(msgspec.Struct):
    """Records for a partition: those that the producer has not taken yet, and the others."""

    place: Place
    left: deque[Begun]
    deliveries: list[tuple[int, Delivery]] = []


async def awake() -> None:
    """Who never stalls."""


class LibraryProducer:
    """Has what a simulated producer has for those who produce."""

    def __init__(self, program: Program, manner: Manner, awake: Callable[[], Awaitable[None]] = awake, **options: Any) -> None:
        self.program = program
        self.manner = manner
        self.awake = awake
        self.acknowledged = self.failed = 0
        self.unfinished = 0
        self.transaction: int | None = None  # the open one, by the name that the history has for it
        self.started = asyncio.Event()
        bootstrap = [f"{host}:{port}" for host, port in program.bootstrap]
        self.producer = Producer(
            bootstrap,
            client_id=program.name,
            acks="all" if manner.acks < 0 else manner.acks,
            idempotent=manner.is_idempotent,
            compression=manner.codec.name.lower(),
            machine=cast("Machine", program.machine),
            **{**OPTIONS, **options},
        )
        self._queue: deque[Sending] = deque()
        self._tasks = Tasks(program)
        self._changed = program.loop.create_future()
        self._working = self._tasks.start(self._work())

    def send(self, place: Place, entries: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        program, manner = self.program, self.manner
        begun = Sending(place, deque())
        for key, value in entries:
            number = program.history.next_id()
            begun.left.append((number, key, value))
            acks = cast("Any", manner.acks)
            program.tell(
                SendBegun(
                    program.at_ms,
                    program.name,
                    number,
                    place.topic,
                    place.index,
                    text(key),
                    text(value),
                    program.name,
                    acks,
                    manner.is_idempotent,
                    self.transaction,
                )
            )
        self.unfinished += 1
        self._queue.append(begun)
        if not self._changed.done():
            self._changed.set_result(None)

    @property
    def is_sending(self) -> bool:
        return bool(self._queue)

    async def stop_sending(self) -> None:
        """What is left is not sent any more."""
        self._working.cancel()
        await asyncio.wait([self._working])
        for each in self._queue:
            self._give_up(each)
            self._tasks.start(self._settle(each.deliveries))
        self._queue.clear()
        self._working = self._tasks.start(self._work())

    def _give_up(self, begun: Sending) -> None:
        for number, _, _ in begun.left:
            self._end(number, "refused", error="it was not sent")
        begun.left.clear()

    async def _work(self) -> None:
        if not self.started.is_set():
            await self._begin()
        while True:
            while self._queue:
                begun = self._queue[0]
                while begun.left:
                    await self.awake()
                    await self._send(begun)
                self._queue.popleft()
                self._tasks.start(self._settle(begun.deliveries))
            self._changed = self.program.loop.create_future()
            await self._changed

    async def _begin(self) -> None:
        """Tries until somebody is there."""
        while True:
            try:
                await self.producer.start()
            except KafkaError:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                self.started.set()
                return

    async def _send(self, begun: Sending) -> None:
        """The next one. When this is cancelled, it was not taken. Who hears that there is no such topic sends no more to it: each
        record would wait as long."""
        number, key, value = begun.left[0]
        try:
            delivery = await self.producer.send(begun.place.topic, value, key=key, partition=begun.place.index)
        except KafkaError as error:
            begun.left.popleft()
            self._end(number, "refused", error=str(error))  # it was never taken
            for each in self._queue:
                if each.place.topic == begun.place.topic:
                    self._give_up(each)
        else:
            begun.left.popleft()
            begun.deliveries.append((number, delivery))

    async def _settle(self, deliveries: list[tuple[int, Delivery]]) -> None:
        for number, delivery in deliveries:
            try:
                where = await delivery
            except KafkaError as error:
                batch = delivery.batch
                is_certain = not batch.attempts or (batch.attempts == 1 and isinstance(error, Refused))
                self._end(number, "refused" if is_certain else "unknown", error=str(error), attempts=batch.attempts)
            else:
                is_known = self.manner.acks != 0
                self._end(number, "acknowledged" if is_known else "unknown", where.offset, delivery.batch.attempts)
        self.unfinished -= 1

    def _end(self, number: int, outcome: Outcome, offset: int = UNKNOWN_OFFSET, attempts: int = 0, error: str = "") -> None:
        program = self.program
        self.acknowledged += outcome == "acknowledged"
        self.failed += outcome != "acknowledged"
        program.tell(SendEnded(program.at_ms, program.name, number, outcome, offset, attempts, error))

    async def flush(self) -> None:
        """Until every send has ended: each does, at its deadline at the latest."""
        while self.unfinished:  # noqa: ASYNC110 - of many tasks
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Ends without a word, like a program that is killed: what has not ended is unknown."""
        await self._tasks.cancel()
        await self.producer.close(is_hasty=True)

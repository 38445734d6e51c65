"""The client of this house, `odradek.Producer`, in the programs of a run: whatever it says of a record is told to the history.

Invariants
 1. A record ends as acknowledged when its delivery says so; as refused when it was never sent, or was sent once and answered with
    a no; and as unknown otherwise.
 2. Records are sent in the order in which they were begun.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

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


class LibraryProducer:
    """Has what a simulated producer has for those who produce."""

    def __init__(self, program: Program, manner: Manner) -> None:
        self.program = program
        self.manner = manner
        self.acknowledged = 0
        self.unfinished = 0
        bootstrap = [f"{host}:{port}" for host, port in program.bootstrap]
        self.producer = Producer(
            bootstrap,
            client_id=program.name,
            acks="all" if manner.acks < 0 else manner.acks,
            idempotent=manner.is_idempotent,
            compression=manner.codec.name.lower(),
            machine=cast("Machine", program.machine),
            **OPTIONS,
        )
        self._queue: deque[tuple[Place, list[tuple[int, bytes | None, bytes | None]]]] = deque()
        self._tasks = Tasks(program)
        self._changed = program.loop.create_future()
        self._tasks.start(self._work())

    def send(self, place: Place, entries: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        program, manner = self.program, self.manner
        begun = []
        for key, value in entries:
            number = program.history.next_id()
            begun.append((number, key, value))
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
                )
            )
        self.unfinished += 1
        self._queue.append((place, begun))
        if not self._changed.done():
            self._changed.set_result(None)

    async def _work(self) -> None:
        await self._begin()
        while True:
            while self._queue:
                place, begun = self._queue.popleft()
                deliveries = [await self._sent(place, *each) for each in begun]
                self._tasks.start(self._settle(deliveries))
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
                return

    async def _sent(self, place: Place, number: int, key: bytes | None, value: bytes | None) -> tuple[int, Delivery | None]:
        try:
            return number, await self.producer.send(place.topic, value, key=key, partition=place.index)
        except KafkaError as error:
            self._end(number, "refused", error=str(error))  # it was never taken
            return number, None

    async def _settle(self, deliveries: list[tuple[int, Delivery | None]]) -> None:
        for number, delivery in deliveries:
            if delivery is None:
                continue
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
        program.tell(SendEnded(program.at_ms, program.name, number, outcome, offset, attempts, error))

    async def flush(self) -> None:
        """Until every send has ended: each does, at its deadline at the latest."""
        while self.unfinished:  # noqa: ASYNC110 - of many tasks
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        """Ends without a word, like a program that is killed: what has not ended is unknown."""
        await self._tasks.cancel()
        await self.producer.close(is_hasty=True)

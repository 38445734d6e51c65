"""`odradek.Consumer`, by assignment, in the programs of a run: what it gives, and where it jumps to, is told to the history.

Invariants
 1. A jump that the consumer makes by itself is told before what it gives after that.
"""

import asyncio
import random
from typing import Any, Final, cast

from odradek.client.consumer import Consumer
from odradek.client.errors import KafkaError
from odradek.client.machine import Machine
from odradek.client.reading import Reading
from tests.checker import history
from tests.sim.clients.program import Place, Program

OPTIONS: Final[dict[str, Any]] = {
    "request_timeout_ms": 4_000,
    "default_timeout_ms": 4_000,
    "connect_timeout_ms": 2_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 1_000,
    "metadata_max_age_ms": 10_000,
    "prefetch_bytes": 20_000,
}
POLL_MS: Final = 1_000
PAUSE_SECONDS: Final = 0.2


class LibraryReader:
    def __init__(self, program: Program, chance: random.Random, rack: str) -> None:
        self.program = program
        self.records_read = 0
        self.isolation = cast("history.Isolation", chance.choice(["read_committed", "read_uncommitted"]))
        self.consumer = Consumer(
            bootstrap=[f"{host}:{port}" for host, port in program.bootstrap],
            client_id=program.name,
            isolation=cast("Any", self.isolation),
            fetch_max_wait_ms=chance.choice([1, 200, 1000]),
            max_partition_fetch_bytes=chance.choice([1000, 4096, 1 << 20]),
            rack=rack if chance.random() < 0.5 else "",
            machine=cast("Machine", program.machine),
            **OPTIONS,
        )
        self.places: list[Place] = []
        self._jumps: dict[Place, tuple[Reading, int]] = {}  # that were told

    async def start(self) -> None:
        """Tries until somebody is there."""
        while True:
            try:
                await self.consumer.start()
            except KafkaError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return

    async def assign(self, *places: Place) -> None:
        """From now on these, from their begin; or nothing, when one of them is not to be found."""
        program = self.program
        try:
            await self.consumer.assign([(place.topic, place.index) for place in places])
        except KafkaError:
            self.places = []
            await asyncio.sleep(PAUSE_SECONDS)
            return
        self.places = [*places]
        self._jumps.clear()
        fresh = [history.Position(place.topic, place.index) for place in places]
        program.tell(history.Assigned(program.at_ms, program.name, fresh=fresh, kept=[]))

    async def poll(self) -> int:
        program = self.program
        program.tell(history.PollBegun(program.at_ms, program.name))
        try:
            records = await self.consumer.poll(timeout_ms=POLL_MS)
        except KafkaError:
            records = []
            await asyncio.sleep(PAUSE_SECONDS)
        self._tell_jumps()
        polled = history.Polled(program.at_ms, program.name, isolation=self.isolation)
        for each in records:
            key, value = history.text(each.key), history.text(each.value)
            polled.records.append(history.Record(each.topic, each.partition, each.offset, key, value))
        for place, reading in self._readings().items():
            if reading.given >= 0:
                polled.positions.append(history.Position(place.topic, place.index, reading.given))
        program.tell(polled)
        self.records_read += len(records)
        return len(records)

    def _readings(self) -> dict[Place, Reading]:
        readings = self.consumer._running.fetcher.readings
        self.consumer._running.handing.look()
        return {Place(place.topic, place.partition): reading for place, reading in sorted(readings.items())}

    def _tell_jumps(self) -> None:
        """Of what it gives now it cannot be seen where it jumped to, but for what comes first."""
        program = self.program
        for place, reading in self._readings().items():
            if self._jumps.get(place) != (reading, reading.jumps):
                self._jumps[place] = (reading, reading.jumps)
                program.tell(history.Moved(program.at_ms, program.name, place.topic, place.index, why="diverged"))

    async def close(self) -> None:
        self.program.tell(history.MemberEnded(self.program.at_ms, self.program.name))
        await self.consumer.close()

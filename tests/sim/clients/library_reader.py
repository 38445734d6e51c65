"""`odradek.Consumer`, by assignment, in the programs of a run."""

import asyncio
import random
from typing import Any, cast

from odradek.client.consumer import Consumer
from odradek.client.errors import KafkaError
from odradek.client.machine import Machine
from tests.checker import history
from tests.sim.clients.library_polling import OPTIONS, PAUSE_SECONDS, Polling
from tests.sim.clients.program import Place, Program


class LibraryReader:
    def __init__(self, program: Program, chance: random.Random, rack: str) -> None:
        self.program = program
        isolation = cast("history.Isolation", chance.choice(["read_committed", "read_uncommitted"]))
        self.consumer = Consumer(
            bootstrap=[f"{host}:{port}" for host, port in program.bootstrap],
            client_id=program.name,
            isolation=cast("Any", isolation),
            fetch_max_wait_ms=chance.choice([20, 200, 1000]),
            max_partition_fetch_bytes=chance.choice([1000, 4096, 1 << 20]),
            rack=rack if chance.random() < 0.5 else "",
            machine=cast("Machine", program.machine),
            **OPTIONS,
        )
        self.polling = Polling(program, self.consumer, isolation)
        self.places: list[Place] = []

    @property
    def records_read(self) -> int:
        return self.polling.records_read

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
        self.polling.jumps.clear()
        fresh = [history.Position(place.topic, place.index) for place in places]
        program.tell(history.Assigned(program.at_ms, program.name, fresh=fresh, kept=[]))

    async def poll(self) -> int:
        try:
            return len(await self.polling.poll())
        except KafkaError:
            await asyncio.sleep(PAUSE_SECONDS)
            return 0

    async def close(self) -> None:
        self.program.tell(history.MemberEnded(self.program.at_ms, self.program.name))
        await self.consumer.close()

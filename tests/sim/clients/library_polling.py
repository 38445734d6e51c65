"""What `odradek.Consumer` gives to a program of a run, and where it jumps to, told to the history.

Invariants
 1. A jump that the consumer makes by itself is told before what it gives after that.
 2. Nothing happens between a poll that gives something and the telling of it.
"""

from typing import Any, Final

from odradek.client.consumer import Consumer
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
PAUSE_SECONDS: Final = 0.2  # after something that has failed


class Polling:
    def __init__(self, program: Program, consumer: Consumer, isolation: history.Isolation) -> None:
        self.program = program
        self.consumer = consumer
        self.isolation = isolation
        self.records_read = 0
        self.jumps: dict[Place, tuple[Reading, int]] = {}  # that were told

    async def poll(self) -> list[history.Record]:
        """What comes next; KafkaError when the consumer raises one."""
        program = self.program
        program.tell(history.PollBegun(program.at_ms, program.name))
        records = await self.consumer.poll(timeout_ms=POLL_MS)
        self._tell_jumps()
        polled = history.Polled(program.at_ms, program.name, isolation=self.isolation)
        for each in records:
            key, value = history.text(each.key), history.text(each.value)
            polled.records.append(history.Record(each.topic, each.partition, each.offset, key, value))
        for place, reading in self.readings().items():
            if reading.given >= 0:
                polled.positions.append(history.Position(place.topic, place.index, reading.given))
        program.tell(polled)
        self.records_read += len(records)
        return polled.records

    def readings(self) -> dict[Place, Reading]:
        """Of what the program knows to be its."""
        readings = self.consumer._running.fetcher.readings
        self.consumer._running.handing.look()
        return {Place(place.topic, place.partition): reading for place, reading in sorted(readings.items())}

    def _tell_jumps(self) -> None:
        """Of what it gives now it cannot be seen where it jumped to, but for what comes first."""
        program = self.program
        for place, reading in self.readings().items():
            if self.jumps.get(place) != (reading, reading.jumps):
                self.jumps[place] = (reading, reading.jumps)
                program.tell(history.Moved(program.at_ms, program.name, place.topic, place.index, why="diverged"))

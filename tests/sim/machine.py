"""The machine that a simulated process runs on: its clocks, chance, sockets and threads are all the world's."""

import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from odradek.log.compaction import Job, Outcome, compact
from odradek.log.disk import Disk
from odradek.log.throttle import Throttle
from odradek.node.machine import Machine
from tests.sim.loop import SimLoop
from tests.sim.network import Network, as_socket

BEGIN_MS: Final = 1_800_000_000_000  # of the wall clock
MS_PER_SECOND: Final = 1000


class WallClock:
    """Of one machine, over all lives of its processes: it may be set."""

    def __init__(self) -> None:
        self.ahead_ms = 0


class Threads(Executor):
    """A pool of which the loop only wants to know how many threads it has."""

    def __init__(self, count: int) -> None:
        self._max_workers = count


class SimMachine(Machine):
    def __init__(self, network: Network, loop: SimLoop, host: str, clock: WallClock, new_disk: Callable[[], Disk]) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.host = host
        self.clock = clock
        self.new_disk = new_disk
        self.random = network.world.chance(f"machine {loop.name}")
        self.seconds = loop.time
        self.compact = self._compact

    def wall_ms(self) -> int:
        return BEGIN_MS + self.boot_ms() + self.clock.ahead_ms

    def boot_ms(self) -> int:
        return int(self.loop.time() * MS_PER_SECOND)

    def bind(self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
        del send_buffer_bytes, receive_buffer_bytes
        return as_socket(self.network.bind(self.loop, host, port))

    async def connect(self, host: str, port: int) -> socket.socket:
        return as_socket(await self.network.connect(self.loop, self.host, host, port))

    def wait_writable(self, connected: socket.socket, timeout_ms: int) -> bool:
        del connected
        self.loop.stall(timeout_ms / MS_PER_SECOND)
        return False

    def worker(self) -> Executor:
        return Threads(1)

    def _compact(self, job: Job, bytes_per_second: float) -> Outcome:
        return compact(self.new_disk(), job, Throttle(bytes_per_second, self.loop.time, self.loop.stall))

    def raise_file_limit(self) -> None:
        """There is none."""

    def collect_garbage(self) -> None:
        """Nothing here holds room that is not given back."""

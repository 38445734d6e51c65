"""What a node has of the machine that it runs on, beside its disks and its event loop: clocks, chance, sockets and processes.

Everything in `node/` that is not the same in two runs comes from here, from the loop or from a disk, so that a whole cluster can
be run with a machine, a loop and disks that are simulated, and one run can be told again.

Invariants
 1. `boot_ms` and `seconds` never go back. `wall_ms` may: nothing but records and retention goes by it.
"""

import gc
import random
import resource
import select
import socket
import time
from asyncio import get_running_loop
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final
from uuid import UUID

from odradek.log.compaction import Job, Outcome, compact
from odradek.log.disk import RealDisk
from odradek.log.throttle import Throttle

FILES_WANTED: Final = 1_048_576
NS_PER_MS: Final = 1_000_000
UUID_BITS: Final = 128
UUID_VERSION: Final = 4


class Machine:
    def __init__(self) -> None:
        self.random: random.Random = random.SystemRandom()
        self.seconds: Callable[[], float] = time.monotonic  # by which it is seen how long something took
        self.compact: Callable[[Job, float], Outcome] = compact_elsewhere

    # -- clocks

    def wall_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    def boot_ms(self) -> int:
        """Runs on while the machine sleeps."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // NS_PER_MS

    def steady_clock(self) -> Callable[[], int]:
        """A clock that shows the wall's time now, and is not set from then on."""
        ahead_ms = self.wall_ms() - self.boot_ms()
        return lambda: ahead_ms + self.boot_ms()

    # -- chance

    def below(self, limit: int) -> int:
        """A number from 0 up to the limit, without it; 0 when there is none."""
        return self.random.randrange(limit) if limit > 0 else 0

    def unique_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(UUID_BITS), version=UUID_VERSION)

    # -- sockets

    def bind(self, host: str, port: int, *, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
        """A socket on the address, not yet listening; -1 leaves a buffer to the system."""
        family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        if not host and not socket.has_dualstack_ipv6():
            family = socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
            if send_buffer_bytes != -1:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            if receive_buffer_bytes != -1:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
        return bound

    async def connect(self, host: str, port: int) -> socket.socket:
        loop = get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        connected = socket.socket(family, kind, protocol)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connected, address)
        except BaseException:
            connected.close()
            raise
        return connected

    def wait_writable(self, connected: socket.socket, timeout_ms: int) -> bool:
        """On a thread: whether there is room to send before the time is over."""
        writable = select.poll()
        writable.register(connected, select.POLLOUT)
        return bool(writable.poll(timeout_ms))

    # -- processes, memory, limits

    def worker(self) -> Executor:
        """A process of its own, for `compact`."""
        from concurrent.futures.process import ProcessPoolExecutor  # takes long, and is rarely needed
        from multiprocessing import get_context

        return ProcessPoolExecutor(1, get_context("spawn"))

    def collect_garbage(self) -> None:
        gc.collect()

    def raise_file_limit(self) -> None:
        """Every partition holds a descriptor, and every client."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = min(FILES_WANTED, hard) if hard != resource.RLIM_INFINITY else FILES_WANTED
        if soft < wanted:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def compact_elsewhere(job: Job, bytes_per_second: float) -> Outcome:
    """In the process of its own."""
    return compact(RealDisk(), job, Throttle(bytes_per_second, time.monotonic, time.sleep))

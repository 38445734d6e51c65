"""What a client has of the machine that it runs on, beside its event loop: a clock, chance, and connections."""

import os
import random
import socket
import time
from asyncio import get_running_loop
from typing import Final

NS_PER_MS: Final = 1_000_000


class Machine:
    def __init__(self) -> None:
        self.random = random.Random()

    def wall_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    def secret(self, count: int) -> bytes:
        """Bytes that nobody can guess."""
        return os.urandom(count)

    async def connect(self, host: str, port: int) -> socket.socket:
        """A connection to the first address of the host that takes one."""
        loop = get_running_loop()
        failed: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connected = socket.socket(family, kind, protocol)
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await loop.sock_connect(connected, address)
            except OSError as error:
                connected.close()
                failed = error
            except BaseException:
                connected.close()
                raise
            else:
                return connected
        raise failed or OSError(f"{host} has no address")

"""The links between the nodes of a cluster, which can be cut, slowed and reset one by one and one way.

Each node is reached by the others at ports of this process, which hands on to the node's own. Who comes is known from the client
id in the first request (`broker-2-fetcher-0`): nothing else differs. Clients go to the nodes directly.

Invariants
 1. A cut link is silent, not closed: what was sent stays until the link is whole, or the connection is given up.
 2. The bytes of a connection stay in order.
"""

import asyncio
import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Self

CHUNK_BYTES_MAX: Final = 1 << 16
HEAD_BYTES: Final = 14  # size, API key, version, correlation id, length of the client id
LOOK_SECONDS: Final = 0.02
NODE_ID: Final = re.compile(rb"-(\d+)")
EVERYBODY: Final = range(1, 65)

Link = tuple[int, int]  # from, to


class Links:
    """A thread that hands on bytes. `routes` says for each node's outer port its number and its inner port."""

    def __init__(self, routes: dict[int, tuple[int, int]]) -> None:
        self.routes = routes
        self.silent: set[Link] = set()
        self.delays_s: dict[Link, float] = {}
        self.resets = 0  # connections older than the last reset end
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="links")
        self.is_ready = threading.Event()
        self.ended: asyncio.Event

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.is_ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join()

    # -- what can be done to a link

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        self.silent |= {(source, target) for source in sources for target in targets if source != target}

    def slow(self, numbers: Iterable[int], delay_s: float) -> None:
        """All links from and to these nodes."""
        for number in numbers:
            self.delays_s |= {link: delay_s for other in EVERYBODY for link in ((number, other), (other, number))}

    def reset(self) -> None:
        self.resets += 1

    def heal(self) -> None:
        self.silent.clear()
        self.delays_s.clear()

    # -- handing on

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.ended = asyncio.Event()
        servers = [
            await asyncio.start_server(lambda reader, writer, to=to: self._connected(reader, writer, *to), "127.0.0.1", port)  # type: ignore[misc]
            for port, to in self.routes.items()
        ]
        self.is_ready.set()
        await self.ended.wait()
        for server in servers:
            server.close()
        await asyncio.sleep(0)  # a connection that was just accepted is begun: nobody closes one that never was
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int, port: int) -> None:
        resets = self.resets
        other: asyncio.StreamWriter | None = None
        with suppress(OSError, EOFError, asyncio.CancelledError):
            head = await reader.readexactly(HEAD_BYTES)
            name = await reader.readexactly(max(int.from_bytes(head[-2:], "big", signed=True), 0))
            found = NODE_ID.search(name)
            assert found is not None, name
            link = (int(found[1]), target)
            answers, other = await asyncio.open_connection("127.0.0.1", port)
            there = asyncio.ensure_future(self._hand_on(head + name, reader, other, link, resets))
            back = asyncio.ensure_future(self._hand_on(b"", answers, writer, link, resets))
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        for each in (writer, other):
            if each is not None:
                each.close()

    async def _hand_on(
        self, data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link, resets: int
    ) -> None:
        while resets == self.resets:
            if link in self.silent:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            if data:
                if delay_s := self.delays_s.get(link):
                    await asyncio.sleep(delay_s)
                writer.write(data)
                await writer.drain()
                data = b""
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS * 10):  # so that a reset is seen
                    data = await reader.read(CHUNK_BYTES_MAX)
                    if not data:
                        return

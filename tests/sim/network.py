"""A network that delays, cuts, slows down and breaks connections: TCP as its users see it, between simulated machines.

Bytes of a connection arrive in order, or not at all. What cannot get through waits, as with TCP, until the link is whole again. A
process that ends has its connections closed by its machine; a machine that loses power says nothing to anybody, and answers
whoever still sends to it, when it is back, that there is no such connection.

Invariants
 1. Each end of a connection sees a prefix of what the other has sent.
 2. An end holds at most BUFFER_BYTES that nobody has read, with what is on its way.
"""

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.sim.loop import SimLoop, World

BUFFER_BYTES: Final = 256 * 1024
LATENCY_SECONDS_MIN: Final = 0.000_1
LATENCY_SECONDS_MAX: Final = 0.001
BYTES_PER_SECOND: Final = 100_000_000
SYN_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # between the attempts to connect over a link that is cut
FIRST_NUMBER: Final = 1_000_000  # of sockets: no real descriptor has it
FIRST_FREE_PORT: Final = 40_000

Link = tuple[str, str]


class Host:
    """A machine in the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_on = True
        self.listeners: dict[int, SimListener] = {}
        self.ends: dict[SimSocket, None] = {}
        self.next_port = FIRST_FREE_PORT


class Direction:
    """The way from one end of a connection to the other."""

    def __init__(self, network: "Network", source: "SimSocket", target: "SimSocket") -> None:
        self.network = network
        self.source = source
        self.target = target
        self.link: Link = (source.host.name, target.host.name)
        self.last_s = 0.0
        self.under_way_bytes = 0
        self.under_way: deque[Callable[[], None]] = deque()
        self.held = 0  # how many of them cannot get through

    def send(self, arrive: Callable[[], None], size: int = 0) -> None:
        """Has something happen at the other end, after all that was sent before. Who is busy sends it when that is over."""
        network = self.network
        self.last_s = max(self.last_s, self.source.loop.time() + network.latency_s(self.link) + size / BYTES_PER_SECOND)
        self.under_way.append(arrive)
        network.world.at(self.last_s, self._arrive)

    def _arrive(self) -> None:
        """What was sent first is what arrives, whichever was due now."""
        if self.link in self.network.cuts:
            if not self.held:
                self.network.waiting.append(self)
            self.held += 1
        else:
            self.under_way.popleft()()

    def go_on(self) -> None:
        """The link is whole again."""
        held, self.held = self.held, 0
        for _ in range(held):
            self.last_s = max(self.last_s, self.network.world.now_s + self.network.latency_s(self.link))
            self.network.world.at(self.last_s, self._arrive)


class SimSocket:
    """One end of a connection."""

    def __init__(self, network: "Network", host: Host, loop: SimLoop, address: tuple[str, int]) -> None:
        self.network = network
        self.host = host
        self.loop = loop
        self.address = address
        self.number = network.next_number()
        self.peer_address: tuple[str, int] = ("", 0)
        self.inbox = bytearray()
        self.has_ended = False  # the other end sends no more
        self.is_reset = False
        self.is_closed = False
        self.is_gone = False  # with the power of its machine
        self.out: Direction
        self.back: Direction  # by which the other end sends
        host.ends[self] = None
        loop.watch(self.number, self)

    # -- what the loop asks

    def is_readable(self) -> bool:
        return bool(self.inbox) or self.has_ended or self.is_reset

    def is_writable(self) -> bool:
        return self._room() > 0 or self.is_reset

    def _room(self) -> int:
        return BUFFER_BYTES - self.out.under_way_bytes - len(self.out.target.inbox)

    # -- what programs do with it

    def fileno(self) -> int:
        return -1 if self.is_closed else self.number

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: Any) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getpeername(self) -> tuple[str, int]:
        return self.peer_address

    def _check(self) -> None:
        if self.is_closed:
            raise OSError(errno.EBADF, "the socket is closed")
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    def recv_into(self, buffer: Any, size: int = 0) -> int:
        self._check()
        if not self.inbox:
            if self.has_ended:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing to read")
        count = min(len(self.inbox), size or len(buffer))
        buffer[:count] = self.inbox[:count]
        del self.inbox[:count]
        sender = self.back.source
        sender.loop.look(sender.number)
        return count

    def recv(self, size: int) -> bytes:
        data = bytearray(size)
        return bytes(data[: self.recv_into(memoryview(data))])

    def send(self, data: Any, _: int = 0) -> int:
        self._check()
        room = self._room()
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, "no room to send")
        sent = bytes(memoryview(data)[:room])
        if sent:
            self.network.on_send(self, sent)
            out = self.out
            out.under_way_bytes += len(sent)
            out.send(lambda: out.target.received(sent), len(sent))
        return len(sent)

    def sendmsg(self, buffers: Sequence[Any], _: Sequence[Any] = (), __: int = 0) -> int:
        return self.send(b"".join(buffers))

    def shutdown(self, _: int) -> None:
        self._check()
        self._end()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.loop.unwatch(self.number)
            self.host.ends.pop(self, None)
            if not (self.is_reset or self.is_gone):
                if self.inbox:
                    self.out.send(self.out.target.broke)
                else:
                    self._end()

    def _end(self) -> None:
        self.out.send(self.out.target.ended)

    # -- what the network does with it

    def received(self, data: bytes) -> None:
        self.back.under_way_bytes -= len(data)
        if self._is_there():
            self.inbox += data
            self.loop.look(self.number)

    def ended(self) -> None:
        if self._is_there():
            self.has_ended = True
            self.loop.look(self.number)

    def broke(self) -> None:
        self.is_reset = True
        self.inbox.clear()
        self.loop.look(self.number)

    def _is_there(self) -> bool:
        if not self.host.is_on:
            return False
        if self.is_closed or self.is_gone:
            self.out.send(self.back.source.broke)
            return False
        return not self.is_reset


class SimListener:
    def __init__(self, network: "Network", host: Host, loop: SimLoop, port: int) -> None:
        self.network = network
        self.host = host
        self.loop = loop
        self.port = port
        self.number = network.next_number()
        self.is_listening = False
        self.is_closed = False
        self.backlog: deque[SimSocket] = deque()
        loop.watch(self.number, self)

    def is_readable(self) -> bool:
        return bool(self.backlog)

    def is_writable(self) -> bool:
        return False

    def fileno(self) -> int:
        return -1 if self.is_closed else self.number

    def getsockname(self) -> tuple[str, int]:
        return (self.host.name, self.port)

    def listen(self, _: int) -> None:
        self.is_listening = True

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody is there")
        connected = self.backlog.popleft()
        return connected, connected.peer_address

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.loop.unwatch(self.number)
            self.host.listeners.pop(self.port, None)
            for waiting in self.backlog:
                waiting.close()


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance("network")
        self.hosts: dict[str, Host] = {}
        self.cuts: dict[Link, None] = {}
        self.waiting: list[Direction] = []  # with something that cannot get through
        self.delays_s: dict[Link, float] = {}  # of slow links, at most
        self.on_send: Callable[[SimSocket, bytes], None] = lambda *_: None  # told of all that leaves, in that moment
        self._number = FIRST_NUMBER

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def host(self, name: str) -> Host:
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(name)
        return found

    def latency_s(self, link: Link) -> float:
        latency_s = self.chance.uniform(LATENCY_SECONDS_MIN, LATENCY_SECONDS_MAX)
        if link in self.delays_s:
            latency_s += self.chance.uniform(0, self.delays_s[link])
        return latency_s

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """One way."""
        self.cuts[source, target] = None

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """One way, or everything."""
        if source is None or target is None:
            self.cuts.clear()
            self.delays_s.clear()
        else:
            self.cuts.pop((source, target), None)
        waiting, self.waiting = self.waiting, []
        for direction in waiting:
            direction.go_on()

    def break_connection(self, end: SimSocket) -> None:
        for each in (end, end.out.target):
            each.broke()

    def connections(self) -> list[SimSocket]:
        """Their one ends, those of whoever connected."""
        return [end for host in self.hosts.values() for end in host.ends if end.address[1] >= FIRST_FREE_PORT]

    def process_ended(self, loop: SimLoop) -> None:
        """Its machine closes what it had open."""
        for host in self.hosts.values():
            for listener in [each for each in host.listeners.values() if each.loop is loop]:
                listener.close()
            for end in [each for each in host.ends if each.loop is loop]:
                end.close()

    def power_off(self, name: str) -> None:
        host = self.host(name)
        host.is_on = False
        host.listeners.clear()
        for end in host.ends:
            end.is_gone = True
        host.ends.clear()

    def power_on(self, name: str) -> None:
        self.host(name).is_on = True

    # -- connections

    def bind(self, loop: SimLoop, name: str, port: int) -> SimListener:
        host = self.host(name)
        if not port:
            port, host.next_port = host.next_port, host.next_port + 1
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = host.listeners[port] = SimListener(self, host, loop, port)
        return listener

    async def connect(self, loop: SimLoop, source: str, target: str, port: int) -> SimSocket:
        here, there = self.host(source), self.host(target)
        done: asyncio.Future[SimSocket] = loop.create_future()
        here.next_port += 1
        address = (source, here.next_port)

        def answer(result: SimSocket | OSError) -> None:
            def tell() -> None:
                if done.done():
                    if isinstance(result, SimSocket):
                        result.close()
                elif isinstance(result, OSError):
                    done.set_exception(result)
                else:
                    done.set_result(result)

            loop.call_soon(tell)

        def knock(attempt: int) -> None:
            if done.done() or loop.is_dead or not here.is_on:
                return
            if not there.is_on or (source, target) in self.cuts or (target, source) in self.cuts:
                if attempt < len(SYN_SECONDS):
                    self.world.after(SYN_SECONDS[attempt], lambda: knock(attempt + 1))
                else:
                    answer(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
                return
            listener = there.listeners.get(port)
            back_s = self.latency_s((target, source))
            if listener is None or not listener.is_listening:
                refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
                self.world.after(back_s, lambda: answer(refused))
                return
            ours = self._pair(here, loop, address, listener)
            self.world.after(back_s, lambda: answer(ours))

        self.world.after(self.latency_s((source, target)), lambda: knock(0))
        return await done

    def _pair(self, here: Host, loop: SimLoop, address: tuple[str, int], listener: SimListener) -> SimSocket:
        ours = SimSocket(self, here, loop, address)
        theirs = SimSocket(self, listener.host, listener.loop, (listener.host.name, listener.port))
        ours.peer_address, theirs.peer_address = theirs.address, address
        ours.out = theirs.back = Direction(self, ours, theirs)
        theirs.out = ours.back = Direction(self, theirs, ours)
        listener.backlog.append(theirs)
        listener.loop.look(listener.number)
        return ours


def as_socket(simulated: SimSocket | SimListener) -> socket.socket:
    """What production code takes it for."""
    return simulated  # type: ignore[return-value]

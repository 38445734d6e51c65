"""One address where clients connect: accepts them, within limits, and keeps what its connections share.

Limits are Kafka's: `socket.request.max.bytes`, `max.connections`, `max.connections.per.ip` with its overrides,
`connections.max.idle.ms`, `queued.max.request.bytes`; each may be set for one listener with `listener.name.<name>.` before it.

Invariants
 1. At `max.connections` nothing is accepted until one goes; over the limit of its address a client is closed at once.
 2. A frame's size is judged before a byte of it is waited for.
 3. Large frames under way take no more memory than `queued.max.request.bytes`, and one frame.
"""

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from odradek.api.services import Services
from odradek.api.table import Handler
from odradek.core.config.broker import BrokerConfig
from odradek.node.connection import INBOX_BYTES, OUTBOX_BYTES, Connection
from odradek.node.errors import StartFailed
from odradek.node.machine import Machine
from odradek.node.timers import Timers
from odradek.wire.errors import ProtocolError
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsResponse

ACCEPTS_MAX = 64  # in one turn
ACCEPT_PAUSE_MS = 100  # when there are no descriptors left, or too many came at once
SPARE_BUFFERS_MAX = 4  # of large frames, kept for the next
LARGE_SENDERS_MAX = 4
HEADER_BYTES_MIN = 8

logger = logging.getLogger("odradek.listener")


class Limits(NamedTuple):
    request_bytes_max: int
    queued_bytes_max: int
    connections_max: int
    connections_per_ip_max: int
    connections_per_ip: dict[str, int]
    connections_per_second_max: int
    idle_ms_max: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    backlog: int
    threads: int  # that send what is much, or not in memory


def limits_of(config: BrokerConfig, listener: str) -> Limits:
    def integer(key: str) -> int:
        own = config.given(f"listener.name.{listener.lower()}.{key}")
        return config.integer(key) if own is None else int(own)

    overrides = [entry.rpartition(":") for entry in config.text("max.connections.per.ip.overrides").split(",") if entry]
    return Limits(
        request_bytes_max=integer("socket.request.max.bytes"),
        queued_bytes_max=integer("queued.max.request.bytes"),
        connections_max=integer("max.connections"),
        connections_per_ip_max=integer("max.connections.per.ip"),
        connections_per_ip={host: int(count) for host, _, count in overrides},
        connections_per_second_max=integer("max.connection.creation.rate"),
        idle_ms_max=integer("connections.max.idle.ms"),
        send_buffer_bytes=integer("socket.send.buffer.bytes"),
        receive_buffer_bytes=integer("socket.receive.buffer.bytes"),
        backlog=integer("socket.listen.backlog.size"),
        threads=integer("num.network.threads"),
    )


class Listener:
    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        limits: Limits,
        handlers: Mapping[int, Handler],
        unsupported: Callable[[int, int], Message | None],
        node: Services,
        timers: Timers,
        machine: Machine,
    ) -> None:
        """StartFailed when the address cannot be had. Nothing is accepted before `start`."""
        self.name = name
        self.is_controller = False
        self.api_versions: list[ApiVersionsResponse.ApiVersion] = []
        self.limits = limits
        self.handlers = handlers
        self.unsupported = unsupported
        self.node = node
        self.timers = timers
        self.machine = machine
        self.loop = asyncio.get_running_loop()
        self.inbox = memoryview(bytearray(INBOX_BYTES))
        self.outbox = memoryview(bytearray(OUTBOX_BYTES))
        self.connections: dict[Connection, None] = {}
        self.by_host: Counter[str] = Counter()
        self.spares: list[bytearray] = []
        self.reserved: dict[Connection, int] = {}
        self.starved: dict[Connection, None] = {}
        self.large_senders: set[Connection] = set()  # whose large answers are sent on the loop
        self.is_accepting = False
        self.second, self.accepted = 0, 0  # how many came in that second
        self.senders = ThreadPoolExecutor(limits.threads, "sender")  # its own: a sync must not wait for a slow reader
        self.socket = self._bind(host, port)
        self.host, self.port = host, self.socket.getsockname()[1]
        self.stop_sweep = timers.every(sweep_interval_ms(limits.idle_ms_max), self.sweep)

    def _bind(self, host: str, port: int) -> socket.socket:
        limits = self.limits
        try:
            return self.machine.bind(
                host, port, send_buffer_bytes=limits.send_buffer_bytes, receive_buffer_bytes=limits.receive_buffer_bytes
            )
        except OSError as error:
            reason = "the port is in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
            raise StartFailed(f"cannot listen on {host}:{port} (listener {self.name}): {reason}") from error

    def configure(self, config: BrokerConfig) -> None:
        """Takes over what was changed while running: who is connected stays, even if the next one would not get in."""
        self.limits = limits_of(config, self.name)
        if self.connections:  # there may be room now for those that wait
            self._accept_on()

    def start(self) -> None:
        self.socket.listen(self.limits.backlog)
        self._accept_on()

    def close(self) -> None:
        self.stop_accepting()
        self.stop_sweep()
        for connection in list(self.connections):
            connection.close("the node stops", expected=True)
        self.senders.shutdown(wait=False)

    def stop_accepting(self) -> None:
        self._accept_off()
        self.socket.close()

    # -- accepting

    def _accept_on(self) -> None:
        if not self.is_accepting and self.socket.fileno() >= 0:
            self.is_accepting = True
            self.loop.add_reader(self.socket.fileno(), self._accept)

    def _accept_off(self) -> None:
        if self.is_accepting:
            self.is_accepting = False
            self.loop.remove_reader(self.socket.fileno())

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            if len(self.connections) >= self.limits.connections_max:
                logger.warning("%s: max.connections=%d are open, others wait", self.name, self.limits.connections_max)
                self._accept_off()
                return
            if self._is_too_fast():
                self._accept_off()
                self.timers.after(ACCEPT_PAUSE_MS, self._accept_on)
                return
            try:
                connected, address = self.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                logger.error("%s: cannot accept clients, trying again: %s", self.name, error.strerror)
                self._accept_off()
                self.timers.after(ACCEPT_PAUSE_MS, self._accept_on)
                return
            self._welcome(connected, address)

    def _is_too_fast(self) -> bool:
        """Whether this second has had its share of new connections; others wait for the next."""
        second = int(self.loop.time())
        if second != self.second:
            self.second, self.accepted = second, 0
        return self.accepted >= self.limits.connections_per_second_max

    def _welcome(self, connected: socket.socket, address: tuple[str, int]) -> None:
        self.accepted += 1
        host, port = address[0].removeprefix("::ffff:"), address[1]
        allowed = self.limits.connections_per_ip.get(host, self.limits.connections_per_ip_max)
        if self.by_host[host] >= allowed:
            logger.warning("%s: %s has its max.connections.per.ip=%d connections, closing another", self.name, host, allowed)
            connected.close()
            return
        connected.setblocking(False)
        with suppress(OSError):  # a client that has gone already
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.by_host[host] += 1
        self.connections[Connection(self, connected, host, f"{host}:{port}")] = None

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.starved.pop(connection, None)
        self.has_sent(connection)
        self.by_host[connection.client_host] -= 1
        if not self.by_host[connection.client_host]:
            del self.by_host[connection.client_host]
        if not self.is_accepting:
            self._accept_on()

    def sweep(self) -> None:
        """Closes connections that were idle for too long."""
        if self.limits.idle_ms_max < 0:
            return
        oldest_s = self.loop.time() - self.limits.idle_ms_max / 1000
        for connection in [found for found in self.connections if found.active_s < oldest_s and not found.waiting]:
            connection.close(f"idle for longer than connections.max.idle.ms={self.limits.idle_ms_max}", expected=True)

    # -- frames

    def check_size(self, size: int, begin: memoryview) -> None:
        if HEADER_BYTES_MIN <= size <= self.limits.request_bytes_max:
            return
        raise ProtocolError(f"a request of {size} bytes{guess(begin)}, where {self.allowed_sizes()} are allowed", "size", 0)

    def allowed_sizes(self) -> str:
        return f"{HEADER_BYTES_MIN} to socket.request.max.bytes={self.limits.request_bytes_max}"

    def reserve(self, connection: Connection, size: int) -> bool:
        """Whether a large frame may be received now. If not, its connection is told when to try again."""
        allowed = self.limits.queued_bytes_max
        if allowed > 0 and self.reserved and sum(self.reserved.values()) + size > allowed:
            self.starved[connection] = None
            return False
        self.reserved[connection] = size
        return True

    def release(self, connection: Connection) -> None:
        self.reserved.pop(connection, None)
        starved, self.starved = self.starved, {}
        for waiting in starved:
            self.loop.call_soon(waiting.go_on)

    def take_buffer(self, size: int) -> bytearray:
        """Memory for a large frame; one that is done may be there to be used again."""
        for number, spare in enumerate(self.spares):
            if len(spare) == size:
                return self.spares.pop(number)
        return bytearray(size)

    def give_buffer(self, buffer: bytearray) -> None:
        self.spares.insert(0, buffer)
        del self.spares[SPARE_BUFFERS_MAX:]

    # -- answers

    def may_send_much(self, connection: Connection) -> bool:
        """Whether a large answer may be sent on the loop: a few at a time, so that a turn of it stays short."""
        if len(self.large_senders) < LARGE_SENDERS_MAX:
            self.large_senders.add(connection)
        return connection in self.large_senders

    def has_sent(self, connection: Connection) -> None:
        self.large_senders.discard(connection)


def sweep_interval_ms(idle_ms_max: int) -> int:
    return min(max(idle_ms_max // 10, 100), 10_000)


def guess(begin: memoryview) -> str:
    """What those bytes may be, when they are no request."""
    head = bytes(begin[:8])
    if head[:2] == b"\x16\x03":
        return " (it looks like TLS, on a listener without it)"
    if head[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI"):
        return " (it looks like HTTP, and this is not a web server)"
    return ""

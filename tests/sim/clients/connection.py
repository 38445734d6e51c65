"""One connection of a simulated client: frames out, answers in, several requests under way at once.

Invariants
 1. Requests are written in the order of `post`, without a gap: whoever posts two of them knows which one comes first.
 2. Every answer that was promised comes, or `Lost` does; an answer belongs to the oldest request that has none yet.
 3. A request that is not answered in time ends the connection, as in any client: nobody can tell what became of the others.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from odradek.wire.apis import APIS
from odradek.wire.errors import ProtocolError
from odradek.wire.frames import decode_response, encode_request, split_frames
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsRequest, ApiVersionsResponse

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
RECEIVE_BYTES: Final = 256 * 1024
API_VERSIONS_KEY: Final = 18
API_VERSIONS_VERSION: Final = 3

Answer = TypeVar("Answer", bound=Message)


class Lost(Exception):
    """There is no answer, and no telling whether the request was heard."""


class Machine(Protocol):
    """What a client needs of where it runs."""

    async def connect(self, host: str, port: int) -> socket.socket: ...

    def wall_ms(self) -> int: ...


class Waiting(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection:
    def __init__(self, connected: socket.socket, client_id: str, on_lost: Callable[[], None] = lambda: None) -> None:
        self.client_id = client_id
        self.versions: dict[int, range] = {}  # that the other side serves, by key
        self.on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = connected
        self._correlation_id = 0
        self._waiting: deque[Waiting] = deque()
        self._received = bytearray()
        self._unsent = bytearray()
        self._loop.add_reader(connected.fileno(), self._readable)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def post(self, request: Message, version: int, response: type[Answer], timeout_s: float) -> "asyncio.Future[Answer]":
        """Sends a request; the future is the answer, or Lost."""
        future: asyncio.Future[Answer] = self._loop.create_future()
        if self._socket is None:
            future.set_exception(Lost("the connection is closed"))
            return future
        self._correlation_id += 1
        timer = self._loop.call_later(timeout_s, self.close, f"{APIS[request.schema.key].name} was not answered in time")
        self._waiting.append(Waiting(self._correlation_id, response, version, future, timer))
        self._write(request, version)
        return future

    def post_unanswered(self, request: Message, version: int) -> bool:
        """Sends what has no answer (acks=0); whether there was a connection to send it to."""
        if self._socket is not None:
            self._correlation_id += 1
            self._write(request, version)
        return self._socket is not None

    async def ask(self, request: Message, version: int, response: type[Answer], timeout_s: float) -> Answer:
        return await self.post(request, version, response, timeout_s)

    async def learn_versions(self, timeout_s: float) -> None:
        hello = ApiVersionsRequest(client_software_name="odradek-sim", client_software_version="1")
        answer = await self.ask(hello, API_VERSIONS_VERSION, ApiVersionsResponse, timeout_s)
        if answer.error_code:
            self.close(f"ApiVersions is answered with {answer.error_code}")
            raise Lost(f"ApiVersions is answered with {answer.error_code}")
        self.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}

    def close(self, reason: str = "closed here") -> None:
        """Ends the connection, and with Lost whatever waits for an answer."""
        if self._socket is None:
            return
        number = self._socket.fileno()
        self._loop.remove_reader(number)
        self._loop.remove_writer(number)
        self._socket.close()
        self._socket = None
        for waiting in self._waiting:
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(Lost(reason))
                waiting.future.exception()  # seen, also when nobody waits any more
        self._waiting.clear()
        self.on_lost()

    # -- bytes

    def _write(self, request: Message, version: int) -> None:
        is_idle = not self._unsent
        for buffer in encode_request(request, version, self._correlation_id, self.client_id):
            self._unsent += buffer  # type: ignore[arg-type]
        if is_idle:
            self._writable()

    def _writable(self) -> None:
        assert self._socket is not None
        try:
            with suppress(BlockingIOError):
                del self._unsent[: self._socket.send(self._unsent)]
        except OSError as error:
            self._loop.call_soon(self.close, str(error))  # not inside `post`, whose caller has no future yet
            return
        if self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(str(error))
            return
        if not data:
            self.close("the other side has closed the connection")
            return
        self._received += data
        try:
            frames, size = split_frames(memoryview(bytes(self._received)), ANSWER_BYTES_MAX)
            del self._received[:size]
            for frame in frames:
                self._answered(frame)
        except ProtocolError as error:
            self.close(f"an answer that is none: {error}")
            raise

    def _answered(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("an answer to no request", "frame", 0)
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        correlation_id, answer = decode_response(waiting.response, frame, waiting.version)
        if correlation_id != waiting.correlation_id:
            raise ProtocolError("an answer to another request", "correlation_id", 0)
        if not waiting.future.done():
            waiting.future.set_result(answer)


async def open_connection(machine: Machine, host: str, port: int, client_id: str, timeout_s: float) -> Connection:
    """A connection whose versions are known. Lost when there is none within the time."""
    try:
        async with asyncio.timeout(timeout_s):
            connected = await machine.connect(host, port)
    except (OSError, TimeoutError) as error:
        raise Lost(f"{host}:{port} cannot be connected to: {error}") from error
    connection = Connection(connected, client_id)
    try:
        await connection.learn_versions(timeout_s)
    except asyncio.CancelledError:
        connection.close()
        raise
    return connection

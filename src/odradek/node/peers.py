"""Connections to other nodes: requests out, answers in.

A channel is one connection to one address. It is made when something is first asked, learns which versions the other side serves,
and stays open: so it is also how a node learns that another has died, because a process that ends closes its connections.

Invariants
 1. One request is under way on a channel; whoever asks meanwhile has its turn later. Every `ask` ends with the answer to its own
    request, or with Unreachable.
 2. After anything but an answer the connection is closed, so that no late answer is taken for another's. Only versions are waited
    for beyond the time of who asks: on a slow link, whoever connects anew each time would never come to its request.
 3. A connection that the other side closes is told to `on_lost` at once, whether something was under way or not. Silence is
    judged by the time-out that the caller gives, and by nothing else.
 4. An answer is at most ANSWER_BYTES_MAX; memory for it grows with what comes.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from importlib.metadata import version as version_of
from struct import Struct
from typing import Any, Final, TypeVar

from odradek.node.machine import Machine
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsRequest, ApiVersionsResponse

SIZE: Final = Struct(">i")
ANSWER_BYTES_MAX: Final = 1 << 30  # one batch may be as large as its topic allows
GROWTH_BYTES: Final = 1024 * 1024  # of the memory for an answer, ahead of what has come
API_VERSIONS_VERSION: Final = 3
VERSIONS_SECONDS_MAX: Final = 10.0
SOFTWARE: Final = "odradek"

Answer = TypeVar("Answer", bound=Message)

logger = logging.getLogger("odradek.peers")


class Unreachable(Exception):
    """There is no answer. `is_refused`: nobody listens at the address, so no process serves it."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


class Channel:
    def __init__(
        self, machine: Machine, host: str, port: int, client_id: str, on_lost: Callable[[], None] = lambda: None
    ) -> None:
        self.machine = machine
        self.host = host
        self.port = port
        self.client_id = client_id
        self.on_lost = on_lost
        self.loop = asyncio.get_running_loop()
        self.versions: dict[int, range] = {}  # that the other side serves, by key
        self._learning: asyncio.Task[None] | None = None  # of this connection
        self._turn = asyncio.Lock()
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._answer: asyncio.Future[memoryview] | None = None  # that is waited for
        self._buffer = bytearray(SIZE.size)
        self._filled = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    async def ask(self, request: Message, response: type[Answer], timeout_ms: float) -> Answer:
        """The answer, in the highest version that both sides know. The time is for the connection, and as long again for the
        answer: what is asked in the rest of it would not be answered in time, and end the connection."""
        async with self._turn:
            await self.connect(self.loop.time() + timeout_ms / 1000)
            version = self.version(request.schema.key)
            return await self._ask(request, version, response, self.loop.time() + timeout_ms / 1000)

    def version(self, key: int) -> int:
        """The highest version of an API that both sides know. Unreachable when there is none, or no connection."""
        ours, theirs = APIS[key].versions, self.versions.get(key, range(0))
        highest = min(ours.stop, theirs.stop) - 1
        if highest not in ours or highest not in theirs:
            raise Unreachable(f"{self} does not serve {APIS[key].name} in a version that is known here")
        return highest

    async def connect(self, deadline: float) -> None:
        """Connects, unless it is. Unreachable when that cannot be, or takes too long."""
        if self._socket is None:
            await self._connect(deadline)
            self._learning = self.loop.create_task(self._learn_versions())
            self._learning.add_done_callback(lambda task: task.cancelled() or task.exception())  # seen, if nobody waits
        assert self._learning is not None
        if self._learning.done():
            return self._learning.result()
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(self._learning)
        except TimeoutError as error:
            raise Unreachable(f"{self} does not say in time what it serves") from error

    async def _connect(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                connected = await self.machine.connect(self.host, self.port)
        except TimeoutError as error:
            raise Unreachable(f"{self} cannot be connected to in time") from error
        except OSError as error:
            is_refused = isinstance(error, ConnectionRefusedError)
            raise Unreachable(f"{self} cannot be connected to: {error.strerror or error}", is_refused=is_refused) from error
        self._socket = connected
        self._expect_size()
        self.loop.add_reader(connected.fileno(), self._readable)

    async def _learn_versions(self) -> None:
        hello = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=version_of("odradek"))
        deadline = self.loop.time() + VERSIONS_SECONDS_MAX
        answer = await self._ask(hello, API_VERSIONS_VERSION, ApiVersionsResponse, deadline)
        if answer.error_code:
            self.close()
            raise Unreachable(f"{self} answers ApiVersions with {ErrorCode(answer.error_code).name}")
        self.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}

    async def _ask(self, request: Message, version: int, response: type[Answer], deadline: float) -> Answer:
        if self._socket is None:  # since the versions came
            raise Unreachable(f"the connection to {self} was closed meanwhile")
        assert self._answer is None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._answer = answer = self.loop.create_future()
        timer = self.loop.call_at(deadline, self._lose, f"{self} does not answer in time")
        try:
            buffers = encode_request(request, version, self._correlation_id, self.client_id)
            await self._send(self._socket, b"".join(buffers), answer)  # type: ignore[arg-type]
            correlation_id, decoded = decode_response(response, await answer, version)
            if correlation_id != self._correlation_id:
                raise ProtocolError("an answer to another request", "correlation_id", 0)
            return decoded
        except (OSError, ProtocolError) as error:
            self._lose(f"{self}: {error}")
            raise Unreachable(f"{self}: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            timer.cancel()
            self._answer = None
            if answer.done() and not answer.cancelled():
                answer.exception()  # has been seen, also when sending failed first

    async def _send(self, connected: socket.socket, data: bytes, answer: "asyncio.Future[memoryview]") -> None:
        """Until all of it is sent, or the connection is lost."""
        try:
            sent = connected.send(data)
        except BlockingIOError:
            sent = 0
        if sent == len(data):
            return
        sending = self.loop.create_task(self.loop.sock_sendall(connected, memoryview(data)[sent:]))
        both: list[asyncio.Future[Any]] = [sending, answer]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                answer.result()  # which says why it was lost
                raise ProtocolError("an answer to what was not sent yet", "correlation_id", 0)
        finally:
            sending.cancel()

    # -- what comes

    def _expect_size(self) -> None:
        self._buffer = bytearray(SIZE.size)
        self._filled = 0

    def _readable(self) -> None:
        connected = self._socket
        assert connected is not None
        try:
            with memoryview(self._buffer) as view:
                count = connected.recv_into(view[self._filled :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(f"{self}: {error.strerror or error}")
            return
        if count == 0:
            self._lose(f"{self} has closed the connection")
            return
        self._filled += count
        if self._filled == len(self._buffer):
            self._take()

    def _take(self) -> None:
        """All that was waited for is there: a size, a part of an answer, or the whole."""
        (size,) = SIZE.unpack_from(self._buffer)
        if self._answer is None or not SIZE.size <= size <= ANSWER_BYTES_MAX:
            self._lose(f"{self} sends what nobody has asked for")
            return
        missing = SIZE.size + size - self._filled
        if missing:
            self._buffer += bytes(min(missing, max(self._filled, GROWTH_BYTES)))
            return
        answer, frame = self._answer, memoryview(self._buffer)[SIZE.size :]
        self._expect_size()
        if not answer.done():
            answer.set_result(frame)

    # -- the end

    def _lose(self, reason: str) -> None:
        """Nothing more comes from this connection."""
        if self._socket is None:
            return
        logger.debug("%s", reason)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unreachable(reason))
        self.close()
        self.on_lost()

    def close(self) -> None:
        if self._socket is not None:
            self.loop.remove_reader(self._socket.fileno())
            self.loop.remove_writer(self._socket.fileno())  # of a request that is being sent: the number is another's soon
            self._socket.close()
            self._socket = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Unreachable(f"the connection to {self} was closed here"))


async def is_listening(machine: Machine, host: str, port: int, timeout_ms: float) -> bool | None:
    """Whether a process listens at an address: False when a connection is refused, None when there is no telling."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            (await machine.connect(host, port)).close()
            return True
    except ConnectionRefusedError:
        return False
    except (OSError, TimeoutError):
        return None

"""One connection to one broker: requests out, answers in, several of them under way at once.

Invariants
 1. Requests are written in the order of `post`, without a gap.
 2. Every answer that was promised comes, or Unreachable does. An answer belongs to the oldest request that has none yet.
 3. A request that is not answered in time ends the connection: nobody can tell what became of the others.
 4. Who waits no longer takes nothing away from others: its answer is read, and thrown away.
 5. The bytes of an answer are its own: what is decoded may point into them for as long as it likes.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version as version_of
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from odradek.client.errors import InvalidOption, KafkaError, Unreachable, known_code, refused
from odradek.client.machine import Machine
from odradek.wire.apis import API_VERSIONS, APIS
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsRequest, ApiVersionsResponse

SIZE: Final = Struct(">i")
ANSWER_BYTES_MAX: Final = 1 << 30
INBOX_BYTES: Final = 64 * 1024  # an answer that is larger is received where it stays
GROWTH_BYTES: Final = 64 * 1024 * 1024  # of the memory for an answer, ahead of what has come: larger ones grow with it
PIECES_MAX: Final = 512  # of one call of sendmsg; the system takes 1,024
API_VERSIONS_VERSION: Final = 3
SOFTWARE: Final = "odradek"

Answer = TypeVar("Answer", bound=Message)


class Waiting(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int
    answer: "asyncio.Future[Any]"
    timer: asyncio.TimerHandle


@cache
def software_version() -> str:
    return version_of("odradek")


class Connection:
    def __init__(
        self, machine: Machine, host: str, port: int, client_id: str, on_lost: Callable[["Connection"], None] = lambda _: None
    ) -> None:
        self.machine = machine
        self.host = host
        self.port = port
        self.client_id = client_id
        self.on_lost = on_lost
        self.loop = asyncio.get_running_loop()
        self.versions: dict[int, range] = {}  # that the broker serves, by key
        self.features: dict[str, int] = {}  # that are finalized in the cluster, and since which level
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._waiting: deque[Waiting] = deque()
        self._out: deque[Any] = deque()  # buffers that the socket has not taken yet
        self._inbox = memoryview(bytearray(INBOX_BYTES))
        self._have = 0  # bytes at the begin of the inbox
        self._large: bytearray | None = None  # an answer that is being received, as far as there is memory for it yet
        self._large_have = self._large_size = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def under_way(self) -> int:
        """How many requests have no answer yet."""
        return len(self._waiting)

    # -- asking

    async def connect(self, timeout_ms: float) -> None:
        """Unreachable when that cannot be, or takes too long."""
        assert self._socket is None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self._socket = await self.machine.connect(self.host, self.port)
                self.loop.add_reader(self._socket.fileno(), self._readable)
                await self._learn_versions(timeout_ms)
        except TimeoutError as error:
            self.close()
            raise Unreachable(f"{self} cannot be connected to within {timeout_ms:.0f} ms", was_sent=False) from error
        except OSError as error:
            self.close()
            raise Unreachable(f"{self} cannot be connected to: {reason_of(error)}", was_sent=False) from error
        except UnicodeError as error:  # of a host that no name can be, which the system is not even asked for
            self.close()
            raise Unreachable(f"{self} cannot be connected to: {error}", was_sent=False) from error
        except BaseException:
            self.close()
            raise

    async def _learn_versions(self, timeout_ms: float) -> None:
        hello = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=software_version())
        self.versions = {API_VERSIONS: range(API_VERSIONS_VERSION + 1)}
        answer = await self.post(hello, ApiVersionsResponse, timeout_ms)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:  # and is itself of version 0
            self.versions = {API_VERSIONS: range(1)}
            answer = await self.post(ApiVersionsRequest(), ApiVersionsResponse, timeout_ms)
        if answer.error_code:
            raise Unreachable(f"{self} answers ApiVersions with {known_code(answer.error_code).name}", was_sent=False)
        self.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}

    def serves(self, key: int) -> bool:
        return self.find_version(key) is not None

    def find_version(self, key: int, newest: int | None = None) -> int | None:
        """The highest version of an API that both sides know, up to the newest that is wanted."""
        ours, theirs = APIS[key].versions, self.versions.get(key, range(0))
        highest = min(ours.stop, theirs.stop) - 1
        if newest is not None:
            highest = min(highest, newest)
        return highest if highest in ours and highest in theirs else None

    def version(self, key: int, newest: int | None = None) -> int:
        """The same, where the broker has to have one; Refused otherwise, and waiting does not help."""
        found = self.find_version(key, newest)
        if found is None:
            reason = f"{self} serves no version of {APIS[key].name} that this client knows"
            raise refused(ErrorCode.UNSUPPORTED_VERSION, reason)
        return found

    def post(
        self, request: Message, response: type[Answer], timeout_ms: float, newest: int | None = None
    ) -> "asyncio.Future[Answer]":
        """Sends a request in the highest version that both sides know; the future is the answer, or Unreachable, or what
        `version` and `_encode` say."""
        answer: asyncio.Future[Answer] = self.loop.create_future()
        try:
            version = self.version(request.schema.key, newest)
            if self._socket is None:
                raise Unreachable(f"the connection to {self} is closed", was_sent=False)
            buffers = self._encode(request, version)
        except KafkaError as error:
            answer.set_exception(error)
            return answer
        name = APIS[request.schema.key].name
        timer = self.loop.call_later(timeout_ms / 1000, self._lose, f"{self} does not answer {name} within {timeout_ms:.0f} ms")
        self._waiting.append(Waiting(self._correlation_id, response, version, answer, timer))
        self._send(buffers)
        return answer

    def post_unanswered(self, request: Message, newest: int | None = None) -> None:
        """Sends what has no answer (acks=0)."""
        version = self.version(request.schema.key, newest)
        if self._socket is None:
            raise Unreachable(f"the connection to {self} is closed", was_sent=False)
        self._send(self._encode(request, version))

    def _encode(self, request: Message, version: int) -> list[Any]:
        """Refused where the broker's version lacks what the request says, InvalidOption where no version can say it."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            return encode_request(request, version, self._correlation_id, self.client_id)
        except ProtocolError as error:
            api = APIS[request.schema.key]
            if version == api.versions[-1]:
                raise InvalidOption(f"{api.name} cannot be asked so: {error}") from error
            raise refused(ErrorCode.UNSUPPORTED_VERSION, f"{self} serves {api.name} up to version {version}: {error}") from error

    # -- sending

    def _send(self, buffers: list[Any]) -> None:
        is_busy = bool(self._out)
        self._out.extend(buffers)
        if not is_busy:
            self._flush()

    def _flush(self) -> None:
        connected, out = self._socket, self._out
        assert connected is not None
        try:
            while out:
                pieces = [out[place] for place in range(min(len(out), PIECES_MAX))]
                sent = connected.sendmsg(pieces)
                while out and sent >= len(out[0]):
                    sent -= len(out.popleft())
                if sent:
                    out[0] = memoryview(out[0])[sent:]
        except (BlockingIOError, InterruptedError):
            self.loop.add_writer(connected.fileno(), self._flush)
            return
        except OSError as error:
            self.loop.call_soon(self._lose, f"{self}: {error.strerror or error}")  # not while somebody posts
            return
        self.loop.remove_writer(connected.fileno())

    # -- receiving

    def _readable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        try:
            if self._large is not None:
                self._receive_large(connected, self._large)
                return
            count = connected.recv_into(self._inbox[self._have :])
            if not count:
                self._lose(f"{self} has closed the connection")
                return
            self._have += count
            self._take()
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, ProtocolError) as error:
            self._lose(f"{self}: {error}")

    def _take(self) -> None:
        """The whole answers in the inbox; one that is larger than that gets memory of its own."""
        inbox, position, have = self._inbox, 0, self._have
        while have - position >= SIZE.size:
            (size,) = SIZE.unpack_from(inbox, position)
            if not SIZE.size <= size <= ANSWER_BYTES_MAX:
                raise ProtocolError(f"an answer of {size} bytes", "size", 0)
            start = position + SIZE.size
            if size + SIZE.size > INBOX_BYTES:
                self._large_size = size
                self._large = bytearray(min(size, GROWTH_BYTES))
                self._large_have = have - start
                self._large[: self._large_have] = inbox[start:have]
                self._have = 0
                return
            if have - start < size:
                break
            position = start + size
            self._answered(memoryview(bytes(inbox[start:position])))
            if self._socket is None:
                return
        if position:
            inbox[: have - position] = bytes(inbox[position:have])
        self._have = have - position

    def _receive_large(self, connected: socket.socket, large: bytearray) -> None:
        with memoryview(large) as view:
            count = connected.recv_into(view[self._large_have :])
        if not count:
            self._lose(f"{self} has closed the connection")
            return
        self._large_have += count
        if self._large_have < len(large):
            return
        if len(large) < self._large_size:
            self._large = large + bytes(min(self._large_size - len(large), len(large)))
            return
        self._large = None
        self._answered(memoryview(large))

    def _answered(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("an answer that nobody has asked for", "correlation_id", 0)
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        if waiting.answer.done():  # nobody waits any more
            return
        try:
            correlation_id, response = decode_answer(waiting, frame)
            if correlation_id != waiting.correlation_id:
                raise ProtocolError("an answer to another request", "correlation_id", 0)
        except ProtocolError as error:
            waiting.answer.set_exception(Unreachable(f"{self}: {error}"))
            raise
        waiting.answer.set_result(response)

    # -- the end

    def _lose(self, reason: str) -> None:
        if self._socket is not None:
            self.close(reason)
            self.on_lost(self)

    def close(self, reason: str | None = None) -> None:
        if self._socket is not None:
            self.loop.remove_reader(self._socket.fileno())
            self.loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._out.clear()
        self._large = None
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.timer.cancel()
            if not each.answer.done():
                each.answer.set_exception(Unreachable(reason or f"the connection to {self} was closed"))
                with suppress(asyncio.CancelledError):
                    each.answer.exception()  # whoever waits hears of it; whoever does not need not


def reason_of(error: OSError) -> str:
    """What the system says; asyncio has words of its own for it."""
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror or error)


def decode_answer(waiting: Waiting, frame: memoryview) -> tuple[int, Message]:
    try:
        return decode_response(waiting.response, frame, waiting.version)
    except ProtocolError:
        if waiting.response is not ApiVersionsResponse or not waiting.version:
            raise
        return decode_response(waiting.response, frame, 0)  # of a broker that does not know the version asked for

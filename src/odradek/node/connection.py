"""One client: frames in, answers out, on a non-blocking socket that the loop watches.

What comes is received into a buffer that all connections share, and answered from there: an idle connection holds no memory but
its own few fields. Only what is left of a frame at the end of a turn is kept; a frame larger than the shared buffer gets one of
its own. What a handler wants to keep beyond its call, it copies.

Invariants
 1. Answers leave in the order of the requests, whichever is ready first.
 2. While a client does not read its answers, or too many of its requests wait, nothing more is read from it. So what it holds
    is bounded: one turn's requests, ANSWERS_WAITING_MAX answers, ANSWERS_BYTES_MAX and one answer more. Who has sent more than
    FRAMES_MAX requests gives others their turn first.
 3. The shared buffers are in use only inside `_readable`, `go_on` and `_send_buffers`, which the loop alone calls.
 4. While a thread sends on a connection, nobody else does, and its descriptor stays open.
 5. Whatever a client sends, the worst that happens is that its own connection is closed, with one line that says why.
"""

import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from odradek.api.context import Context
from odradek.core.partition.beginnings import Beginnings
from odradek.log.disk import DiskFailed
from odradek.log.segment import FileRange, Slice
from odradek.node.machine import Machine
from odradek.wire.errors import ProtocolError
from odradek.wire.frames import encode_response
from odradek.wire.message import Buffers, Message, Piece
from odradek.wire.messages import RequestHeader

if TYPE_CHECKING:
    import asyncio

    from odradek.node.listener import Listener

INBOX_BYTES = 256 * 1024
RECEIVES_MAX = 4  # in one turn, so that others have theirs
FRAMES_MAX = 64  # in one turn, for the same reason
ANSWERS_WAITING_MAX = 100
ANSWERS_BYTES_MAX = 1024 * 1024
FLUSH_BYTES_MIN = ANSWERS_BYTES_MAX // FRAMES_MAX  # an answer of so many is sent before the next request is looked at
PIECES_MAX = 256  # of one sendmsg
OUTBOX_BYTES = 96 * 1024  # so much of files is cheaper read, and sent in one call with what is around it
SENDFILE_BYTES_MAX = 16 * 1024 * 1024  # in one call, so that other connections have the thread too
READER_WAIT_MS = 5  # that a thread waits for a reader who does not keep up
SENDFILE_LOOP_BYTES_MAX = 512 * 1024  # in one turn of the loop: what a reader finds in its cache is read faster

SIZE = Struct(">i")
FIXED_PART = Struct(">hhi")  # key, version, correlation id
HEADER_BYTES_MIN = FIXED_PART.size

NO_TAILS = (b"\x80", b"\x80")  # a length that no client id has

logger = logging.getLogger("odradek.connection")


class Connection:
    __slots__ = (
        "active_s",
        "answers_bytes",
        "api_versions",
        "beginnings",
        "client_host",
        "client_id",
        "descriptor",
        "handlers",
        "header_tails",
        "held",
        "is_closed",
        "is_controller",
        "is_elsewhere",
        "is_reading",
        "is_sending",
        "is_stopped",
        "large",
        "large_bytes_seen",
        "large_filled",
        "listener",
        "loop",
        "network",
        "on_closed",
        "out",
        "peer",
        "running",
        "socket",
        "software",
        "waiting",
        "was_large",
    )

    def __init__(self, network: "Listener", connected: socket.socket, client_host: str, peer: str) -> None:
        self.network = network
        self.listener = network.name
        self.is_controller = network.is_controller
        self.api_versions = network.api_versions
        self.handlers = network.handlers
        self.loop = network.loop
        self.socket = connected
        self.descriptor = connected.fileno()
        self.client_host = client_host
        self.peer = peer
        self.software = ("unknown", "unknown")
        self.client_id: str | None = None
        self.header_tails = NO_TAILS  # client id and tags, as last seen in headers of version 1 and 2
        self.held = b""  # of a frame that has not come whole, or of frames that have to wait
        self.large: bytearray | None = None  # a frame larger than the shared buffer
        self.large_filled = 0
        self.large_bytes_seen = 0
        self.was_large = False  # the last frame: the next one may well be, and need not pass through the shared buffer
        self.waiting: deque[Context] = deque()
        self.answers_bytes = 0
        self.out: deque[Piece] = deque()
        self.on_closed: Callable[[], None] | None = None
        self.beginnings: Beginnings | None = None
        self.running: Any = None  # the task of a request that those after it wait for
        self.is_reading = False
        self.is_sending = False
        self.is_elsewhere = False  # a thread sends, and has the descriptor until it is done
        self.is_stopped = False  # frames wait in `held` until there is room
        self.is_closed = False
        self.active_s = self.loop.time()
        self._watch()

    def __str__(self) -> str:
        return f"{self.peer} ({self.client_id or self.software[0]})"

    # -- reading

    def _watch(self) -> None:
        if not self.is_reading and not self.is_closed:
            self.is_reading = True
            self.loop.add_reader(self.descriptor, self._readable)

    def _unwatch(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self.loop.remove_reader(self.descriptor)

    def _readable(self) -> None:
        try:
            if self.large is not None:
                self._receive_large(self.large)
            else:
                self._receive()
            if self.out and not self.is_sending:
                self.flush()
        except (BlockingIOError, InterruptedError):
            pass
        except (ConnectionError, DiskFailed) as error:
            self.close(f"{error.strerror}", expected=isinstance(error, ConnectionError))
        except ProtocolError as error:
            self.close(str(error))
        except Exception as error:
            logger.exception("a request of %s failed", self)
            self.close(f"internal error: {error!r}")

    def _receive(self) -> None:
        view = self.network.inbox
        have = len(self.held)
        if have:
            view[:have] = self.held
            self.held = b""
        for _ in range(RECEIVES_MAX):
            room = SIZE.size if self.was_large else INBOX_BYTES
            self.was_large = False
            try:
                count = self.socket.recv_into(view[have:room])
            except (BlockingIOError, InterruptedError):
                break
            if count == 0:
                self.close("closed by the client", expected=True)
                return
            is_drained = have + count < room
            have = self._take(view, have + count)
            if is_drained or self.is_closed or self.is_stopped or self.large is not None:
                break
        self.active_s = self.loop.time()
        self._keep(view, have)
        if self.large is not None:
            with suppress(BlockingIOError, InterruptedError):
                self._receive_large(self.large)

    def _keep(self, view: memoryview, have: int) -> None:
        if have and not self.is_closed and self.large is None:
            self.held = bytes(view[:have])

    def _take(self, view: memoryview, end: int) -> int:
        """Answers the whole frames in the shared buffer; gives how many bytes are left, now at its begin."""
        position = frames = 0
        while end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(view, position)
            start = position + SIZE.size
            if end - start < size or size < HEADER_BYTES_MIN:
                self.network.check_size(size, view[position:end])
                if size + SIZE.size > INBOX_BYTES:
                    return self._begin_large(view, position, end, size + SIZE.size)
                break
            position = start + size
            self._dispatch(view[start:position])
            if self.is_closed:
                return 0
            frames += 1
            if self.running is not None or self.waiting or self.is_sending or frames == FRAMES_MAX:
                if self._must_stop():
                    self.is_stopped = True
                    self._unwatch()
                    break
                if frames == FRAMES_MAX:
                    self.is_stopped = True
                    self._unwatch()
                    self.loop.call_soon(self.go_on)
                    break
        if 0 < position < end:
            view[: end - position] = bytes(view[position:end])
        return end - position

    def _must_stop(self) -> bool:
        return (
            self.running is not None
            or self.is_sending
            or len(self.waiting) >= ANSWERS_WAITING_MAX
            or self.answers_bytes > ANSWERS_BYTES_MAX
        )

    def _begin_large(self, view: memoryview, position: int, end: int, size: int) -> int:
        """A frame that needs a buffer of its own. It grows with what comes: who only announces much gets little, until it has
        sent as much before. Gives how many bytes stay in the shared buffer, when there is no room for it now."""
        begin = view[position:end]
        if not self.network.reserve(self, size):
            self.is_stopped = True
            self._unwatch()
            view[: end - position] = bytes(begin)
            return end - position
        self.large = self.network.take_buffer(size if size <= self.large_bytes_seen else min(size, 2 * INBOX_BYTES))
        self.large[: len(begin)] = begin
        self.large_filled = len(begin)
        return 0

    def _receive_large(self, buffer: bytearray) -> None:
        (size,) = SIZE.unpack_from(buffer)
        size += SIZE.size
        if self.large_filled == len(buffer):
            grown = self.network.take_buffer(min(size, 4 * len(buffer)))
            grown[: len(buffer)] = buffer
            self.network.give_buffer(buffer)
            self.large = buffer = grown
        with memoryview(buffer) as view:
            count = self.socket.recv_into(view[self.large_filled : size])
        if count == 0:
            self.close("closed by the client in the middle of a request", expected=True)
            return
        self.active_s = self.loop.time()
        self.large_filled += count
        if self.large_filled == size:
            self.large = None
            self.large_bytes_seen = max(size, self.large_bytes_seen)
            self.was_large = True
            with memoryview(buffer) as view:
                self._dispatch(view[SIZE.size : size])
            self.network.give_buffer(buffer)
            self.network.release(self)
            if self._must_stop():
                self.is_stopped = True
                self._unwatch()

    def go_on(self) -> None:
        """There is room again: first what has been read already."""
        if self.is_closed or not self.is_stopped or self._must_stop():
            return
        self.is_stopped = False
        try:
            view = self.network.inbox
            have = len(self.held)
            view[:have] = self.held
            self.held = b""
            self._keep(view, self._take(view, have))
            if self.out and not self.is_sending:
                self.flush()
        except (ConnectionError, DiskFailed) as error:
            self.close(f"{error.strerror}", expected=isinstance(error, ConnectionError))
        except ProtocolError as error:
            self.close(str(error))
        except Exception as error:
            logger.exception("a request of %s failed", self)
            self.close(f"internal error: {error!r}")
        if not self.is_stopped:
            self._watch()

    # -- answering

    def _dispatch(self, frame: memoryview) -> None:
        key, version, correlation_id = FIXED_PART.unpack_from(frame)
        handler = self.handlers.get(key)
        if handler is None or version not in handler.versions:
            response = self.network.unsupported(key, version)
            if response is None:
                raise ProtocolError(f"API {key} in version {version} is not served here", "request_api_version", 2)
            version = 0
            self._answered_now(encode_response(response, version, correlation_id))
            return
        is_flexible = version in handler.flexible
        tail = self.header_tails[is_flexible]
        start = HEADER_BYTES_MIN + len(tail)
        if frame[HEADER_BYTES_MIN:start] != tail:
            header, start = RequestHeader.decode_head(frame, 1 + is_flexible)
            self.client_id = header.client_id
            if not header.unknown_tags:
                tail = bytes(frame[HEADER_BYTES_MIN:start])
                known = self.header_tails
                self.header_tails = (known[0], tail) if is_flexible else (tail, known[1])
        request, _ = handler.request.decode_head(frame, version, start)  # librdkafka leaves bytes behind a Metadata request
        ctx = Context(self.network.node, self, version, correlation_id, self.client_id)
        response = handler.handle(request, ctx)
        if response is None:
            if ctx.is_waiting and ctx.buffers is None:
                self.waiting.append(ctx)
        elif type(response) is CoroutineType:
            self.waiting.append(ctx)
            self.running = self.loop.create_task(self._run(response, ctx))
        elif self.waiting:
            ctx.buffers = encode_response(response, version, correlation_id)
            self.answers_bytes += sum(map(len, ctx.buffers))
            self.waiting.append(ctx)
        else:
            buffers = encode_response(response, version, correlation_id)
            self.out.extend(buffers)
            if len(buffers[0]) > FLUSH_BYTES_MIN and not self.is_sending:
                self.flush()

    def _answered_now(self, buffers: Buffers) -> None:
        if self.waiting:
            ctx = Context(self.network.node, self, 0, 0, None)
            ctx.buffers = buffers
            self.waiting.append(ctx)
        else:
            self.out.extend(buffers)

    async def _run(self, handling: Coroutine[Any, Any, Message | None], ctx: Context) -> None:
        try:
            response = await handling
        except Exception as error:
            logger.exception("a request of %s failed", self)
            self.close(f"internal error: {error!r}")
            return
        finally:
            self.running = None
        if self.is_closed:
            return
        if response is not None:
            ctx.answer(response)
        elif not ctx.is_waiting:
            self.waiting.remove(ctx)
        if self.is_stopped:
            self.loop.call_soon(self.go_on)

    def answered(self, ctx: Context) -> None:
        """One of the requests that wait has its answer. When it is being handled just now, nothing is waiting for it yet."""
        if self.is_closed:
            return
        waiting = self.waiting
        buffers = ctx.buffers
        assert buffers is not None
        if not waiting or ctx is not waiting[0]:
            if ctx in waiting:
                self.answers_bytes += sum(map(len, buffers))
            elif waiting:
                self.answers_bytes += sum(map(len, buffers))
                waiting.append(ctx)
            else:
                self.out.extend(buffers)
                self.loop.call_soon(self._flush_later)
            return
        self.answers_bytes += sum(map(len, buffers))
        while waiting and (buffers := waiting[0].buffers) is not None:
            waiting.popleft()
            self.answers_bytes -= sum(map(len, buffers))
            self.out.extend(buffers)
        if not self.is_sending:
            self._flush_later()

    def _flush_later(self) -> None:
        """Called where no one would catch what the socket raises."""
        if self.is_closed:
            return
        try:
            self.flush()
        except (ConnectionError, DiskFailed) as error:
            self.close(f"{error.strerror}", expected=isinstance(error, ConnectionError))
        except Exception as error:
            logger.exception("an answer to %s could not be sent", self)
            self.close(f"internal error: {error!r}")
        else:
            if self.is_stopped:
                self.loop.call_soon(self.go_on)

    # -- sending

    def flush(self) -> None:
        """Sends what is ready, as far as the socket takes it now; the loop goes on with the rest."""
        if self.is_elsewhere:
            return
        out = self.out
        try:
            while out:
                first = out[0]
                if isinstance(first, Slice):
                    self._open(first)
                elif isinstance(first, FileRange) and first.size > OUTBOX_BYTES:
                    if not self._send_file(first):
                        return
                elif not self._send_buffers():
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_writable()
            return
        if self.is_sending:
            self.is_sending = False
            self.loop.remove_writer(self.descriptor)
            if self.is_stopped:
                self.loop.call_soon(self.go_on)

    def _send_buffers(self) -> bool:
        """Sends buffers, and what is read from files into the shared outbox; False when that has to be waited for."""
        out = self.out
        taken: list[Any] = []
        pieces: list[Any] = []
        total = filled = 0
        while out and len(pieces) < PIECES_MAX:
            piece: Any = out[0]
            if isinstance(piece, Slice):
                self._open(piece)
                continue
            if isinstance(piece, FileRange):
                data = self.network.outbox[filled : filled + piece.size]
                if len(data) < piece.size or not piece.file.read_now(piece.position, data):
                    break
                filled += piece.size
            else:
                data = piece
            taken.append(out.popleft())
            pieces.append(data)
            total += len(data)
        if not pieces:
            return self._send_file(out[0])  # type: ignore[arg-type]
        try:
            sent = self.socket.sendmsg(pieces, (), socket.MSG_MORE if out else 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        if sent == total:
            return True
        while total > sent:
            total -= len(pieces.pop())
            piece = taken.pop()
            out.appendleft(piece if total >= sent else rest(piece, sent - total))
        self._wait_writable()
        return False

    def _open(self, records: Slice) -> None:
        """Puts what a slice is made of in its place."""
        self.out.popleft()
        self.out.extendleft(records.ranges[::-1])  # type: ignore[arg-type]

    def _send_file(self, part: FileRange) -> bool:
        """Sends from a file; False when that has to be waited for.

        Much is sent on the loop for a few connections at a time, a piece a turn. For more than those, and where it is not in
        memory, threads do it.
        """
        is_much = part.size > SENDFILE_LOOP_BYTES_MAX
        size = min(part.size, SENDFILE_BYTES_MAX)
        is_warm = part.file.is_warm(part.position, size)
        if not is_warm or (is_much and not self.network.may_send_much(self)):
            self._wait_for_thread(part, size, is_warm)
            return False
        count = part.file.send(self.socket, part.position, min(size, SENDFILE_LOOP_BYTES_MAX))
        if not self._sent_of_file(part, count):
            return False
        if is_much:
            self._wait_writable()
        return not is_much

    def _sent_of_file(self, part: FileRange, count: int) -> bool:
        if count == 0:
            self.close("a file ended before what was to be sent of it")
            return False
        if count == part.size:
            self.out.popleft()
            self.network.has_sent(self)
            return True
        part.position += count
        part.size -= count
        return True

    def _wait_for_thread(self, part: FileRange, size: int, is_warm: bool) -> None:
        if self.is_sending:
            self.loop.remove_writer(self.descriptor)
        self.is_sending = self.is_elsewhere = True

        def send() -> int:
            if not is_warm:
                part.file.warm(part.position, size)
            return send_patiently(self.network.machine, self.socket, part, size)

        self.loop.run_in_executor(self.network.senders, send).add_done_callback(partial(self._sent_elsewhere, part))

    def _sent_elsewhere(self, part: FileRange, sending: "asyncio.Future[int]") -> None:
        """Back on the loop. Only now may the descriptor be closed: another connection could have got its number."""
        self.is_elsewhere = False
        error = sending.exception()
        if self.is_closed:
            self.socket.close()
        elif isinstance(error, BlockingIOError | InterruptedError):
            self.loop.add_writer(self.descriptor, self._flush_later)
        elif isinstance(error, ConnectionError):
            self.close(f"{error.strerror}", expected=True)
        elif error is not None:
            self.close(f"{error.strerror if isinstance(error, OSError) else repr(error)}")
        elif self._sent_of_file(part, sending.result()):
            self.is_sending = False
            self._flush_later()

    def _wait_writable(self) -> None:
        if not self.is_sending:
            self.is_sending = True
            self.loop.add_writer(self.descriptor, self._flush_later)

    # -- the end

    def close(self, reason: str, *, expected: bool = False) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        logger.log(logging.DEBUG if expected else logging.WARNING, "connection of %s closed: %s", self, reason)
        self._unwatch()
        if self.is_sending:
            self.loop.remove_writer(self.descriptor)
        if self.is_elsewhere:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        else:
            self.socket.close()
        if self.large is not None:
            self.network.give_buffer(self.large)
            self.network.release(self)
            self.large = None
        self.out.clear()
        self.held = b""
        waiting, self.waiting = self.waiting, deque()
        for ctx in waiting:
            if ctx.abandoned is not None:
                ctx.abandoned()
        self.network.forget(self)
        if self.on_closed is not None:
            self.loop.call_soon(self.on_closed)


def rest(piece: Any, sent: int) -> Any:
    """What is left of a piece of which so much was sent."""
    if isinstance(piece, FileRange):
        piece.position += sent
        piece.size -= sent
        return piece
    return memoryview(piece)[sent:]


def send_patiently(machine: Machine, connected: socket.socket, part: FileRange, size: int) -> int:
    """Sends from a file, on a thread, as long as the reader keeps up; gives how much. A slow one is waited for on the loop."""
    sent = 0
    while sent < size:
        try:
            count = part.file.send(connected, part.position + sent, size - sent)
        except BlockingIOError:
            if not machine.wait_writable(connected, READER_WAIT_MS):
                if sent:
                    break
                raise
            continue
        if count == 0:
            break
        sent += count
    return sent

"""What an API's handler knows: the request's context, and the node behind it, as far as an API may see it.

Every API is one file with `KEY` and `handle(request, ctx)`. A handler gives
  - a response: it is sent at once;
  - a coroutine (`async def`): its result is sent, and later requests of the connection wait until then;
  - None after `ctx.later()`: somebody calls `ctx.answer(response)` some time, and later requests go on meanwhile;
  - None without it: there is no answer (produce with acks=0).
Answers leave in the order of the requests in any case.

Invariants
 1. A request is answered once, or its connection is closed.
 2. `Refused` is the one way to say no from below an API: an error code, and a sentence for a person.
"""

from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from odradek.core.partition.beginnings import Beginnings
from odradek.wire.errors import ProtocolError
from odradek.wire.frames import encode_response
from odradek.wire.message import Buffers, Message
from odradek.wire.messages import ApiVersionsResponse

if TYPE_CHECKING:
    from odradek.api.services import Services


class Postponed(Exception):
    """What is asked for is not in memory. `warm` reads it in, which takes long: then it can be asked for again."""

    def __init__(self, warm: Callable[[], None]) -> None:
        super().__init__()
        self.warm = warm


Handling: TypeAlias = Coroutine[Any, Any, Message | None]
Handled: TypeAlias = Message | Handling | None


def begun(handling: Handling) -> Handled:
    """Goes as far as a coroutine can at once. What need not wait is answered in this turn of the loop, and costs no task. Until
    it waits it is no task's: it must not come to a time-out (`asyncio.timeout`) before."""
    try:
        awaited = handling.send(None)
    except StopIteration as end:
        response: Message | None = end.value
        return response
    return rest(handling, [awaited])


async def rest(handling: Handling, awaited: list[object]) -> Message | None:
    return await Rest(handling, awaited)


class Rest:
    """What is left of a coroutine that waits. An error that comes of what it waits for holds the frames that it went through, and
    those frames nothing that holds the error: a batch that was looked into goes with the error, and waits for no collector."""

    __slots__ = ("awaited", "handling")

    def __init__(self, handling: Handling, awaited: list[object]) -> None:
        self.handling = handling
        self.awaited = awaited  # until it is handed on

    def __await__(self) -> Generator[Any, Any, Message | None]:
        handling, awaited = self.handling, self.awaited
        try:
            while True:
                try:
                    yield awaited.pop()
                except GeneratorExit:  # the task is forgotten
                    handling.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - it is for whoever waits
                    awaited.append(handling.throw(error))
                else:
                    awaited.append(handling.send(None))
        except StopIteration as end:
            response: Message | None = end.value
            return response


class Connection(Protocol):
    """Where a request came from."""

    client_host: str  # "127.0.0.1"
    listener: str  # the name of the listener, "PLAINTEXT"
    is_controller: bool  # the listener is one of the controller's
    api_versions: list[ApiVersionsResponse.ApiVersion]  # what the listener serves
    software: tuple[str, str]  # name and version that the client gave in ApiVersions
    handlers: Mapping[int, Any]  # of what the listener serves, by key
    on_closed: Callable[[], None] | None  # called when it is closed, by whomever
    beginnings: Beginnings | None  # once a batch that came on it was refused

    def answered(self, ctx: "Context") -> None:
        """An answer is there."""
        ...

    def close(self, reason: str) -> None: ...


class Context:
    """One request: who asks, in which version, and the node that answers."""

    __slots__ = ("abandoned", "buffers", "client_id", "connection", "correlation_id", "is_waiting", "node", "version")

    def __init__(
        self, node: "Services", connection: Connection, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.node = node
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.is_waiting = False
        self.abandoned: Callable[[], None] | None = None  # called when the connection closes before the answer is there
        self.buffers: Buffers | None = None  # the answer

    def later(self) -> None:
        """The handler gives no response now; `answer` will be called."""
        self.is_waiting = True

    def answer(self, response: Message) -> None:
        assert self.buffers is None, "a request is answered once"
        try:
            self.buffers = encode_response(response, self.version, self.correlation_id)
        except ProtocolError as error:  # ours, and the client must not wait for ever
            self.connection.close(f"internal error: no answer of version {self.version}: {error}")
        else:
            self.connection.answered(self)

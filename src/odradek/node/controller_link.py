"""The way from a broker to the active controller, wherever it is: here, or on the node that leads the quorum just now.

Invariants
 1. A request is asked again, of whoever leads then, until it is answered or its time is over: that a controller has gone, or is
    no longer active, is nothing that a caller hears of.
 2. When another leads, whoever led before is not waited for: it may be silent for long.
 3. What clients have asked for travels in an envelope, with who they are; what the broker itself asks for, plainly.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.api.context import Context
from odradek.api.table import handlers
from odradek.core.partition.beginnings import Beginnings
from odradek.node.peers import Channel, Unreachable
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.message import Message
from odradek.wire.messages import ApiVersionsResponse, DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from odradek.node.node import Node

RETRY_MS: Final = 50
SIZE_BYTES: Final = 4
PRINCIPAL_VERSION: Final = 0
ANONYMOUS: Final = DefaultPrincipalData(type="User", name="ANONYMOUS")

Answer = TypeVar("Answer", bound=Message)


class Here:
    """Where a request comes from that a node has for itself."""

    client_host = "127.0.0.1"
    listener = ""
    is_controller = True
    api_versions: list[ApiVersionsResponse.ApiVersion] = []  # noqa: RUF012 - nobody asks
    software = ("odradek", "")
    on_closed: Callable[[], None] | None = None
    beginnings: Beginnings | None = None

    def __init__(self) -> None:
        self.handlers: Mapping[int, Any] = handlers("controller")

    def answered(self, _: Context) -> None:
        raise AssertionError("what a controller decides is awaited")

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


class Awaited(Context):
    """A request that a node has for itself, and whose answer may come later."""

    __slots__ = ("response",)

    def __init__(self, node: "Node", here: Here, version: int, client_id: str) -> None:
        super().__init__(node, here, version, 0, client_id)
        self.response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def answer(self, response: Message) -> None:
        if not self.response.done():
            self.response.set_result(response)


class ControllerLink:
    def __init__(self, node: "Node") -> None:
        self.node = node
        self.machine = node.machine
        self.loop = asyncio.get_running_loop()
        self.here = Here()
        self.client_id = f"broker-{node.node_id}"
        self.channels: dict[str, Channel] = {}  # by what they are for: a client's request must not hold up a heartbeat

    async def ask(self, request: Message, response: type[Answer], timeout_ms: float, purpose: str = "own") -> Answer:
        """The answer of the active controller. Refused when none has answered in time."""
        deadline = self.loop.time() + timeout_ms / 1000
        while True:
            answer = await self._try(request, response, deadline, purpose)
            if answer is not None and getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return answer
            left_ms = (deadline - self.loop.time()) * 1000
            if left_ms <= 0:
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, "no active controller has answered in time")
            await self.node.quorum.leader_changed(min(left_ms, RETRY_MS))

    async def _try(self, request: Message, response: type[Answer], deadline: float, purpose: str) -> Answer | None:
        leader = self.node.quorum.leader
        if leader.leader_id == self.node.node_id:
            return await self._ask_here(request)  # type: ignore[return-value]  # the handler of this request gives its response
        if not leader.endpoints:
            return None
        _, host, port = leader.endpoints[0]
        channel = self.channels.get(purpose)
        if channel is None or (channel.host, channel.port) != (host, port):
            if channel is not None:
                channel.close()
            channel = self.channels[purpose] = Channel(self.machine, host, port, self.client_id)
        asking = self.loop.create_task(channel.ask(request, response, (deadline - self.loop.time()) * 1000))
        moving = self.loop.create_task(self._another_leads(leader.leader_id, deadline))
        both: list[asyncio.Future[Any]] = [asking, moving]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        except Unreachable:
            return None
        finally:
            for task in both:
                task.cancel()

    async def _another_leads(self, leader_id: int, deadline: float) -> None:
        """Until somebody else is known to lead: that nobody is known may be this node's own trouble."""
        quorum = self.node.quorum
        while quorum.leader.leader_id == leader_id or not quorum.leader.is_known:
            left_ms = (deadline - self.loop.time()) * 1000
            if left_ms <= 0:
                return
            await quorum.leader_changed(left_ms)

    async def _ask_here(self, request: Message) -> Message | None:
        handler = self.here.handlers[request.schema.key]
        ctx = Awaited(self.node, self.here, APIS[request.schema.key].versions[-1], self.client_id)
        try:
            answer: Any = handler.handle(request, ctx)
            answer = await answer if isawaitable(answer) else answer
            return await ctx.response if answer is None else answer
        except Refused as refused:
            if refused.code != ErrorCode.NOT_CONTROLLER:
                raise
            return None

    async def forward(self, request: Message, response: type[Answer], ctx: Context, timeout_ms: float) -> Answer:
        """Hands a client's request on; gives the controller's answer to it."""
        frame = b"".join(encode_request(request, ctx.version, ctx.correlation_id, ctx.client_id))  # type: ignore[arg-type]
        envelope = EnvelopeRequest(
            request_data=frame[SIZE_BYTES:],
            request_principal=PRINCIPAL_VERSION.to_bytes(2, "big") + ANONYMOUS.to_bytes(PRINCIPAL_VERSION),
            client_host_address=ipaddress.ip_address(ctx.connection.client_host).packed,
        )
        answer = await self.ask(envelope, EnvelopeResponse, timeout_ms, "clients")
        if answer.response_data is None:
            code = ErrorCode(answer.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
            raise Refused(code, "the controller cannot take the request")
        return decode_response(response, answer.response_data, ctx.version)[1]

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()

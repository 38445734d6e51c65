"""Envelope (key 58), version 0: a request that a broker has from a client, and that only the controller may answer.

The request is in it as the client sent it, with who the client is; the answer goes back the same way.
"""

from inspect import isawaitable

from odradek.api.context import Context
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.frames import decode_request, encode_response
from odradek.wire.message import Message
from odradek.wire.messages import EnvelopeRequest, EnvelopeResponse

KEY = 58
SIZE_BYTES = 4
FORWARDED = frozenset({19, 20, 33, 37, 43, 44, 45, 46, 55, 57, 64, 80, 81})  # what a broker may put into an envelope


class Enclosed(Context):
    """The request in the envelope. An answer that comes later leaves in the answer to the envelope."""

    __slots__ = ("outer",)

    def __init__(self, outer: Context, version: int, correlation_id: int, client_id: str | None) -> None:
        super().__init__(outer.node, outer.connection, version, correlation_id, client_id)
        self.outer = outer

    def later(self) -> None:
        self.outer.later()
        self.outer.abandoned = self.abandon

    def abandon(self) -> None:
        if self.abandoned is not None:
            self.abandoned()

    def answer(self, response: Message) -> None:
        self.outer.answer(self.enclose(response))

    def enclose(self, response: Message) -> EnvelopeResponse:
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        data = b"".join(encode_response(response, self.version, self.correlation_id))  # type: ignore[arg-type]
        return EnvelopeResponse(response_data=data[SIZE_BYTES:])


async def handle(request: EnvelopeRequest, ctx: Context) -> EnvelopeResponse | None:
    if not ctx.node.controller.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    try:
        header, inner = decode_request(request.request_data)
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    key, version = header.request_api_key, header.request_api_version
    handler = ctx.connection.handlers.get(key)
    if handler is None or key not in FORWARDED or version not in handler.versions:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    enclosed = Enclosed(ctx, version, header.correlation_id, header.client_id)
    answer = handler.handle(inner, enclosed)
    answer = await answer if isawaitable(answer) else answer
    return None if answer is None else enclosed.enclose(answer)

"""ConsumerGroupHeartbeat (key 68), versions 0-1: the whole of the new group protocol (KIP-848).

v1  subscriptions by regular expression; the client makes its member id (KIP-1082)

The answer leaves when what it says is committed.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupHeartbeatRequest

KEY = 68


def handle(request: ConsumerGroupHeartbeatRequest, ctx: Context) -> None:
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))


def failed(request: ConsumerGroupHeartbeatRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

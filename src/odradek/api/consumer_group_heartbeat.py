"""ConsumerGroupHeartbeat (key 68), versions 0-1: the whole of the new group protocol (KIP-848).

v1  subscriptions by regular expression; the client makes its member id (KIP-1082)

The answer leaves when what it says is committed. A cluster serves it with group.version 1, unless
group.coordinator.rebalance.protocols leaves it out.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.core.metadata.features import GROUP_VERSION
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupHeartbeatRequest

KEY = 68


def is_enabled(ctx: Context) -> bool:
    is_finalized = ctx.node.image.features.get(GROUP_VERSION, 0) > 0
    return is_finalized and "consumer" in ctx.node.config.names("group.coordinator.rebalance.protocols")


def handle(request: ConsumerGroupHeartbeatRequest, ctx: Context) -> Message | None:
    if not is_enabled(ctx):
        return failed(request, ErrorCode.UNSUPPORTED_VERSION, ctx.version)
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))
    return None


def failed(request: ConsumerGroupHeartbeatRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

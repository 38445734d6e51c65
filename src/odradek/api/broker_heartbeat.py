"""BrokerHeartbeat (key 63), versions 0-2, on the controller's listeners.

v1  folders that failed
v2  folders that take no new partitions (KIP-1066)

A broker is alive; the answer is given when what follows from it is committed. The connection that a heartbeat came by is watched:
a process that ends closes it.
"""

from functools import partial

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse

KEY = 63


async def handle(request: BrokerHeartbeatRequest, ctx: Context) -> BrokerHeartbeatResponse:
    now_ms = ctx.node.controller.monotonic_ms()
    ctx.connection.on_closed = partial(ctx.node.broker_lost, request.broker_id, request.broker_epoch)
    return await decide(request, ctx, lambda controller: controller.heartbeat(request, now_ms))

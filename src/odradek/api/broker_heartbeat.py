"""BrokerHeartbeat (key 63), versions 0-2, on the controller's listeners.

v1  folders that failed
v2  folders that take no new partitions (KIP-1066)

A broker is alive; the answer is given when what follows from it is committed.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse

KEY = 63


async def handle(request: BrokerHeartbeatRequest, ctx: Context) -> BrokerHeartbeatResponse:
    now_ms = ctx.node.controller.monotonic_ms()
    return await decide(request, ctx, lambda controller: controller.heartbeat(request, now_ms))

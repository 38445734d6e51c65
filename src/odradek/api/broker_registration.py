"""BrokerRegistration (key 62), versions 0-4, on the controller's listeners.

v2  the ids of its folders
v3  the epoch of its last clean stop
v4  features whose lowest level is 0

A broker starts; the answer is given when its registration is committed.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import BrokerRegistrationRequest, BrokerRegistrationResponse

KEY = 62


async def handle(request: BrokerRegistrationRequest, ctx: Context) -> BrokerRegistrationResponse:
    now_ms = ctx.node.controller.monotonic_ms()
    return await decide(request, ctx, lambda controller: controller.register_broker(request, now_ms))

"""UnregisterBroker (key 64), version 0: a broker is gone for good, and what it had goes to others."""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import UnregisterBrokerRequest, UnregisterBrokerResponse

KEY = 64


async def handle(request: UnregisterBrokerRequest, ctx: Context) -> UnregisterBrokerResponse:
    return await decide(request, ctx, lambda controller: controller.unregister_broker(request.broker_id))

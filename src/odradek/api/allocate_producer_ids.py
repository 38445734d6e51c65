"""AllocateProducerIds (key 67), version 0, on the controller's listeners: a broker takes a block of producer ids."""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

KEY = 67


async def handle(request: AllocateProducerIdsRequest, ctx: Context) -> AllocateProducerIdsResponse:
    return await decide(
        request, ctx, lambda controller: controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    )

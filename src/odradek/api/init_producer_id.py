"""InitProducerId (key 22), versions 0-5.

v2  flexible encoding
v3  the id and epoch that the producer has, to go on with the next epoch
v5  transactions of version 2

An idempotent producer without transactions gets a new id each time.
"""

from odradek.api.context import Context
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import InitProducerIdRequest, InitProducerIdResponse

KEY = 22


async def handle(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    try:
        if request.transactional_id is not None:
            if request.transaction_timeout_ms > ctx.node.config.integer("transaction.max.timeout.ms"):
                raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "above transaction.max.timeout.ms")
            raise Refused(ErrorCode.NOT_COORDINATOR, "transactions are not served yet")
        producer_id = await ctx.node.new_producer_id()
    except Refused as refused:
        return InitProducerIdResponse(error_code=refused.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

"""InitProducerId (key 22), versions 0-5.

v2  flexible encoding
v3  the id and epoch that the producer has, to go on with the next epoch
v4  PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before
v5  clients know TRANSACTION_ABORTABLE

An idempotent producer without transactions gets a new id each time.
"""

from odradek.api.context import Context, Handled
from odradek.core.transactions.refusals import refusal
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import InitProducerIdRequest, InitProducerIdResponse

KEY = 22


def handle(request: InitProducerIdRequest, ctx: Context) -> Handled:
    def failed(error: ErrorCode) -> Message:
        return refusal(request, error, ctx.version)

    if request.transactional_id == "" or (request.producer_id < 0) != (request.producer_epoch < 0):
        return failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return give_id(ctx)
    if not 0 < request.transaction_timeout_ms <= ctx.node.config.integer("transaction.max.timeout.ms"):
        return failed(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    ctx.node.transactions.submit(request.transactional_id, request, ctx, failed)
    return None


async def give_id(ctx: Context) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await ctx.node.new_producer_id())
    except Refused as refused:
        return InitProducerIdResponse(error_code=refused.code, producer_id=-1, producer_epoch=-1)

"""EndTxn (key 26), versions 0-5.

v2  PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before
v3  flexible encoding
v4  clients know TRANSACTION_ABORTABLE
v5  every end bumps the epoch, and the answer tells the next one (KIP-890)
"""

from odradek.api.context import Context, Handled
from odradek.core.transactions.refusals import refusal
from odradek.wire.messages import EndTxnRequest

KEY = 26


def handle(request: EndTxnRequest, ctx: Context) -> Handled:
    ctx.node.transactions.submit(request.transactional_id, request, ctx, lambda error: refusal(request, error, ctx.version))
    return None

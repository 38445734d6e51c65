"""DescribeTransactions (key 65), version 0: transactional ids that this node coordinates."""

from odradek.api.context import Context
from odradek.core.transactions.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeTransactionsRequest, DescribeTransactionsResponse

KEY = 65


async def handle(request: DescribeTransactionsRequest, ctx: Context) -> DescribeTransactionsResponse:
    response = DescribeTransactionsResponse()
    for transactional_id in request.transactional_ids:
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        found = await ctx.node.transactions.ask(transactional_id, asked, ctx)
        answer = refusal(asked, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(answer, DescribeTransactionsResponse)
        response.transaction_states += answer.transaction_states
    return response

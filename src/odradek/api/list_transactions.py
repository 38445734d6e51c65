"""ListTransactions (key 66), versions 0-2: those that this node coordinates.

v1  a filter by how long they are open
v2  a filter by a pattern of names
"""

import re2

from odradek.api.context import Context
from odradek.core.transactions.transaction import BY_TITLE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ListTransactionsRequest, ListTransactionsResponse

KEY = 66


async def handle(request: ListTransactionsRequest, ctx: Context) -> ListTransactionsResponse:
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(request.transactional_id_pattern, options) if request.transactional_id_pattern else None
    except re2.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    answers, error = await ctx.node.transactions.ask_all(request, ctx)
    if error is not ErrorCode.NONE:
        return ListTransactionsResponse(error_code=error)
    response = ListTransactionsResponse(unknown_state_filters=[name for name in request.state_filters if name not in BY_TITLE])
    for answer in answers:
        assert isinstance(answer, ListTransactionsResponse)
        response.transaction_states += [
            state for state in answer.transaction_states if pattern is None or pattern.fullmatch(state.transactional_id)
        ]
    return response

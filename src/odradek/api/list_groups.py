"""ListGroups (key 16), versions 0-5: the groups that this node coordinates, of all types.

v1  throttle time
v3  flexible encoding
v4  states, in the answer and as a filter
v5  types, in the answer and as a filter
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ListGroupsRequest, ListGroupsResponse

KEY = 16


async def handle(request: ListGroupsRequest, ctx: Context) -> Message:
    answers, error = await ctx.node.groups.ask_all(request, ctx)
    if error is not ErrorCode.NONE:
        return failed(request, error, ctx.version)
    response = ListGroupsResponse()
    for answer in answers:
        assert isinstance(answer, ListGroupsResponse)
        response.groups += answer.groups
    return response


def failed(request: ListGroupsRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

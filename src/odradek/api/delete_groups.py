"""DeleteGroups (key 42), versions 0-2; 3 is coded and not advertised.

v2  flexible encoding
v3  a message with an error

Groups of any type, with their offsets, as long as they have no members.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import DeleteGroupsRequest, DeleteGroupsResponse

KEY = 42


async def handle(request: DeleteGroupsRequest, ctx: Context) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        part = DeleteGroupsRequest(groups_names=[group_id])
        found = await ctx.node.groups.ask(group_id, part, ctx)
        answer = failed(part, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(answer, DeleteGroupsResponse)
        response.results += answer.results
    return response


def failed(request: DeleteGroupsRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

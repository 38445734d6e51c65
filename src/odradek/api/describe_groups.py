"""DescribeGroups (key 15), versions 0-6: classic groups.

v1  throttle time
v3  which operations the client may do
v4  group instance ids
v5  flexible encoding
v6  a group that is not there is GROUP_ID_NOT_FOUND, with a message; before it is Dead without an error
"""

from odradek.api.context import Context
from odradek.api.operations import ON_GROUPS
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import DescribeGroupsRequest, DescribeGroupsResponse

KEY = 15


async def handle(request: DescribeGroupsRequest, ctx: Context) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        part = DescribeGroupsRequest(groups=[group_id])
        found = await ctx.node.groups.ask(group_id, part, ctx)
        answer = failed(part, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(answer, DescribeGroupsResponse)
        response.groups += answer.groups
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ON_GROUPS
    return response


def failed(request: DescribeGroupsRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

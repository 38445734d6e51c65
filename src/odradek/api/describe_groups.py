"""DescribeGroups (key 15), versions 0-6: classic groups.

v1  throttle time
v3  which operations the client may do
v4  group instance ids
v5  flexible encoding
v6  a group that is not there is GROUP_ID_NOT_FOUND, with a message; before it is Dead without an error
"""

from odradek.api.context import Context
from odradek.api.group_descriptions import describe
from odradek.wire.messages import DescribeGroupsRequest, DescribeGroupsResponse

KEY = 15


async def handle(request: DescribeGroupsRequest, ctx: Context) -> DescribeGroupsResponse:
    return await describe(
        request.groups,
        lambda group_id: DescribeGroupsRequest(groups=[group_id]),
        ctx,
        DescribeGroupsResponse(),
        with_operations=request.include_authorized_operations,
    )

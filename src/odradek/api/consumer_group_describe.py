"""ConsumerGroupDescribe (key 69), versions 0-1: consumer groups; classic ones are DescribeGroups'.

v1  which protocol each member uses
"""

from odradek.api.consumer_group_heartbeat import is_enabled
from odradek.api.context import Context
from odradek.api.group_descriptions import describe
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

KEY = 69


async def handle(request: ConsumerGroupDescribeRequest, ctx: Context) -> Message:
    if not is_enabled(ctx):
        return refusal(request, ErrorCode.UNSUPPORTED_VERSION, ctx.version)
    return await describe(
        request.group_ids,
        lambda group_id: ConsumerGroupDescribeRequest(group_ids=[group_id]),
        ctx,
        ConsumerGroupDescribeResponse(),
        with_operations=request.include_authorized_operations,
    )

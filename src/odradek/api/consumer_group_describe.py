"""ConsumerGroupDescribe (key 69), versions 0-1: consumer groups; classic ones are DescribeGroups'.

v1  which protocol each member uses
"""

from odradek.api.consumer_group_heartbeat import is_enabled
from odradek.api.context import Context
from odradek.api.operations import ON_GROUPS
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

KEY = 69


async def handle(request: ConsumerGroupDescribeRequest, ctx: Context) -> Message:
    if not is_enabled(ctx):
        return failed(request, ErrorCode.UNSUPPORTED_VERSION, ctx.version)
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        part = ConsumerGroupDescribeRequest(group_ids=[group_id])
        found = await ctx.node.groups.ask(group_id, part, ctx)
        answer = failed(part, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(answer, ConsumerGroupDescribeResponse)
        response.groups += answer.groups
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ON_GROUPS
    return response


def failed(request: ConsumerGroupDescribeRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

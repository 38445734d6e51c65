"""What both requests that describe groups have in common: each group is its own coordinator's to describe."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.api.context import Context
from odradek.api.operations import ON_GROUPS
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerGroupDescribeResponse, DescribeGroupsResponse

Response = TypeVar("Response", DescribeGroupsResponse, ConsumerGroupDescribeResponse)


async def describe(
    group_ids: Sequence[str], request_for: Callable[[str], Message], ctx: Context, response: Response, *, with_operations: bool
) -> Response:
    """Fills a response with what the coordinators say, or why they do not; `request_for` asks for one group."""
    for group_id in group_ids:
        request = request_for(group_id)
        found = await ctx.node.groups.ask(group_id, request, ctx)
        answer = refusal(request, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(answer, type(response))
        for group in answer.groups:
            if with_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ON_GROUPS
            response.groups.append(group)
    return response

"""ListPartitionReassignments (key 46), version 0: the controller answers."""

from odradek.api.context import Context
from odradek.wire.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

KEY = 46


async def handle(request: ListPartitionReassignmentsRequest, ctx: Context) -> ListPartitionReassignmentsResponse:
    return await ctx.node.controller.submit(lambda controller: controller.list_reassignments(request))

"""ListPartitionReassignments (key 46), version 0: the controller answers."""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

KEY = 46


async def handle(request: ListPartitionReassignmentsRequest, ctx: Context) -> ListPartitionReassignmentsResponse:
    return await decide(request, ctx, lambda controller: controller.list_reassignments(request))

"""AlterPartitionReassignments (key 45), versions 0-1.

v1  whether the number of replicas may change

Partitions go to other brokers, or no longer do; the answer is given when that is committed, and the copying begins then.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse

KEY = 45


async def handle(request: AlterPartitionReassignmentsRequest, ctx: Context) -> AlterPartitionReassignmentsResponse:
    return await decide(request, ctx, lambda controller: controller.alter_reassignments(request))

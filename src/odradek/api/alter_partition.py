"""AlterPartition (key 56), versions 2-3, on the controller's listeners.

v3  the epochs of the brokers in the ISR (KIP-903)

The leader of partitions has new ISRs; the controller decides, and the answer is given when that is committed.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import AlterPartitionRequest, AlterPartitionResponse

KEY = 56


async def handle(request: AlterPartitionRequest, ctx: Context) -> AlterPartitionResponse:
    return await decide(request, ctx, lambda controller: controller.alter_partition(request, ctx.version))

"""CreatePartitions (key 37), versions 0-3.

v2  flexible encoding

The controller decides; the answer is given when that is committed, and this node has followed it.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import CreatePartitionsRequest, CreatePartitionsResponse

KEY = 37


async def handle(request: CreatePartitionsRequest, ctx: Context) -> CreatePartitionsResponse:
    response = await decide(request, ctx, lambda controller: controller.create_partitions(request))
    await ctx.node.followed()
    return response

"""ElectLeaders (key 43), versions 0-2.

v1  unclean elections
v2  flexible encoding

The controller decides; the answer is given when that is committed, and this node has followed it.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import ElectLeadersRequest, ElectLeadersResponse

KEY = 43


async def handle(request: ElectLeadersRequest, ctx: Context) -> ElectLeadersResponse:
    response = await decide(request, ctx, lambda controller: controller.elect_leaders(request))
    await ctx.node.followed()
    return response

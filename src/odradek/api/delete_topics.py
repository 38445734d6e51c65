"""DeleteTopics (key 20), versions 1-6.

v4  flexible encoding
v5  a message with an error
v6  topics by id

The controller decides; the answer is given when that is committed, and this node has followed it.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse

KEY = 20


async def handle(request: DeleteTopicsRequest, ctx: Context) -> DeleteTopicsResponse:
    response = await decide(request, ctx, lambda controller: controller.delete_topics(request))
    await ctx.node.followed()
    return response

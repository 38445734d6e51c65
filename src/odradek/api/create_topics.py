"""CreateTopics (key 19), versions 2-7.

v3  no change
v4  -1 for the default number of partitions and replicas
v5  flexible encoding; the topic's configuration in the answer
v7  its id

The controller decides; the answer is given when that is committed, and this node has followed it.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import CreateTopicsRequest, CreateTopicsResponse

KEY = 19


async def handle(request: CreateTopicsRequest, ctx: Context) -> CreateTopicsResponse:
    response = await decide(request, ctx, lambda controller: controller.create_topics(request))
    await ctx.node.followed()
    return response

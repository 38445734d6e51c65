"""DeleteTopics (key 20), versions 1-6.

v3  where deletion is turned off, an error of its own says so
v4  flexible encoding
v5  a message with an error
v6  topics by id

The controller decides; the answer is given when that is committed, and this node has followed it.
"""

from odradek.api.context import Context
from odradek.api.refusal import decide, refusal
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import DeleteTopicsRequest

KEY = 20
DISABLED_SINCE = 3


async def handle(request: DeleteTopicsRequest, ctx: Context) -> Message:
    if not ctx.node.config.flag("delete.topic.enable"):
        code = ErrorCode.TOPIC_DELETION_DISABLED if ctx.version >= DISABLED_SINCE else ErrorCode.INVALID_REQUEST
        return refusal(request, Refused(code, "topics cannot be deleted: delete.topic.enable is false"), ctx.version)
    response = await decide(request, ctx, lambda controller: controller.delete_topics(request))
    await ctx.node.followed()
    return response

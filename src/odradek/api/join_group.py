"""JoinGroup (key 11), versions 0-9.

v1  the rebalance timeout, which was the session timeout before
v2  throttle time
v4  a new member is sent back to join again with the id that it gets (KIP-394)
v5  static members (KIP-345)
v6  flexible encoding
v7  the protocol type in the answer, and no protocol is null
v8  why the member joins
v9  whether the leader may skip the assignment (KIP-814)

The answer waits until the group's next generation begins.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import JoinGroupRequest

KEY = 11


def handle(request: JoinGroupRequest, ctx: Context) -> None:
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))


def failed(request: JoinGroupRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

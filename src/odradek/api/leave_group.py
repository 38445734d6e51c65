"""LeaveGroup (key 13), versions 0-5.

v1  throttle time
v3  several members, and static ones by their group instance ids; each has its own error
v4  flexible encoding
v5  why a member leaves
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import LeaveGroupRequest

KEY = 13


def handle(request: LeaveGroupRequest, ctx: Context) -> None:
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))


def failed(request: LeaveGroupRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

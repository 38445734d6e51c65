"""SyncGroup (key 14), versions 0-5.

v1  throttle time
v3  static members (KIP-345)
v4  flexible encoding
v5  protocol type and name, which must be the group's (KIP-559)

The answer waits until the leader's assignment is committed.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import SyncGroupRequest

KEY = 14


def handle(request: SyncGroupRequest, ctx: Context) -> None:
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))


def failed(request: SyncGroupRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

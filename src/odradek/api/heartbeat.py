"""Heartbeat (key 12), versions 0-4.

v1  throttle time
v3  static members (KIP-345)
v4  flexible encoding
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import HeartbeatRequest

KEY = 12


def handle(request: HeartbeatRequest, ctx: Context) -> None:
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))


def failed(request: HeartbeatRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

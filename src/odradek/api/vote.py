"""Vote (key 52), versions 0-2, on the controller's listeners: for the metadata quorum, which answers it."""

from odradek.api.context import Context
from odradek.wire.messages import VoteRequest

KEY = 52


def handle(request: VoteRequest, ctx: Context) -> None:
    ctx.node.quorum.receive(request, ctx)

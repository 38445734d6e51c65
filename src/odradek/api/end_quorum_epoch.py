"""EndQuorumEpoch (key 54), versions 0-1, on the controller's listeners: for the metadata quorum, which answers it."""

from odradek.api.context import Context
from odradek.wire.messages import EndQuorumEpochRequest

KEY = 54


def handle(request: EndQuorumEpochRequest, ctx: Context) -> None:
    ctx.node.quorum.receive(request, ctx)

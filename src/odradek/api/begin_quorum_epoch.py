"""BeginQuorumEpoch (key 53), versions 0-1, on the controller's listeners: for the metadata quorum, which answers it."""

from odradek.api.context import Context
from odradek.wire.messages import BeginQuorumEpochRequest

KEY = 53


def handle(request: BeginQuorumEpochRequest, ctx: Context) -> None:
    ctx.node.quorum.receive(request, ctx)

"""FetchSnapshot (key 59), versions 0-1, on the controller's listeners: for the metadata quorum, which answers it."""

from odradek.api.context import Context
from odradek.wire.messages import FetchSnapshotRequest

KEY = 59


def handle(request: FetchSnapshotRequest, ctx: Context) -> None:
    ctx.node.quorum.receive(request, ctx)

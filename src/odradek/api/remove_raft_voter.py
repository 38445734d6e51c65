"""RemoveRaftVoter (key 81), versions 0: for the leader of the metadata quorum; a broker hands it on."""

from odradek.api.context import Context, Handled
from odradek.wire.messages import RemoveRaftVoterRequest, RemoveRaftVoterResponse

KEY = 81


def handle(request: RemoveRaftVoterRequest, ctx: Context) -> Handled:
    if not ctx.connection.is_controller and not ctx.node.controller.is_active:
        return ctx.node.forward(request, RemoveRaftVoterResponse, ctx)
    ctx.node.quorum.receive(request, ctx)
    return None

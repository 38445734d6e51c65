"""RemoveRaftVoter (key 81), versions 0: for the leader of the metadata quorum; a broker hands it on."""

from odradek.api.context import Context, Handled
from odradek.api.refusal import hand_on
from odradek.wire.messages import RemoveRaftVoterRequest

KEY = 81


def handle(request: RemoveRaftVoterRequest, ctx: Context) -> Handled:
    if not ctx.connection.is_controller and not ctx.node.controller.is_active:
        return hand_on(request, ctx)
    ctx.node.quorum.receive(request, ctx)
    return None

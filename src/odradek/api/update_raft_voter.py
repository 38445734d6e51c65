"""UpdateRaftVoter (key 82), versions 0, on the controller's listeners: for the metadata quorum, which answers it."""

from odradek.api.context import Context
from odradek.wire.messages import UpdateRaftVoterRequest

KEY = 82


def handle(request: UpdateRaftVoterRequest, ctx: Context) -> None:
    ctx.node.quorum.receive(request, ctx)

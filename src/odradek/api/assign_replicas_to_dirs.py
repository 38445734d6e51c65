"""AssignReplicasToDirs (key 73), version 0, on the controller's listeners: a broker says which folders its replicas are in."""

from odradek.api.context import Context
from odradek.api.refusal import decide
from odradek.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

KEY = 73


async def handle(request: AssignReplicasToDirsRequest, ctx: Context) -> AssignReplicasToDirsResponse:
    return await decide(request, ctx, lambda controller: controller.assign_replicas_to_dirs(request))

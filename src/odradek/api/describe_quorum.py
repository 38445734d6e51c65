"""DescribeQuorum (key 55), versions 0-2.

v1  when each replica fetched last
v2  the voters' folders and addresses
"""

from odradek.api.context import Context
from odradek.core.controller.quorum import describe_quorum
from odradek.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse

KEY = 55


def handle(request: DescribeQuorumRequest, ctx: Context) -> DescribeQuorumResponse:
    return describe_quorum(request, ctx.node.controller.status(), ctx.version)

"""DescribeQuorum (key 55), versions 0-2.

v1  when each replica fetched last
v2  the voters' folders and addresses
"""

from odradek.api.context import Context, Handled
from odradek.api.refusal import hand_on
from odradek.core.controller.quorum import describe_quorum
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse

KEY = 55


def handle(request: DescribeQuorumRequest, ctx: Context) -> Handled:
    if not ctx.node.controller.is_active:
        if ctx.connection.is_controller:
            return not_leader(request)
        return hand_on(request, ctx)
    return describe_quorum(request, ctx.node.controller.status(), ctx.version)


def not_leader(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Who does not lead does not know."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    topics = [
        DescribeQuorumResponse.TopicData(
            topic_name=topic.topic_name,
            partitions=[
                DescribeQuorumResponse.PartitionData(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return DescribeQuorumResponse(topics=topics)

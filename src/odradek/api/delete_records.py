"""DeleteRecords (key 21), versions 0-2.

v2  flexible encoding
"""

from odradek.api.context import Context
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import DeleteRecordsRequest, DeleteRecordsResponse

KEY = 21
HIGH_WATERMARK = -1

PartitionAnswer = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(request: DeleteRecordsRequest, ctx: Context) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answers = [delete(topic.name, wanted.partition_index, wanted.offset, ctx) for wanted in topic.partitions]
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name, partitions=answers))
    return response


def delete(topic: str, index: int, offset: int, ctx: Context) -> PartitionAnswer:
    partition = ctx.node.partitions.by_name.get(topic, {}).get(index)
    try:
        if partition is None:
            raise Refused(ctx.node.partitions.why_not(topic, index), "this node does not lead the partition")
        if topic in INTERNAL_TOPICS:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is kept by the brokers themselves")
        if "delete" not in ctx.node.topic_config(topic).cleanup_policy:
            raise Refused(ErrorCode.POLICY_VIOLATION, "a topic that is only compacted keeps its records")
        if offset == HIGH_WATERMARK:
            offset = partition.high_watermark
        if offset < 0:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")
        partition.move_start(offset)
    except Refused as refused:
        return PartitionAnswer(partition_index=index, low_watermark=-1, error_code=refused.code)
    return PartitionAnswer(partition_index=index, low_watermark=partition.log_start)

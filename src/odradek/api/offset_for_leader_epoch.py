"""OffsetForLeaderEpoch (key 23), versions 2-4.

v3  the replica that asks
v4  flexible encoding
"""

from odradek.api.context import Context
from odradek.api.fetch import check_epoch
from odradek.wire.errors import Refused
from odradek.wire.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

KEY = 23

EpochAnswer = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(request: OffsetForLeaderEpochRequest, ctx: Context) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answer = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
        answer.partitions = [end_of(topic.topic, wanted, ctx) for wanted in topic.partitions]
        response.topics.append(answer)
    return response


def end_of(topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, ctx: Context) -> EpochAnswer:
    partitions = ctx.node.partitions
    partition = partitions.by_name.get(topic, {}).get(wanted.partition)
    if partition is None:
        return EpochAnswer(error_code=partitions.why_not(topic, wanted.partition), partition=wanted.partition)
    try:
        check_epoch(partition, wanted.current_leader_epoch)
        partition.check_certain()
    except Refused as refused:
        return EpochAnswer(error_code=refused.code, partition=wanted.partition)
    epoch, end_offset = partition.epoch_end(wanted.leader_epoch)
    return EpochAnswer(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)

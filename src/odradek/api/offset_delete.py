"""OffsetDelete (key 47), version 0.

Deletes offsets of a group; those of topics that its members read stay.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse

KEY = 47

Asked = OffsetDeleteRequest.OffsetDeleteRequestTopic
Answered = OffsetDeleteResponse.OffsetDeleteResponseTopic


async def handle(request: OffsetDeleteRequest, ctx: Context) -> Message:
    refused = [unknown_partitions(topic, ctx) for topic in request.topics]
    request.topics = [topic for topic in request.topics if topic.partitions]
    found = await ctx.node.groups.ask(request.group_id, request, ctx)
    answer = failed(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, OffsetDeleteResponse)
    if answer.error_code == ErrorCode.NONE:
        answer.topics += [topic for topic in refused if topic.partitions]
    return answer


def unknown_partitions(asked: Asked, ctx: Context) -> Answered:
    """Takes the partitions that do not exist out of what is asked for, and refuses them."""
    topic = ctx.node.image.topics.get(asked.name)
    known = () if topic is None else topic.partitions
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = OffsetDeleteResponse.OffsetDeleteResponsePartition
    unknown = [found.partition_index for found in asked.partitions if found.partition_index not in known]
    asked.partitions = [found for found in asked.partitions if found.partition_index in known]
    return Answered(name=asked.name, partitions=[answer(partition_index=index, error_code=error) for index in unknown])


def failed(request: OffsetDeleteRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

"""OffsetCommit (key 8), versions 2-10.

v2  a retention time for these offsets
v3  throttle time
v5  no retention time: the node's setting counts
v6  leader epochs
v7  static members (KIP-345)
v8  flexible encoding
v9  members of the new group protocol (KIP-848); a group that is not there is GROUP_ID_NOT_FOUND
v10 topics by id

The coordinator gets topics with both name and id, and none that does not exist.
"""

from odradek.api.context import Context, Handled
from odradek.core.groups.refusals import refusal, refused_commit
from odradek.core.metadata.topics import Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse

KEY = 8
TOPIC_IDS_SINCE = 10

Asked = OffsetCommitRequest.OffsetCommitRequestTopic
Answered = OffsetCommitResponse.OffsetCommitResponseTopic


def handle(request: OffsetCommitRequest, ctx: Context) -> Handled:
    refused: list[Answered] = []
    request.topics = [topic for topic in request.topics if find(topic, ctx, refused)]
    if refused:
        return commit_rest(request, ctx, refused)
    ctx.later()
    ctx.node.groups.submit(request.group_id, request, ctx, lambda error: failed(request, error, ctx.version))
    return None


async def commit_rest(request: OffsetCommitRequest, ctx: Context, refused: list[Answered]) -> Message:
    """Commits what can be; the answer is about all."""
    if not request.topics:
        return OffsetCommitResponse(topics=refused)
    found = await ctx.node.groups.ask(request.group_id, request, ctx)
    answer = failed(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, OffsetCommitResponse)
    return OffsetCommitResponse(topics=[*refused, *answer.topics])


def find(asked: Asked, ctx: Context, refused: list[Answered]) -> bool:
    """Completes a topic with its name, or its id; whether some partition of it can be committed."""
    topic: Topic | None
    if ctx.version >= TOPIC_IDS_SINCE:
        topic, error = ctx.node.image.topics_by_id.get(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, error = ctx.node.image.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        refused.append(refused_commit(asked, error))
        return False
    asked.name, asked.topic_id = topic.name, topic.id
    known = [partition for partition in asked.partitions if partition.partition_index in topic.partitions]
    if len(known) < len(asked.partitions):
        unknown = [partition for partition in asked.partitions if partition.partition_index not in topic.partitions]
        rest = Asked(name=topic.name, topic_id=topic.id, partitions=unknown)
        refused.append(refused_commit(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        asked.partitions = known
    return bool(known)


def failed(request: OffsetCommitRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

"""OffsetFetch (key 9), versions 1-10.

v2  null topics ask for all offsets of the group; an error of the whole answer
v3  throttle time
v5  leader epochs
v6  flexible encoding
v7  only stable offsets, where asked for (KIP-447)
v8  several groups
v9  members of the new group protocol (KIP-848)
v10 topics by id

Each coordinator is asked for its group as version 8 does; the answer is put together in the client's version.
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import OffsetFetchRequest, OffsetFetchResponse

KEY = 9
SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
Topic = OffsetFetchResponse.OffsetFetchResponseTopics
Partition = OffsetFetchResponse.OffsetFetchResponsePartitions


async def handle(request: OffsetFetchRequest, ctx: Context) -> Message:
    if ctx.version >= SEVERAL_GROUPS_SINCE:
        return OffsetFetchResponse(groups=[await fetch(group, request.require_stable, ctx) for group in request.groups])
    topics = None
    if request.topics is not None:
        topics = [AskedTopic(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics]
    group = await fetch(AskedGroup(group_id=request.group_id, topics=topics), request.require_stable, ctx)
    if group.error_code != ErrorCode.NONE:
        return failed(request, ErrorCode(group.error_code), ctx.version)
    return OffsetFetchResponse(topics=[old_topic(topic) for topic in group.topics])


async def fetch(asked: AskedGroup, require_stable: bool, ctx: Context) -> Group:
    refused: list[Topic] = []
    uses_ids = ctx.version >= TOPIC_IDS_SINCE
    if uses_ids and asked.topics is not None:
        asked.topics = [topic for topic in asked.topics if find_name(topic, ctx, refused)]
    request = OffsetFetchRequest(groups=[asked], require_stable=require_stable)
    found = await ctx.node.groups.ask(asked.group_id, request, ctx)
    answer = failed(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, OffsetFetchResponse)
    (group,) = answer.groups
    if group.error_code == ErrorCode.NONE:
        if uses_ids and asked.topics is None:
            group.topics = [topic for topic in group.topics if find_id(topic, ctx)]
        group.topics += refused
    return group


def find_name(topic: AskedTopic, ctx: Context, refused: list[Topic]) -> bool:
    known = ctx.node.image.topics_by_id.get(topic.topic_id)
    if known is not None:
        topic.name = known.name
        return True
    error = ErrorCode.UNKNOWN_TOPIC_ID
    partitions = [
        Partition(partition_index=index, committed_offset=-1, metadata="", error_code=error) for index in topic.partition_indexes
    ]
    refused.append(Topic(topic_id=topic.topic_id, partitions=partitions))
    return False


def find_id(topic: Topic, ctx: Context) -> bool:
    """A topic that is gone has no id to be told by."""
    known = ctx.node.image.topics.get(topic.name)
    topic.topic_id = NIL_UUID if known is None else known.id
    return known is not None


def old_topic(topic: Topic) -> OffsetFetchResponse.OffsetFetchResponseTopic:
    """A topic in the words of versions 1-7."""
    partitions = [
        OffsetFetchResponse.OffsetFetchResponsePartition(
            partition_index=partition.partition_index,
            committed_offset=partition.committed_offset,
            committed_leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    ]
    return OffsetFetchResponse.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def failed(request: OffsetFetchRequest, error: ErrorCode, version: int) -> Message:
    return refusal(request, error, version)

"""TxnOffsetCommit (key 28), versions 0-6: offsets that are committed with a transaction, or not at all.

v2  leader epochs
v3  the member and its generation, so that a zombie is fenced (KIP-447); flexible encoding
v4  clients know TRANSACTION_ABORTABLE
v5  the group's partition is added to the transaction by this request (KIP-890); before, AddOffsetsToTxn has added it
v6  topics by id
"""

from odradek.api.context import Context
from odradek.core.groups.refusals import refusal, refused_transactional
from odradek.core.metadata.topics import Topic
from odradek.wire.batch import NO_SEQUENCE
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

KEY = 28
ABORTABLE_SINCE = 4
ADDS_PARTITIONS_SINCE = 5
TOPIC_IDS_SINCE = 6

Asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
Answered = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


async def handle(request: TxnOffsetCommitRequest, ctx: Context) -> TxnOffsetCommitResponse:
    refused: list[Answered] = []
    request.topics = [topic for topic in request.topics if find(topic, ctx, refused)]
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    try:
        verification = await verify(request, ctx)
    except Refused as error:
        answer = refusal(request, error.code, ctx.version)
    else:
        found = await ctx.node.groups.ask_verified(request.group_id, request, ctx, verification)
        answer = refusal(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, TxnOffsetCommitResponse)
    return TxnOffsetCommitResponse(topics=[*refused, *answer.topics])


async def verify(request: TxnOffsetCommitRequest, ctx: Context) -> object:
    """What the offsets are to be written with. Refused when the transaction's coordinator does not know of them."""
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group without a name")
    found = ctx.node.groups.place_of(request.group_id)
    if isinstance(found, ErrorCode):
        raise Refused(found, "the group is coordinated elsewhere, or not yet")
    partition, place = found
    is_adding = ctx.version >= ADDS_PARTITIONS_SINCE
    verification = partition.verify(request.producer_id, request.producer_epoch, NO_SEQUENCE, is_adding=is_adding)
    if verification is None:
        return None
    errors = await ctx.node.enlist(
        request.transactional_id, request.producer_id, request.producer_epoch, [place], is_adding=is_adding
    )
    error = errors[place]
    if error is ErrorCode.NONE:
        return verification
    if error is ErrorCode.TRANSACTION_ABORTABLE and ctx.version < ABORTABLE_SINCE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.NETWORK_EXCEPTION:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # which every client tries again
    raise Refused(error, "the transaction's coordinator did not take the group's offsets into the transaction")


def find(asked: Asked, ctx: Context, refused: list[Answered]) -> bool:
    """Completes a topic with its name, or its id; whether some partition of it can be committed."""
    topic: Topic | None
    if ctx.version >= TOPIC_IDS_SINCE:
        topic, error = ctx.node.image.topics_by_id.get(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        topic, error = ctx.node.image.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        refused.append(refused_transactional(asked, error))
        return False
    asked.name, asked.topic_id = topic.name, topic.id
    unknown = [partition for partition in asked.partitions if partition.partition_index not in topic.partitions]
    if unknown:
        rest = Asked(name=topic.name, topic_id=topic.id, partitions=unknown)
        refused.append(refused_transactional(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        asked.partitions = [partition for partition in asked.partitions if partition.partition_index in topic.partitions]
    return bool(asked.partitions)

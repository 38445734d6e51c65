"""TxnOffsetCommit (key 28), versions 0-6: offsets that are committed with a transaction, or not at all.

v2  leader epochs
v3  the member and its generation, so that a zombie is fenced (KIP-447); flexible encoding
v4  clients know TRANSACTION_ABORTABLE
v5  the group's partition is added to the transaction by this request (KIP-890); before, AddOffsetsToTxn has added it
v6  topics by id
"""

from odradek.api.committed_topics import known_topics
from odradek.api.context import Context
from odradek.core.groups.refusals import refusal, refused_transactional
from odradek.wire.batch import NO_SEQUENCE
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

KEY = 28
ABORTABLE_SINCE = 4
ADDS_PARTITIONS_SINCE = 5
TOPIC_IDS_SINCE = 6

Answered = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic


async def handle(request: TxnOffsetCommitRequest, ctx: Context) -> TxnOffsetCommitResponse:
    has_ids = ctx.version >= TOPIC_IDS_SINCE
    request.topics, refused = known_topics(request.topics, ctx, refused_transactional, has_ids=has_ids)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    try:
        verification = await verify(request, ctx)
    except Refused as error:
        answer = refusal(request, error.code, ctx.version)
    else:
        refused += refuse_gone(request, ctx, has_ids=has_ids)
        if not request.topics:
            return TxnOffsetCommitResponse(topics=refused)
        found = await ctx.node.groups.ask_verified(request.group_id, request, ctx, verification)
        answer = refusal(request, found, ctx.version) if isinstance(found, ErrorCode) else found
    assert isinstance(answer, TxnOffsetCommitResponse)
    return TxnOffsetCommitResponse(topics=[*refused, *answer.topics])


def refuse_gone(request: TxnOffsetCommitRequest, ctx: Context, *, has_ids: bool) -> list[Answered]:
    """Takes away the topics that were deleted since they were looked up, also where others have their names by now: an offset of
    the old one would hide those of the new."""
    there = ctx.node.image.topics_by_id
    gone = [topic for topic in request.topics if topic.topic_id not in there]
    request.topics = [topic for topic in request.topics if topic.topic_id in there]
    error = ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [refused_transactional(topic, error) for topic in gone]


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

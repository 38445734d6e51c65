"""AddOffsetsToTxn (key 25), versions 0-4.

v2  PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before
v3  flexible encoding
v4  clients know TRANSACTION_ABORTABLE

A group's offsets are a partition of __consumer_offsets, which is added to the transaction like any other.
"""

from odradek.api.context import Context
from odradek.core.coordinator.partitioning import partition_of
from odradek.core.transactions.refusals import refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

KEY = 25
GROUPS = "__consumer_offsets"
CLIENTS_UNTIL = 3  # the version of AddPartitionsToTxn


async def handle(request: AddOffsetsToTxnRequest, ctx: Context) -> AddOffsetsToTxnResponse | None:
    if GROUPS not in ctx.node.image.topics:
        await ctx.node.create_topics_on_demand([GROUPS])
    topic = ctx.node.image.topics.get(GROUPS)
    if topic is None:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    index = partition_of(request.group_id, len(topic.partitions))
    asked = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=GROUPS, partitions=[index])],
            )
        ]
    )

    def answered(found: Message | ErrorCode) -> None:
        response = refusal(asked, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(response, AddPartitionsToTxnResponse)
        (partition,) = response.results_by_transaction[0].topic_results[0].results_by_partition
        ctx.answer(AddOffsetsToTxnResponse(error_code=partition.partition_error_code))

    ctx.later()
    ctx.node.transactions.begin(request.transactional_id, asked, ctx, answered, version=min(ctx.version, CLIENTS_UNTIL))
    return None

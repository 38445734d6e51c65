"""AddPartitionsToTxn (key 24), versions 0-5.

v2  PRODUCER_FENCED, which was INVALID_PRODUCER_EPOCH before
v3  flexible encoding
v4  from brokers, for several transactions; those of older clients are verified, those of newer ones added by it (KIP-890)
v5  TRANSACTION_ABORTABLE for what is not in the transaction

A topic that does not exist is said so, and so is one that belongs to the brokers; then none of the others is added either.
"""

from collections.abc import Callable

from odradek.api.context import Context, Handled
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.core.transactions.refusals import refusal
from odradek.core.transactions.requests import partitions_answer
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

KEY = 24
SEVERAL_SINCE = 4
GROUPS = "__consumer_offsets"  # which the brokers of groups add, and nobody else

Asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Answered = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def handle(request: AddPartitionsToTxnRequest, ctx: Context) -> Handled:
    transactions = request.transactions
    if ctx.version < SEVERAL_SINCE:
        transactions = [
            Asked(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    ctx.later()
    results: list[Answered] = []

    def given(result: Answered) -> None:
        results.append(result)
        if len(results) == len(transactions):
            ctx.answer(response_of(results, ctx.version))

    for transaction in transactions:
        add(transaction, ctx, given)
    if not transactions:
        ctx.answer(response_of(results, ctx.version))
    return None


def response_of(results: list[Answered], version: int) -> AddPartitionsToTxnResponse:
    if version >= SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def add(transaction: Asked, ctx: Context, given: Callable[[Answered], None]) -> None:
    asked = AddPartitionsToTxnRequest(transactions=[transaction])
    topics = ctx.node.image.topics
    places = [(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    unknown = [place for place in places if place[0] not in topics or place[1] not in topics[place[0]].partitions]
    forbidden = [place for place in places if is_forbidden(place[0], ctx.version)]
    if unknown or forbidden:
        errors = dict.fromkeys(places, ErrorCode.OPERATION_NOT_ATTEMPTED)
        errors |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        errors |= dict.fromkeys(forbidden, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        given(partitions_answer(asked, errors).results_by_transaction[0])
        return

    def answered(found: Message | ErrorCode) -> None:
        response = refusal(asked, found, ctx.version) if isinstance(found, ErrorCode) else found
        assert isinstance(response, AddPartitionsToTxnResponse)
        given(response.results_by_transaction[0])

    ctx.node.transactions.begin(transaction.transactional_id, asked, ctx, answered)


def is_forbidden(topic: str, version: int) -> bool:
    return topic in INTERNAL_TOPICS and (version < SEVERAL_SINCE or topic != GROUPS)

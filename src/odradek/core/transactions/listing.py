"""What administrators are told of transactions."""

from typing import TYPE_CHECKING

from odradek.core.transactions.transaction import Transaction
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from odradek.core.transactions.coordinator import TransactionCoordinator

Described = DescribeTransactionsResponse.TransactionState


def describe_transactions(
    coordinator: "TransactionCoordinator", message: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[describe(coordinator, name) for name in message.transactional_ids])


def describe(coordinator: "TransactionCoordinator", transactional_id: str) -> Described:
    entry = coordinator.entries.get(transactional_id)
    if not transactional_id or entry is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return Described(error_code=error, transactional_id=transactional_id)
    transaction = entry.transaction
    topics: dict[str, DescribeTransactionsResponse.TopicData] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, DescribeTransactionsResponse.TopicData(topic=topic)).partitions.append(index)
    return Described(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=list(topics.values()),
    )


def list_transactions(
    coordinator: "TransactionCoordinator", message: ListTransactionsRequest, wall_ms: int
) -> ListTransactionsResponse:
    """Those that the filters let through, but for that of names: it is the API's, and so are states that do not exist."""
    states = [
        ListTransactionsResponse.TransactionState(
            transactional_id=transactional_id,
            producer_id=entry.transaction.producer_id,
            transaction_state=entry.transaction.state.title,
        )
        for transactional_id, entry in coordinator.entries.items()
        if is_listed(entry.transaction, message, wall_ms)
    ]
    return ListTransactionsResponse(transaction_states=states)


def is_listed(transaction: Transaction, message: ListTransactionsRequest, wall_ms: int) -> bool:
    if message.producer_id_filters and transaction.producer_id not in message.producer_id_filters:
        return False
    if message.state_filters and transaction.state.title not in message.state_filters:
        return False
    return message.duration_filter < 0 or wall_ms - transaction.start_ms > message.duration_filter

"""The answer that says no to a whole request for a coordinator of transactions."""

from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

FENCED_SINCE: Final = {AddPartitionsToTxnRequest: 2, EndTxnRequest: 2, InitProducerIdRequest: 4}  # PRODUCER_FENCED is known
COORDINATOR_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def told(error: ErrorCode, request: type[Message], version: int) -> ErrorCode:
    """What a client of that version is told about an error of a transaction, or of the coordinator's partition."""
    if error is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE.get(request, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return COORDINATOR_ERRORS.get(error, error)


def refusal(message: Message, error: ErrorCode, version: int) -> Message:
    """The answer to `message` that says `error` wherever it can."""
    error = told(error, type(message), version)
    match message:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
        case EndTxnRequest():
            return EndTxnResponse(error_code=error)
        case AddPartitionsToTxnRequest():
            results = [refused_transaction(transaction, error) for transaction in message.transactions]
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        case DescribeTransactionsRequest():
            state = DescribeTransactionsResponse.TransactionState
            return DescribeTransactionsResponse(
                transaction_states=[state(error_code=error, transactional_id=name) for name in message.transactional_ids]
            )
        case ListTransactionsRequest():
            return ListTransactionsResponse(error_code=error)
    raise AssertionError(f"{type(message).__name__} is not for a coordinator of transactions")


def refused_transaction(
    transaction: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction, error: ErrorCode
) -> AddPartitionsToTxnResponse.AddPartitionsToTxnResult:
    kind = AddPartitionsToTxnResponse
    return kind.AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            kind.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )

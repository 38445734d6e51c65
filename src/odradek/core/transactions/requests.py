"""What producers and administrators ask a coordinator of transactions.

Invariants
 1. A producer id and an epoch that are not the last ones given out change nothing: their owner is fenced.
 2. A request that is repeated, because its answer was lost, is answered as the first one was.
 3. What takes a new producer id is decided when there is one, by what is true then.
"""

from typing import TYPE_CHECKING, Final

from odradek.core.coordinator import answer
from odradek.core.coordinator.events import Request, Turn
from odradek.core.transactions.events import NeedProducerId
from odradek.core.transactions.listing import describe_transactions, list_transactions
from odradek.core.transactions.refusals import refusal
from odradek.core.transactions.transaction import (
    EPOCH_BUMPED_SINCE,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    TopicIndex,
    Transaction,
    bumped,
    is_exhausted,
)
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
)

if TYPE_CHECKING:
    from odradek.core.transactions.coordinator import Entry, TransactionCoordinator

BROKERS_SINCE: Final = 4  # AddPartitionsToTxn comes from other brokers, for several transactions
EPOCH_BUMP_SINCE: Final = 5  # EndTxn bumps the epoch


class Answer(answer.Answer):
    __slots__ = ()

    def _refusal(self, error: ErrorCode) -> Message:
        return refusal(self.request.message, error, self.request.version)


class Initialized(Answer):
    """The answer to a producer that has a new epoch; which it had before is remembered, in case that it asks again."""

    __slots__ = ("entries", "last_epoch", "transactional_id")

    def __init__(
        self, request: Request, response: Message, entries: "dict[str, Entry]", transactional_id: str, last_epoch: int
    ) -> None:
        super().__init__(request, response)
        self.entries = entries
        self.transactional_id = transactional_id
        self.last_epoch = last_epoch

    def committed(self, turn: Turn) -> None:
        self.entries[self.transactional_id].last_epoch = self.last_epoch
        super().committed(turn)

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        if error is ErrorCode.REQUEST_TIMED_OUT:  # the record is in the log, and may be committed yet
            self.entries[self.transactional_id].last_epoch = self.last_epoch
        super().failed(error, turn)


def serve(
    coordinator: "TransactionCoordinator", request: Request, turn: Turn, producer_id: int | ErrorCode = NO_PRODUCER_ID
) -> None:
    """`producer_id` is a new one, or why there is none, when the request comes back with what it needed."""
    if isinstance(producer_id, ErrorCode):
        refuse(request, producer_id, turn)
        return
    match request.message:
        case AddPartitionsToTxnRequest() as message:
            add_partitions(coordinator, request, message, turn)
        case EndTxnRequest() as message:
            end_transaction(coordinator, request, message, turn, producer_id)
        case InitProducerIdRequest() as message:
            init_producer_id(coordinator, request, message, turn, producer_id)
        case DescribeTransactionsRequest() as message:
            turn.reply(request.ticket, describe_transactions(coordinator, message))
        case ListTransactionsRequest() as message:
            turn.reply(request.ticket, list_transactions(coordinator, message, turn.now.wall_ms))
        case _:
            raise AssertionError(f"{type(request.message).__name__} is not for a coordinator of transactions")


def refuse(request: Request, error: ErrorCode, turn: Turn) -> None:
    turn.reply(request.ticket, refusal(request.message, error, request.version))


# -- a producer begins


def init_producer_id(
    coordinator: "TransactionCoordinator", request: Request, message: InitProducerIdRequest, turn: Turn, producer_id: int
) -> None:
    assert message.transactional_id is not None
    entry = coordinator.entries.get(message.transactional_id)
    if entry is None:
        if producer_id == NO_PRODUCER_ID:
            turn.effects.append(NeedProducerId(request))
            return None
        fresh = Transaction(producer_id=NO_PRODUCER_ID, epoch=NO_EPOCH, timeout_ms=0)
        give_epoch(coordinator, request, message, fresh, (producer_id, 0), NO_EPOCH, turn)
        return None
    error = check_init(coordinator, entry, message)
    if error is not ErrorCode.NONE:
        return refuse(request, error, turn)
    if entry.transaction.state is State.ONGOING:  # its producer is gone, or about to be fenced: who asks comes again
        again = Answer(request, refusal(message, ErrorCode.CONCURRENT_TRANSACTIONS, request.version))
        if not coordinator.fence(message.transactional_id, entry, again, turn, producer_id):
            turn.effects.append(NeedProducerId(request))
        return None
    return next_epoch(coordinator, request, message, entry, turn, producer_id)


def check_init(coordinator: "TransactionCoordinator", entry: "Entry", message: InitProducerIdRequest) -> ErrorCode:
    transaction = entry.transaction
    if coordinator.is_pending(entry) or transaction.is_promised(message.producer_id, message.producer_epoch):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if message.producer_id != NO_PRODUCER_ID:
        is_retry = message.producer_id == transaction.previous_producer_id and is_exhausted(message.producer_epoch)
        if message.producer_id != transaction.producer_id and not is_retry:
            return ErrorCode.PRODUCER_FENCED
        is_current = (message.producer_id, message.producer_epoch) == (transaction.producer_id, transaction.epoch)
        if transaction.state is State.ONGOING and not is_current:  # a request that comes late, or a zombie's
            return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else ErrorCode.NONE


def next_epoch(
    coordinator: "TransactionCoordinator",
    request: Request,
    message: InitProducerIdRequest,
    entry: "Entry",
    turn: Turn,
    producer_id: int,
) -> None:
    """Gives a producer the next epoch, or a new id where there is none left; the last one again, where it asks again."""
    transaction, expected = entry.transaction, message.producer_epoch
    is_new = message.producer_id == NO_PRODUCER_ID
    given = (transaction.producer_id, bumped(transaction.epoch))
    if not is_new and expected != transaction.epoch:
        if expected != entry.last_epoch:
            return refuse(request, ErrorCode.PRODUCER_FENCED, turn)
        return give_epoch(
            coordinator, request, message, transaction, (transaction.producer_id, transaction.epoch), entry.last_epoch, turn
        )
    if transaction.is_exhausted:
        if producer_id == NO_PRODUCER_ID:
            turn.effects.append(NeedProducerId(request))
            return None
        given = (producer_id, 0)
    return give_epoch(coordinator, request, message, transaction, given, NO_EPOCH if is_new else transaction.epoch, turn)


def give_epoch(
    coordinator: "TransactionCoordinator",
    request: Request,
    message: InitProducerIdRequest,
    transaction: Transaction,
    given: tuple[int, int],
    last_epoch: int,
    turn: Turn,
) -> None:
    assert message.transactional_id is not None
    producer_id, epoch = given
    initialized = transaction.initialized(producer_id, epoch, message.transaction_timeout_ms, turn.now.wall_ms)
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    sequel = Initialized(request, response, coordinator.entries, message.transactional_id, last_epoch)
    coordinator.write(message.transactional_id, initialized, sequel, turn)


# -- partitions of a transaction


def add_partitions(
    coordinator: "TransactionCoordinator", request: Request, message: AddPartitionsToTxnRequest, turn: Turn
) -> None:
    """Of one transaction, as from version 4 on: adds its partitions, or says of each whether it is in the transaction."""
    (asked,) = message.transactions
    partitions = frozenset((topic.name, index) for topic in asked.topics for index in topic.partitions)
    entry = coordinator.entries.get(asked.transactional_id)
    error = check_producer(coordinator, entry, asked)
    if error is ErrorCode.CONCURRENT_TRANSACTIONS:
        return coordinator.hold(asked.transactional_id, request, turn)
    if entry is None or error is not ErrorCode.NONE:
        return refuse(request, error, turn)
    transaction = entry.transaction
    known = partitions & transaction.partitions
    if asked.verify_only:
        found = {
            each: ErrorCode.NONE if each in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }
        return turn.reply(request.ticket, partitions_answer(message, found))
    response = partitions_answer(message, dict.fromkeys(partitions, ErrorCode.NONE))
    if transaction.state is State.ONGOING and known == partitions:
        return turn.reply(request.ticket, response)
    version = EPOCH_BUMPED_SINCE if request.version >= BROKERS_SINCE else 0
    added = transaction.added(partitions, version, turn.now.wall_ms)
    return coordinator.write(asked.transactional_id, added, Answer(request, response), turn)


def check_producer(
    coordinator: "TransactionCoordinator",
    entry: "Entry | None",
    asked: AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction,
) -> ErrorCode:
    if not asked.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if entry is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if coordinator.is_pending(entry) or entry.transaction.is_promised(asked.producer_id, asked.producer_epoch):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if entry.transaction.producer_id != asked.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if entry.transaction.epoch != asked.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if entry.transaction.state in PREPARED else ErrorCode.NONE


def partitions_answer(message: AddPartitionsToTxnRequest, errors: dict[TopicIndex, ErrorCode]) -> AddPartitionsToTxnResponse:
    (asked,) = message.transactions
    kind = AddPartitionsToTxnResponse
    topics = [
        kind.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                kind.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=errors[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in asked.topics
    ]
    result = kind.AddPartitionsToTxnResult(transactional_id=asked.transactional_id, topic_results=topics)
    return kind(results_by_transaction=[result])


# -- the end of a transaction


def end_transaction(
    coordinator: "TransactionCoordinator", request: Request, message: EndTxnRequest, turn: Turn, producer_id: int
) -> None:
    entry = coordinator.entries.get(message.transactional_id)
    if not message.transactional_id or entry is None:
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING if message.transactional_id else ErrorCode.INVALID_REQUEST
        return refuse(request, unknown, turn)
    transaction, is_bumped = entry.transaction, request.version >= EPOCH_BUMP_SINCE
    error = check_end(coordinator, entry, message, is_bumped=is_bumped)
    if error is ErrorCode.NONE:
        same = EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)
        return turn.reply(request.ticket, same)
    if error is not None:
        return refuse(request, error, turn)
    if is_bumped and transaction.is_exhausted and producer_id == NO_PRODUCER_ID:
        turn.effects.append(NeedProducerId(request))
        return None
    prepared = transaction.prepared(
        is_commit=message.committed,
        epoch=bumped(transaction.epoch) if is_bumped else transaction.epoch,
        version=EPOCH_BUMPED_SINCE if is_bumped else 0,
        now_ms=turn.now.wall_ms,
        next_producer_id=producer_id if is_bumped else NO_PRODUCER_ID,
    )
    completed = prepared.completed(turn.now.wall_ms)
    response = EndTxnResponse(producer_id=completed.producer_id, producer_epoch=completed.epoch)
    return coordinator.write(message.transactional_id, prepared, Answer(request, response), turn)


def check_end(
    coordinator: "TransactionCoordinator", entry: "Entry", message: EndTxnRequest, *, is_bumped: bool
) -> ErrorCode | None:
    """What to answer; None when the transaction is to be ended now."""
    transaction, epoch = entry.transaction, message.producer_epoch
    is_overflow = (
        is_bumped
        and message.producer_id == transaction.previous_producer_id
        and epoch == EPOCH_MAX - 1
        and transaction.epoch == 0
    )
    is_retry = is_bumped and (transaction.epoch == epoch + 1 or is_overflow)
    if coordinator.is_pending(entry) or transaction.is_promised(message.producer_id, epoch):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if message.producer_id != transaction.producer_id and not is_overflow:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not is_valid_epoch(transaction, epoch, is_bumped=is_bumped, is_retry=is_retry):
        return ErrorCode.PRODUCER_FENCED
    match transaction.state:
        case State.ONGOING:
            return None
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            is_same = message.committed == transaction.is_commit
            return ErrorCode.CONCURRENT_TRANSACTIONS if is_same else ErrorCode.INVALID_TXN_STATE
        case State.COMPLETE_COMMIT | State.COMPLETE_ABORT if is_retry or not is_bumped:
            is_same = message.committed == transaction.is_commit
            return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE
        case _:  # there is nothing to end, which an abort of version 2 may do all the same
            return None if is_bumped and not message.committed else ErrorCode.INVALID_TXN_STATE


def is_valid_epoch(transaction: Transaction, epoch: int, *, is_bumped: bool, is_retry: bool) -> bool:
    if not is_bumped:
        return epoch == transaction.epoch
    match transaction.state:
        case State.PREPARE_COMMIT | State.PREPARE_ABORT:
            return is_retry
        case State.COMPLETE_COMMIT | State.COMPLETE_ABORT:
            return is_retry or epoch == transaction.epoch
        case _:
            return epoch == transaction.epoch

"""The coordinator of the transactional ids in one partition of __transaction_state. Sans-IO.

    coordinator = TransactionCoordinator(config, high_watermark)

What a transactional id is now is what its last record says, committed or not. While that record is not committed, whoever asks
is told to come again (CONCURRENT_TRANSACTIONS), and nothing follows from it: no answer, and no marker. Who wants to add
partitions waits for a while instead: a producer that begins its next transaction at once is a moment ahead of the last markers.

Invariants, beside those of every coordinator
 1. Markers are sent for what is committed as decided, and for nothing else; a transaction is complete when all of its partitions
    have theirs.
 2. A decision stands: a transaction that is prepared becomes complete in that way, whoever coordinates it.
 3. A step writes at most one record of a transactional id: what is written rests on what is replayed.
"""

from collections import deque
from typing import Any, Final

from msgspec import Struct

from odradek.core.coordinator.coordinator import Coordinator
from odradek.core.coordinator.events import Effect, Nothing, Now, Request, Sequel, TimerKey, Turn, Write
from odradek.core.transactions import requests
from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.events import ConfigChanged, Markers, MarkersWritten, NeedProducerId, ProducerIdGiven
from odradek.core.transactions.transaction import (
    AT_REST,
    EPOCH_BUMPED_SINCE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    Transaction,
    bumped,
)
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import Message
from odradek.wire.messages import TransactionLogKey, TransactionLogValue

TIMEOUT_TIMER: Final[TimerKey] = ("transaction-timeouts",)
EXPIRY_TIMER: Final[TimerKey] = ("transactional-ids",)
COMPLETION_TIMER: Final = "transaction-completion"  # and the transactional id
COMPLETION_RETRY_MS: Final = 100  # until a record that could not be written is tried again
HELD_TIMER: Final = "transaction-held"  # and the transactional id
HELD_MS_MAX: Final = 100  # for who wants to add partitions
NO_VALUE_VERSION: Final = -1


class Entry(Struct):
    """A transactional id."""

    transaction: Transaction
    offset: int  # of its last record
    last_epoch: int = NO_EPOCH  # that its producer had before it asked for the next; known in one life only, as in Kafka
    opened_ms: int | None = None  # on the monotonic clock, once its transaction was seen to be open; in one life as well


class TransactionCoordinator(Coordinator):
    __slots__ = ("config", "decided", "entries", "held", "unmarked")

    def __init__(self, config: TransactionConfig, high_watermark: int = 0) -> None:
        super().__init__(high_watermark)
        self.config = config
        self.entries: dict[str, Entry] = {}
        self.decided: deque[tuple[int, str]] = deque()  # records of decisions that are not committed, by offset
        self.unmarked: dict[str, Markers] = {}  # of what is decided: the partitions that have no marker yet
        self.held: dict[str, list[Request]] = {}  # that wait until the transactional id can be changed

    @property
    def commit_timeout_ms(self) -> int:
        return self.config.request_timeout_ms

    def is_pending(self, entry: Entry) -> bool:
        """Whether what its last record says may yet be lost."""
        return entry.offset >= self.high_watermark

    def hold(self, transactional_id: str, request: Request, turn: Turn) -> None:
        """Serves a request later, when nothing is under way for the transactional id, or gives up in time."""
        self.held.setdefault(transactional_id, []).append(request)
        turn.set_timer((HELD_TIMER, transactional_id), HELD_MS_MAX, is_first=True)

    def _serve_held(self, turn: Turn) -> None:
        """Up to the first that writes: the next one has to see what it has written."""
        for transactional_id, waiting in [*self.held.items()]:
            entry = self.entries.get(transactional_id)
            if entry is not None and (self.is_pending(entry) or entry.transaction.state in PREPARED):
                continue
            before = len(turn.effects)
            while waiting and not any(isinstance(effect, Write) for effect in turn.effects[before:]):
                requests.serve(self, waiting.pop(0), turn)
            if not waiting:
                del self.held[transactional_id]
                turn.cancel_timer((HELD_TIMER, transactional_id))

    # What the log says

    def _replay(self, offset: int, key: Message, value: Message | None, _: int) -> None:
        assert isinstance(key, TransactionLogKey)
        transactional_id = key.transactional_id
        if value is None:
            self.entries.pop(transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        transaction, entry = Transaction.of(value), self.entries.get(transactional_id)
        if entry is None:
            self.entries[transactional_id] = Entry(transaction, offset)
        else:
            if transaction.state in PREPARED and transaction.epoch != entry.transaction.epoch:
                entry.last_epoch = entry.transaction.epoch if transaction.version >= EPOCH_BUMPED_SINCE else NO_EPOCH
            elif transaction.state is State.EMPTY:
                entry.last_epoch = NO_EPOCH  # a producer that asked in a life before this: which one, nobody knows any more
            if transaction.state is not entry.transaction.state:
                entry.opened_ms = None
            entry.transaction, entry.offset = transaction, offset
        if transaction.state in PREPARED:
            self.decided.append((offset, transactional_id))
        else:
            self.unmarked.pop(transactional_id, None)

    def _replay_end(self, _: int, __: int, is_commit: bool) -> None:
        """Nothing here is of a transaction. That there is the end of one is a client's doing, and must not stop a load."""

    def _commit(self, turn: Turn) -> None:
        """Sends the markers of what is decided for good."""
        while self.decided and self.decided[0][0] < self.high_watermark:
            offset, transactional_id = self.decided.popleft()
            entry = self.entries.get(transactional_id)
            if entry is not None and entry.offset == offset:
                self._begin_markers(transactional_id, entry.transaction, turn)
        if self.held:
            self._serve_held(turn)

    # Life

    def loaded(self, now: Now) -> list[Effect]:
        turn = self._turn(now)
        turn.set_timer(TIMEOUT_TIMER, self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        turn.set_timer(EXPIRY_TIMER, self.config.transaction_remove_expired_transaction_cleanup_interval_ms)
        self._commit(turn)
        return turn.effects

    def unloaded(self, now: Now) -> list[Effect]:
        turn = self._turn(now)
        while self.writes:
            self.writes.popleft().sequel.failed(ErrorCode.NOT_COORDINATOR, turn)
        for transactional_id in [*self.held]:
            self._refuse_held(transactional_id, ErrorCode.NOT_COORDINATOR, turn)
        return turn.effects

    def _refuse_held(self, transactional_id: str, error: ErrorCode, turn: Turn) -> None:
        for request in self.held.pop(transactional_id, ()):
            requests.refuse(request, error, turn)

    def _serve(self, request: Request, turn: Turn) -> None:
        requests.serve(self, request, turn)

    def _happen(self, event: Any, turn: Turn) -> None:
        match event:
            case ProducerIdGiven(Request() as request):
                requests.serve(self, request, turn, event.given)
            case ProducerIdGiven(transactional_id, int() as producer_id):
                self._time_out(str(transactional_id), turn, producer_id)
            case ProducerIdGiven():
                pass  # the next look at what has timed out asks again
            case MarkersWritten():
                self._written(event, turn)
            case ConfigChanged():
                self.config = event.config
            case _:
                raise AssertionError(f"{type(event).__name__} does not happen to transactions")

    def _fire(self, key: TimerKey, turn: Turn) -> None:
        if key == TIMEOUT_TIMER:
            for transactional_id in [*self.entries]:
                self._time_out(transactional_id, turn)
            turn.set_timer(TIMEOUT_TIMER, self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms)
        elif key == EXPIRY_TIMER:
            self._write_all([tombstone(transactional_id) for transactional_id in self._expired(turn.now.wall_ms)], turn)
            turn.set_timer(EXPIRY_TIMER, self.config.transaction_remove_expired_transaction_cleanup_interval_ms)
        elif key[0] == HELD_TIMER:
            self._refuse_held(key[1], ErrorCode.CONCURRENT_TRANSACTIONS, turn)
        else:
            assert key[0] == COMPLETION_TIMER
            self._complete(key[1], turn)

    # What is written

    def write(self, transactional_id: str, transaction: Transaction, sequel: Sequel, turn: Turn) -> None:
        version = self.config.log_value_version
        key = TransactionLogKey(transactional_id=transactional_id)
        turn.write([CoordinatorRecord(key, transaction.value(version), version)], sequel)

    def fence(self, transactional_id: str, entry: Entry, sequel: Sequel, turn: Turn, producer_id: int = NO_PRODUCER_ID) -> bool:
        """Aborts an open transaction in an epoch that its producer does not know. False when that takes a new producer id, which
        was not given."""
        transaction, version = entry.transaction, self.config.version
        is_used_up = version >= EPOCH_BUMPED_SINCE and transaction.is_exhausted
        if is_used_up and producer_id == NO_PRODUCER_ID:
            return False
        prepared = transaction.prepared(
            is_commit=False,
            epoch=bumped(transaction.epoch),
            version=version if version >= EPOCH_BUMPED_SINCE else 0,
            now_ms=turn.now.wall_ms,
            next_producer_id=producer_id if is_used_up else NO_PRODUCER_ID,
        )
        self.write(transactional_id, prepared, sequel, turn)
        return True

    def _time_out(self, transactional_id: str, turn: Turn, producer_id: int = NO_PRODUCER_ID) -> None:
        """Aborts a transaction that is open for too long. What the wall clock says of it counts when it is first seen, and not
        when that clock is set later: back, all who read behind it would wait as long; forth, it would lose its time."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.transaction.state is not State.ONGOING or self.is_pending(entry):
            return
        transaction, now = entry.transaction, turn.now
        if entry.opened_ms is None:
            entry.opened_ms = now.monotonic_ms - max(now.wall_ms - transaction.start_ms, 0)
        open_ms = now.monotonic_ms - entry.opened_ms
        if open_ms > transaction.timeout_ms and not self.fence(transactional_id, entry, Nothing(), turn, producer_id):
            turn.effects.append(NeedProducerId(transactional_id))

    def _expired(self, wall_ms: int) -> list[str]:
        """The transactional ids that nobody has used for so long."""
        last_ms = wall_ms - self.config.transactional_id_expiration_ms
        return [
            transactional_id
            for transactional_id, entry in self.entries.items()
            if entry.transaction.state in AT_REST and entry.transaction.updated_ms <= last_ms and not self.is_pending(entry)
        ]

    # Markers

    def _begin_markers(self, transactional_id: str, transaction: Transaction, turn: Turn) -> None:
        markers = self.unmarked[transactional_id] = Markers(
            transactional_id,
            transaction.producer_id,
            transaction.epoch,
            transaction.is_commit,
            transaction.version,
            transaction.partitions,
        )
        if markers.partitions:
            turn.effects.append(markers)
        else:
            self._complete(transactional_id, turn)

    def _written(self, event: MarkersWritten, turn: Turn) -> None:
        sent, transactional_id = event.markers, event.markers.transactional_id
        left = self.unmarked.get(transactional_id)
        if left is None or (left.producer_id, left.epoch) != (sent.producer_id, sent.epoch):
            return
        self.unmarked[transactional_id] = left.without(event.partitions)
        self._complete(transactional_id, turn)

    def _complete(self, transactional_id: str, turn: Turn) -> None:
        """Writes that all partitions know, if they do."""
        left, entry = self.unmarked.get(transactional_id), self.entries.get(transactional_id)
        if left is not None and not left.partitions and entry is not None and entry.transaction.state in PREPARED:
            completed = entry.transaction.completed(turn.now.wall_ms)
            self.write(transactional_id, completed, Completion(transactional_id), turn)


class Completion:
    """Nobody waits for it; but it has to be written, or the next transaction never begins."""

    __slots__ = ("transactional_id",)

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id

    def committed(self, turn: Turn) -> None: ...

    def failed(self, error: ErrorCode, turn: Turn) -> None:
        if error is not ErrorCode.NOT_COORDINATOR:
            turn.set_timer((COMPLETION_TIMER, self.transactional_id), COMPLETION_RETRY_MS)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None, NO_VALUE_VERSION)

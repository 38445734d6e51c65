"""The batches of one partition, in the order in which their records were sent. Sans-IO.

With idempotence each batch has a sequence number, which the broker counts along: several may be under way, and one that is sent
twice is written once. A batch that fails takes its number with it: those behind it are refused until the epoch changes, with
which numbers begin anew. That must not happen to a batch of which nobody knows whether it was written, or it would be written
twice: it is sent again as it was, until that is known.

Invariants
 1. Batches leave in their order. After one has failed none leaves until all that are under way have come back.
 2. A batch gets another number only when it is certain that it was not written.
 3. Without numbers, one batch is under way at a time; and with them, until the leader has written the first of an epoch: one that
    knows nothing of a producer takes any number for its first.
 4. What is under way is under way to one leader.
"""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final

from odradek.client.batches import Batch
from odradek.client.errors import KafkaError, TimedOut
from odradek.client.records import TopicPartition
from odradek.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, SEQUENCE_MASK
from odradek.wire.errors import ErrorCode

IN_FLIGHT_MAX: Final = 5  # batches of a partition whose numbers a broker remembers
NOBODY: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
OUT_OF_STEP: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
NOT_WRITTEN: Final = (  # after others a broker may have appended it: one that leads no more says so of what it appended, too
    OUT_OF_STEP
    | TOO_LARGE
    | {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class Fate(Enum):
    """Of a batch that was refused."""

    AGAIN = "as it was"
    IN_PARTS = "in two parts"
    RENUMBERED = "under another number"
    GIVEN_UP = "not again"


class Lane:
    def __init__(self, place: TopicPartition, *, is_idempotent: bool) -> None:
        self.place = place
        self.is_idempotent = is_idempotent
        self.queue: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.open: Batch | None = None  # the last of the queue, as long as it takes more records
        self.owner = NOBODY  # producer id and epoch whose numbers are counted here
        self.next_sequence = 0
        self.leader = -1  # to which the last batch went
        self.is_known = False  # a batch of this epoch has been written
        self.is_recovering = False  # a batch has come back, and is to go again before others do
        self.has_lost_number = False
        self.not_before_s = 0.0  # nothing leaves before this
        self.last_error: KafkaError | None = None

    @property
    def is_idle(self) -> bool:
        return not self.queue and not self.in_flight

    def may_send(self) -> bool:
        """Whether the first batch of the queue may leave, if it is its time."""
        if not self.queue or (self.is_recovering and self.in_flight):
            return False
        if not self.is_idempotent:
            return not self.in_flight
        if self.has_lost_number:
            return not self.in_flight  # what is uncertain goes first, as it was; then numbers begin anew
        return len(self.in_flight) < (IN_FLIGHT_MAX if self.is_known else 1)

    @property
    def has_uncertain(self) -> bool:
        return any(batch.is_uncertain for batch in self.queue)

    @property
    def needs_epoch(self) -> bool:
        """Whether numbers have to begin anew before the next batch leaves."""
        return self.has_lost_number and not self.in_flight and not self.has_uncertain

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """Numbers begin anew: of what is not written, and of all that follows."""
        assert not self.in_flight
        self.owner, self.next_sequence = (producer_id, epoch), 0
        self.has_lost_number = self.is_known = False
        for batch in self.queue:
            batch.identity = (*NOBODY, NO_SEQUENCE)

    def leads(self, leader: int) -> bool:
        """Whether a batch may go to this leader: not while others are under way to another, who may know more of the producer."""
        return leader == self.leader or not self.in_flight

    def take(self, leader: int = -1) -> Batch:
        """The first batch, with its number; it is under way to a leader now."""
        assert self.may_send()
        assert self.leads(leader)
        assert not self.needs_epoch
        self.leader = leader
        batch = self._next()
        self.queue.remove(batch)
        if batch is self.open:
            self.open = None
        batch.attempts += 1
        if self.is_idempotent and batch.identity[2] == NO_SEQUENCE:
            batch.identity = (*self.owner, self.next_sequence)
            self.next_sequence = (self.next_sequence + len(batch)) & SEQUENCE_MASK
        self.in_flight.append(batch)
        if not self.in_flight[:-1]:
            self.is_recovering = False
        return batch

    def _next(self) -> Batch:
        """The first; where a number was lost, the first of which nobody knows whether it was written."""
        if self.has_lost_number:
            return next((batch for batch in self.queue if batch.is_uncertain), self.queue[0])
        return self.queue[0]

    # -- what became of it

    def succeed(self, batch: Batch, base_offset: int, timestamp_ms: int) -> None:
        self.in_flight.remove(batch)
        self.last_error = None
        self.is_known = True
        batch.succeed(base_offset, timestamp_ms)

    def retry(self, batch: Batch, error: KafkaError, *, is_uncertain: bool, not_before_s: float) -> None:
        """It goes again, before those behind it."""
        self._back(batch)
        batch.is_uncertain = batch.is_uncertain or is_uncertain
        self.last_error = error
        self.not_before_s = max(self.not_before_s, not_before_s)

    def refused(self, batch: Batch, code: ErrorCode, *, may_renumber: bool) -> Fate:
        """How it is to go on, after this answer."""
        batch.is_uncertain = batch.is_uncertain or code not in NOT_WRITTEN
        if code in TOO_LARGE and len(batch) > 1:
            return Fate.IN_PARTS
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.is_first(batch):
            return Fate.AGAIN  # one before it has to go first
        if code in OUT_OF_STEP and may_renumber and not batch.is_uncertain:
            return Fate.RENUMBERED  # what was before it never comes
        return Fate.AGAIN if code.retriable else Fate.GIVEN_UP

    def renumber(self, batch: Batch, error: KafkaError) -> None:
        """It was not written, and never will be with its number."""
        assert not batch.is_uncertain
        self._back(batch)
        self.has_lost_number = True
        self.last_error = error

    def split(self, batch: Batch) -> None:
        """It was too large, and goes again in two: their numbers are those that it had, so that a leader who has it as a whole
        takes neither."""
        self._back(batch)
        first, second = batch.split()
        producer_id, epoch, sequence = batch.identity
        if sequence != NO_SEQUENCE:
            first.identity = (producer_id, epoch, sequence)
            second.identity = (producer_id, epoch, (sequence + len(first)) & SEQUENCE_MASK)
        first.attempts = second.attempts = batch.attempts
        first.is_uncertain = second.is_uncertain = batch.is_uncertain
        place = self.queue.index(batch)
        self.queue.remove(batch)
        self.queue.insert(place, second)
        self.queue.insert(place, first)

    def is_first(self, batch: Batch) -> bool:
        """Of those under way: whether all before it are written, or were given up, or will not be sent with their numbers."""
        if self.has_lost_number:
            return True
        is_next = not self.queue or is_before(batch, self.queue[0])
        return self.in_flight[0] is batch and is_next

    def _back(self, batch: Batch) -> None:
        self.in_flight.remove(batch)
        self.is_recovering = True
        place = next((place for place, other in enumerate(self.queue) if is_before(batch, other)), None)
        if place is None:
            self.queue.append(batch)
        else:
            self.queue.insert(place, batch)

    def fail(self, batch: Batch, error: KafkaError) -> None:
        """It was given up, in flight or not."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.queue.remove(batch)
            if batch is self.open:
                self.open = None
        if batch.identity[2] != NO_SEQUENCE:
            self.has_lost_number = True
            self.is_recovering = True
        batch.fail(error)

    def expired(self, now_s: float, timeout_s: float) -> Iterator[tuple[Batch, KafkaError]]:
        """What has waited for too long, and why."""
        for batch in [*self.queue]:
            if now_s - batch.begun_s >= timeout_s:
                because = f": {self.last_error}" if self.last_error is not None else ""
                message = f"{self.place}: {len(batch)} records were not delivered within {timeout_s * 1000:.0f} ms{because}"
                error = TimedOut(message, topic=self.place.topic, partition=self.place.partition)
                error.__cause__ = self.last_error
                yield batch, error


def is_before(batch: Batch, other: Batch) -> bool:
    """Whether one that was under way comes before one that waits: by their numbers; what has none is behind all that left."""
    if other.identity[2] == NO_SEQUENCE:
        return True
    return (other.identity[2] - batch.identity[2]) & SEQUENCE_MASK < SEQUENCE_MASK // 2

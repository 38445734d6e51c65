"""What a producer has to say to one partition: batches in order, their sequences, and what became of every attempt.

Invariants
 1. Batches of an idempotent producer are first sent in the order of their sequences, at most `in_flight_max` at once; one that
    has to be sent again waits until it is the first that is not acknowledged.
 2. A batch of which an attempt may have been appended is never sent under another sequence: it ends as unknown instead. What
    was refused in every attempt may, after the epoch was bumped.
 3. Every record ends once: acknowledged, refused for sure, or unknown. A batch ends at its deadline at the latest, and the
    answer to an attempt that was made before it.
"""

from collections import deque
from typing import Final

import msgspec

from odradek.wire.batch import sequence_after
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from tests.checker.history import UNKNOWN_OFFSET, Outcome, SendEnded
from tests.sim.clients.program import Place, Program

BACK_OFF_SECONDS: Final = 0.1  # after one failure
BACK_OFF_SECONDS_MAX: Final = 1.0
DOUBLINGS_MAX: Final = 20
CLEAN: Final = frozenset(  # answers after which the attempt is not in the log, and never will be
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


class Batch(msgspec.Struct):
    ids: list[int]  # of its sends
    entries: list[tuple[bytes | None, bytes | None]]
    deadline_s: float
    timestamp_ms: int
    epoch: int = -1
    sequence: int = -1
    attempts: int = 0
    is_under_way: bool = False
    is_unclear: bool = False  # an attempt may be in the log
    error: str = ""
    topic_ids: list[str] = []  # of its attempts, where they have any


class Lane:
    def __init__(self, program: Program, place: Place, in_flight_max: int, is_idempotent: bool) -> None:
        self.program = program
        self.place = place
        self.in_flight_max = in_flight_max
        self.is_idempotent = is_idempotent
        self.batches: deque[Batch] = deque()  # that have not ended
        self.leader = -1  # to which the last batch was sent
        self.topic_id = NIL_UUID  # and as what
        self.is_known = not is_idempotent  # the first batch is there: a leader that has none takes any sequence, as Kafka's do
        self.epoch = -1
        self.next_sequence = 0
        self.must_bump = False  # before anything new is sent
        self.is_bumped = False  # the producer has not heard of it yet
        self.retry_s = 0.0
        self.failed = 0  # attempts, since one came through
        self.log_end = 0  # past the last record that is known to be acknowledged
        self.outcomes: dict[Outcome, int] = {"acknowledged": 0, "refused": 0, "unknown": 0}

    # -- what to send

    def next(self) -> Batch | None:
        """What may be sent now, if anything."""
        self._expire()
        if self.must_bump and not self._is_resolved():
            return None if self.program.loop.time() < self.retry_s else self._first_unclear()
        if self.must_bump:
            self._begin_again()
        for under_way, batch in enumerate(self.batches):
            if not batch.is_under_way:
                is_first = batch is self.batches[0]
                is_early = self.program.loop.time() < self.retry_s
                in_flight_max = self.in_flight_max if self.is_known else 1
                if (batch.sequence >= 0 and not is_first) or is_early or under_way >= in_flight_max:
                    return None
                return batch
        return None

    def send_to(self, leader: int, topic_id: bytes) -> bool:
        """Whether batches may go there now: what is under way to another is waited for, which may not know the producer at all.
        Nor does a topic that was made anew."""
        if (self.leader, self.topic_id) == (leader, topic_id):
            return True
        if any(each.is_under_way for each in self.batches):
            return False
        if self.topic_id != topic_id:
            self.is_known = not self.is_idempotent
        self.leader, self.topic_id = leader, topic_id
        return True

    def number(self, batch: Batch, producer_epoch: int) -> None:
        """Gives a batch its sequence. An epoch that another lane has bumped counts here when nothing of the old is left."""
        if batch.sequence >= 0:
            return
        if self.is_bumped or (self.epoch != producer_epoch and not any(each.sequence >= 0 for each in self.batches)):
            self.epoch, self.next_sequence, self.is_bumped = producer_epoch, 0, False
        batch.epoch, batch.sequence = self.epoch, self.next_sequence
        self.next_sequence = sequence_after(self.next_sequence, len(batch.entries))

    @property
    def wake_s(self) -> float | None:
        """When there may be something to do although nothing was heard; None when there is nothing."""
        times = [batch.deadline_s for batch in self.batches if not batch.is_under_way]
        is_early = self.program.loop.time() < self.retry_s
        return min([*times, self.retry_s] if is_early else times, default=None)

    def _first_unclear(self) -> Batch | None:
        if any(batch.is_under_way for batch in self.batches):
            return None
        return next((batch for batch in self.batches if batch.is_unclear), None)

    def _is_resolved(self) -> bool:
        """Nothing that was sent under the old epoch can be in the log without having ended."""
        return not any(batch.is_under_way or batch.is_unclear for batch in self.batches)

    def _begin_again(self) -> None:
        for batch in self.batches:
            batch.sequence = batch.epoch = -1
        self.must_bump, self.is_bumped = False, True

    def _expire(self) -> None:
        now_s = self.program.loop.time()
        for batch in [each for each in self.batches if each.deadline_s <= now_s and not each.is_under_way]:
            self.end(batch, "unknown" if batch.is_unclear else "refused", batch.error or "delivery timed out")

    # -- what became of it

    def lost(self, batch: Batch, reason: str) -> None:
        batch.is_unclear = True
        self._again(batch, reason)

    def refused(self, batch: Batch, code: ErrorCode) -> None:
        """An answer that is no acknowledgement."""
        batch.is_unclear = batch.is_unclear or code not in CLEAN
        is_gap = self.is_idempotent and code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if is_gap and (self.must_bump or batch is self.batches[0]):
            self.must_bump = True  # what came before it is not there and will not be sent again
            if batch.is_unclear:
                self.end(batch, "unknown", code.name)
            else:
                self._again(batch, code.name)
        elif is_gap or code.retriable:
            self._again(batch, code.name)
        else:
            self.end(batch, "unknown" if batch.is_unclear else "refused", code.name)

    def _again(self, batch: Batch, error: str) -> None:
        batch.is_under_way, batch.error = False, error
        self.back_off()

    def back_off(self) -> None:
        """Sends nothing for a while, and for a longer one after every failure until something comes through."""
        self.failed += 1
        back_off_s = min(BACK_OFF_SECONDS * 2 ** min(self.failed - 1, DOUBLINGS_MAX), BACK_OFF_SECONDS_MAX)
        self.retry_s = self.program.loop.time() + back_off_s * self.program.chance.uniform(0.5, 1.5)

    def end(self, batch: Batch, outcome: Outcome, error: str = "", base_offset: int = UNKNOWN_OFFSET) -> None:
        self.batches.remove(batch)
        if outcome != "acknowledged" and batch.sequence >= 0:
            self.must_bump = True
        if outcome == "acknowledged":
            self.is_known = True
            self.failed = 0
        if base_offset >= 0:
            self.log_end = max(self.log_end, base_offset + len(batch.ids))
        self.outcomes[outcome] += len(batch.ids)
        for number, send in enumerate(batch.ids):
            offset = base_offset + number if base_offset >= 0 else UNKNOWN_OFFSET
            program = self.program
            ended = SendEnded(program.at_ms, program.name, send, outcome, offset, batch.attempts, error, batch.topic_ids)
            program.tell(ended)

"""A coordinator of anything: a replay of one partition of its topic, and the requests that wait for its records. Sans-IO.

    for each record of the log: coordinator.replay(...); for each marker: coordinator.replay_end_of_transaction(...)
    effects = coordinator.loaded(now)
    effects = coordinator.step(event, now)            # again and again; events.py says what to do with the effects
    effects = coordinator.unloaded(now)               # leadership is lost, or the log is cut: throw it away after this

A request becomes records and an answer. The records are appended and replayed (`appended`), and the answer leaves when the high
watermark has passed them.

Invariants
 1. Replaying all that was written gives the durable part of the live state.
 2. `writes` is in the order of the log.
 3. Every request is answered once, at the latest by `unloaded`.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final

from odradek.core.coordinator.events import (
    Committed,
    Effect,
    Nothing,
    Now,
    Request,
    Sequel,
    TimerFired,
    TimerKey,
    Turn,
    Write,
    WriteFailed,
)
from odradek.wire.batch import NO_PRODUCER_ID
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import Message

COMMIT_TIMER: Final[TimerKey] = ("commit",)
RECORDS_PER_WRITE_MAX: Final = 1_000  # so that a write stays below max.message.bytes


class Waiting:
    """A write, or a read behind one, that is not committed."""

    __slots__ = ("deadline_ms", "last_offset", "sequel")

    def __init__(self, last_offset: int, deadline_ms: int, sequel: Sequel) -> None:
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.sequel = sequel


class Coordinator(ABC):
    __slots__ = ("has_commit_timer", "high_watermark", "log_end", "writes")

    def __init__(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log_end = 0
        self.writes: deque[Waiting] = deque()
        self.has_commit_timer = False

    # What one kind of coordinator is

    @property
    @abstractmethod
    def commit_timeout_ms(self) -> int:
        """How long a write may take."""

    @abstractmethod
    def loaded(self, now: Now) -> list[Effect]:
        """All of the log is replayed: from now on requests are served, and time counts."""

    @abstractmethod
    def unloaded(self, now: Now) -> list[Effect]:
        """Somebody else is the coordinator: all who wait are told so."""

    @abstractmethod
    def _replay(self, offset: int, key: Message, value: Message | None, producer_id: int) -> None: ...

    @abstractmethod
    def _replay_end(self, offset: int, producer_id: int, is_commit: bool) -> None: ...

    @abstractmethod
    def _serve(self, request: Request, turn: Turn) -> None: ...

    @abstractmethod
    def _fire(self, key: TimerKey, turn: Turn) -> None: ...

    @abstractmethod
    def _happen(self, event: Any, turn: Turn) -> None:
        """What happens to this kind of coordinator alone."""

    @abstractmethod
    def _commit(self, turn: Turn) -> None:
        """The high watermark has moved; who waits for it is told afterwards."""

    # What the log says

    def replay(self, offset: int, key: Message, value: Message | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """One record. `producer_id` is that of a transactional batch."""
        self.log_end = offset + 1
        self._replay(offset, key, value, producer_id)

    def replay_end_of_transaction(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """The marker that commits or aborts what the producer wrote here."""
        self.log_end = offset + 1
        self._replay_end(offset, producer_id, is_commit)

    def appended(self, write: Write, base_offset: int) -> None:
        """The records of a write are in the log from this offset on."""
        for index, record in enumerate(write.records):
            self.replay(base_offset + index, record.key, record.value, write.author.producer_id)
        self.writes.append(Waiting(self.log_end - 1, write.deadline_ms, write.sequel))

    # Life

    def step(self, event: Any, now: Now) -> list[Effect]:
        turn = self._turn(now)
        match event:
            case Request():
                self._serve(event, turn)
            case Committed():
                self._advance(event.high_watermark, turn)
            case TimerFired() if event.key == COMMIT_TIMER:
                self._give_up_commits(turn)
            case TimerFired():
                self._fire(event.key, turn)
            case WriteFailed():
                event.write.sequel.failed(event.error, turn)
            case _:
                self._happen(event, turn)
        for sequel in turn.settling:
            self._settle(sequel, turn)
        if not self.has_commit_timer and any(isinstance(effect, Write) for effect in turn.effects):
            self._start_commit_timer(turn)
        return turn.effects

    def _turn(self, now: Now) -> Turn:
        return Turn(now, self.commit_timeout_ms)

    def _settle(self, sequel: Sequel, turn: Turn) -> None:
        if self.log_end <= self.high_watermark:
            sequel.committed(turn)
            return
        deadline_ms = turn.now.monotonic_ms + turn.commit_timeout_ms
        self.writes.append(Waiting(self.log_end - 1, deadline_ms, sequel))
        self._start_commit_timer(turn)

    def _advance(self, high_watermark: int, turn: Turn) -> None:
        self.high_watermark = max(self.high_watermark, high_watermark)
        self._commit(turn)
        while self.writes and self.writes[0].last_offset < self.high_watermark:
            self.writes.popleft().sequel.committed(turn)

    def _start_commit_timer(self, turn: Turn) -> None:
        """One timer for all writes: they come with ascending deadlines, and are mostly gone when it fires."""
        if not self.has_commit_timer:
            self.has_commit_timer = True
            turn.set_timer(COMMIT_TIMER, turn.commit_timeout_ms)

    def _give_up_commits(self, turn: Turn) -> None:
        """Who waits too long for a commit is told so; the records stay, and may be committed yet."""
        self.has_commit_timer = False
        now_ms = turn.now.monotonic_ms
        while self.writes and self.writes[0].deadline_ms <= now_ms:
            self.writes.popleft().sequel.failed(ErrorCode.REQUEST_TIMED_OUT, turn)
        if self.writes:
            self.has_commit_timer = True
            turn.set_timer(COMMIT_TIMER, self.writes[0].deadline_ms - now_ms)

    def _write_all(self, records: list[CoordinatorRecord], turn: Turn) -> None:
        """Records for which nobody waits, in several writes where they are many."""
        for start in range(0, len(records), RECORDS_PER_WRITE_MAX):
            turn.write(records[start : start + RECORDS_PER_WRITE_MAX], Nothing())

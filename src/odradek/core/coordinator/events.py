"""What goes into a coordinator and what comes out of it, whatever it coordinates.

The host does what the effects say, in their order, and steps again only when it has done all of them. `Write` is appended to the
coordinator's partition: when that works, `coordinator.appended(write, base_offset)`, and when the partition refuses it,
`step(WriteFailed(...))`. `SetTimer` replaces the timer of the same key, unless it says `is_first`; a timer that was replaced or
cancelled does not fire.

Invariants
 1. Every `Request` is answered by exactly one `Reply` with its ticket.
 2. A `Reply` that rests on a `Write` comes after the high watermark has passed its records.
"""

from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct, field

from odradek.wire.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import Message

Ticket: TypeAlias = object  # the host's, never looked into
TimerKey: TypeAlias = tuple[str, ...]  # the kind of timer, then whom it concerns


class Now(Struct, frozen=True):
    """Both clocks: timers run on the one, timestamps and retention on the other."""

    monotonic_ms: int
    wall_ms: int


class Request(Struct, eq=False):
    """A request of a client, for this coordinator."""

    ticket: Ticket
    message: Message
    version: int
    client_id: str
    client_host: str  # as Kafka writes it: "/127.0.0.1"
    verification: object = None  # the host's: of the transaction that it belongs to


class TimerFired(Struct):
    key: TimerKey


class Committed(Struct):
    """The high watermark of the partition: every record before this offset is committed."""

    high_watermark: int


class WriteFailed(Struct):
    """The partition refused to append; nothing of it was replayed."""

    write: "Write"
    error: ErrorCode


class Reply(Struct, eq=False):
    ticket: Ticket
    response: Message


class Author(Struct, frozen=True):
    """Whose transaction records are written in."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    verification: object = None


NOBODY: Final = Author()


class Write(Struct, eq=False):
    """Records that must be appended together, and what follows when they are committed, or are not."""

    records: list[CoordinatorRecord]
    sequel: "Sequel"
    deadline_ms: int  # when the coordinator waits no longer for the commit
    author: Author = NOBODY


class SetTimer(Struct):
    key: TimerKey
    deadline_ms: int  # on the monotonic clock
    is_first: bool = False  # one of the same key that runs already goes on instead


class CancelTimer(Struct):
    key: TimerKey


Effect: TypeAlias = Any  # Reply, Write, SetTimer, CancelTimer, and those of one kind of coordinator alone


class Turn(Struct, eq=False):
    """One step of the coordinator: its time, and the effects as they come up."""

    now: Now
    commit_timeout_ms: int
    effects: list[Effect] = field(default_factory=list)
    settling: list["Sequel"] = field(default_factory=list)

    def reply(self, ticket: Ticket, response: Message) -> None:
        self.effects.append(Reply(ticket, response))

    def write(self, records: list[CoordinatorRecord], sequel: "Sequel", author: Author = NOBODY) -> None:
        assert records
        self.effects.append(Write(records, sequel, self.now.monotonic_ms + self.commit_timeout_ms, author))

    def settle(self, sequel: "Sequel") -> None:
        """What follows when all that was appended before is committed: at once, as a rule."""
        self.settling.append(sequel)

    def set_timer(self, key: TimerKey, after_ms: int, *, is_first: bool = False) -> None:
        self.effects.append(SetTimer(key, self.now.monotonic_ms + after_ms, is_first))

    def cancel_timer(self, key: TimerKey) -> None:
        self.effects.append(CancelTimer(key))


class Sequel(Protocol):
    """What follows a write. One of both is called, once."""

    def committed(self, turn: Turn) -> None: ...

    def failed(self, error: ErrorCode, turn: Turn) -> None: ...


class Nothing:
    """Nobody waits. What could not be written, an expiry say, comes up again."""

    __slots__ = ()

    def committed(self, turn: Turn) -> None: ...

    def failed(self, error: ErrorCode, turn: Turn) -> None: ...

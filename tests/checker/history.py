"""What clients did and what they were told: the events of a history, of a simulated run or of a real one.

One event is one JSON line, one file is one history. What a client does is two events, the question and its answer, so that it is
known what overlapped; a question without an answer ended nobody knows how, and is `unknown`.

Invariants
 1. The order of the list is the order in which things happened; `at_ms` (virtual or monotonic) is for people.
 2. Ids are unique in a history, and a client does one thing of a kind at a time, except sends.
 3. A value is sent once under a key, as far as the one who sends means it: whatever is there twice was made so on the way.
 4. Topics are told by name, and where a client spoke of one by its id, with that. Where the name of a topic is used again, ids
    tell its incarnations apart, and otherwise what was asked for when (incarnations.py).
"""

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Final, Literal

import msgspec

UNKNOWN_OFFSET: Final = -1  # also: none is committed
UNKNOWN_ATTEMPTS: Final = 0  # a client that does not say how often it tried

Outcome = Literal["acknowledged", "refused", "unknown"]  # refused: for sure, in every attempt; it never will be there
Isolation = Literal["read_uncommitted", "read_committed"]
Ids = dict[str, str]  # by name: of topics that were spoken of by their ids


class Record(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None


class Position(msgspec.Struct, array_like=True, frozen=True):
    """An offset of a partition: what comes next, or what is committed."""

    topic: str
    partition: int
    offset: int = UNKNOWN_OFFSET


class Source(msgspec.Struct, array_like=True, frozen=True):
    """The record of which a group has made another one."""

    group: str
    topic: str
    partition: int
    offset: int


class Event(msgspec.Struct, tag=True, omit_defaults=True):
    at_ms: float
    client: str


# -- sends


class SendBegun(Event):
    """`producer` is who counts the sequences: a new one after every InitProducerId that does not carry the old one on."""

    id: int
    topic: str
    partition: int
    key: str | None
    value: str | None
    producer: str
    acks: Literal[-1, 0, 1] = -1
    is_idempotent: bool = False
    transaction: int | None = None  # the id of its TransactionBegun
    source: Source | None = None


class SendEnded(Event):
    """Without acks there is no outcome but `unknown`."""

    id: int
    outcome: Outcome
    offset: int = UNKNOWN_OFFSET
    attempts: int = 1
    error: str = ""
    ids: list[str] = []  # of the topics that its attempts spoke of, the last one last; none: one of them had a name only


# -- transactions


class TransactionBegun(Event):
    id: int
    transactional_id: str
    producer: str


class TransactionEnding(Event):
    """The client asks for the end; one that was never asked for can only have been aborted."""

    id: int
    is_commit: bool


class TransactionEnded(Event):
    id: int
    outcome: Literal["committed", "aborted", "unknown"]


# -- readers


class Assigned(Event):
    """`fresh` partitions begin at the offset that is given (or an unknown one), `kept` ones go on where they were.

    A member that asks itself what is committed tells that first, with CommittedAsked and CommittedSeen."""

    fresh: list[Position] = []
    kept: list[Position] = []
    group: str = ""  # none: by hand
    member: str = ""
    generation: int = -1  # or member epoch
    ids: Ids = {}


class Revoked(Event):
    """Given up by the client, or `is_lost`: they were taken away, and may be others' for long."""

    partitions: list[Position]
    group: str = ""
    member: str = ""
    is_lost: bool = False


class MemberEnded(Event):
    """The reader is no more, and with it its assignment."""

    group: str = ""
    member: str = ""
    is_crash: bool = False


class PollBegun(Event):
    pass


class Polled(Event):
    """`positions` of all partitions that moved: past the last record that was given, or further where there was none to give.

    Empty where the client does not say."""

    records: list[Record] = []
    positions: list[Position] = []
    isolation: Isolation = "read_uncommitted"
    transaction: int | None = None
    ids: Ids = {}


class Moved(Event):
    """The reader goes on at an offset that is not the next: it asked for that, or `auto.offset.reset` did."""

    topic: str
    partition: int
    offset: int = UNKNOWN_OFFSET
    why: Literal["seek", "out of range", "diverged"] = "seek"
    topic_id: str = ""


# -- committed offsets


class CommitBegun(Event):
    """Of a member (by whatever name), or of somebody who administers the group."""

    id: int
    group: str
    offsets: list[Position]
    member: str = ""
    generation: int = -1
    transaction: int | None = None
    ids: Ids = {}


class CommitEnded(Event):
    """What is in neither list is unknown. One that was tried again may still come a second time, after others."""

    id: int
    acknowledged: list[Position] = []
    refused: list[Position] = []
    attempts: int = 1
    error: str = ""


class CommittedAsked(Event):
    id: int
    group: str


class CommittedSeen(Event):
    """Only what was answered without an error; UNKNOWN_OFFSET is "nothing is committed"."""

    id: int
    group: str
    offsets: list[Position]
    ids: Ids = {}


# -- topics, and what may be gone


class TopicBegun(Event):
    id: int
    topic: str
    change: Literal["create", "delete"]
    partitions: int = 1
    topic_id: str = ""  # that is to be deleted


class TopicEnded(Event):
    id: int
    outcome: Outcome
    error: str = ""
    topic_id: str = ""  # that was made


class TopicsSeen(Event):
    """All topics that a node knows. `is_final`: it has caught up with the metadata after healing."""

    node: str
    topics: list[str]
    is_final: bool = False
    ids: Ids = {}


class DeletionBegun(Event):
    """DeleteRecords: whatever is below the offset may be gone from now on."""

    id: int
    topic: str
    partition: int
    offset: int


class DeletionEnded(Event):
    id: int
    outcome: Outcome
    log_start: int = UNKNOWN_OFFSET


class RemovalAllowed(Event):
    """The topic's cleanup.policy: `delete` takes away a prefix of a log, `compact` all but the last of a key."""

    topic: str
    policy: Literal["delete", "compact"]


class LossAllowed(Event):
    """Something was done after which even what was acknowledged may be gone: power lost everywhere at once, an unclean election.

    Logs may end earlier from here on, and offsets be given anew. What was answered before and is on its way must not arrive after
    it: where it can, a second one follows."""

    why: str
    topics: list[str] = []  # none: all, and committed offsets too


# -- the end


class FinalRead(Event):
    """All of a partition, after healing, from its start to its end (the high watermark, or the last stable offset).

    Who may read while others still write tells PollBegun before it asks, for the last time, where the end is."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    records: list[Record]
    isolation: Isolation = "read_uncommitted"
    topic_id: str = ""


class Note(Event):
    """For people: a fault begins, a fault ends."""

    text: str


AnyEvent = (
    SendBegun
    | SendEnded
    | TransactionBegun
    | TransactionEnding
    | TransactionEnded
    | Assigned
    | Revoked
    | MemberEnded
    | PollBegun
    | Polled
    | Moved
    | CommitBegun
    | CommitEnded
    | CommittedAsked
    | CommittedSeen
    | TopicBegun
    | TopicEnded
    | TopicsSeen
    | DeletionBegun
    | DeletionEnded
    | RemovalAllowed
    | LossAllowed
    | FinalRead
    | Note
)


def text(data: bytes | None) -> str | None:
    """Keys and values of a history are text; what is none shows its bytes."""
    return None if data is None else data.decode(errors="backslashreplace")


class History:
    """`add` events as they happen. Threads may share one: each step is atomic."""

    def __init__(self, events: Iterable[AnyEvent] = ()) -> None:
        self.events: list[AnyEvent] = list(events)
        self._ids = count(1)

    def next_id(self) -> int:
        return next(self._ids)

    def add(self, event: AnyEvent) -> None:
        self.events.append(event)

    def to_bytes(self) -> bytes:
        return msgspec.json.Encoder().encode_lines(self.events)

    def write(self, path: Path) -> None:
        path.write_bytes(self.to_bytes())

    @classmethod
    def decode(cls, data: bytes) -> "History":
        return cls(msgspec.json.Decoder(AnyEvent).decode_lines(data))

    @classmethod
    def read(cls, path: Path) -> "History":
        return cls.decode(path.read_bytes())

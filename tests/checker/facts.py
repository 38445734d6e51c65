"""What is known of a send, of a transaction, of the record at an offset. A point in time is the index of an event."""

from typing import Final

import msgspec

from tests.checker.history import UNKNOWN_OFFSET, Outcome, SendBegun

NEVER: Final = 1 << 62  # the time of what has not happened

Partition = tuple[str, int]
Log = tuple[str, int, int]  # topic, partition, and how many losses were allowed before


class Send(msgspec.Struct):
    event: SendBegun
    begun: int
    ended: int = NEVER
    outcome: Outcome = "unknown"
    offset: int = UNKNOWN_OFFSET
    attempts: int = 0

    def __str__(self) -> str:
        return f"{self.event.value!r} (producer {self.event.producer}, acks {self.event.acks})"


class Transaction(msgspec.Struct):
    """`ended` when its client knew how."""

    id: int
    begun: int
    ending: int = NEVER
    ended: int = NEVER
    state: str = "aborted"  # until somebody asks for a commit
    sends: list[Send] = []


class Place(msgspec.Struct):
    """The record at an offset, and who first said so."""

    key: str | None
    value: str | None
    at: int
    is_read: bool
    acknowledged: Send | None = None


class Conflict(msgspec.Struct):
    partition: Partition
    offset: int
    first: Place
    value: str | None
    at: int


def name_of(topic: str) -> str:
    """Without its incarnation."""
    return topic.partition("@")[0]


def is_made_anew(topic: str) -> bool:
    """Or will be: there are others of its name."""
    return "@" in topic

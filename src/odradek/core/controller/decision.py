"""What the controller decided: records for the metadata log, and the answer that is given once they are committed.

Deciding changes nothing. Whoever asked appends the records, has both images replay them, and answers after the commit.

Invariants
 1. The records of an atomic decision stand in one batch: all of them are committed, or none. One that is not may be as large as a
    broker has partitions: each of its records is right without those after it, and it is written in batches.
 2. A decision without records is answered when everything that was decided before it is committed.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from odradek.wire.message import Message

RECORDS_MAX: Final = 10_000  # of one request, and of one batch, as in Kafka

Versioned: TypeAlias = tuple[Message, int]  # a record and the version that it is written in

Answer_co = TypeVar("Answer_co", covariant=True)


class Decision(Generic[Answer_co]):
    __slots__ = ("is_atomic", "kraft_version", "records", "response")

    def __init__(
        self, records: Sequence[Versioned], response: Answer_co, *, is_atomic: bool = True, kraft_version: int | None = None
    ) -> None:
        """`kraft_version` is one to which the quorum rises before the records are appended."""
        self.records = list(records)
        self.response: Answer_co = response
        self.is_atomic = is_atomic
        self.kraft_version = kraft_version

    def batches(self) -> list[list[Versioned]]:
        """The records as they are appended, one batch after another."""
        size = max(len(self.records), 1) if self.is_atomic else RECORDS_MAX
        return [self.records[first : first + size] for first in range(0, len(self.records), size)]

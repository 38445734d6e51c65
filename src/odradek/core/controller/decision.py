"""What the controller decided: records for the metadata log, and the answer that is given once they are committed.

Deciding changes nothing. Whoever asked appends the records, has both images replay them, and answers after the commit.

Invariants
 1. The records of a decision stand in one batch: all of them are committed, or none.
 2. A decision without records is answered when everything that was decided before it is committed.
"""

from collections.abc import Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from odradek.wire.message import Message

RECORDS_MAX: Final = 10_000  # of one request, as in Kafka

Versioned: TypeAlias = tuple[Message, int]  # a record and the version that it is written in

Answer_co = TypeVar("Answer_co", covariant=True)


class Decision(Generic[Answer_co]):
    __slots__ = ("records", "response")

    def __init__(self, records: Sequence[Versioned], response: Answer_co) -> None:
        self.records = list(records)
        self.response: Answer_co = response

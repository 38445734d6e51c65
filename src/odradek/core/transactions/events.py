"""What goes into a coordinator of transactions, and what comes out of it, beside requests, time and commits
(core/coordinator/events.py)."""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from odradek.core.coordinator.events import Request
from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.transaction import TopicIndex
from odradek.wire.errors import ErrorCode


class NeedProducerId(Struct, eq=False):
    """Somebody has to get a new producer id; then `ProducerIdGiven`, for the same."""

    cause: "Request | str"  # a request, or the transactional id whose transaction has timed out


class ProducerIdGiven(Struct, eq=False):
    cause: "Request | str"
    given: int | ErrorCode


class Markers(Struct, frozen=True):
    """How a transaction ends, for each of its partitions: to be written there, again and again until it is, and
    `MarkersWritten` says so."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_commit: bool
    version: int
    partitions: frozenset[TopicIndex]

    def without(self, partitions: frozenset[TopicIndex]) -> "Markers":
        return replace(self, partitions=self.partitions - partitions)


class MarkersWritten(Struct):
    """Partitions that have their marker, or are no more."""

    markers: Markers
    partitions: frozenset[TopicIndex]


class ConfigChanged(Struct):
    config: TransactionConfig


TransactionEvent: TypeAlias = ProducerIdGiven | MarkersWritten | ConfigChanged

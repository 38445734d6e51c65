"""Batches with which producers were to begin in a partition, and that were refused: nothing behind them is taken for the first.

A log that knows nothing of a producer takes any sequence for its first, as Kafka's do: what it knew may have expired. So when the
first of several batches that are under way is refused, because the node does not lead the partition yet, say, the second would be
taken, and the first could never be written again. librdkafka takes that for a repetition, and tells its program that the records
are written. One of these is kept for each connection: what is under way together comes on one.

Invariants
 1. Of a producer that the log does not know, no batch is taken whose sequence is behind that of one that was refused here, and
    that the producer sends again.
 2. What is known is forgotten when the batch is taken, when the log knows the producer, with another epoch of it, and when what
    was under way with it must have come: a producer may go on elsewhere, and come back when the log has forgotten it.
"""

from typing import Final

from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ErrorCode, Refused

KNOWN_MAX: Final = 1_000  # partitions, of all producers of a connection
KNOWN_MS_MAX: Final = 300_000

Place = tuple[str, bytes, int]  # a topic, as the request names it, by name or id, and the index


class Beginnings:
    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: dict[tuple[Place, int], tuple[int, int, int]] = {}  # by partition and producer id: epoch, sequence, until when

    def refused(self, place: Place, header: BatchHeader, code: int, now_ms: int) -> None:
        """A batch was not taken, for this reason. The clock is one that nobody sets."""
        if header.producer_id < 0 or not ErrorCode(code).retriable:
            return
        key, epoch, sequence = (place, header.producer_id), header.producer_epoch, header.base_sequence
        known_epoch, known_sequence, _ = self.due.get(key, (epoch, sequence, 0))
        if epoch < known_epoch:
            return
        first = min(sequence, known_sequence) if epoch == known_epoch else sequence
        self.due[key] = (epoch, first, now_ms + KNOWN_MS_MAX)
        if len(self.due) > KNOWN_MAX:
            del self.due[next(iter(self.due))]

    def check(self, place: Place, header: BatchHeader, *, is_known: bool, now_ms: int) -> None:
        """Refuses a batch that is behind one that is due. With `is_known`, the log knows the producer, and counts itself."""
        key = (place, header.producer_id)
        due = self.due.get(key)
        if due is None:
            return
        epoch, sequence, until_ms = due
        if not is_known and now_ms < until_ms and header.producer_epoch == epoch and header.base_sequence > sequence:
            message = f"producer {header.producer_id} sends sequence {header.base_sequence}, where {sequence} is due first"
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        del self.due[key]

"""Batches with which producers were to begin in a partition, and that were refused: nothing behind them is taken for the first.

A log that knows nothing of a producer takes any sequence for its first, as Kafka's do: what it knew may have expired. So when the
first of several batches that are under way is refused, because the node does not lead the partition yet, say, the second would be
taken, and the first could never be written again. librdkafka takes that for a repetition, and tells its program that the records
are written. One of these is kept for each connection: what is under way together comes on one.

Invariants
 1. Of a producer that the log does not know, no batch is taken whose sequence is behind that of one that was refused here, and
    that the producer sends again.
 2. What is known is forgotten when the batch is taken, when the log knows the producer, and with another epoch of it.
"""

from typing import Final

from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ErrorCode, Refused

KNOWN_MAX: Final = 1_000  # partitions, of all producers of a connection

Place = tuple[str, bytes, int]  # a topic, as the request names it, by name or id, and the index


class Beginnings:
    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due: dict[tuple[Place, int], tuple[int, int]] = {}  # by partition and producer id: its epoch, and the sequence

    def refused(self, place: Place, header: BatchHeader, code: int) -> None:
        """A batch was not taken, for this reason."""
        if header.producer_id < 0 or not ErrorCode(code).retriable:
            return
        key, epoch, sequence = (place, header.producer_id), header.producer_epoch, header.base_sequence
        known_epoch, known_sequence = self.due.get(key, (epoch, sequence))
        if epoch < known_epoch:
            return
        self.due[key] = (epoch, min(sequence, known_sequence) if epoch == known_epoch else sequence)
        if len(self.due) > KNOWN_MAX:
            del self.due[next(iter(self.due))]

    def check(self, place: Place, header: BatchHeader, *, is_known: bool) -> None:
        """Refuses a batch that is behind one that is due. With `is_known`, the log knows the producer, and counts itself."""
        key = (place, header.producer_id)
        due = self.due.get(key)
        if due is None:
            return
        epoch, sequence = due
        if not is_known and header.producer_epoch == epoch and header.base_sequence > sequence:
            message = f"producer {header.producer_id} sends sequence {header.base_sequence}, where {sequence} is due first"
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)
        del self.due[key]

"""The batches of one partition in a Fetch answer: which of them hold records for the reader, and where to go on.

An answer begins with the batch that holds the offset that was asked for and may end inside a batch. For a reader of
committed records it says which transactions in it were aborted, and this walk follows Kafka's consumer: a transaction
of that list begins when a batch reaches its first offset, and ends at its producer's abort marker.

Invariants
 1. every batch that is given is whole, has the CRC that it says (unless that is not to be checked) and a range of offsets
 2. `next_offset` is past every batch that was walked over, given or not, and never before the offset that was asked for
 3. what is cut at the end is no error, as long as it can be the beginning of a batch
"""

from collections.abc import Iterable, Iterator

from odradek.wire.batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    OFFSET_MAX,
    BatchHeader,
    CorruptBatch,
    check,
    read_header,
)
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.records import records


class Walk:
    """One walk over an answer's bytes; its position and next offset say how far it came."""

    def __init__(
        self,
        view: memoryview,
        fetch_offset: int,
        end_offset: int,
        aborted: Iterable[tuple[int, int]] | None,
        check_crcs: bool,
    ) -> None:
        self.view = view
        self.fetch_offset = fetch_offset
        self.end_offset = end_offset
        self.check_crcs = check_crcs
        self.position = 0
        self.next_offset = fetch_offset
        self.committed = aborted is not None
        self.aborted = sorted(aborted or (), key=lambda transaction: transaction[1], reverse=True)  # the next one is the last
        self.aborting: set[int] = set()  # producers inside an aborted transaction

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while (header := self._header()) is not None and header.base_offset < self.end_offset:
            position = self.position
            self.position += header.size
            self.next_offset = max(self.next_offset, min(header.next_offset, self.end_offset))
            hidden = self.committed and header.has_producer_id and self._is_aborted(position, header)
            if not hidden and not header.is_control and header.last_offset >= self.fetch_offset:
                yield position, header

    def _header(self) -> BatchHeader | None:
        """The header of the next batch, checked; None if the batch is not there in whole."""
        position = self.position
        left = len(self.view) - position
        if left < HEADER_SIZE:
            self._check_beginning(position, left)
            return None
        header = read_header(self.view, position)
        if header.size > left:
            return None
        if self.check_crcs:
            check(self.view, position, header)
        else:
            check_ranges(position, header)
        return header

    def _check_beginning(self, position: int, left: int) -> None:
        """Refuse a cut header that cannot become one with more bytes: its reader would fetch it again and again."""
        length = int.from_bytes(self.view[position + 8 : position + 12], "big", signed=True)
        if left > MAGIC_POSITION and (length < BATCH_LENGTH_MIN or self.view[position + MAGIC_POSITION] != MAGIC):
            read_header(self.view, position)

    def _is_aborted(self, position: int, header: BatchHeader) -> bool:
        while self.aborted and self.aborted[-1][1] <= header.last_offset:
            self.aborting.add(self.aborted.pop()[0])
        if header.is_control:
            if header.producer_id in self.aborting and self._is_abort_marker(position, header):
                self.aborting.remove(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self.aborting

    def _is_abort_marker(self, position: int, header: BatchHeader) -> bool:
        marker = next(records(self.view, position, header), None)
        return marker is not None and read_control_type(marker.key) == ControlType.ABORT


def check_ranges(position: int, header: BatchHeader) -> None:
    """What `odradek.wire.batch.check` asks of a header, without the CRC."""
    if header.record_count < 0:
        raise CorruptBatch(f"a count of {header.record_count} records", "record count", position + 57)
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"a last offset {header.last_offset_delta} after the base", "last offset delta", position + 23)
    if not 0 <= header.base_offset <= OFFSET_MAX - header.last_offset_delta:
        raise CorruptBatch(f"a base offset of {header.base_offset}", "base offset", position)

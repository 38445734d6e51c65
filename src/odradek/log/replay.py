"""What a batch of an idempotent producer tells: to the producer state, and to the transaction index of its segment.

The same for a batch that was just appended and for one that is read again after a start, so that both lead to the same state.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from odradek.log.producer_state import ProducerState
from odradek.log.segment import Segment
from odradek.log.transaction_index import AbortedTransaction
from odradek.wire.batch import BatchHeader
from odradek.wire.control import read_end_marker
from odradek.wire.errors import ProtocolError
from odradek.wire.records import records
from odradek.wire.varint import Buffer


def check_end_marker(header: BatchHeader, batch: Buffer) -> None:
    """ProtocolError when a control batch of a producer does not end a transaction."""
    for marker in records(batch, 0, header):
        read_end_marker(marker)


def note_batch(producers: ProducerState, segment: Segment, header: BatchHeader, data: Buffer, at: int = 0) -> None:
    """Lets the producer state see a batch, which stands at a place in the data, and the transaction index a transaction that
    it aborts."""
    if header.producer_id >= 0:
        if header.is_control:
            note_marker(producers, segment, header, memoryview(data)[at : at + header.size])
        else:
            producers.append(header)


def note_marker(producers: ProducerState, segment: Segment | None, header: BatchHeader, batch: Buffer) -> None:
    """The end of a transaction. Without a segment, its transaction index knows already."""
    completed = producers.append_marker(header, batch)
    if completed is None:
        return
    stable = producers.last_stable_offset(completed)
    if completed.is_aborted and segment is not None:
        transaction = AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        segment.transactions.append(transaction)
    producers.complete(completed)


def forget_compacted(
    producers: ProducerState, batches: Callable[[int], Iterator[tuple[Segment, int, BatchHeader]]], log_start: int
) -> None:
    """What an old snapshot says is open has ended where compaction has taken its first batch: it goes no further than the first
    that is open. The end may be gone, too, so that no replay would meet it."""
    for first_offset in [offset for offset in producers.ongoing if offset >= log_start]:
        with suppress(ProtocolError):
            _, _, header = next(batches(first_offset), (None, 0, None))
            if header is None or header.base_offset > first_offset or not header.record_count:
                producers.forget_transaction(first_offset)


def replay(producers: ProducerState, batches: Iterable[tuple[Segment, int, BatchHeader]]) -> None:
    """Lets the producer state see batches again whose transactions the indexes know."""
    for segment, position, header in batches:
        if header.producer_id >= 0:
            if header.is_control:
                note_marker(producers, None, header, segment.file.read(position, header.size))
            else:
                producers.append(header)

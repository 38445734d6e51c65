"""The entries of the files beside a segment: .index, .timeindex, .txnindex, and the .snapshot of producers.

Invariant: an entry is given only when it stands in order after those before it. Zeros up to the end are no entries but room
that a running node has set aside, except for one lone entry: a segment whose first record is from 1970 has that.
"""

from collections.abc import Iterator
from itertools import islice
from struct import Struct

from odradek.log.disk import File
from odradek.log.dump.damage import Damaged
from odradek.log.dump.rows import Aborted, IndexEntry, Producer, Row, TimeIndexEntry, Zeros
from odradek.log.dump.segment import Selection, is_zero
from odradek.log.index import OffsetIndex, TimeIndex
from odradek.log.producer import COUNT, ENTRY, HEAD, SNAPSHOT_VERSION
from odradek.log.transaction_index import ENTRY as ABORTED
from odradek.log.transaction_index import AbortedTransaction, fault_of
from odradek.wire.batch import SEQUENCE_MASK
from odradek.wire.checksum import crc32c

CHUNK_ENTRIES = 8192


def entries(file: File, layout: Struct, start: int = 0) -> Iterator[tuple[int, tuple[int, ...]]]:
    """All whole entries with their positions; Damaged where the file ends within one."""
    position, whole_end = start, file.size - (file.size - start) % layout.size
    while position < whole_end:
        chunk = file.read(position, min(CHUNK_ENTRIES * layout.size, whole_end - position))
        for fields in layout.iter_unpack(chunk[: len(chunk) // layout.size * layout.size]):
            yield position, fields
            position += layout.size
    if whole_end < file.size and not (whole_end and is_zero(file, whole_end)):
        raise Damaged(whole_end, f"{file.size - whole_end} bytes, where an entry has {layout.size}")


def index_rows(file: File, base_offset: int, wanted: Selection) -> Iterator[Row]:
    """An offset index."""
    found = _sorted_entries(file, OffsetIndex.ENTRY)
    rows = (
        row if isinstance(row, Zeros) else IndexEntry(file=file.path, offset=base_offset + row[0], position=row[1])
        for row in found
    )
    yield from _selected(rows, wanted)


def time_index_rows(file: File, base_offset: int, wanted: Selection) -> Iterator[Row]:
    found = _sorted_entries(file, TimeIndex.ENTRY)
    rows = (
        row if isinstance(row, Zeros) else TimeIndexEntry(file=file.path, timestamp=row[0], offset=base_offset + row[1])
        for row in found
    )
    yield from _selected(rows, wanted)


def _selected(rows: Iterator[IndexEntry | TimeIndexEntry | Zeros], wanted: Selection) -> Iterator[Row]:
    chosen = (row for row in rows if isinstance(row, Zeros) or row.offset >= wanted.offset)
    return islice(chosen, wanted.limit)


def _sorted_entries(file: File, layout: Struct) -> Iterator[tuple[int, ...] | Zeros]:
    before: tuple[int, ...] = (-1, -1)
    for position, fields in entries(file, layout):
        if not any(fields) and file.size > layout.size and is_zero(file, position):
            yield Zeros(file=file.path, position=position, size=file.size - position)
            return
        if fields[0] <= before[0] or fields[1] < before[1] or fields[1] < 0:
            raise Damaged(position, f"the entry {fields[0]} {fields[1]} after {before[0]} {before[1]}")
        yield fields
        before = fields


def transaction_index_rows(file: File, base_offset: int, wanted: Selection) -> Iterator[Row]:
    rows = _aborted(file, base_offset)
    yield from islice((row for row in rows if row.last_offset >= wanted.offset), wanted.limit)


def _aborted(file: File, base_offset: int) -> Iterator[Aborted]:
    before = base_offset - 1
    for position, (version, *fields) in entries(file, ABORTED):
        transaction = AbortedTransaction(*fields)
        fault = fault_of(version, transaction, before)
        if fault:
            raise Damaged(position, fault)
        yield Aborted(file=file.path, **transaction._asdict())
        before = transaction.last_offset


def snapshot_rows(file: File, wanted: Selection) -> Iterator[Row]:
    """The producers of a snapshot. Its one CRC is of everything: where it is wrong, all is shown and then that it is."""
    head = file.read(0, HEAD.size + COUNT.size)
    if len(head) < HEAD.size + COUNT.size:
        raise Damaged(len(head), f"the file ends within the first {HEAD.size + COUNT.size} bytes, which every snapshot has")
    version, crc = HEAD.unpack_from(head)
    (count,) = COUNT.unpack_from(head, HEAD.size)
    if version != SNAPSHOT_VERSION:
        raise Damaged(0, f"version {version}, where only {SNAPSHOT_VERSION} is known")
    found = entries(file, ENTRY, len(head))
    yield from islice((_producer(file.path, *fields) for _, fields in found), wanted.limit)
    if file.size != len(head) + count * ENTRY.size:
        raise Damaged(HEAD.size, f"{count} producers announced, room for {(file.size - len(head)) // ENTRY.size}")
    if (actual := _crc(file, HEAD.size)) != crc:
        raise Damaged(2, f"the CRC says {crc:#010x}, the bytes give {actual:#010x}")


def _crc(file: File, position: int) -> int:
    crc = 0
    while chunk := file.read(position, 1024 * 1024):
        crc = crc32c(chunk, crc)
        position += len(chunk)
    return crc


def _producer(
    path: str, producer_id: int, epoch: int, sequence: int, offset: int, delta: int, timestamp: int, coordinator: int, first: int
) -> Producer:
    return Producer(
        file=path,
        producer_id=producer_id,
        producer_epoch=epoch,
        first_sequence=sequence if sequence < 0 else (sequence - delta) & SEQUENCE_MASK,
        last_sequence=sequence,
        last_offset=offset,
        offset_delta=delta,
        timestamp=timestamp,
        coordinator_epoch=coordinator,
        transaction_first_offset=first,
    )

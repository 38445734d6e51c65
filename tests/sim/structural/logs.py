"""Reads logs of live nodes without their noticing, and remembers what is committed in each, once for all replicas.

Reading goes to the medium, past the disk that the node has: it costs no simulated time and meets no fault.

Invariants
 1. What is committed stands: whatever one replica has had at an offset below a high watermark, every replica has there that has
    anything, byte for byte. In a compacted log, whose batches are written anew, this holds for the records.
 2. A log that is not compacted has no holes.
 3. A segment with rot in it says nothing.
"""

import weakref
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from odradek.log.log import Log
from odradek.log.names import FileKind
from odradek.log.segment import Segment
from odradek.wire.batch import HEADER_SIZE, BatchHeader, read_header
from odradek.wire.errors import ProtocolError
from odradek.wire.records import records
from tests.log.medium import Medium
from tests.sim.structural.findings import Violated, hold

UNKNOWN: Final = -1


class Batch(msgspec.Struct, frozen=True):
    header: BatchHeader
    data: bytes


class Cursor(msgspec.Struct):
    """How far a log has been read: in which of its segments, up to which position, and after how many cuts."""

    segment: Segment | None = None
    position: int = 0
    next_offset: int = UNKNOWN
    cuts: int = 0


def content_of(medium: Medium, segment: Segment) -> bytearray | None:
    """The bytes of a segment; None when it has rot, or was removed just now."""
    try:
        node = medium.node(segment.path(FileKind.LOG))
    except FileNotFoundError:
        return None
    return None if node.is_rotten else node.content


def header_at(segment: Segment, content: bytearray, position: int) -> BatchHeader:
    try:
        return read_header(content, position)
    except ProtocolError as error:
        raise Violated(f"{segment.path(FileKind.LOG)} has no batch at {position}: {error}") from error


def batches_below(medium: Medium, log: Log, offset: int, cursor: Cursor) -> Iterator[Batch]:
    """The whole batches that end at or below an offset, from the cursor on, which moves with them."""
    segments = log.segments
    if cursor.segment not in segments or cursor.cuts != log.cuts:
        cursor.segment, cursor.position, cursor.cuts, cursor.next_offset = segments[0], 0, log.cuts, UNKNOWN
    for segment in segments[segments.index(cursor.segment) :]:
        if segment is not cursor.segment:
            cursor.segment, cursor.position = segment, 0
        content = content_of(medium, segment)
        if content is None:
            cursor.next_offset = UNKNOWN  # there may be a hole
            continue
        while cursor.position + HEADER_SIZE <= segment.size:
            header = header_at(segment, content, cursor.position)
            if header.next_offset > offset:
                return
            end = cursor.position + header.size
            hold(end <= segment.size, f"{segment.path(FileKind.LOG)}: a batch at {cursor.position} that is cut off")
            yield Batch(header, bytes(content[cursor.position : end]))
            cursor.position, cursor.next_offset = end, header.next_offset


class Committed:
    """What is known to be committed in one partition, from whichever replica told it first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.end_offset = 0
        self.is_compacted = False  # or was so at some time
        self.is_forgiven = False  # an unclean election has lost something: who has what is open from then on
        self._batches: dict[int, tuple[int, int, str]] = {}  # by base offset: next offset, checksum, who told
        self._records: dict[int, tuple[int, str]] = {}  # by offset: checksum, who told
        self._cursors: weakref.WeakKeyDictionary[Log, Cursor] = weakref.WeakKeyDictionary()  # looked up only

    def forgive(self) -> None:
        """Nothing is known any more, and nothing is compared until the end."""
        self.is_forgiven = True
        self._batches.clear()
        self._records.clear()

    def look_again(self) -> None:
        """The next look is at everything, also at what was rewritten behind one's back."""
        self._cursors.clear()

    def look(self, who: str, medium: Medium, log: Log, high_watermark: int, *, is_compacted: bool) -> list[Batch]:
        """Takes what a replica has below its high watermark, and compares it with what others had there. Gives what is new."""
        self.is_compacted |= is_compacted
        cursor = self._cursors.setdefault(log, Cursor())
        found = []
        for batch in batches_below(medium, log, high_watermark, cursor):
            if not self.is_compacted:
                hold(
                    cursor.next_offset in (UNKNOWN, batch.header.base_offset),
                    f"{self.name} on {who} goes on at {batch.header.base_offset}, where {cursor.next_offset} was due",
                )
            found.append(batch)
            self._compare(who, log, batch)
        return found

    def _compare(self, who: str, log: Log, batch: Batch) -> None:
        header = batch.header
        if header.last_offset < log.start_offset or self.is_forgiven:
            return
        checksum = zlib.crc32(batch.data)
        if self.is_compacted:
            self._compare_records(who, batch)
        else:
            known = self._batches.setdefault(header.base_offset, (header.next_offset, checksum, who))
            hold(
                known[:2] == (header.next_offset, checksum),
                f"{self.name} has other records at {header.base_offset} on {who} than {known[2]} had when they were committed",
            )
        if header.next_offset > self.end_offset:
            self.end_offset = header.next_offset

    def _compare_records(self, who: str, batch: Batch) -> None:
        if batch.header.is_control:
            return
        for record in records(batch.data, 0, batch.header):
            checksum = zlib.crc32(b"%r%r" % (record.key, record.value))
            known = self._records.setdefault(record.offset, (checksum, who))
            hold(
                known[0] == checksum,
                f"{self.name} has another record at {record.offset} on {who} than {known[1]} had when it was committed",
            )


def check_log(name: str, log: Log) -> None:
    """The numbered invariants of a log."""
    start, high_watermark, end = log.start_offset, log.high_watermark, log.end_offset
    hold(start <= high_watermark <= end, f"{name} starts at {start}, has the high watermark {high_watermark} and ends at {end}")
    hold(log.recovery_point <= end, f"{name} ends at {end}, and was synced up to {log.recovery_point}")
    bases = [segment.base_offset for segment in log.segments]
    hold(bases == log.bases == sorted(bases), f"{name} has segments at {bases}, and thinks of {log.bases}")
    hold(bases[0] <= start, f"{name} starts at {start}, before its first segment at {bases[0]}")
    entries = log.epochs.entries
    epochs = [epoch for epoch, _ in entries]
    offsets = [offset for _, offset in entries]
    hold(epochs == sorted(epochs) and offsets == sorted(offsets), f"{name} has the leader epochs {entries}")


def check_known(name: str, log: Log, batches: list[Batch], latest_ms: int, latest_of_transactions_ms: int) -> None:
    """What a log knows of its batches beside them, whether it has seen them come or has read them at a start. `latest_ms` is what
    no clock is ahead of: whose last batch has an older timestamp than producers are kept for by it may be forgotten at a start.
    Where the leader stamps batches, or the ends of transactions, its own clock may be a day behind."""
    known = [batch.header for batch in batches if batch.header.base_offset >= log.start_offset]
    for header in known:
        epoch = log.epochs.epoch_for(header.base_offset)
        hold(
            epoch == header.leader_epoch,
            f"{name} takes the batch at {header.base_offset} for one of leader epoch {epoch}, and it is of {header.leader_epoch}",
        )
    last = {header.producer_id: header for header in known if header.producer_id >= 0 and not header.is_control}
    for producer_id, header in last.items():
        by_ms = latest_of_transactions_ms if header.is_transactional else latest_ms
        if by_ms - header.max_timestamp >= log.config.producer_id_expiration_ms:
            continue
        producer = log.producers.producers.get(producer_id)
        hold(
            producer is not None and (producer.epoch > header.producer_epoch or producer.last_offset >= header.last_offset),
            f"{name} does not know the batch of producer {producer_id} at {header.base_offset}",
        )

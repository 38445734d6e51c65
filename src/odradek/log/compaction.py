"""Compaction of one log: keeps the last value of every key, and in time forgets keys that were deleted.

It reads closed segments and writes new ones beside them, so it runs anywhere: in a worker process in a node, in place in a
test. What it needs comes in a `Job`, what it did goes out in an `Outcome`; the log itself swaps the segments.

Two passes. The first reads what is dirty and notes the last offset of each key, until the memory that it may use is full.
The second copies the whole log up to there and leaves out

    records that a later one with the same key has replaced, and records without a key;
    the records of aborted transactions;
    deletions (null values), and the markers of transactions that have no records left, once `delete.retention.ms` have gone
    by since a compaction first met them: that moment is kept in the batch, as its delete horizon.

Invariants
 1. Offsets never change, and the last offset of what was compacted stays: a batch that has lost all its records remains as an
    empty one when it is the last, or the last of a producer that may still repeat it.
 2. The last value of a key is in the old segments or the new ones, at every moment.
 3. A batch that cannot be decoded, though its CRC is right, is copied as it is.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull
from odradek.log.index import RELATIVE_OFFSET_MAX, CorruptIndex, Index
from odradek.log.names import FileState
from odradek.log.segment import Segment
from odradek.log.transaction_index import AbortedTransaction
from odradek.wire.batch import DELETE_HORIZON, BatchHeader, assemble, empty_batch, headers
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Span, payload, records, scan, with_timestamp_delta

KEY_OVERHEAD_BYTES = 140  # what a dict needs for a key beside its bytes, measured
WRITE_BYTES = 1024 * 1024

OnBytes = Callable[[int], None]  # told of bytes before they are read or written


class LastBatch(NamedTuple):
    """The last batch of a producer that may still repeat it: the last offset of its data, or -1 and only a marker is left."""

    last_offset: int
    producer_epoch: int


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be compacted: closed segments of a log as (base offset, size), in order."""

    folder: str
    config: LogConfig
    segments: list[tuple[int, int]]
    dirty_offset: int
    end_offset: int
    aborted: list[AbortedTransaction]  # all that have records below the end offset, wherever their markers are
    last_batches: dict[int, LastBatch]
    memory_bytes: int
    now_ms: int


class Outcome(msgspec.Struct, kw_only=True):
    """What was done: for each group of old segments, by base offset, the size of the new one, which has the first's base."""

    groups: list[tuple[list[int], int]]
    end_offset: int
    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Transactions:
    """Which transactional batches are aborted, and which markers nothing needs any more, as a pass goes along."""

    def __init__(self, aborted: list[AbortedTransaction], from_offset: int = 0) -> None:
        coming = [transaction for transaction in aborted if transaction.last_offset >= from_offset]
        self.aborted = sorted(coming, key=lambda transaction: -transaction.first_offset)  # still to come, the next one last
        self.open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer, and whether data of it was met
        self.open_committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []  # those that the new segment's index has to know

    def _begin_until(self, header: BatchHeader) -> None:
        while self.aborted and self.aborted[-1].first_offset <= header.last_offset:
            transaction = self.aborted.pop()
            self.open_aborted.setdefault(transaction.producer_id, (transaction, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction."""
        self._begin_until(header)
        if not header.is_transactional:
            return False
        found = self.open_aborted.get(header.producer_id)
        if found is None:
            self.open_committed.add(header.producer_id)
            return False
        self.open_aborted[header.producer_id] = (found[0], True)
        return True

    def is_needless(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a control batch ends a transaction of which no data is left."""
        self._begin_until(header)  # its data may stand before the pass began, or be gone
        marker = next(records(batch, 0, header), None)
        if marker is None:
            return True
        control_type = read_control_type(marker.key)
        if control_type == ControlType.ABORT:
            transaction, has_data = self.open_aborted.pop(header.producer_id, (None, False))
            if transaction is not None and has_data:
                self.kept.append(transaction)
                return False
            return True
        if control_type == ControlType.COMMIT:
            needless = header.producer_id not in self.open_committed
            self.open_committed.discard(header.producer_id)
            return needless
        return False


class KeyMap:
    """The last offset of each key in what is dirty, as far as the memory goes."""

    def __init__(self, dirty_offset: int, memory_bytes: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.dirty_offset = dirty_offset
        self.latest_offset = dirty_offset - 1
        self.memory_left = memory_bytes
        self.undecodable: set[int] = set()  # base offsets of batches whose keys are not known
        self._live: list[int] | None = None

    def add(self, batch: memoryview, header: BatchHeader) -> bool:
        """Notes the keys of a batch; False when the memory is used up. What cannot be decoded to its end has no keys."""
        data = bytes(payload(batch, 0, header))
        base_offset = header.base_offset
        found = [(data[span[4] : span[5]], base_offset + span[2]) for span in scan(data, header) if span[5] >= 0]
        if base_offset < self.dirty_offset:
            found = [(key, offset) for key, offset in found if offset >= self.dirty_offset]
        before = len(self.offsets)
        self.offsets.update(found)
        new = len(self.offsets) - before
        self.memory_left -= new * KEY_OVERHEAD_BYTES + (sum([len(key) for key, _ in found]) if new else 0)
        return self.memory_left > 0

    def is_dead(self, header: BatchHeader) -> bool:
        """Whether later records have replaced every record of a batch, as far as that can be said without decoding it."""
        if self._live is None:
            self._live = sorted(self.offsets.values())
        if not self.dirty_offset <= header.base_offset <= header.last_offset <= self.latest_offset:
            return False
        following = bisect_left(self._live, header.base_offset)
        has_live = following < len(self._live) and self._live[following] <= header.last_offset
        return not has_live and header.base_offset not in self.undecodable


def compact(disk: Disk, job: Job, throttle: OnBytes = lambda _: None) -> Outcome:
    """Writes the compacted segments, synced and named .cleaned. ProtocolError when a segment is damaged; DiskFull when there is
    no room for them, and then none is left."""
    segments = [Segment(disk, job.folder, base, job.config, size=size) for base, size in job.segments]
    keys = map_keys(job, segments, throttle)
    outcome = Outcome(groups=[], end_offset=keys.latest_offset + 1)
    transactions = Transactions(job.aborted)
    below_end = [segment for segment in segments if segment.base_offset < outcome.end_offset]
    try:
        for group in grouped(below_end, job):
            size = Copy(disk, job, keys, transactions, outcome, throttle).run(group)
            outcome.groups.append(([segment.base_offset for segment in group], size))
    except DiskFull:
        for segment in segments:
            new_segment(disk, job, segment.base_offset).remove()
        raise
    return outcome


def new_segment(disk: Disk, job: Job, base_offset: int) -> Segment:
    """The segment that a compaction writes, or has written."""
    return Segment(disk, job.folder, base_offset, job.config, size=0, state=FileState.CLEANED)


def map_keys(job: Job, segments: list[Segment], throttle: OnBytes) -> KeyMap:
    """The first pass."""
    keys = KeyMap(job.dirty_offset, job.memory_bytes)
    transactions = Transactions(job.aborted, job.dirty_offset)
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else job.end_offset
        if next_base <= job.dirty_offset:
            continue
        for _, header, batch in segment.checked_batches(segment.position_of(job.dirty_offset)):
            throttle(header.size)
            if header.is_control:
                transactions.is_needless(header, batch)
            elif not transactions.is_aborted(header):
                try:
                    if not keys.add(batch, header):
                        keys.latest_offset = max(keys.latest_offset, header.last_offset)
                        return keys
                except ProtocolError:
                    keys.undecodable.add(header.base_offset)  # kept as it is, whatever it holds
            keys.latest_offset = max(keys.latest_offset, header.last_offset)
        keys.latest_offset = max(keys.latest_offset, next_base - 1)
    return keys


def grouped(segments: list[Segment], job: Job) -> Iterator[list[Segment]]:
    """Small neighbours become one segment, as long as it stays below the limits of one."""
    group: list[Segment] = []
    for number, segment in enumerate(segments):
        end = segments[number + 1].base_offset if number + 1 < len(segments) else job.end_offset
        together = [*group, segment]
        if group and (
            sum(part.size for part in together) > job.config.segment_bytes
            or sum(entries(part.index) for part in together) > segment.index.entries_max
            or sum(entries(part.time_index) for part in together) > segment.time_index.entries_max - 1
            or end - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
        ):
            yield group
            together = [segment]
        group = together
    if group:
        yield group


def entries(index: Index) -> int:
    """How many it has; where it is rotten, it may be any number. The node builds it again, when it needs it."""
    try:
        return len(index)
    except CorruptIndex:
        return index.entries_max


class Copy:
    """The second pass, over one group of segments."""

    def __init__(
        self, disk: Disk, job: Job, keys: KeyMap, transactions: Transactions, outcome: Outcome, throttle: OnBytes
    ) -> None:
        self.disk = disk
        self.job = job
        self.keys = keys
        self.transactions = transactions
        self.outcome = outcome
        self.throttle = throttle
        self.pending = bytearray()

    def run(self, group: list[Segment]) -> int:
        """Writes the new segment; gives its size."""
        base_offset, config = group[0].base_offset, self.job.config
        new_segment(self.disk, self.job, base_offset).remove()
        cleaned = Segment(self.disk, self.job.folder, base_offset, config, state=FileState.CLEANED)
        self.transactions.kept = []
        for segment in group:
            for _, header, batch in segment.checked_batches():
                self.throttle(header.size)
                self.outcome.records_read += header.record_count
                self.outcome.bytes_read += header.size
                kept = self.kept(header, batch)
                if kept is not None:
                    self.write(cleaned, kept)
        self.flush(cleaned)
        for transaction in self.transactions.kept:
            cleaned.transactions.append(transaction)
        cleaned.seal()
        for file in (cleaned.file, *cleaned.save_indexes()):
            file.sync()
        cleaned.transactions.sync()
        return cleaned.size

    def write(self, cleaned: Segment, batch: bytearray | memoryview) -> None:
        self.pending += batch
        if len(self.pending) >= WRITE_BYTES:
            self.flush(cleaned)

    def flush(self, cleaned: Segment) -> None:
        batches = list(headers(self.pending))
        if batches:
            self.throttle(len(self.pending))
            self.outcome.records_kept += sum([header.record_count for _, header in batches])
            self.outcome.bytes_written += len(self.pending)
            cleaned.append(self.pending, batches)
        self.pending = bytearray()

    def kept(self, header: BatchHeader, batch: memoryview) -> bytearray | memoryview | None:
        """What stays of a batch: all, some, an empty one, or nothing."""
        if header.is_control:
            needless = self.transactions.is_needless(header, batch)
            if not needless:
                return batch
            if not header.has_delete_horizon and header.record_count:
                data = bytes(payload(batch, 0, header))
                return self.rebuilt(header, data, list(scan(data, header)), set_horizon=True)
            if header.record_count and header.base_timestamp > self.job.now_ms:
                return batch
            return self.empty(header)
        if self.transactions.is_aborted(header) or self.keys.is_dead(header):
            return self.empty(header)
        try:
            return self.kept_data(header, batch)
        except ProtocolError:
            return batch

    def empty(self, header: BatchHeader) -> bytearray | None:
        """An empty batch where one has to stay."""
        if header.next_offset == self.job.end_offset or self.is_last_of_producer(header):
            return empty_batch(header)
        return None

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.job.last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def kept_data(self, header: BatchHeader, batch: memoryview) -> bytearray | memoryview | None:
        data = bytes(payload(batch, 0, header))
        offsets, latest, base_offset = self.keys.offsets, self.keys.latest_offset, header.base_offset
        keep_deletions = not header.has_delete_horizon or self.job.now_ms < header.base_timestamp
        spans, deletions, count = [], False, 0
        for span in scan(data, header):
            count += 1
            offset = base_offset + span[2]
            if offset > latest:
                pass
            elif span[5] < 0 or offset < offsets.get(data[span[4] : span[5]], -1) or (span[7] < 0 and not keep_deletions):
                continue
            spans.append(span)
            deletions = deletions or span[7] < 0
        if not spans:
            return self.empty(header)
        set_horizon = deletions and not header.has_delete_horizon
        if len(spans) == count and not set_horizon:
            return batch
        return self.rebuilt(header, data, spans, set_horizon=set_horizon)

    def rebuilt(self, header: BatchHeader, data: bytes, spans: list[Span], *, set_horizon: bool) -> bytearray:
        """A batch of some of the records, with its delete horizon set if asked for. Offsets and sequences stay."""
        timestamps = [header.base_timestamp + span[3] for span in spans]
        if header.is_log_append_time:
            timestamps = [header.max_timestamp] * len(spans)
        base_timestamp = self.job.now_ms + self.job.config.delete_retention_ms if set_horizon else header.base_timestamp
        if set_horizon:
            parts = [with_timestamp_delta(data, span[0], at - base_timestamp) for span, at in zip(spans, timestamps)]
        else:
            parts = [data[span[0] : span[1]] for span in spans]
        changed = header._replace(
            attributes=header.attributes | (DELETE_HORIZON if set_horizon else 0),
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else max(timestamps),
            record_count=len(parts),
        )
        return assemble(changed, b"".join(parts))

"""The log of one partition: segments in the order of their offsets, what is known of its producers, and its leader epochs.

Everything happens on one thread, but for two things that take long and are handed out: a `Flush` may run on another thread,
and compaction reads closed segments from another process. Time comes in as `now_ms`.

Invariants
 1. start_offset <= high_watermark <= end_offset, and recovery_point <= end_offset.
 2. Segments are contiguous: each ends before the next begins; the last one is written, the others never change.
 3. A failed append changes nothing: not the file, not the indexes, not what is known of the producer.
 4. Everything below the recovery point has been synced. When the log is cut below it, the lower recovery point is on disk
    before anything new is appended.
 5. A cut for which there is no room changes nothing that is known of the log, and can be tried again.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple, TypedDict

from odradek.log.config import INT32_MAX, LogConfig
from odradek.log.disk import Disk, DiskFull
from odradek.log.epochs import LeaderEpochs
from odradek.log.flush import Flush
from odradek.log.index import RELATIVE_OFFSET_MAX
from odradek.log.names import FileState
from odradek.log.producer import BATCHES_MAX, BatchMetadata, Producer
from odradek.log.producer_state import ProducerRefused, ProducerState
from odradek.log.replay import check_end_marker, forget_compacted, note_batch, replay
from odradek.log.retention import expired_segments
from odradek.log.segment import Damage, FileRange, Segment, Slice
from odradek.wire.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    InvalidBatch,
    check,
    check_produced,
    read_header,
    set_offset_and_epoch,
)
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.varint import Buffer

REMEMBER_BYTES_MAX = 256 * 1024 * 1024  # how far back a producer's last batches are looked for after a restart


class Origin(Enum):
    """Who appends, and so what is checked."""

    CLIENT = auto()
    COORDINATOR = auto()  # groups, transactions and their markers
    RAFT = auto()  # the leader of the metadata quorum


class Manner(TypedDict, total=False):
    """Of an append that is not a client's, or is a part of a transaction."""

    origin: Origin
    verification: object  # that `ProducerState.verify` gave before the coordinator was asked
    transaction_version: int  # of a marker


class Appended(NamedTuple):
    first_offset: int
    last_offset: int
    is_duplicate: bool = False
    timestamp: int = NO_TIMESTAMP  # of a duplicate: what its batch has


class Log:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        *,
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        now_ms: int,
        jitter: Callable[[int], int] = lambda _: 0,
        recovery_point_lowered: Callable[[], None] = lambda: None,
    ) -> None:
        """What `loading.open_log` found in a folder. `jitter` picks a number below its argument."""
        assert segments
        self.disk = disk
        self.folder = folder
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.epochs = epochs
        self.producers = producers
        self.start_offset = start_offset
        self.noted_start = start_offset  # by a checkpoint of its folder
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.high_watermark = start_offset
        self.damage: Damage | None = None
        self.flushed_ms = now_ms
        self.jitter = jitter
        self.configure(config)
        self.recovery_point_lowered = recovery_point_lowered
        self.deletions: list[tuple[int, Callable[[], None]]] = []
        self.is_being_written = False  # a thread appends to the active segment
        self.is_settled = False  # everything in the folder is as a clean stop leaves it
        self.cuts = 0  # how often it was truncated: a flush that began before knows nothing of what came after
        self.has_rolled = False  # a segment that was closed waits for its sync
        self.has_new_names = True  # so do names in the folder
        self.is_gone = False  # its folder is about to have another name, or has it, and its own may be another log's by then
        self.naming = threading.Lock()  # of who gives its folder that name, and of a thread that writes there by the old one

    def configure(self, config: LogConfig) -> None:
        """Takes new settings; those of indexes count from the next segment on."""
        self.config = config
        self.roll_ms = config.roll_ms - self.jitter(config.segment_jitter_ms)
        self.producers.expiration_ms = config.producer_id_expiration_ms

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # -- appending

    def append(
        self,
        data: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        header: BatchHeader | None = None,
        verification: object = None,
        transaction_version: int = 0,
        unwritten: list[tuple[int, BatchHeader]] | None = None,
    ) -> Appended:
        """Appends batches as the leader: gives them offsets and the epoch, in place. `header` is the first's, if it was read.
        With `unwritten`, they are put there, to be written by somebody else.

        Refused or ProtocolError when they are refused; a batch that is there already is answered with its offsets.
        """
        batches = self._accepted(data, origin, header)
        for at, header in batches:
            if header.producer_id < 0 or origin is Origin.RAFT:
                continue
            if origin is Origin.CLIENT:
                duplicate = self._checked(header, verification)
                if duplicate is not None:
                    return Appended(duplicate.first_offset, duplicate.last_offset, True, duplicate.timestamp)
            elif header.is_control:
                if self.producers.check_marker(header, memoryview(data)[at : at + header.size], transaction_version):
                    return Appended(self.end_offset - 1, self.end_offset - 1, True)
            else:
                self.producers.check_from_coordinator(header, verification)
        first_offset = offset = self.end_offset
        placed = []
        for at, header in batches:
            set_offset_and_epoch(data, at, offset, leader_epoch)
            placed.append((at, header.placed(offset, leader_epoch)))
            offset += header.last_offset_delta + 1
        if unwritten is None:
            self._write(data, placed, now_ms)
        else:
            unwritten += placed
        return Appended(first_offset, offset - 1)

    def _checked(self, header: BatchHeader, verification: object) -> BatchMetadata | None:
        """What is known of a client's batch, also from before a restart."""
        try:
            return self.producers.check(header, verification)
        except ProducerRefused:
            producer = self.producers.producers.get(header.producer_id)
            if producer is None or not producer.is_partial:
                raise
            producer.remember(self._batches_before(producer))
            return self.producers.check(header, verification)

    def _batches_before(self, producer: Producer) -> list[BatchHeader]:
        """The last batches that a producer wrote in its epoch before those that are known of it, the newest first."""
        known = producer.batches[0].last_offset
        found: list[BatchHeader] = []
        looked_at_bytes = 0
        for segment in reversed(self.segments[: bisect_right(self.bases, known)]):
            looked_at_bytes += segment.size
            of_producer = [
                header
                for _, header in segment.batches()
                if header.producer_id == producer.producer_id and header.producer_epoch == producer.epoch
            ]
            found += [header for header in reversed(of_producer) if header.last_offset < known and not header.is_control]
            if len(found) >= BATCHES_MAX or looked_at_bytes > REMEMBER_BYTES_MAX:
                break
        return found

    def append_as_follower(
        self, data: Buffer, *, now_ms: int, unwritten: list[tuple[int, BatchHeader]] | None = None
    ) -> Appended | None:
        """Appends what the leader sent, unchanged; a batch that is cut off at the end is left for the next fetch, and so is what
        a segment cannot hold, unless it is one batch alone. An unsound batch is refused when it is the first. With `unwritten`,
        the batches are put there, to be written by somebody else."""
        self._check_writable()
        batches: list[tuple[int, BatchHeader]] = []
        position, next_offset = 0, self.end_offset
        while position < len(data):
            try:
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                check(data, position, header)
                if header.is_control and header.producer_id >= 0:  # a marker that nobody can read must not reach the file
                    check_end_marker(header, memoryview(data)[position : position + header.size])
            except ProtocolError:
                if not batches and len(data) - position >= HEADER_SIZE:
                    raise
                break  # what is before it is taken: the next fetch begins with it, and shows the leader what it has
            if header.base_offset < next_offset:
                reason = f"offset {header.base_offset} from the leader, where {next_offset} or more was due"
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
            if batches and (
                position + header.size > self.config.segment_bytes
                or header.last_offset - batches[0][1].base_offset > RELATIVE_OFFSET_MAX
            ):
                break  # no segment could hold both
            batches.append((position, header))
            next_offset = header.next_offset
            position += header.size
        if not batches:
            return None
        if unwritten is None:
            self._write(data if position == len(data) else memoryview(data)[:position], batches, now_ms)
        else:
            unwritten += batches
        return Appended(batches[0][1].base_offset, next_offset - 1)

    def _check_writable(self) -> None:
        if self.is_being_written:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder} is being written by a thread")
        if self.damage is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder} is damaged: {self.damage.reason}")

    def _accepted(self, data: Buffer, origin: Origin, header: BatchHeader | None) -> list[tuple[int, BatchHeader]]:
        self._check_writable()
        judge = check_produced if origin is Origin.CLIENT else check
        size_max = INT32_MAX if origin is Origin.RAFT else self.config.max_message_bytes
        batches = []
        position, end = 0, len(data)
        while position < end:
            if header is None:
                header = read_header(data, position)
            judge(data, position, header)
            size = header.size
            if size > size_max:
                raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes, over max.message.bytes={size_max}")
            batches.append((position, header))
            position += size
            header = None
        if len(batches) != 1 and (origin is Origin.CLIENT or not batches):
            reason = f"{len(batches)} batches, where one request has exactly one for a partition"
            raise InvalidBatch(reason, "records", 0)
        if end > self.config.segment_bytes:
            reason = f"{end} bytes, over segment.bytes={self.config.segment_bytes}"
            raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE, reason)
        return batches

    def _write(self, data: Buffer, batches: list[tuple[int, BatchHeader]], now_ms: int) -> None:
        segment = self.segment_for(data, batches, now_ms)
        segment.file.append([data])
        self.note_written(data, batches, segment)

    def segment_for(self, data: Buffer, batches: list[tuple[int, BatchHeader]], now_ms: int) -> Segment:
        """Where batches that have their offsets are to be written; perhaps a new segment."""
        self.is_settled = False
        last = batches[-1][1]
        segment = self.segments[-1]
        timestamp = last.max_timestamp if len(batches) == 1 else max([header.max_timestamp for _, header in batches])
        if segment.should_roll(self.config, now_ms, len(data), last.last_offset, timestamp, self.roll_ms):
            segment = self.roll(now_ms, last.last_offset)
        return segment

    def note_written(self, data: Buffer, batches: list[tuple[int, BatchHeader]], segment: Segment) -> None:
        """Lets indexes, epochs and producers know of batches that are in the file."""
        producers, position = self.producers, segment.size
        segment.note_written(batches)
        try:
            for at, header in batches:
                if header.leader_epoch > self.epochs.latest_epoch:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
                note_batch(producers, segment, header, data, at)
        except DiskFull:
            try:
                self._take_back(segment, position)
            except DiskFull as error:  # no descriptor was left: the file holds what the log does not know of
                raise self.disk.fail(error) from error
            raise
        self.end_offset = producers.map_end_offset = batches[-1][1].next_offset

    def _take_back(self, segment: Segment, position: int) -> None:
        """Undoes a write of which not all could be noted, for want of room. Needs none itself."""
        end_offset = self.end_offset
        segment.take_back(position, end_offset)
        self._cut_epochs(self.epochs.take_back, end_offset)
        self.producers.map_end_offset = -1  # it knows too much
        self.reload_producers(end_offset)
        self.producers.on_high_watermark(self.high_watermark)

    def roll(self, now_ms: int, last_offset: int = 0) -> Segment:
        """Closes the active segment and begins a new one, which can take batches up to an offset.

        It begins where the old one ends: a gap between segments that were not synced would look like lost records."""
        old = self.segments[-1]
        base_offset = max(self.end_offset, last_offset - RELATIVE_OFFSET_MAX)
        if old.base_offset == base_offset:
            assert old.size == 0, "only an empty segment can begin where the next one does"
            return old
        self.is_settled = False
        old.seal()
        old.give_back_room()
        segment = Segment(self.disk, self.folder, base_offset, self.config, created_ms=now_ms)
        self.segments.append(segment)
        self.bases.append(base_offset)
        self.has_rolled = self.has_new_names = True
        self.configure(self.config)
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot()
        return segment

    # -- reading

    def read(self, offset: int, bytes_max: int, upper_offset: int, *, at_least_one: bool = True) -> Slice:
        """The batches from the one that holds an offset up to `upper_offset`, at most `bytes_max`, the last perhaps cut off.

        With `at_least_one` the first batch is whole, whatever its size.
        """
        if not self.start_offset <= offset <= self.end_offset:
            reason = f"offset {offset} is outside of {self.start_offset} to {self.end_offset}"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        ranges: list[FileRange] = []
        number = bisect_right(self.bases, offset) - 1
        try:
            while number < len(self.segments) and offset < upper_offset and self.bases[number] < upper_offset:
                segment = self.segments[number]
                end = self._readable_end(number, upper_offset)
                found = segment.read(offset, bytes_max, end, at_least_one=at_least_one and not ranges)
                if found is not None:
                    if found.size:
                        ranges.append(found)
                        bytes_max -= found.size
                    if found.position + found.size < end:
                        break  # also where the first batch does not fit: the next segment may begin with one that would
                elif ranges:
                    break
                number += 1
                offset = self.bases[number] if number < len(self.bases) else upper_offset
                if bytes_max <= 0:
                    break
        except ProtocolError as error:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return Slice(ranges)

    def _readable_end(self, number: int, upper_offset: int) -> int:
        """The position in a segment up to which a reader may see."""
        segment = self.segments[number]
        next_base = self.bases[number + 1] if number + 1 < len(self.bases) else self.end_offset
        return segment.size if upper_offset >= next_base else segment.position_of(upper_offset)

    def batches(self, offset: int, upper_offset: int | None = None) -> Iterator[tuple[Segment, int, BatchHeader]]:
        """The batches from the one that holds an offset on, with where each is."""
        upper_offset = self.end_offset if upper_offset is None else upper_offset
        for segment in self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]:
            if segment.base_offset >= upper_offset:
                return
            found = segment.locate(offset)
            for position, header in segment.batches(found[0]) if found else ():
                if header.base_offset >= upper_offset:
                    return
                yield segment, position, header

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(max(unstable, self.start_offset), self.high_watermark)

    def move_high_watermark(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset
        self.high_watermark = offset
        self.producers.on_high_watermark(offset)

    # -- cutting

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Cuts off every batch that ends at or past an offset; gives whether there were any."""
        if offset >= self.end_offset:
            self._cut_epochs(self.epochs.truncate_from_end, offset)  # a leader's that wrote nothing
            return False
        if offset < self.bases[0]:
            self.reset_to(offset, now_ms)
            return True
        keep = bisect_right(self.bases, offset)
        self.is_settled = False
        end_offset = self.segments[keep - 1].next_offset(before=offset)
        self._lower_recovery_point(end_offset)
        self._cut_epochs(self.epochs.truncate_from_end, end_offset)  # a start that still finds the batches learns them again
        try:
            self._cut(keep, offset, end_offset, now_ms)
        except DiskFull as error:  # no descriptor was left: it can be neither finished nor undone
            raise self.disk.fail(error) from error
        return True

    def _cut(self, keep: int, offset: int, end_offset: int, now_ms: int) -> None:
        """Needs no room."""
        self._drop_segments(self.segments[: keep - 1 : -1], now_ms)  # the last first: whenever it ends, there is no hole
        del self.segments[keep:], self.bases[keep:]
        self.active.truncate_to(offset)
        self._sync_cut()
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.reload_producers(end_offset)
        self.producers.on_high_watermark(self.high_watermark)

    def reset_to(self, offset: int, now_ms: int) -> None:
        """Throws everything away and begins anew at an offset."""
        self._lower_recovery_point(offset)
        self._cut_epochs(self.epochs.truncate_from_end, 0)
        dropped = FileState.DELETED  # by a reset that had no room to begin anew
        self._drop_segments([segment for segment in self.segments[::-1] if segment.state is not dropped], now_ms)
        self.segments = [Segment(self.disk, self.folder, offset, self.config, created_ms=now_ms)]
        self.bases = [offset]
        self._sync_cut()
        self.producers.truncate_fully(offset)
        self.start_offset = self.end_offset = self.high_watermark = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.damage = None

    def _cut_epochs(self, cut: Callable[[int], bool], end_offset: int) -> None:
        """A flush under way on a thread writes those that it knows before, or not at all."""
        with self.naming:
            self.cuts += cut(end_offset)

    def _sync_cut(self) -> None:
        """What was cut off must not come back after a power loss: epochs on disk would then speak of other records."""
        self.active.file.sync()
        self.disk.sync_folder(self.folder)

    def _lower_recovery_point(self, offset: int) -> None:
        """Before a cut, which there is none of when it cannot be noted."""
        self.cuts += 1
        before = self.recovery_point
        if offset < before:
            self.recovery_point = offset
            try:
                self.recovery_point_lowered()
            except DiskFull:
                self.recovery_point = before
                raise

    @property
    def lasting_start(self) -> int:
        """Where it starts also after a crash: what is below never comes back."""
        return min(self.start_offset, max(self.noted_start, self.bases[0]))

    def move_start(self, offset: int) -> None:
        """Hides what is below an offset; retention removes segments that lie below it as a whole."""
        if offset > self.high_watermark:
            reason = f"offset {offset} is past the high watermark {self.high_watermark}"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.on_start_moved(offset)

    def reload_producers(self, end_offset: int, now_ms: int = NO_TIMESTAMP) -> None:
        """What is known of producers at an offset: the newest snapshot up to it, and the batches from there. A start leaves out
        those that have expired by its time; later a clock that nobody sets says who has (`remove_expired`)."""
        producers, is_known = self.producers, self.producers.map_end_offset == end_offset
        completed = {first: marker for first, marker in producers.unreplicated.items() if marker < end_offset}
        producers.truncate_and_reload(self.start_offset, end_offset, now_ms)
        forget_compacted(producers, self.batches, self.start_offset)
        from_offset = producers.map_end_offset if is_known or producers.snapshots else 0  # also below the start: it may be open
        replay(producers, self.batches(max(from_offset, self.bases[0]), end_offset))
        producers.keep_completed(completed)
        producers.map_end_offset = end_offset

    # -- deleting

    def delete_expired(self, now_ms: int) -> list[Segment]:
        """Removes what retention no longer keeps; gives the segments that went."""
        expired = expired_segments(self, now_ms)
        if not expired:
            return []
        if len(expired) == len(self.segments) and self.is_being_written:
            expired.pop()
        elif len(expired) == len(self.segments):
            try:
                self.roll(now_ms)
            except DiskFull:
                expired.pop()  # the others make room
        kept = self.segments[len(expired) :]
        self.move_start(kept[0].base_offset)
        self._drop_segments(expired, now_ms)
        self.segments = kept
        self.bases = self.bases[len(expired) :]
        return expired

    def _drop_segments(self, segments: list[Segment], now_ms: int, replaced_by: Segment | None = None) -> None:
        """Renames their files at once, and removes them when nobody can be about to read them. A snapshot stays as long as a
        segment begins with it."""
        self.is_settled = False
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in segments:
            segment.rename(FileState.DELETED)
            self.deletions.append((due_ms, segment.remove))
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                snapshot = self.producers.drop_snapshot(segment.base_offset)
                if snapshot is not None:
                    self.deletions.append((due_ms, snapshot))

    def deletions_due(self, now_ms: int) -> list[Callable[[], None]]:
        """What removes the files whose time has come."""
        due = [remove for due_ms, remove in self.deletions if due_ms <= now_ms]
        self.deletions = [entry for entry in self.deletions if entry[0] > now_ms]
        return due

    def delete_due(self, now_ms: int) -> None:
        for remove in self.deletions_due(now_ms):
            remove()

    def has_closed(self, segments: list[Segment]) -> bool:
        """Whether these are still segments of the log, one after the other, and none is being written."""
        first = self.segments.index(segments[0]) if segments[0] in self.segments else -1
        return first >= 0 and self.segments[first : first + len(segments)] == segments and segments[-1] is not self.active

    def swap_segments(self, old: list[Segment], new: Segment, now_ms: int) -> None:
        """Puts a compacted segment in the place of some that are closed. It is synced and named .swap, durably: whenever
        the power goes, a start finds either the old segments or the new one. The folder is to be synced next."""
        assert self.has_closed(old)
        assert new.state is FileState.SWAP
        first = self.segments.index(old[0])
        self.segments[first : first + len(old)] = [new]
        self.bases[first : first + len(old)] = [new.base_offset]
        self._drop_segments(old, now_ms, replaced_by=new)
        new.rename(FileState.CURRENT)

    # -- flushing

    @property
    def has_many_unflushed(self) -> bool:
        """Whether flush.messages asks for a flush."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush, or a roll left a segment behind."""
        waited_ms = abs(now_ms - self.flushed_ms)  # also when the clock was set back
        is_late = self.end_offset > self.recovery_point and waited_ms >= self.config.flush_ms
        return self.has_rolled or self.has_many_unflushed or is_late

    def start_flush(self, *, closed_only: bool = False) -> Flush:
        """A flush of everything, or of all that is behind the active segment. Of its indexes, that of aborted transactions is
        synced: nothing tells a start that some are gone. The others are built again where they are torn or missing."""
        flush = Flush(self, closed_only=closed_only)
        self.has_new_names = False
        return flush

    def finish_flush(self, flush: Flush, now_ms: int) -> None:
        """Moves the recovery point; below it nobody reads the epochs from the batches any more."""
        if flush.has_epochs:
            self.epochs.saved(flush.epochs)
        if flush.cuts == self.cuts and self.damage is None and flush.has_epochs:
            for segment in flush.closed:
                segment.is_synced = True
            self.recovery_point = max(self.recovery_point, flush.offset)
        self.flushed_ms = now_ms
        self.has_rolled = not all(segment.is_synced for segment in self.segments[:-1])

    def flush(self, now_ms: int) -> None:
        flush = self.start_flush()
        flush.run()
        self.finish_flush(flush, now_ms)

    def close(self, now_ms: int) -> None:
        """Leaves the folder so that the next start need not look at any record; with damage, so that it finds it again."""
        self.active.give_back_room()
        if not self.is_settled and self.damage is None:
            self.producers.take_snapshot()
            self.active.seal()
            flush = self.start_flush()
            flush.files += self.active.save_indexes()
            flush.files += self.producers.snapshot_files()
            flush.new_names = True
            flush.run()
            self.finish_flush(flush, now_ms)
            self.is_settled = flush.has_epochs
        self.delete_due(now_ms)

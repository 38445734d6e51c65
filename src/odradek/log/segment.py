"""One segment of a partition's log: a file of record batches and the indexes that find their way in it.

Batches are appended as they come and never changed. Positions of batches that were just written are remembered, so that a
reader at the end of the log costs no read of the disk.

Invariants
 1. Batches stand in the order of their offsets, the first at or past `base_offset`, and every offset is at most 2^31 - 1 past it.
 2. `size` is the end of the last whole batch.
 3. An index only ever saves work: what it says is checked against the batches, and a wrong one is built again.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull, File
from odradek.log.index import RELATIVE_OFFSET_MAX, CorruptIndex, OffsetIndex, TimeIndex
from odradek.log.names import FileKind, FileState, file_name
from odradek.log.transaction_index import TransactionIndex
from odradek.wire.batch import HEADER_SIZE, NO_TIMESTAMP, OVERHEAD, BatchHeader, check, read_header
from odradek.wire.errors import ProtocolError
from odradek.wire.varint import Buffer

HEADER_READ_BYTES = 16 * 1024  # one read brings the headers of several small batches,
SMALL_BATCH_BYTES = 1024  # which these are; of a larger one only the header is read: more would only push other things out
SCAN_READ_BYTES = 1024 * 1024
BOUNDARIES_MAX = 256
SEGMENT_FILES = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)

Answer = TypeVar("Answer")


class FileRange:
    """Bytes of a file, to be sent as they are. The file stays readable as long as the range is held."""

    __slots__ = ("file", "position", "segment", "size")

    def __init__(self, segment: "Segment", position: int, size: int) -> None:
        self.segment = segment
        self.file = segment.file
        self.position = position
        self.size = size

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


class Slice:
    """What a read found: bytes of files, in order. `len` is their number."""

    __slots__ = ("ranges", "size")

    def __init__(self, ranges: list[FileRange]) -> None:
        self.ranges = ranges
        self.size = ranges[0].size if len(ranges) == 1 else sum([part.size for part in ranges])

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return b"".join([part.read() for part in self.ranges])


class Damage(NamedTuple):
    """Where a log is broken below its recovery point: nothing was cut there, and nothing is appended until it is repaired."""

    offset: int
    reason: str


class CorruptSegment(ProtocolError):
    """A segment that cannot be read on from a position."""


class Segment:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int = -1,
        created_ms: int = 0,
        state: FileState = FileState.CURRENT,
    ) -> None:
        """An existing segment of a known size, or a new one (size -1)."""
        new = size < 0
        self.disk = disk
        self.folder = folder
        self.base_offset = base_offset
        self.state = state
        self.created_ms = created_ms
        self.interval_bytes = config.index_interval_bytes
        self.is_preallocated = config.preallocate and state is FileState.CURRENT
        self.size = max(size, 0)
        self.index = OffsetIndex(disk, self.path(FileKind.INDEX), base_offset, config.segment_index_bytes, new=new)
        self.time_index = TimeIndex(disk, self.path(FileKind.TIME_INDEX), base_offset, config.segment_index_bytes, new=new)
        self.transactions = TransactionIndex(disk, self.path(FileKind.TRANSACTION_INDEX), base_offset)
        self.is_synced = True
        self._file: File | None = None
        self._max_timestamp: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if new else None
        self._first_timestamp: int | None = None
        self._is_index_full: bool | None = None
        self._bytes_since_entry = 0
        self._boundaries: dict[int, int] = {}
        if new:
            try:
                self._make(config)
            except DiskFull:
                self.remove()  # the log may grow past its begin before there is room for it
                raise

    def _make(self, config: LogConfig) -> None:
        self._file = self.disk.open(self.path(FileKind.LOG), create=True)
        assert self._file.size == 0, f"{self._file.path} is not new"
        if self.is_preallocated:
            self._file.allocate(config.segment_bytes)
        self.save_indexes()

    def path(self, kind: FileKind) -> str:
        return f"{self.folder}/{file_name(self.base_offset, kind, self.state)}"

    @property
    def file(self) -> File:
        if self._file is None:
            try:
                self._file = self.disk.open(self.path(FileKind.LOG))
            except FileNotFoundError as error:  # somebody else has removed it
                raise self.disk.fail(error) from error
        return self._file

    # -- what is in it

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of all batches from a position on. CorruptSegment where the chain breaks."""
        end = self.size if end is None else end
        chunk, chunk_start, read_bytes = b"", position, HEADER_SIZE
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = self.file.read(position, min(read_bytes, self.size - position))
                chunk_start, at = position, 0
            header = self._header(chunk, at, position)
            yield position, header
            position += header.size
            read_bytes = HEADER_READ_BYTES if header.size <= SMALL_BATCH_BYTES else HEADER_SIZE

    def _header(self, chunk: Buffer, at: int, position: int) -> BatchHeader:
        try:
            header = read_header(chunk, at)
        except ProtocolError as error:
            raise CorruptSegment(error.reason, self.path(FileKind.LOG), position) from error
        if position + header[1] + OVERHEAD > self.size:
            reason = f"a batch of {header.size} bytes is cut off at {self.size}"
            raise CorruptSegment(reason, self.path(FileKind.LOG), position)
        if not 0 <= header[6] <= self.base_offset + RELATIVE_OFFSET_MAX - header[0] <= RELATIVE_OFFSET_MAX:
            reason = f"offsets {header.base_offset} to {header.last_offset} do not belong here"
            raise CorruptSegment(reason, self.path(FileKind.LOG), position)
        return header

    def checked_batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """All batches whole, with their CRC checked and their offsets in order. CorruptSegment at the first bad one."""
        chunk, chunk_start, chunk_end = memoryview(b""), position, position
        next_offset = self.base_offset
        while position < self.size:
            if position + HEADER_SIZE > chunk_end:
                chunk, chunk_start = memoryview(self.file.read(position, SCAN_READ_BYTES)), position
                chunk_end = chunk_start + len(chunk)
            at = position - chunk_start
            header = self._header(chunk, at, position)
            size = header.size
            if position + size > chunk_end:
                chunk, chunk_start, at = memoryview(self.file.read(position, max(SCAN_READ_BYTES, size))), position, 0
                chunk_end = chunk_start + len(chunk)
            batch = chunk[at : at + size]
            try:
                check(batch, 0, header)
            except ProtocolError as error:
                raise CorruptSegment(error.reason, self.path(FileKind.LOG), position) from error
            if header.base_offset < next_offset:
                reason = f"offset {header.base_offset} where {next_offset} or more was due"
                raise CorruptSegment(reason, self.path(FileKind.LOG), position)
            yield position, header, batch
            next_offset = header.next_offset
            position += size

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that ends at or past an offset, and its position."""
        start = self._boundaries.get(offset, -1)
        if start >= 0:
            return self._first_ending_at(offset, start)
        try:
            start, following = self._positions_around(offset)
            if 0 < start < following - 2 * self.interval_bytes:  # large batches: each has its entry, and this may be the one
                header = self._indexed_header(following)
                if header[0] <= offset <= header[0] + header[6]:
                    return following, header
            return self._first_ending_at(offset, start, indexed=start > 0)
        except (CorruptIndex, CorruptSegment) as error:
            if start == 0 and isinstance(error, CorruptSegment):
                raise
            self.rebuild_indexes()  # it may have led us astray
            return self._first_ending_at(offset, self._positions_around(offset)[0])

    def _indexed_header(self, position: int) -> BatchHeader:
        try:
            return self._header(self.file.read(position, HEADER_SIZE), 0, position)
        except CorruptSegment as error:
            raise CorruptIndex(f"{self.index.path} points to {position}, where no batch begins") from error

    def _positions_around(self, offset: int) -> tuple[int, int]:
        start, following = self.index.positions_around(offset)
        if not (0 <= start <= self.size and following <= self.size):
            raise CorruptIndex(f"{self.index.path} points to {start} and {following}, which is outside of its segment")
        return start, following

    def _first_ending_at(self, offset: int, start: int, *, indexed: bool = False) -> tuple[int, BatchHeader] | None:
        for position, header in self.batches(start):
            if header[0] + header[6] >= offset:
                if indexed and header[0] > offset:
                    raise CorruptIndex(f"{self.index.path} points past offset {offset}")
                return position, header
            indexed = False
        return None

    def position_of(self, offset: int) -> int:
        """Where the first batch that ends at or past an offset begins; the end of the segment when there is none."""
        position = self._boundaries.get(offset, -1)
        if position < 0:
            found = self.locate(offset)
            position = self.size if found is None else found[0]
        return position

    def read(self, offset: int, bytes_max: int, end: int, *, at_least_one: bool) -> FileRange | None:
        """The bytes of the batches from an offset up to a position, at most `bytes_max`, or None when there are none.

        The last batch may be cut off. With `at_least_one` the first never is; without, there are no bytes where it does not fit.
        """
        position = self._boundaries.get(offset, -1)
        if position >= 0 and end - position <= bytes_max:  # a reader that has kept up
            return FileRange(self, position, end - position) if end > position else None
        found = self.locate(offset)
        if found is None or found[0] >= end:
            return None
        position, header = found
        if header.size > bytes_max:
            return FileRange(self, position, header.size if at_least_one else 0)
        return FileRange(self, position, min(bytes_max, end - position))

    def next_offset(self, before: int | None = None) -> int:
        """The offset after the last batch, or after the last that ends before an offset."""
        return self._indexed(lambda: self._next_offset(before))

    def _next_offset(self, before: int | None) -> int:
        end = self.size if before is None else self.position_of(before)
        number = self.index.entry_before(end)
        start = self.index.entry(number)[1] if number >= 0 else 0
        if start < 0:
            raise CorruptIndex(f"{self.index.path} points to {start}")
        offset = self.base_offset
        for _, header in self.batches(start, end):
            offset = header.next_offset
        return offset

    def offset_after(self, position: int) -> int | None:
        """An offset that no batch before a position reaches, as far as the index knows one near it."""
        return self._indexed(lambda: self._offset_after(position))

    def _offset_after(self, position: int) -> int | None:
        found = self.index.position_at_or_after(position)
        following = None if found is None else next(self.batches(found), None)
        return None if following is None else following[1].base_offset

    # -- timestamps

    def max_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp and the last offset of the batch that has it; (-1, base offset) when there is none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._read_max_timestamp()
        return self._max_timestamp

    def _timestamp_before(self) -> tuple[int, int]:
        """The same for what is written next. Where batches cannot be read, none of theirs counts: who reads them is told."""
        try:
            return self.max_timestamp()
        except ProtocolError:
            self._max_timestamp = self.time_index.last()
            return self._max_timestamp

    def _read_max_timestamp(self) -> tuple[int, int]:
        timestamp, offset = self._time_entry(self.time_index.last)
        start = self.locate(offset) if timestamp >= 0 else (0, None)
        for _, header in self.batches(start[0]) if start else ():
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        return timestamp, offset

    def _time_entry(self, look_up: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """What the time index answers, when the batch that it tells of has that timestamp; else, built again, it answers anew."""
        try:
            entry = look_up()
            if entry == (NO_TIMESTAMP, self.base_offset):
                return entry
            found = self.locate(entry[1])
            if found is not None and (found[1].max_timestamp, found[1].last_offset) == entry:
                return entry
        except CorruptIndex:
            pass
        self.rebuild_indexes()
        return look_up()

    def largest_timestamp(self) -> int:
        """What retention goes by: the greatest timestamp, or, where records have none or cannot be read, when the file was last
        written."""
        try:
            timestamp = self.max_timestamp()[0]
        except ProtocolError:
            timestamp = NO_TIMESTAMP
        return timestamp if timestamp >= 0 else self.disk.modified_ms(self.path(FileKind.LOG))

    def first_timestamp(self) -> int:
        """The timestamp of the first batch, -1 when there is none, or none that can be read: who reads it hears what is wrong."""
        if self._first_timestamp is None:
            try:
                first = next(self.batches(), None)
            except ProtocolError:
                self._first_timestamp = NO_TIMESTAMP
            else:
                if first is None:
                    return NO_TIMESTAMP
                self._first_timestamp = first[1].max_timestamp
        return self._first_timestamp

    def batches_from_timestamp(self, timestamp: int, offset_min: int) -> Iterator[tuple[int, BatchHeader]]:
        """The batches that may hold the first record at or past a timestamp."""
        _, start = self._time_entry(lambda: self.time_index.entry_before(timestamp))
        found = self.locate(max(start, offset_min))
        return self.batches(found[0]) if found else iter(())

    # -- writing

    def should_roll(self, config: LogConfig, now_ms: int, bytes_new: int, last_offset: int, timestamp: int, roll_ms: int) -> bool:
        """Whether an append of these bytes, up to this offset and timestamp, belongs into a new segment."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        return self.size > 0 and (
            self.size > config.segment_bytes - bytes_new or self._waited_ms(now_ms, timestamp) > roll_ms or self.is_index_full
        )

    def _waited_ms(self, now_ms: int, timestamp: int) -> int:
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        return timestamp - first if first >= 0 else now_ms - self.created_ms

    def append(self, data: Buffer, batches: list[tuple[int, BatchHeader]]) -> None:
        """Writes whole batches; each comes with its place in the data and the header that it has there."""
        self.file.append([data])
        self.note_written(batches)

    def note_written(self, batches: list[tuple[int, BatchHeader]]) -> None:
        """Batches are in the file, behind all that was noted before."""
        position = self.size
        self.size = self.file.size
        assert position < self.size
        if position == 0:
            self._first_timestamp = batches[0][1].max_timestamp
            self._boundaries[self.base_offset] = 0
        boundaries = self._boundaries
        for at, header in batches:
            self._note(position + at, header)
            boundaries[header.next_offset] = position + at + header.size
        if len(boundaries) > BOUNDARIES_MAX:
            for offset in list(boundaries)[: len(boundaries) // 2]:
                del boundaries[offset]

    @property
    def is_index_full(self) -> bool:
        """Whether an index has no room for another entry."""
        if self._is_index_full is None:
            self._is_index_full = self._indexed(lambda: self.index.is_full or self.time_index.is_full)
        return self._is_index_full

    def _note(self, position: int, header: BatchHeader) -> None:
        """Keeps the indexes up with a batch."""
        greatest = self._max_timestamp
        if greatest is None:
            greatest = self._timestamp_before()
        if header[8] > greatest[0]:  # its max timestamp
            greatest = self._max_timestamp = (header.max_timestamp, header.last_offset)
        if self._bytes_since_entry > self.interval_bytes:
            self.index.append(header.last_offset, position)
            self.time_index.append(*greatest)
            self._is_index_full = None
            self._bytes_since_entry = 0
        self._bytes_since_entry += header[1] + OVERHEAD

    def rebuild_indexes(self) -> None:
        """Builds offset and time index again from the batches, up to where they can be followed."""
        self._reset_indexes()
        try:
            for position, header in self.batches():
                self._note(position, header)
        except CorruptSegment:
            pass  # who reads that far will be told
        self.seal()

    def _indexed(self, asked: Callable[[], Answer]) -> Answer:
        """What the indexes answer; where they are wrong, they are built again, and answer anew."""
        try:
            return asked()
        except (CorruptIndex, CorruptSegment):
            self.rebuild_indexes()
            return asked()

    def check_indexes(self) -> None:
        """Builds the indexes again if their ends are not what the batches say: a crash may have torn them."""
        try:
            sound = self._ends_are_sound()
        except (CorruptIndex, CorruptSegment):
            sound = False
        if not sound:
            self.rebuild_indexes()
        self.release()  # many segments may be looked at, and few be read

    def _ends_are_sound(self) -> bool:
        if len(self.index):
            relative, position = self.index.entry(len(self.index) - 1)
            if position >= self.size or next(self.batches(position))[1].last_offset != self.base_offset + relative:
                return False
        if len(self.time_index):
            timestamp, offset = self.time_index.last()
            found = self.locate(offset)
            return found is not None and (found[1].max_timestamp, found[1].last_offset) == (timestamp, offset)
        return True

    def _reset_indexes(self) -> None:
        self.index.reset()
        self.time_index.reset()
        self._boundaries.clear()
        self._bytes_since_entry = 0
        self._is_index_full = None
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)

    def recover(self) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Builds all indexes again while it gives every batch that is whole and valid. CorruptSegment at the first that is not;
        what has been given until then is sound."""
        self._reset_indexes()
        self.transactions.truncate_to(self.base_offset)
        for position, header, view in self.checked_batches():
            self._note(position, header)
            yield header, view

    def cut(self, size: int) -> None:
        """Cuts the file at a position that ends a batch; the indexes must not know more than that."""
        self.file.truncate(size)
        self.size = size
        self._first_timestamp = None if size == 0 else self._first_timestamp

    def truncate_to(self, offset: int) -> int:
        """Cuts off every batch that ends at or past an offset; gives the bytes that went."""
        position = self.position_of(offset)
        removed = self.size - position
        self._forget_from(offset)
        with suppress(DiskFull):  # they are saved when the segment is closed, and until then not believed by any start
            self.save_indexes()
        self.cut(position)
        return removed

    def take_back(self, position: int, offset: int) -> None:
        """Undoes an append at a position, which was the log's end at that offset. The indexes have not been saved since."""
        self._forget_from(offset)
        self.cut(position)

    def _forget_from(self, offset: int) -> None:
        """What is known of batches beside the file, before those at or past an offset are cut off it."""
        self._indexed(lambda: self._cut_indexes(offset))
        self.transactions.truncate_to(offset)
        self._boundaries.clear()
        self._bytes_since_entry = 0
        self._is_index_full = None
        self._max_timestamp = None

    def _cut_indexes(self, offset: int) -> None:
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)

    # -- ends of life

    def seal(self) -> None:
        """Nothing more comes: the time index gets its last entry, and both indexes are saved and freed."""
        self.is_synced = False
        self._boundaries.clear()  # who reads it from now on looks at what is there: it may rot
        timestamp, offset = self._timestamp_before()
        if timestamp >= 0:
            self.time_index.append(timestamp, offset)
        self.index.let_go()
        self.time_index.let_go()

    def give_back_room(self) -> None:
        """Of what was preallocated. Nothing is being written."""
        if self.is_preallocated:
            self.file.truncate(self.size)

    def release(self) -> None:
        """Lets the file be closed when nobody reads it any more, and frees the indexes; both come back when they are needed."""
        self._file = None
        self.index.rest()
        self.time_index.rest()

    def save_indexes(self) -> list[File]:
        return [self.index.save(), self.time_index.save()]

    def rename(self, state: FileState) -> None:
        """Renames all files, the log itself first: an index that is left alone is an orphan, and one that is missing is
        built again."""
        for kind in SEGMENT_FILES:
            old = self.path(kind)
            try:
                self.disk.rename(old, f"{self.folder}/{file_name(self.base_offset, kind, state)}")
            except DiskFull:
                if state is not FileState.DELETED:
                    raise
                self.disk.remove(old)  # this makes room, and who reads has it open
            except FileNotFoundError as error:
                if kind is FileKind.LOG:
                    raise self.disk.fail(error) from error
        self.state = state
        self._file = None  # its path is the old one; readers keep what they hold
        self.index.path = self.path(FileKind.INDEX)
        self.time_index.path = self.path(FileKind.TIME_INDEX)
        self.transactions.renamed(self.path(FileKind.TRANSACTION_INDEX))

    def remove(self) -> None:
        for kind in SEGMENT_FILES:
            self.disk.remove(self.path(kind))

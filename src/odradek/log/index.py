"""The sparse indexes of a segment: from offsets to positions, and from timestamps to offsets.

About every `index.interval.bytes` of the segment get one entry in each. Both files hold nothing but their entries, sorted,
big-endian, offsets relative to the segment's base:

    .index      int32 last offset of a batch, int32 its position        looked up by offset
    .timeindex  int64 timestamp, int32 offset of the batch that has it   looked up by timestamp

The index of the segment that is being written lives in memory and is saved at a flush, a roll and a close: after a crash the
segment is scanned anyway. The others are mapped when they are first needed.

Invariants
 1. Entries rise strictly in what they are looked up by, and never fall in the other column.
 2. What was saved is a prefix of what is in memory, and what a power loss leaves in the file is a prefix of that.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from contextlib import suppress
from struct import Struct
from typing import ClassVar

from odradek.log.disk import Disk, DiskFull, File
from odradek.wire.varint import Buffer

RELATIVE_OFFSET_MAX = 2**31 - 1


class CorruptIndex(ValueError):
    """An index that cannot be what was written; the segment rebuilds it."""


def shrink(file: File, size: int) -> None:
    """Cuts a file and syncs it at once, so that nothing old can stand behind what is appended next."""
    if file.size > size:
        file.truncate(size)
        file.sync()


class Index:
    """Sorted entries of a fixed size."""

    ENTRY: ClassVar[Struct]

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int, *, new: bool = False) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.ENTRY.size
        self._data: Buffer | None = bytearray() if new else None
        self._saved = 0

    @property
    def data(self) -> Buffer:
        """The entries, read when they are first asked for."""
        if self._data is None:
            try:
                self._data = self.disk.map(self.path)
            except FileNotFoundError as error:
                raise CorruptIndex(f"{self.path} is gone") from error
            self._saved = len(self._data)
            self._check(self._data)
        return self._data

    def _check(self, data: Buffer) -> None:
        size = self.ENTRY.size
        if len(data) % size:
            raise CorruptIndex(f"{self.path} has {len(data)} bytes, which are no whole entries of {size}")
        count = len(data) // size
        if count:
            last = self.ENTRY.unpack_from(data, (count - 1) * size)
            before = self.ENTRY.unpack_from(data, (count - 2) * size) if count > 1 else (-1, -1)
            if last[0] <= before[0] or last[1] < max(before[1], 0):
                raise CorruptIndex(f"{self.path} ends with {last} after {before}")

    def __len__(self) -> int:
        return len(self.data) // self.ENTRY.size

    def entry(self, number: int) -> tuple[int, int]:
        """The stored columns of one entry, the offset still relative."""
        first, second = self.ENTRY.unpack_from(self.data, number * self.ENTRY.size)
        return first, second

    def floor(self, key: int) -> int:
        """The number of the last entry whose first column is at most `key`, -1 when there is none."""
        data, unpack, size = self.data, self.ENTRY.unpack_from, self.ENTRY.size
        return bisect_right(range(len(data) // size), key, key=lambda number: unpack(data, number * size)[0]) - 1

    def add(self, first: int, second: int) -> None:
        data = self.data
        if not isinstance(data, bytearray):
            data = self._data = bytearray(data)
        data += self.ENTRY.pack(first, second)

    def keep(self, count: int) -> None:
        """Forgets all but the first entries; the file is cut when the index is next saved."""
        self._data = bytearray(self.data[: count * self.ENTRY.size])
        self._saved = min(self._saved, len(self._data))

    def save(self) -> File:
        """Brings the file up to what is in memory."""
        file = self.disk.open(self.path, create=True)
        data = self._data
        if data is None:
            return file
        shrink(file, self._saved)
        if self._saved < len(data):
            with memoryview(data) as view:
                file.append([view[self._saved :]])
        self._saved = len(data)
        return file

    def let_go(self) -> None:
        """Saves, and frees the memory; the next look-up maps the file. On a full disk it stays in memory."""
        with suppress(DiskFull):
            self.save()
        self.rest()

    def rest(self) -> None:
        """Frees the memory if the file has it all."""
        if self._data is not None and self._saved == len(self._data):
            self._data = None

    def reset(self) -> None:
        """Forgets everything, also on disk: the index is about to be built again."""
        self._data = bytearray()
        self._saved = 0
        shrink(self.disk.open(self.path, create=True), 0)


class OffsetIndex(Index):
    """From offsets to positions in the segment. What readers ask for most: its columns are kept where a look-up is quick."""

    ENTRY = Struct(">ii")

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int, *, new: bool = False) -> None:
        super().__init__(disk, path, base_offset, bytes_max, new=new)
        self._columns: tuple[Buffer | None, array[int], array[int]] = None, array("i"), array("i")  # of which data

    def columns(self) -> tuple[Buffer | None, "array[int]", "array[int]"]:
        """What it was made of, the offsets, and the positions."""
        data = self.data
        if self._columns[0] is not data:
            entries = array("i", bytes(data))
            if sys.byteorder == "little":
                entries.byteswap()
            self._columns = data, entries[::2], entries[1::2]
        return self._columns

    def floor(self, key: int) -> int:
        return bisect_right(self.columns()[1], key) - 1

    def add(self, first: int, second: int) -> None:
        super().add(first, second)
        if self._columns[0] is self._data:
            self._columns[1].append(first)
            self._columns[2].append(second)

    def rest(self) -> None:
        super().rest()
        if self._data is None:
            self._columns = None, array("i"), array("i")

    @property
    def is_full(self) -> bool:
        return len(self) >= self.entries_max

    def append(self, last_offset: int, position: int) -> None:
        self.add(last_offset - self.base_offset, position)

    def position_before(self, offset: int) -> int:
        """A position at or before the batch that holds an offset."""
        return self.positions_around(offset)[0]

    def positions_around(self, offset: int) -> tuple[int, int]:
        """A position at or before the batch that holds an offset, and one at or behind it; -1 when none is known."""
        _, offsets, positions = self.columns()
        number = bisect_right(offsets, offset - self.base_offset)
        return positions[number - 1] if number else 0, positions[number] if number < len(positions) else -1

    def entry_before(self, position: int) -> int:
        """The number of the last entry with a lower position, -1 when there is none."""
        return bisect_left(self.columns()[2], position) - 1

    def position_at_or_after(self, position: int) -> int | None:
        """The position of the first batch known at or past a position."""
        number = self.entry_before(position) + 1
        return self.entry(number)[1] if number < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Forgets entries of batches at or past an offset."""
        self.keep(self.floor(offset - self.base_offset - 1) + 1)


class TimeIndex(Index):
    """From timestamps to the last offset of the batch that has them."""

    ENTRY = Struct(">qi")

    @property
    def is_full(self) -> bool:
        return len(self) >= self.entries_max - 1  # one is left for the entry that closes the segment

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; -1 and the base offset when there is none."""
        if not len(self):
            return -1, self.base_offset
        timestamp, relative = self.entry(len(self) - 1)
        return timestamp, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Notes the greatest timestamp so far, if it is greater than the last one noted."""
        if timestamp > self.last()[0]:
            self.add(timestamp, offset - self.base_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int]:
        """The last entry up to a timestamp: up to its offset no record has a greater one. -1 and the base offset when there is
        none."""
        number = self.floor(timestamp)
        if number < 0:
            return -1, self.base_offset
        found, relative = self.entry(number)
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Forgets entries of batches at or past an offset."""
        count = len(self)
        while count and self.entry(count - 1)[1] + self.base_offset >= offset:
            count -= 1
        self.keep(count)

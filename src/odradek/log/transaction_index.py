"""The aborted transactions whose markers lie in one segment: what a read_committed consumer has to leave out.

The file is made with the first entry, because most segments never have one. Entries are 34 bytes, big-endian:

    int16 version 0, int64 producer id, int64 first offset, int64 last offset (the marker), int64 last stable offset

Invariants
 1. Last offsets rise strictly, from the segment's base on; last stable offsets never fall, and
    are at most one past the marker.
 2. What is in memory is what is in the file; a file that is not there has no entries.
"""

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from odradek.log.disk import Disk, File
from odradek.log.index import CorruptIndex, shrink

VERSION = 0
ENTRY = Struct(">hqqqq")
LAST_OFFSET = Struct(">q")
LAST_OFFSET_POSITION = 18


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def fault_of(version: int, transaction: AbortedTransaction, before: int) -> str:
    """What is wrong with an entry, after one that ends at an offset; nothing when it may be what was written."""
    _, first_offset, last_offset, stable_offset = transaction
    if version != VERSION:
        return f"an entry of version {version}, where only {VERSION} is known"
    if last_offset <= before or not 0 <= first_offset <= last_offset:
        return f"a transaction from offset {first_offset} to {last_offset}, after one that ends at {before}"
    if not 0 <= stable_offset <= last_offset + 1:
        return f"{stable_offset} for stable after a transaction that ends at {last_offset}"
    return ""


class TransactionIndex:
    """The `.txnindex` of one segment, read when it is first asked."""

    __slots__ = ("_data", "_file", "_is_synced", "base_offset", "disk", "has_new_name", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self.disk = disk
        self.path = path
        self.base_offset = base_offset
        self.has_new_name = False  # that the folder has not been synced with
        self._data: bytearray | None = None
        self._file: File | None = None
        self._is_synced = True

    @property
    def data(self) -> bytearray:
        if self._data is None:
            try:
                self._file = self.disk.open(self.path)
            except FileNotFoundError:
                self._data = bytearray()
            else:
                self._data = bytearray(self._file.read(0, self._file.size))
        return self._data

    def append(self, transaction: AbortedTransaction) -> None:
        data = self.data
        assert not data or self._last_offset(len(data) // ENTRY.size - 1) < transaction.last_offset
        assert transaction.last_offset >= self.base_offset
        if self._file is None:
            self._file = self.disk.open(self.path, create=True)
            self.has_new_name = True
        entry = ENTRY.pack(VERSION, *transaction)
        self._file.append([entry])
        self._is_synced = False
        data += entry

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that touch [fetch_offset, upper_bound), and whether later segments have no more."""
        found = []
        data = self.data
        for position in range(self._first_from(fetch_offset) * ENTRY.size, len(data) - ENTRY.size + 1, ENTRY.size):
            _, *fields = ENTRY.unpack_from(data, position)
            transaction = AbortedTransaction(*fields)
            if transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def entries(self) -> list[AbortedTransaction]:
        """All that can be read; a torn last entry is none."""
        whole = memoryview(self.data)[: len(self.data) // ENTRY.size * ENTRY.size]
        return [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(whole)]

    def check(self) -> None:
        """CorruptIndex when this cannot be the index of its segment."""
        data = self.data
        if len(data) % ENTRY.size:
            raise CorruptIndex(f"{self.path} has {len(data)} bytes, which are no whole entries of {ENTRY.size}")
        before = self.base_offset - 1
        for version, *fields in ENTRY.iter_unpack(data):
            transaction = AbortedTransaction(*fields)
            fault = fault_of(version, transaction, before)
            if fault:
                raise CorruptIndex(f"{self.path} has {fault}")
            before = transaction.last_offset

    def truncate_to(self, offset: int) -> None:
        """Forgets the transactions whose markers are at or past an offset; at the base, also what cannot be read."""
        size = 0 if offset <= self.base_offset else self._first_from(offset) * ENTRY.size
        if size < len(self.data):
            assert self._file is not None
            shrink(self._file, size)
            del self.data[size:]

    def sync(self) -> None:
        """On any thread, while entries come."""
        if self._file is not None and not self._is_synced:
            self._is_synced = True
            self._file.sync()

    def renamed(self, path: str) -> None:
        """The file, if there is one, has another name now; what is open stays open."""
        self.path = path

    def _first_from(self, offset: int) -> int:
        """The first entry whose marker is at or past an offset."""
        return bisect_left(range(len(self.data) // ENTRY.size), offset, key=self._last_offset)

    def _last_offset(self, entry: int) -> int:
        offset: int = LAST_OFFSET.unpack_from(self.data, entry * ENTRY.size + LAST_OFFSET_POSITION)[0]
        return offset

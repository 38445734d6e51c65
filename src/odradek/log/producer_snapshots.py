"""The producer snapshots of one log: what was known of the producers before an offset, so that a start need not read more.

One is taken when a segment begins and at a clean stop. Being torn or lost costs time only: an older one is loaded, and more of
the log replayed.

Invariants
 1. `snapshots` are the offsets of the files in the folder, sorted.
 2. A snapshot of batches that were cut off again is gone, durably, before others can be appended in their place.
"""

import os
from abc import ABC, abstractmethod
from bisect import insort
from collections.abc import Callable, Collection, Iterable

from odradek.log.disk import Disk, DiskFull, File
from odradek.log.names import FileKind, FileState, file_name, parse_file_name
from odradek.log.producer import CorruptSnapshot, Producer, decode_snapshot, encode_snapshot


class ProducerSnapshots(ABC):
    """The files; what is in them is the subclass's, which has the producers."""

    def __init__(self, disk: Disk, folder: str, snapshots: Iterable[int] | None) -> None:
        self.disk = disk
        self.folder = folder
        self.map_end_offset = 0  # the state is that of all batches below
        self.last_snapshot_offset = 0
        self.snapshots: list[int] = []
        if snapshots is None:
            self.find_snapshots()
        else:
            self.snapshots = sorted(snapshots)

    @abstractmethod
    def _all(self) -> list[Producer]: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _load(self, producers: list[Producer], now_ms: int) -> None: ...

    # -- writing

    def take_snapshot(self) -> str | None:
        """Keeps the state as it is at `map_end_offset`. Gives the file, None when there is nothing new.

        The file is written and no more: the caller syncs it when it is due.
        """
        if self.map_end_offset <= self.last_snapshot_offset:
            return None
        path = self.snapshot_path(self.map_end_offset)
        self._write(path, encode_snapshot(self._all()))
        if self.map_end_offset not in self.snapshots:
            insort(self.snapshots, self.map_end_offset)
        self.last_snapshot_offset = self.map_end_offset
        return path

    def snapshot_files(self) -> list[File]:
        """The newest snapshot, to be synced by who took it."""
        return [self.disk.open(self.snapshot_path(offset)) for offset in self.snapshots[-1:]]

    def _write(self, path: str, content: bytes) -> None:
        self.disk.remove(path)
        file = self.disk.open(path, create=True)
        try:
            file.append([content])
        except DiskFull:
            self.disk.remove(path)
            raise

    # -- loading

    def truncate_and_reload(self, log_start: int, log_end: int, now_ms: int) -> None:
        """Forgets what is not between the ends of the log. The caller replays the batches from `map_end_offset` on."""
        self._remove([offset for offset in self.snapshots if offset > log_end or offset <= log_start])
        if log_end == self.map_end_offset:
            self.on_start_moved(log_start)
        else:
            self._clear()
            self._load_newest(log_start, now_ms)

    def _load_newest(self, log_start: int, now_ms: int) -> None:
        while self.snapshots:
            offset = self.snapshots[-1]
            path = self.snapshot_path(offset)
            try:
                producers = decode_snapshot(path, self.disk.read(path))
            except (CorruptSnapshot, FileNotFoundError):
                self._remove([offset])
                continue
            self._load(producers, now_ms)
            self.map_end_offset = self.last_snapshot_offset = offset
            return
        self.map_end_offset = self.last_snapshot_offset = log_start

    def truncate_fully(self, offset: int) -> None:
        """The log begins anew at an offset, with no producers."""
        self._clear()
        self._remove([*self.snapshots])
        self.last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_start_moved(self, log_start: int) -> None:
        """The log begins at a later offset now."""
        self.map_end_offset = max(self.map_end_offset, log_start)
        self.last_snapshot_offset = self.snapshots[-1] if self.snapshots else log_start

    # -- the files

    def snapshot_path(self, offset: int) -> str:
        return f"{self.folder}/{file_name(offset, FileKind.SNAPSHOT)}"

    @property
    def latest_snapshot_offset(self) -> int | None:
        return self.snapshots[-1] if self.snapshots else None

    def find_snapshots(self) -> None:
        """Looks into the folder."""
        found = [parse_file_name(name) for name, size in self.disk.names(self.folder) if size >= 0]
        self.snapshots = sorted(
            name.offset
            for name in found
            if name is not None and name.kind is FileKind.SNAPSHOT and name.state is FileState.CURRENT
        )

    def remove_stray_snapshots(self, segment_bases: Collection[int]) -> None:
        """Removes those with which no segment begins, but for the newest if it is past all: a clean stop took it."""
        strays = [offset for offset in self.snapshots if offset not in segment_bases]
        if strays and (not segment_bases or strays[-1] >= max(segment_bases)):
            strays.pop()
        self._remove(strays)

    def remove_snapshots_after(self, offset: int) -> None:
        self._remove([snapshot for snapshot in self.snapshots if snapshot > offset])

    def drop_snapshot(self, offset: int) -> Callable[[], None] | None:
        """Renames the snapshot with which a segment began, if there is one; gives what removes it when its time has come."""
        if offset not in self.snapshots:
            return None
        self.snapshots.remove(offset)
        path = self.snapshot_path(offset)
        dropped = f"{self.folder}/{file_name(offset, FileKind.SNAPSHOT, FileState.DELETED)}"
        try:
            self.disk.rename(path, dropped)
        except DiskFull:
            self.disk.remove(path)
            return None
        except FileNotFoundError:
            return None
        disk, name = self.disk, os.path.basename(dropped)
        return lambda: disk.remove(f"{self.folder}/{name}")  # the folder may be renamed meanwhile

    def _remove(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.disk.remove(self.snapshot_path(offset))
            self.snapshots.remove(offset)
        if offsets:
            self.disk.sync_folder(self.folder)

"""Room on the disk that is kept for the metadata, so that a disk which the data has filled can be cleared: topics and records can
be deleted, retention can be changed.

A file beside the metadata log, of which Kafka takes no notice. When there is no room for the metadata, it is emptied; when there
is room again, it is made again. Between the two nobody else may write to the folder, or what was freed would be gone in a moment:
that is so also for the next life of a node, which finds the empty file.

Invariants
 1. Making the reserve leaves SPARE_BYTES_MIN to others: it does not fill the disk itself.
 2. `is_in_use` from when the room is given to the metadata until the reserve stands again.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from odradek.log.disk import Disk, DiskFailed, DiskFull

RESERVE = "metadata.reserve"
RESERVE_BYTES = 64 * 1024 * 1024
SPARE_BYTES_MIN = 16 * 1024 * 1024
START_BYTES_MIN = 4 * 1024 * 1024  # what a start or a stop may have to write

Result = TypeVar("Result")

logger = logging.getLogger("odradek.reserve")


class Reserve:
    def __init__(self, disk: Disk, folder: str, size: int = RESERVE_BYTES) -> None:
        self.disk = disk
        self.folder = folder
        self.path = f"{folder}/{RESERVE}"
        self.size = size
        found = dict(disk.names(folder)).get(RESERVE)
        self.is_there = found == size  # one that was cut short in a crash keeps no room
        self.is_in_use = found is not None and not self.is_there
        self.on_change: Callable[[bool], None] = lambda _: None  # told `is_in_use`

    def watch(self, told: Callable[[bool], None]) -> None:
        """Tells whether it is in use, now and whenever that changes."""
        self.on_change = told
        told(self.is_in_use)

    def first(self, work: Callable[[], Result]) -> Result:
        """Does what the metadata needs; when there is no room, with the reserve. DiskFull when that is used up too."""
        try:
            return work()
        except DiskFull:
            if not self.give():
                raise
            return work()

    def give(self) -> bool:
        """Frees the room for the metadata; False when there is none to free."""
        if not self.is_there:
            return False
        logger.error(
            "%s: the disk is full; the metadata goes on with what was reserved for it, and nothing is produced to this folder "
            "until there is room again: delete topics or records, lower retention.ms, or add space",
            self.folder,
        )
        self.disk.open(self.path).truncate(0)
        self.is_there, self.is_in_use = False, True
        self.on_change(self.is_in_use)
        return True

    def give_if_needed(self) -> None:
        """Before a start or a stop, which write to many files."""
        if self.disk.space(self.folder)[1] < START_BYTES_MIN:
            self.give()

    def close(self) -> None:
        """A node that has stopped keeps no room, unless there is so little that the next start may need it."""
        if self.is_there and self.disk.space(self.folder)[1] >= SPARE_BYTES_MIN:
            self.disk.remove(self.path)
            self.is_there = False

    def is_makeable(self) -> bool:
        return not self.is_there and self.disk.space(self.folder)[1] >= self.size + SPARE_BYTES_MIN

    def make(self) -> bool:
        """Takes the room again, if there is enough, on any thread; `made` is to follow when it did."""
        try:
            if not self.is_makeable():
                return False
            self.disk.reserve(self.path, self.size)
        except (DiskFull, DiskFailed):
            return False
        return True

    def made(self) -> None:
        self.is_there = True
        if self.is_in_use:
            self.is_in_use = False
            logger.info("%s: there is room again", self.folder)
            self.on_change(self.is_in_use)

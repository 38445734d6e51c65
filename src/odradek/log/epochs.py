"""The leader epochs of one log: at which offset each leader began to write. How replicas find where their logs part.

Kept in `leader-epoch-checkpoint`, one "epoch start-offset" line each, and rebuilt from the batches when it is lost.

Invariants
 1. Epochs and start offsets both rise strictly from entry to entry.
 2. What an append assigns is in memory alone until the log is flushed: above the recovery point a start reads the batches anyway,
    and the disk may still have others there, of a log that was cut. Whatever takes epochs away is on disk before memory changes.
 3. While nothing changes, a batch is assigned at the price of a comparison.
"""

from bisect import bisect_right
from typing import NamedTuple

from odradek.log.checkpoint import CorruptFile, format_rows, read_number, read_rows
from odradek.log.config import INT32_MAX, INT64_MAX
from odradek.log.disk import Disk, DiskFull, replace_file

LEADER_EPOCHS = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """All epochs of one log, oldest first. Reads the file when made: CorruptFile when it is damaged."""

    __slots__ = ("disk", "entries", "is_saved", "latest_epoch", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.is_saved = True
        self.entries: list[EpochStart] = []
        self.latest_epoch = NO_EPOCH
        for line, row in enumerate(read_rows(disk, path, 2), start=3):
            entry = EpochStart(read_number(path, line, row[0], INT32_MAX), read_number(path, line, row[1], INT64_MAX))
            if min(entry) < 0:
                raise CorruptFile(path, line, f"{entry} is negative")
            if self._is_news(entry):
                self._set(self._without_conflicts(entry))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """A batch of this epoch stands at this offset. Entries that disagree go; True when anything changed."""
        assert epoch >= 0
        assert start_offset >= 0
        entry = EpochStart(epoch, start_offset)
        if not self._is_news(entry):
            return False
        self._set(self._without_conflicts(entry))
        self.is_saved = False
        return True

    def forget(self) -> None:
        """Before all are read from the batches: as long as they are not saved, the next start does that too."""
        self._set([])
        self.is_saved = False

    def unsaved(self) -> dict[str, bytes]:
        """The file as it is to be written, when something is in memory alone."""
        return {} if self.is_saved else {self.path: self._content(self.entries)}

    def saved(self, written: dict[str, bytes]) -> None:
        """What `unsaved` gave is on disk now; it may be old by now."""
        self.is_saved = self.is_saved or written == self.unsaved()

    def _is_news(self, entry: EpochStart) -> bool:
        return entry.epoch != self.latest_epoch or entry.start_offset < self.entries[-1].start_offset

    def _without_conflicts(self, entry: EpochStart) -> list[EpochStart]:
        kept = len(self.entries)
        while kept and (self.entries[kept - 1].epoch >= entry.epoch or self.entries[kept - 1].start_offset >= entry.start_offset):
            kept -= 1
        return [*self.entries[:kept], entry]

    @property
    def previous_epoch(self) -> int:
        """The one before the latest; -1 when there is none."""
        return self.entries[-2].epoch if len(self.entries) > 1 else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends; (-1, -1) when nothing is known.

        An epoch before the first entry is answered with itself and the first entry's start: all its records are gone,
        and the one who asks has to go on from there.
        """
        if epoch == NO_EPOCH or epoch > self.latest_epoch or not self.entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end
        following = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        end = self.entries[following].start_offset
        return (epoch if following == 0 else self.entries[following - 1].epoch), end

    def epoch_for(self, offset: int) -> int:
        """The epoch in which an offset was written; -1 before the first entry."""
        following = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[following - 1].epoch if following else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """The log ends here now: epochs that began at or past it never were. Gives whether there were any."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        if end_offset < 0 or len(kept) == len(self.entries):
            return False
        self._write(kept)
        return True

    def take_back(self, end_offset: int) -> bool:
        """The same for an append that failed. Where there is no room to say so, the next start cuts the file."""
        kept = [entry for entry in self.entries if entry.start_offset < end_offset]
        try:
            return self.truncate_from_end(end_offset)
        except DiskFull:
            self._set(kept)
            self.is_saved = False
            return True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins here now: the epoch in which it does begins here too, those before it are gone."""
        following = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if following:
            first = EpochStart(self.entries[following - 1].epoch, start_offset)
            kept = [first, *self.entries[following:]]
            if kept != self.entries:  # memory alone: a start cuts the file too
                self._set(kept)
                self.is_saved = False

    def _write(self, entries: list[EpochStart]) -> None:
        replace_file(self.disk, self.path, self._content(entries))
        self._set(entries)
        self.is_saved = True

    @staticmethod
    def _content(entries: list[EpochStart]) -> bytes:
        return format_rows([f"{epoch} {start}" for epoch, start in entries])

    def _set(self, entries: list[EpochStart]) -> None:
        self.entries = entries
        self.latest_epoch = entries[-1].epoch if entries else NO_EPOCH

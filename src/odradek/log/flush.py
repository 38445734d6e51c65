"""A flush of a log under way: which files are to be synced, and what may be promised when they are.

Syncing takes long, so it is apart from the log: the log says what is to be done and takes the result, and between the two `run`
may be called on any thread, while the log goes on.

Invariant: files are synced before the names in their folder. A new segment that survives a power loss has what stood before it.
"""

from typing import TYPE_CHECKING

from odradek.log.disk import DiskFull, File, replace_files
from odradek.log.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from odradek.log.log import Log


class Flush:
    def __init__(self, log: "Log", *, closed_only: bool) -> None:
        """Of everything, or of all that is behind the active segment."""
        self.log = log
        self.offset = log.active.base_offset if closed_only else log.end_offset  # below it everything is durable afterwards,
        self.cuts = log.cuts  # unless the log was cut more often by then
        self.closed = [segment for segment in log.segments[:-1] if not segment.is_synced]
        self.files: list[File | TransactionIndex] = []
        for segment in self.closed:
            self.files += [segment.file, *segment.save_indexes(), segment.transactions]
        if not closed_only:
            self.files += [log.active.file, log.active.transactions]
        self.epochs = log.epochs.unsaved()
        self.has_epochs = True  # on disk
        indexes = [file for file in self.files if isinstance(file, TransactionIndex)]
        self.new_names = log.has_new_names or any(index.has_new_name for index in indexes)
        for index in indexes:
            index.has_new_name = False

    def run(self) -> None:
        log = self.log
        for file in self.files:
            file.sync()
        try:
            with log.naming:
                if log.cuts != self.cuts:
                    self.has_epochs = False  # of the log as it is now: the cut has written those
                elif not log.is_gone:
                    replace_files(log.disk, self.epochs)
        except DiskFull:  # what is synced is synced, but a start will still need the batches to know their epochs
            self.has_epochs = False
        if self.new_names:
            self._sync_names()

    def _sync_names(self) -> None:
        try:
            self.log.disk.sync_folder(self.log.folder)
        except DiskFull:  # no descriptor was left: the next flush has to
            self.log.has_new_names = True
            raise

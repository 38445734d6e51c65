"""A flush of a log under way: which files are to be synced, and what may be promised when they are.

Syncing takes long, so it is apart from the log: the log says what is to be done and takes the result, and between the two `run`
may be called on any thread, while the log goes on.

Invariant: files are synced before the names in their folder. A new segment that survives a power loss has what stood before it.
"""

from collections.abc import Callable

from odradek.log.disk import Disk, DiskFull, File
from odradek.log.segment import Segment
from odradek.log.transaction_index import TransactionIndex


class Flush:
    def __init__(
        self,
        disk: Disk,
        folder: str,
        offset: int,
        closed: list[Segment],
        files: list[File | TransactionIndex],
        *,
        epochs: dict[str, bytes],
        replace: Callable[[dict[str, bytes]], None],
        cuts: int,
        new_names: bool,
    ) -> None:
        """`offset` is what everything below is durable of afterwards, unless the log was cut more often than `cuts` by then.
        `replace` writes small files."""
        self.disk = disk
        self.folder = folder
        self.offset = offset
        self.closed = closed
        self.files = files
        self.epochs = epochs
        self.replace = replace
        self.cuts = cuts
        self.new_names = new_names
        self.has_epochs = True  # on disk

    def run(self) -> None:
        for file in self.files:
            file.sync()
        try:
            self.replace(self.epochs)
        except DiskFull:  # what is synced is synced, but a start will still need the batches to know their epochs
            self.has_epochs = False
        if self.new_names:
            self.disk.sync_folder(self.folder)

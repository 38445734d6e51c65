"""An append under way: batches that have their offsets, and wait to be written.

Writing takes long when the disk does, so it is apart from the log, as a flush is: the log says what is to be written and takes
the result, and between the two `run` may be called on any thread, while the log is read. A roll is not: it happens before, where
the log is, once for every segment.

Invariants
 1. A log has one write under way at most, and nothing else is appended to it meanwhile.
 2. Until the write is finished the log is what it was: nobody sees what is being written. One that failed has changed nothing.
 3. It is written to the file that the log had when it began: by its name, another log's may be found when it was deleted since.
"""

from odradek.log.log import Log
from odradek.wire.batch import BatchHeader
from odradek.wire.varint import Buffer


class Write:
    __slots__ = ("batches", "data", "file", "log", "segment")

    def __init__(self, log: Log, data: Buffer, batches: list[tuple[int, BatchHeader]], now_ms: int) -> None:
        """Batches that `Log.append` or `append_as_follower` left unwritten."""
        assert not log.is_being_written
        self.log = log
        self.data = data
        self.batches = batches
        self.segment = log.segment_for(data, batches, now_ms)
        self.file = self.segment.file
        log.is_being_written = True

    def run(self) -> None:
        """DiskFull or DiskFailed when it cannot be written."""
        self.file.append([self.data])

    def finish(self) -> None:
        """The batches are in the file: now the log has them."""
        self.log.is_being_written = False
        self.log.note_written(self.data, self.batches, self.segment)

    def take_back(self) -> None:
        """They are in the file, but nobody wants them there any more."""
        self.file.truncate(self.segment.size)
        self.log.is_being_written = False

    def give_up(self) -> None:
        """They are not."""
        self.log.is_being_written = False

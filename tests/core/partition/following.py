"""A log as a list of records, each with the epoch in which it was written: what followers and leaders of the tests share."""

from typing import NamedTuple


class Record(NamedTuple):
    epoch: int
    value: int


class ListedLog:
    """Knows its leader epochs as a log on disk does: from its records, and from leaders that wrote nothing."""

    def __init__(self, records: list[Record] | None = None, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.records = list(records or ())
        self.high_watermark = start_offset
        self.epochs: list[tuple[int, int]] = []
        self.learn_epochs()

    @classmethod
    def of(cls, *epochs: int) -> "ListedLog":
        """A record of each epoch, whose value is its offset."""
        return cls([Record(epoch, offset) for offset, epoch in enumerate(epochs)])

    @property
    def lasting_start(self) -> int:
        return self.start_offset

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def learn_epochs(self) -> None:
        """From the records alone, as after a start."""
        self.epochs = []
        for offset, record in enumerate(self.records, self.start_offset):
            if record.epoch > self.latest_epoch:
                self.epochs.append((record.epoch, offset))

    def begin_epoch(self, epoch: int) -> None:
        kept = [(each, start) for each, start in self.epochs if start < self.end_offset]
        self.epochs = [*kept, (epoch, self.end_offset)]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or epoch < 0 or epoch > self.latest_epoch:
            return -1, -1
        following = [start for each, start in self.epochs if each > epoch]
        known = [each for each, _ in self.epochs if each <= epoch]
        return (known[-1] if known else epoch), (following[0] if following else self.end_offset)

    def append(self, records: list[Record]) -> None:
        for record in records:
            if record.epoch > self.latest_epoch:
                self.epochs.append((record.epoch, self.end_offset))
            self.records.append(record)

    def read(self, offset: int) -> list[Record]:
        return self.records[offset - self.start_offset :]

    def truncate_to(self, offset: int) -> None:
        del self.records[max(offset - self.start_offset, 0) :]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < offset]
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def reset_to(self, offset: int) -> None:
        self.records, self.epochs = [], []
        self.start_offset = self.high_watermark = offset

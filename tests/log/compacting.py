"""A log to compact, in a folder with its cleaner, and what is in it afterwards."""

from typing import Any
from uuid import UUID

from odradek.log.cleaner import Cleaner
from odradek.log.compaction import OnBytes, Outcome, compact
from odradek.log.config import LogConfig
from odradek.log.disk import Disk
from odradek.log.folder import LogFolder
from odradek.log.log import Log, Origin
from odradek.log.names import TopicPartition
from odradek.wire.batch import BatchHeader
from odradek.wire.records import Record, build, records
from tests.log.disk import SimDisk
from tests.log.partition import NOW_MS, add, marker

PARTITION = TopicPartition("orders", 0)
HOUR_MS = 3_600_000


class Compacted:
    """One compacted log. Every `write` is a batch; `compact` closes the active segment and compacts all before it."""

    def __init__(self, disk: Disk | None = None, path: str = "/disk/data", memory_bytes: int = 10**6, **settings: Any) -> None:
        fields = {
            "cleanup_policy": frozenset({"compact"}),
            "segment_bytes": 2000,
            "index_interval_bytes": 0,
            "min_cleanable_dirty_ratio": 0.0,
            "delete_retention_ms": HOUR_MS,
            "file_delete_delay_ms": 0,
            "segment_ms": 10**15,
            **settings,
        }
        self.config = LogConfig(**fields)
        self.disk = disk or SimDisk()
        self.path = path
        self.memory_bytes = memory_bytes
        self.now_ms = NOW_MS
        self.open()
        self.log = self.folder.create(PARTITION, UUID(int=5), self.now_ms)

    def open(self) -> None:
        self.folder = LogFolder(
            self.disk, self.path, lambda _: self.config, now_ms=self.now_ms, jitter=lambda _: 0, unique_id=lambda: "0" * 32
        )
        self.cleaner = Cleaner(self.folder, self.memory_bytes)

    def restart(self) -> None:
        self.folder.close(self.now_ms)
        self.open()
        self.log = self.folder.logs[PARTITION]
        self.log.move_high_watermark(self.log.end_offset)

    def write(self, *rows: tuple[bytes | None, bytes | None], **fields: Any) -> int:
        """Appends one batch of (key, value); gives its first offset."""
        batch = build([Record(number, self.now_ms + number, *row) for number, row in enumerate(rows)], **fields)
        return add(self.log, batch, now_ms=self.now_ms).first_offset

    def settle(self) -> None:
        """Everything is committed and synced, and in closed segments."""
        self.log.roll(self.now_ms)
        self.log.flush(self.now_ms)
        self.log.move_high_watermark(self.log.end_offset)

    def compact(self, throttle: OnBytes = lambda _: None) -> Outcome:
        """One compaction, of all."""
        self.settle()
        chosen = self.cleaner.next_job(self.now_ms)
        assert chosen is not None
        outcome = compact(self.disk, chosen[1], throttle)
        assert self.cleaner.finish(PARTITION, outcome, self.now_ms)
        self.log.delete_due(self.now_ms)
        return outcome

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    # -- what is there

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        return batches_of(self.log)

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record of data."""
        return [(r.offset, r.key, r.value) for header, found in self.batches() if not header.is_control for r in found]

    def markers(self) -> list[int]:
        """The offsets of the markers that have their record."""
        return [header.base_offset for header, found in self.batches() if header.is_control and found]

    def empty(self) -> list[int]:
        """The last offsets of batches without records."""
        return [header.last_offset for header, found in self.batches() if not found]


def batches_of(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    return [(header, [*records(batch, 0, header)]) for segment in log.segments for _, header, batch in segment.checked_batches()]


def end(of: Compacted, *, commit: bool, producer_id: int = 7, epoch: int = 0) -> int:
    data = marker(commit=commit, producer_id=producer_id, epoch=epoch, at=of.now_ms)
    return add(of.log, data, origin=Origin.COORDINATOR, now_ms=of.now_ms).first_offset

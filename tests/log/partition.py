"""One partition to try things on: short ways to make batches, to start again, and to see all that a log knows."""

import os
from typing import Any

from odradek.log.config import LogConfig
from odradek.log.disk import Disk
from odradek.log.folder import LogFolder
from odradek.log.loading import open_log
from odradek.log.log import Appended, Log, Origin
from odradek.log.producer import encode_snapshot
from odradek.wire.control import end_marker
from odradek.wire.records import Record, build
from tests.log.disk import SimDisk

FOLDER = "/disk/orders-0"
NOW_MS = 1_000_000
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def batch(
    count: int = 1, *, at: int = NOW_MS, key: bytes | None = b"key", value: bytes | None = b"some value", **fields: Any
) -> bytearray:
    """A batch as a client sends it, of records that have one timestamp."""
    return build([Record(number, at, key, value) for number in range(count)], **fields)


def sent(offset: int, count: int = 1, *, epoch: int = 0, **fields: Any) -> bytes:
    """A batch as a leader sends it, with its place in the log."""
    rows = [Record(offset + number, fields.pop("at", NOW_MS), b"key", b"some value") for number in range(count)]
    return bytes(build(rows, base_offset=offset, leader_epoch=epoch, **fields))


def produced(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **fields: Any) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def marker(*, commit: bool, producer_id: int = 7, epoch: int = 0, at: int = NOW_MS) -> bytearray:
    return end_marker(commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=at)


def opened(disk: Disk, config: LogConfig = SMALL, *, folder: str = FOLDER, clean: bool = False, **known: Any) -> Log:
    """The log in a folder, which is made when there is none."""
    disk.make_folder(folder)
    disk.sync_folder(os.path.dirname(folder))
    return open_log(disk, folder, config, now_ms=known.pop("now_ms", NOW_MS), clean=clean, **known)


def folder_on(disk: Disk, config: LogConfig = SMALL) -> LogFolder:
    return LogFolder(disk, "/disk/data", lambda _: config, now_ms=NOW_MS, jitter=lambda _: 0, unique_id=lambda: "0" * 32)


def new_log(**settings: Any) -> Log:
    """An empty log on a disk of its own, with small segments unless told."""
    config = LogConfig(**{"segment_bytes": 600, "index_interval_bytes": 100, **settings})
    return opened(SimDisk(), config)


def add(log: Log, data: bytearray, *, epoch: int = 0, now_ms: int = NOW_MS, origin: Origin = Origin.CLIENT) -> Appended:
    return log.append(data, leader_epoch=epoch, now_ms=now_ms, origin=origin)


def fill(log: Log, batches: int, count: int = 1, *, at: int = NOW_MS, step_ms: int = 1, epoch: int = 0) -> None:
    """Batches that rise in time, each with a value of its own."""
    for number in range(batches):
        value = b"value %d" % (log.end_offset + number)
        add(log, batch(count, at=at + number * step_ms, value=value), epoch=epoch, now_ms=at + number * step_ms)


def end(log: Log, *, commit: bool, producer_id: int = 7, at: int = NOW_MS) -> Appended:
    """Ends a transaction, as its coordinator does."""
    return add(log, marker(commit=commit, producer_id=producer_id, at=at), origin=Origin.COORDINATOR)


def sim(log: Log) -> SimDisk:
    assert isinstance(log.disk, SimDisk)
    return log.disk


def written(log: Log) -> bytes:
    """The bytes of all batches."""
    return b"".join(segment.file.read(0, segment.size) for segment in log.segments)


def indexed(log: Log) -> list[tuple[bytes, bytes, list[tuple[int, ...]]]]:
    """What the indexes of each segment say."""
    return [
        (bytes(segment.index.data), bytes(segment.time_index.data), [*segment.transactions.entries()]) for segment in log.segments
    ]


def known(log: Log) -> tuple[object, ...]:
    """All that a log holds and knows: two that answer the same have the same."""
    producers = log.producers
    return (
        log.start_offset,
        log.end_offset,
        written(log),
        [entry for _, _, entries in indexed(log) for entry in entries],
        encode_snapshot(producers._all()),
        [*producers.ongoing.items()],
        [*log.epochs.entries],
    )


def files(log: Log) -> dict[str, int]:
    """The names in the log's folder, with their sizes."""
    return dict(log.disk.names(log.folder))

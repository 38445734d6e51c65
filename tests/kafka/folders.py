"""The data folder of a stopped broker, opened by Odradek with the settings that its topics have."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from odradek.log.config import DAY_MS, LogConfig
from odradek.log.disk import RealDisk
from odradek.log.folder import LogFolder

Topics = Mapping[str, Mapping[str, str]]  # the settings of each topic, under Kafka's names

# Kafka allows no topic to have segments below 1 MB, but for this setting of its own tests.
SMALL_INDEXES = {"segment.index.bytes": "100000"}  # they are filled with zeros while a segment is written
SMALL_SEGMENTS = {"internal.segment.bytes": "3000", "index.interval.bytes": "100", **SMALL_INDEXES}


def now() -> int:
    return time.time_ns() // 1_000_000


def log_config(settings: Mapping[str, str]) -> LogConfig:
    return LogConfig(
        cleanup_policy=frozenset(settings.get("cleanup.policy", "delete").split(",")),
        delete_retention_ms=int(settings.get("delete.retention.ms", DAY_MS)),
        index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=int(settings.get("internal.segment.bytes", 2**30)),
        segment_index_bytes=int(settings.get("segment.index.bytes", 10 * 2**20)),
    )


def open_folder(path: Path, topics: Topics) -> LogFolder:
    def config_of(topic: str) -> LogConfig:
        return log_config({"cleanup.policy": "compact"} if topic.startswith("__") else topics[topic])

    return LogFolder(RealDisk(), str(path), config_of, now_ms=now(), jitter=lambda _: 0, unique_id=lambda: "0" * 32)


@contextlib.contextmanager
def opened(path: Path, topics: Topics) -> Iterator[LogFolder]:
    """Opens a folder as the only replica of all its partitions would, and closes it as if the broker itself had stopped."""
    folder = open_folder(path, topics)
    try:
        for log in folder.logs.values():
            log.move_high_watermark(log.end_offset)
        yield folder
        for log in folder.logs.values():
            log.move_high_watermark(log.end_offset)
        folder.close(now(), -1 if folder.clean_broker_epoch is None else folder.clean_broker_epoch)
    except BaseException:
        folder.lock.release()
        raise

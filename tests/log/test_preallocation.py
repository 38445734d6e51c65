"""`preallocate`: a new segment has room on the disk for all that it will hold, and none of it when nothing more comes."""

import os
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.log import Log
from odradek.log.names import FileKind, file_name
from tests.kafka.dump import check_dump
from tests.kafka.oracle import Oracle
from tests.log.partition import NOW_MS, fill, opened, written

SEGMENT_BYTES = 1 << 20
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=100, preallocate=True)
BLOCK_BYTES = 512
SLACK_BYTES = 64 * 1024  # blocks of a file system are larger than those that are counted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def start(folder: Path, config: LogConfig = CONFIG, *, clean: bool = False) -> Log:
    return opened(RealDisk(), config, folder=str(folder), clean=clean)


def segment(folder: Path, base_offset: int = 0) -> Path:
    return folder / file_name(base_offset, FileKind.LOG)


def room(path: Path) -> int:
    """What a file takes on the disk."""
    return os.stat(path).st_blocks * BLOCK_BYTES


def test_a_new_segment_takes_its_room_at_once_and_holds_what_was_written(folder: Path) -> None:
    log = start(folder)
    fill(log, 10)
    assert room(segment(folder)) >= SEGMENT_BYTES
    assert segment(folder).stat().st_size == log.size


def test_a_segment_gives_its_room_back_when_the_next_one_begins(folder: Path) -> None:
    log = start(folder)
    fill(log, 10)
    log.roll(NOW_MS)
    assert room(segment(folder)) <= SLACK_BYTES
    assert room(segment(folder, 10)) >= SEGMENT_BYTES


@pytest.mark.parametrize("batches", [0, 10])
def test_a_clean_stop_leaves_no_room_taken(folder: Path, batches: int) -> None:
    log = start(folder)
    fill(log, batches)
    log.close(NOW_MS)
    assert room(segment(folder)) <= SLACK_BYTES
    assert written(start(folder, clean=True)) == written(log)


def test_after_a_crash_nothing_is_missing_and_only_what_is_written_on_has_room(folder: Path, oracle: Oracle) -> None:
    log = start(folder)
    fill(log, 10)
    log.roll(NOW_MS)
    fill(log, 10)
    log.segments[0].file.allocate(SEGMENT_BYTES)  # a power loss has undone what the roll did
    log.active.save_indexes()
    check_dump(oracle, folder)  # Kafka's tools find nothing behind the last batch
    again = start(folder)
    assert written(again) == written(log)
    assert room(segment(folder)) <= SLACK_BYTES
    assert room(segment(folder, 10)) >= SEGMENT_BYTES
    again.roll(NOW_MS)
    assert room(segment(folder, 10)) <= SLACK_BYTES


def test_zeros_that_a_crash_of_kafka_left_behind_the_last_batch_are_cut_off(folder: Path) -> None:
    log = start(folder, LogConfig(segment_bytes=SEGMENT_BYTES))
    fill(log, 10)
    os.truncate(segment(folder), SEGMENT_BYTES)
    again = start(folder)
    assert written(again) == written(log)
    assert segment(folder).stat().st_size == log.size
    assert again.damage is None


def test_a_disk_without_so_much_room_is_written_all_the_same(folder: Path) -> None:
    log = start(folder, LogConfig(segment_bytes=2**62, preallocate=True))
    fill(log, 10)
    assert log.end_offset == 10
    assert room(segment(folder)) <= SLACK_BYTES


def test_without_it_a_segment_takes_what_it_holds(folder: Path) -> None:
    fill(start(folder, LogConfig(segment_bytes=SEGMENT_BYTES)), 10)
    assert room(segment(folder)) <= SLACK_BYTES

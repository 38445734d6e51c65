"""Retention: which segments go, which never do, and when their files do."""

from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.log import Appended, Log
from tests.log.partition import NOW_MS, add, batch, end, files, fill, new_log, opened, produced, sim

SIZE = len(batch())
DAY_MS = 86_400_000


def aged_log(**settings: object) -> Log:
    """One batch in a segment, one segment a day, four of them, all committed."""
    log = new_log(**{"segment_bytes": SIZE, "retention_ms": -1, **settings})
    for day in range(4):
        sim(log).now_ms = NOW_MS + day * DAY_MS
        add(log, batch(at=NOW_MS + day * DAY_MS), now_ms=NOW_MS + day * DAY_MS)
    log.move_high_watermark(4)
    assert log.bases == [0, 1, 2, 3]
    return log


def expire(log: Log, now_ms: int) -> list[int]:
    return [segment.base_offset for segment in log.delete_expired(now_ms)]


# -- by time


def test_a_segment_that_cannot_be_read_goes_by_the_time_of_its_file() -> None:
    disk = sim(aged_log()).crash("kept")
    disk.flip_bit("/disk/orders-0/00000000000000000000.log", 8 * 16 + 6)
    disk.remove("/disk/orders-0/00000000000000000000.timeindex")
    log = opened(disk, LogConfig(segment_bytes=SIZE, retention_ms=2 * DAY_MS), clean=True)
    log.move_high_watermark(4)
    assert expire(log, NOW_MS + 2 * DAY_MS) == []
    assert expire(log, NOW_MS + 3 * DAY_MS) == [0]


@pytest.mark.parametrize(("days", "expired"), [(2, []), (3, [0]), (4, [0, 1])])
def test_a_segment_goes_when_its_greatest_timestamp_is_too_old(days: int, expired: list[int]) -> None:
    log = aged_log(retention_ms=2 * DAY_MS)
    assert expire(log, NOW_MS + days * DAY_MS) == expired
    assert log.start_offset == log.bases[0] == len(expired)


def test_it_is_kept_until_more_than_the_time_has_gone_by() -> None:
    log = aged_log(retention_ms=2 * DAY_MS)
    assert expire(log, NOW_MS + 2 * DAY_MS) == []
    assert expire(log, NOW_MS + 2 * DAY_MS + 1) == [0]


def test_a_segment_behind_a_younger_one_waits_for_it() -> None:
    log = new_log(segment_bytes=SIZE, retention_ms=DAY_MS)
    add(log, batch(at=NOW_MS + 9 * DAY_MS))
    add(log, batch(at=NOW_MS))
    log.move_high_watermark(2)
    assert expire(log, NOW_MS + 5 * DAY_MS) == []


def test_a_timestamp_in_the_future_keeps_its_segment_and_those_behind_it() -> None:
    log = new_log(segment_bytes=SIZE, retention_ms=DAY_MS)
    for at in (NOW_MS, NOW_MS + 1000 * DAY_MS, NOW_MS):
        add(log, batch(at=at))
    log.move_high_watermark(3)
    assert expire(log, NOW_MS + 10 * DAY_MS) == [0]
    assert log.bases == [1, 2]


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    log = new_log(segment_bytes=SIZE, retention_ms=DAY_MS)
    for day in range(3):
        sim(log).now_ms = NOW_MS + day * DAY_MS
        add(log, batch(at=-1), now_ms=NOW_MS)
    log.move_high_watermark(3)
    assert expire(log, NOW_MS + 2 * DAY_MS + 1) == [0, 1]


def test_the_age_of_a_file_is_what_the_disk_says(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=SIZE, retention_ms=DAY_MS)
    log = opened(RealDisk(), config, folder=str(tmp_path / "orders-0"))
    add(log, batch(at=-1))
    add(log, batch(at=-1))
    log.move_high_watermark(2)
    written_ms = (tmp_path / "orders-0/00000000000000000000.log").stat().st_mtime_ns // 1_000_000
    assert expire(log, written_ms + DAY_MS) == []
    assert expire(log, written_ms + DAY_MS + DAY_MS) == [0, 1]


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_without_an_end_of_retention_nothing_goes(policy: str) -> None:
    log = aged_log(retention_ms=-1 if policy == "delete" else 1, retention_bytes=-1, cleanup_policy=frozenset({policy}))
    assert expire(log, NOW_MS + 10_000 * DAY_MS) == []


# -- by size


@pytest.mark.parametrize(
    ("bytes_kept", "expired"),
    [(4 * SIZE, []), (3 * SIZE + 1, []), (3 * SIZE, [0]), (SIZE + 1, [0, 1]), (SIZE, [0, 1, 2]), (0, [0, 1, 2, 3])],
)
def test_the_oldest_segments_go_as_long_as_at_least_so_many_bytes_stay(bytes_kept: int, expired: list[int]) -> None:
    log = aged_log(retention_bytes=bytes_kept)
    assert expire(log, NOW_MS) == expired


def test_a_compacted_log_is_not_cut_by_size() -> None:
    log = aged_log(retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    assert expire(log, NOW_MS) == []


def test_both_policies_together_are_retention_too() -> None:
    log = aged_log(retention_bytes=2 * SIZE, cleanup_policy=frozenset({"compact", "delete"}))
    assert expire(log, NOW_MS) == [0, 1]


# -- by start offset


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize(("start", "expired"), [(0, []), (1, [0]), (3, [0, 1, 2]), (4, [0, 1, 2])])
def test_segments_below_the_start_go_whatever_the_policy(start: int, expired: list[int], policy: str) -> None:
    log = aged_log(cleanup_policy=frozenset({policy}))
    log.move_start(start)
    assert expire(log, NOW_MS) == expired
    assert log.start_offset == start


def test_a_segment_that_is_only_partly_below_the_start_stays() -> None:
    log = new_log(segment_bytes=2 * len(batch(2)), retention_ms=-1)
    for _ in range(4):
        add(log, batch(2))
    log.move_high_watermark(8)
    log.move_start(3)
    assert expire(log, NOW_MS) == []


# -- what never goes


@pytest.mark.parametrize("high_watermark", [0, 1, 2, 3, 4])
def test_nothing_past_the_high_watermark_goes(high_watermark: int) -> None:
    log = new_log(segment_bytes=SIZE, retention_ms=1, retention_bytes=0)
    fill(log, 4)
    log.move_high_watermark(high_watermark)
    assert expire(log, NOW_MS + DAY_MS) == [*range(high_watermark)]
    assert log.start_offset == high_watermark


def test_an_empty_log_does_not_expire() -> None:
    log = new_log(retention_ms=1, retention_bytes=0)
    assert expire(log, NOW_MS + 1000 * DAY_MS) == []


def test_when_all_of_a_log_expires_an_empty_segment_is_left_at_its_end() -> None:
    log = aged_log(retention_ms=DAY_MS)
    assert expire(log, NOW_MS + 100 * DAY_MS) == [0, 1, 2, 3]
    assert (log.bases, log.start_offset, log.end_offset, log.size) == ([4], 4, 4, 0)
    assert expire(log, NOW_MS + 200 * DAY_MS) == []
    log.close(NOW_MS)
    for clean in (True, False):
        again = opened(sim(log).crash("strict"), log.config, clean=clean, recovery_point=4)
        assert (again.bases, again.start_offset, again.end_offset) == ([4], 4, 4)
        assert add(again, batch()) == Appended(4, 4)


# -- files


def test_files_are_renamed_at_once_and_removed_after_file_delete_delay_ms() -> None:
    log = aged_log(retention_bytes=2 * SIZE, file_delete_delay_ms=1000)
    expire(log, NOW_MS)
    gone = ["00000000000000000000", "00000000000000000001"]
    of_gone = [name for name in files(log) if name[:20] in gone]
    assert {name.split(".", 1)[1] for name in of_gone} >= {"log.deleted", "index.deleted", "timeindex.deleted"}
    assert all(name.endswith(".deleted") for name in of_gone)
    log.delete_due(NOW_MS + 999)
    assert [name for name in files(log) if name[:20] in gone] == of_gone
    log.delete_due(NOW_MS + 1000)
    assert [name for name in files(log) if name[:20] in gone] == []


def test_a_start_removes_what_was_about_to_be_removed() -> None:
    log = aged_log(retention_bytes=2 * SIZE)
    expire(log, NOW_MS)
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    assert again.bases == [2, 3]
    assert not [name for name in files(again) if name.endswith(".deleted")]


def test_a_reader_of_a_segment_that_goes_is_not_stopped(tmp_path: Path) -> None:
    log = opened(RealDisk(), LogConfig(segment_bytes=SIZE, retention_bytes=0), folder=str(tmp_path / "orders-0"))
    fill(log, 2)
    log.move_high_watermark(2)
    found = log.read(0, 1000, 2)
    expected = found.read()
    expire(log, NOW_MS)
    log.delete_due(NOW_MS + DAY_MS)
    assert not (tmp_path / "orders-0/00000000000000000000.log.deleted").exists()
    assert found.read() == expected


# -- producers


def test_a_producer_is_remembered_when_its_segments_are_gone() -> None:
    log = new_log(segment_bytes=SIZE, retention_bytes=0)
    add(log, produced(0))
    add(log, produced(1))
    fill(log, 2)
    log.move_high_watermark(4)
    assert expire(log, NOW_MS) == [0, 1, 2, 3]
    assert add(log, produced(1))[:3] == (1, 1, True)
    fill(log, 1)
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    assert add(again, produced(1))[:3] == (1, 1, True)
    assert add(again, produced(2)) == Appended(5, 5)


def test_an_open_transaction_holds_the_last_stable_offset_when_its_start_is_gone() -> None:
    log = new_log(segment_bytes=SIZE, retention_bytes=0)
    add(log, produced(0, transactional=True))
    fill(log, 3)
    log.move_high_watermark(3)
    expire(log, NOW_MS)
    assert log.last_stable_offset == log.start_offset == 3
    end(log, commit=True)
    log.move_high_watermark(5)
    assert log.last_stable_offset == 5

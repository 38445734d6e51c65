"""Cutting a log: at an offset, at an epoch, at its start, and all of it. What is left is as if the rest had never been there."""

import pytest

from odradek.log.log import Appended, Log
from odradek.log.lookup import aborted_between, offset_of_max_timestamp
from odradek.wire.errors import ErrorCode, Refused
from tests.log.disk import SimDisk
from tests.log.model import batches_of, check_indexes
from tests.log.partition import NOW_MS, SMALL, add, batch, end, files, fill, known, new_log, opened, produced, sim, written

SIZE = len(batch(2, value=b"value 0"))
DAY_MS = 24 * 3600 * 1000


def long_log(batches: int = 12) -> Log:
    """Batches of two records, three in a segment, a new epoch every five."""
    log = new_log(segment_bytes=3 * SIZE + 20, index_interval_bytes=0)
    for number in range(batches):
        add(log, batch(2, at=NOW_MS + number, value=b"value %d" % (number % 10)), epoch=number // 5)
    return log


def last_offsets(log: Log) -> list[int]:
    return [found.last_offset for found in batches_of(written(log))]


@pytest.mark.parametrize("offset", range(25))
def test_every_batch_that_ends_at_or_past_the_offset_goes(offset: int) -> None:
    log = long_log()
    assert log.truncate_to(offset, NOW_MS) == (offset < 24)
    assert log.end_offset == offset // 2 * 2
    assert last_offsets(log) == [*range(1, offset // 2 * 2, 2)]
    assert log.bases == [base for base in (0, 6, 12, 18) if base <= offset]
    check_indexes(log)
    assert [*log.epochs.entries] == [entry for entry in ((0, 0), (1, 10), (2, 20)) if entry[1] < log.end_offset]


@pytest.mark.parametrize("offset", range(25))
def test_what_is_left_is_what_was_there_before_the_rest_came(offset: int) -> None:
    log = long_log()
    log.truncate_to(offset, NOW_MS)
    fresh = long_log(offset // 2)
    assert known(log) == known(fresh)
    assert offset_of_max_timestamp(log) == offset_of_max_timestamp(fresh)
    for grown in (log, fresh):
        assert add(grown, batch(at=NOW_MS + 99), epoch=7) == Appended(offset // 2 * 2, offset // 2 * 2)
    assert written(log) == written(fresh)


@pytest.mark.parametrize("offset", [1, 5, 7, 13])
@pytest.mark.parametrize("ending", ["index", "timeindex"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_an_index_that_is_rotten_does_not_end_the_cut(offset: int, ending: str, is_gone: bool) -> None:
    log = long_log()
    path = f"{log.folder}/{offset // 6 * 6:020}.{ending}"
    if is_gone:
        log.disk.remove(path)
    else:
        log.disk.open(path).append([b"?"])
    assert log.truncate_to(offset, NOW_MS)
    assert known(log) == known(long_log(offset // 2))
    check_indexes(log)
    assert add(log, batch(), epoch=7) == Appended(offset // 2 * 2, offset // 2 * 2)


@pytest.mark.parametrize("offset", [0, 1, 5, 6, 7, 13, 23])
def test_what_was_cut_off_does_not_come_back(offset: int) -> None:
    log = long_log()
    log.flush(NOW_MS)
    log.truncate_to(offset, NOW_MS)
    for manner in ("strict", "kept"):
        again = opened(sim(log).crash(manner), log.config, recovery_point=log.recovery_point)
        assert last_offsets(again) == [*range(1, offset // 2 * 2, 2)]


def test_the_recovery_point_on_disk_is_lowered_before_anything_is_cut() -> None:
    seen: list[tuple[int, int]] = []
    log = opened(SimDisk(), SMALL)
    log.recovery_point_lowered = lambda: seen.append((log.recovery_point, log.end_offset))
    fill(log, 12)
    log.flush(NOW_MS)
    log.truncate_to(12, NOW_MS)
    assert seen == []
    log.truncate_to(5, NOW_MS)
    assert seen == [(5, 12)]
    fill(log, 3)
    log.truncate_to(6, NOW_MS)  # which is above it
    assert len(seen) == 1


def test_below_the_first_segment_everything_goes_and_the_log_begins_at_the_offset() -> None:
    log = long_log()
    log.move_high_watermark(24)
    log.move_start(14)
    log.delete_expired(NOW_MS)
    assert log.bases[0] == 12
    assert log.truncate_to(5, NOW_MS)
    assert (log.bases, log.start_offset, log.end_offset, log.high_watermark) == ([5], 5, 5, 5)
    assert written(log) == b""


def test_the_high_watermark_and_the_start_are_never_past_the_end() -> None:
    log = long_log()
    log.move_high_watermark(20)
    log.move_start(9)
    log.truncate_to(4, NOW_MS)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (4, 4, 4)


def test_producers_are_as_they_were_at_the_offset() -> None:
    log = new_log(segment_bytes=250)
    for number in range(4):
        add(log, produced(number))
    add(log, produced(0, producer_id=8, transactional=True))
    end(log, commit=False, producer_id=8)
    log.truncate_to(5, NOW_MS)
    assert [*log.producers.ongoing] == [4]
    log.truncate_to(2, NOW_MS)
    assert 8 not in log.producers.producers
    assert aborted_between(log, 0, 100) == []
    assert add(log, produced(1))[:3] == (1, 1, True)
    assert add(log, produced(2)) == Appended(2, 2)


def test_producers_are_not_forgotten_by_a_cut_whatever_day_it_is_said_to_be() -> None:
    """The clock was set meanwhile: what a producer sends again would be written again."""
    log = new_log(segment_bytes=250)
    for number in range(4):
        add(log, produced(number))
    log.roll(NOW_MS)
    fill(log, 2)
    log.truncate_to(5, NOW_MS + 2 * DAY_MS)
    assert add(log, produced(3))[:3] == (3, 3, True)


def test_a_cut_epoch_is_gone_though_it_has_no_records() -> None:
    log = long_log(4)
    log.epochs.assign(6, log.end_offset)  # a leader that has written nothing yet
    assert not log.truncate_to(log.end_offset, NOW_MS)
    assert log.epochs.latest_epoch == 0


# -- the start


def test_the_start_moves_up_to_the_high_watermark_and_never_back() -> None:
    log = long_log()
    log.move_high_watermark(20)
    log.move_start(15)
    log.move_start(7)
    assert log.start_offset == 15
    assert [*log.epochs.entries] == [(1, 15), (2, 20)]
    with pytest.raises(Refused) as refused:
        log.move_start(21)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.start_offset == 15


def test_a_reset_log_begins_anew() -> None:
    log = long_log()
    add(log, produced(0, transactional=True))
    log.flush(NOW_MS)
    log.reset_to(100, NOW_MS)
    assert (log.start_offset, log.end_offset, log.high_watermark, log.bases) == (100, 100, 100, [100])
    assert not log.producers.producers
    assert not log.epochs.entries
    assert [name for name in files(log) if not name.endswith(".deleted")] == [
        "00000000000000000100.index",
        "00000000000000000100.log",
        "00000000000000000100.timeindex",
        "leader-epoch-checkpoint",
    ]
    assert add(log, batch()) == Appended(100, 100)


def test_a_transaction_whose_end_is_not_committed_is_not_stable_after_a_cut_either() -> None:
    """Its end is below the snapshot that what is known of producers is loaded from again, and that does not say so."""
    log = new_log()
    add(log, produced(0, 2, transactional=True))
    end(log, commit=True)
    log.roll(NOW_MS)
    fill(log, 3)
    log.move_high_watermark(2)
    assert log.last_stable_offset == 0
    assert log.truncate_to(5, NOW_MS)
    assert log.last_stable_offset == 0
    log.move_high_watermark(3)
    assert log.last_stable_offset == 3

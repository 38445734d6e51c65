"""A disk that fails or is full: after a failed sync nothing is trusted any more; a full disk refuses, and nothing has changed."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.log import Log, Origin
from odradek.log.lookup import aborted_between, offset_for_timestamp
from odradek.log.names import TopicPartition
from odradek.wire.batch import headers, set_offset_and_epoch
from tests.log.disk import SimDisk
from tests.log.model import check_indexes
from tests.log.partition import (
    NOW_MS,
    add,
    batch,
    end,
    fill,
    folder_on,
    known,
    marker,
    new_log,
    opened,
    produced,
    sent,
    sim,
    written,
)

PARTITION = TopicPartition("orders", 0)
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=0, retention_bytes=0)


# -- a sync that fails


def failed_log() -> Log:
    """A log of three segments whose last flush failed."""
    log = new_log(segment_bytes=300, index_interval_bytes=0)
    fill(log, 8)
    log.flush(NOW_MS)
    fill(log, 1)
    sim(log).fail_sync(lambda path: path.endswith(".log"))
    with pytest.raises(DiskFailed):
        log.flush(NOW_MS)
    sim(log).fail_sync(lambda _: False)  # the next one would succeed, and must not be asked
    return log


OPERATIONS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: add(log, batch()),
    "append as a follower": lambda log: log.append_as_follower(sent(log.end_offset), now_ms=NOW_MS),
    "read": lambda log: log.read(0, 1000, log.end_offset).read(),
    "look up a time": lambda log: offset_for_timestamp(log, NOW_MS + 2),
    "flush": lambda log: log.flush(NOW_MS),
    "roll": lambda log: log.roll(NOW_MS),
    "truncate": lambda log: log.truncate_to(4, NOW_MS),
    "reset": lambda log: log.reset_to(50, NOW_MS),
    "close": lambda log: log.close(NOW_MS),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_failed_sync_every_operation_fails_for_ever(operation: str) -> None:
    log = failed_log()
    steps = len(sim(log).steps)
    for _ in range(2):
        with pytest.raises(DiskFailed):
            OPERATIONS[operation](log)
    assert len(sim(log).steps) == steps


def test_the_recovery_point_stays_below_what_could_not_be_synced() -> None:
    log = failed_log()
    assert log.recovery_point == 8
    again = opened(sim(log).crash("strict"), log.config, recovery_point=8)
    assert again.damage is None
    assert again.end_offset == 8


@pytest.mark.parametrize("what", [".log", ".index", ".snapshot", "orders-0", "checkpoint.tmp", "/disk/data", "cleanshutdown.tmp"])
def test_a_sync_that_fails_while_the_folder_is_closed_leaves_no_clean_mark(what: str) -> None:
    disk = SimDisk()
    folder = folder_on(disk, SMALL)
    log = folder.create(PARTITION, UUID(int=4), NOW_MS)
    add(log, produced(0))
    log.flush(NOW_MS)
    folder.checkpoint()
    for number in range(1, 6):
        add(log, produced(number))
    disk.fail_sync(lambda path: path.endswith(what))
    with pytest.raises(DiskFailed):
        folder.close(NOW_MS)
    again = folder_on(disk.crash("strict"), SMALL)
    assert not again.was_clean
    found = again.logs[PARTITION]
    assert found.damage is None
    assert 1 <= found.end_offset <= 6
    check_indexes(found)


@pytest.mark.parametrize("what", [".log", "orders-0", ".index"])
def test_a_sync_that_fails_in_a_cut_or_a_roll_is_not_passed_over(what: str) -> None:
    log = new_log(segment_bytes=300, index_interval_bytes=0)
    fill(log, 8)
    log.flush(NOW_MS)
    sim(log).fail_sync(lambda path: path.endswith(what))
    with pytest.raises(DiskFailed):
        log.truncate_to(5, NOW_MS)
    with pytest.raises(DiskFailed):
        add(log, batch())


# -- a full disk


def tell(log: Log, number: int) -> None:
    """One step of a story that has everything: new segments, new epochs, producers, transactions that end either way."""
    steps: list[Callable[[], object]] = [
        lambda: add(log, batch(2), epoch=number // 6),
        lambda: add(log, produced(0, epoch=number, transactional=True), epoch=number // 6),
        lambda: add(log, batch(), epoch=number // 6),
        lambda: add(log, marker(commit=False, epoch=number - 2), origin=Origin.COORDINATOR, epoch=number // 6),
        lambda: log.append_as_follower(sent(log.end_offset + 3, 2, epoch=number // 6), now_ms=NOW_MS),
        lambda: log.append_as_follower(sent(log.end_offset, epoch=number) + sent(log.end_offset + 1, epoch=number + 1), now_ms=1),
        lambda: log.append_as_follower(aborted(log.end_offset, number) + sent(log.end_offset + 2, epoch=number + 2), now_ms=1),
    ]
    steps[number % len(steps)]()


def aborted(offset: int, epoch: int) -> bytes:
    """A transaction of one record and its end, as a leader sends them."""
    data = produced(0, producer_id=8, epoch=epoch, transactional=True) + marker(commit=False, producer_id=8, epoch=epoch)
    for position, header in [*headers(data)]:
        set_offset_and_epoch(data, position, offset + (position > 0), epoch)
        assert header.producer_id == 8
    return bytes(data)


STEPS = 21


def test_a_full_disk_refuses_each_append_of_a_story_and_nothing_has_changed() -> None:
    plain = new_log(segment_bytes=300, index_interval_bytes=0)
    log = new_log(segment_bytes=300, index_interval_bytes=0)
    for number in range(STEPS):
        tell(plain, number)
        refused = 0
        for room in range(0, 2000, 7):
            before = known(log)
            sim(log).room = room
            try:
                tell(log, number)
                break
            except DiskFull:
                refused += 1
            assert known(log) == before, f"step {number}, room for {room} bytes"
            check_indexes(log)
        assert refused, f"step {number} needed no room"
        assert known(log) == known(plain), f"step {number}"
    sim(log).room = None
    again = opened(sim(log).crash("kept"), log.config)
    assert known(again) == known(plain)


def test_what_is_appended_after_there_is_room_again_is_durable_when_flushed() -> None:
    for room in range(0, 400, 3):
        log = new_log(segment_bytes=300, index_interval_bytes=0)
        for number in range(3):
            add(log, produced(number))
        sim(log).room = room
        try:
            add(log, produced(3))  # which needs a new segment and a snapshot
        except DiskFull:
            sim(log).room = None
            add(log, produced(3))
        sim(log).room = None
        log.flush(NOW_MS)
        again = opened(sim(log).crash("strict"), log.config, recovery_point=log.recovery_point)
        assert written(again) == written(log), f"room for {room} bytes"


def test_on_a_full_disk_reading_expiring_and_deleting_go_on() -> None:
    disk = SimDisk()
    folder = folder_on(disk, SMALL)
    log = folder.create(PARTITION, UUID(int=4), NOW_MS)
    fill(log, 9)
    log.move_high_watermark(log.bases[-1])
    log.flush(NOW_MS)
    disk.room = 0
    with pytest.raises(DiskFull):
        add(log, batch())
    assert log.read(0, 10_000, 9).size == log.size
    assert log.delete_expired(NOW_MS)
    log.delete_due(NOW_MS)
    assert disk.room > 0
    assert end(log, commit=True).first_offset == 9


def test_a_start_needs_no_room_and_what_it_could_not_write_is_written_at_the_stop() -> None:
    log = new_log(retention_ms=50, file_delete_delay_ms=0)
    fill(log, 10)
    add(log, produced(0, transactional=True))
    add(log, marker(commit=False), origin=Origin.COORDINATOR)
    fill(log, 3, at=NOW_MS + 100, epoch=4)
    before = log.read(0, 10**6, log.end_offset).read()
    disk = sim(log).crash("kept")
    disk.remove(log.epochs.path)  # which has to be written again, and cannot
    disk.room = 0
    log = opened(disk, log.config)
    assert log.read(0, 10**6, log.end_offset).read() == before
    assert [found.producer_id for found in aborted_between(log, 0, log.end_offset)] == [7]
    assert log.epochs.latest_epoch == 4
    check_indexes(log)
    with pytest.raises(DiskFull):
        add(log, batch(), epoch=4)
    log.move_high_watermark(log.end_offset)
    log.delete_expired(NOW_MS + 120)
    log.delete_due(NOW_MS + 120)
    add(log, batch(), epoch=4)
    log.close(NOW_MS)
    again = opened(disk.crash("strict"), log.config, clean=True, start_offset=log.start_offset)
    assert (again.end_offset, again.epochs.entries) == (log.end_offset, log.epochs.entries)
    check_indexes(again)


def test_when_all_of_a_log_expires_on_a_full_disk_most_of_it_goes_and_the_rest_when_there_is_room() -> None:
    log = new_log(segment_bytes=300, index_interval_bytes=0, retention_ms=1, file_delete_delay_ms=0)
    fill(log, 9)
    log.move_high_watermark(9)
    segments = len(log.segments)
    sim(log).room = 0
    assert len(log.delete_expired(NOW_MS + 9999)) == segments - 1
    log.delete_due(NOW_MS + 9999)
    log.delete_expired(NOW_MS + 9999)
    assert (log.start_offset, log.end_offset, log.size) == (9, 9, 0)


# -- a real disk


PROGRAM = """
    import resource, signal, sys
    from odradek.log.disk import DiskFailed, DiskFull, RealDisk
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    disk = RealDisk()
    file = disk.open(sys.argv[1], create=True)
    file.append([b"a" * 100])
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        file.append([b"b" * 50, b"c" * 50])
    except DiskFull:
        print("full", file.size)
    except DiskFailed as error:
        print("failed", file.size)
    else:
        print("written", file.size)
"""


@pytest.mark.parametrize(("limit", "said"), [(100, "full 100"), (130, "full 100"), (199, "full 100"), (200, "written 200")])
def test_a_short_write_is_seen_and_what_it_took_is_cut_off_again(tmp_path: Path, limit: int, said: str) -> None:
    path = tmp_path / "file"
    arguments = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), str(limit)]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == said
    assert path.read_bytes() == b"a" * 100 + (b"b" * 50 + b"c" * 50 if limit == 200 else b"")

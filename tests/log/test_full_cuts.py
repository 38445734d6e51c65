"""Cuts and rolls on a full disk: whichever operation finds no room, the log is whole or cut, on the disk too, and can be cut
again."""

import errno
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from odradek.log.checkpoint import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from odradek.log.config import LogConfig
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.wire.batch import headers
from tests.log.disk import NO_ROOM, SimDisk, SimFile
from tests.log.model import check_indexes
from tests.log.partition import NOW_MS, add, batch, end, folder_on, known, produced, sim

PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=0)
NEED_ROOM = ("create", "append", "rename")
OPERATIONS_MAX = 200

Cut = Callable[[Log], object]


class FullDisk(SimDisk):
    """Refuses one operation that needs room, or also a descriptor; the number says which. `for_good`, also those behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.before_refusal: int | None = None
        self.refuses_descriptors = self.for_good = False
        self.faults.on_cost = lambda kind, path, _: self.look(path) if kind in NEED_ROOM else None

    def look(self, path: str) -> None:
        if self.before_refusal is not None:
            self.before_refusal -= 1
            if self.before_refusal < 0:
                self.before_refusal = 0 if self.for_good else None
                raise DiskFull(errno.ENOSPC, NO_ROOM, path)

    def look_for_descriptor(self, path: str) -> None:
        if self.refuses_descriptors:
            self.look(path)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.look_for_descriptor(path)
        return super().open(path, create=create)

    def read(self, path: str) -> bytes:
        self.look_for_descriptor(path)
        return super().read(path)

    def sync_folder(self, path: str) -> None:
        self.look_for_descriptor(path)
        super().sync_folder(path)


def long_log() -> tuple[LogFolder, Log]:
    """Many segments, epochs, producers, transactions; all of it synced but for the end, and some of it compacted."""
    folder = folder_on(FullDisk(), CONFIG)
    log = folder.create(PARTITION, UUID(int=4), NOW_MS)
    for number in range(18):
        epoch = number // 4
        if number == 15:
            log.flush(NOW_MS)
            folder.clean_offsets[PARTITION] = log.bases[-1]
            folder.checkpoint()
        match number % 3:
            case 0:
                add(log, produced(number // 3), epoch=epoch)
            case 1:
                add(log, produced(number // 3, producer_id=8, transactional=True), epoch=epoch)
                end(log, commit=False, producer_id=8)
            case _:
                add(log, batch(2), epoch=epoch)
    log.move_high_watermark(20)
    return folder, log


def noted(disk: SimDisk) -> list[int]:
    """The recovery point on disk, and up to where it says that the log is compacted."""
    return [read_offsets(disk, f"/disk/data/{name}").get(PARTITION, 0) for name in (RECOVERY_POINTS, CLEANER_OFFSETS)]


def after_crash(log: Log, then: Cut = lambda _: None) -> list[object]:
    """What is known of it after a power loss, and after a kill, when something was done then."""
    found = [folder_on(sim(log).crash(manner), CONFIG).logs[PARTITION] for manner in ("strict", "kept")]
    for each in found:
        assert each.damage is None
        then(each)
    return [known(each) for each in found]


def refused_cuts(cut: Cut, *, descriptors: bool) -> Iterator[tuple[LogFolder, Log, OSError]]:
    """The log after each cut that one of its operations has ended."""
    for number in range(OPERATIONS_MAX):
        folder, log = long_log()
        disk = log.disk
        assert isinstance(disk, FullDisk)
        disk.before_refusal, disk.refuses_descriptors = number, descriptors
        try:
            cut(log)
        except (DiskFull, DiskFailed) as error:
            yield folder, log, error
        else:
            if disk.before_refusal is not None:
                return  # it was not that long
            check_same(folder, log, cut)
    raise AssertionError("it has no end")


def check_same(folder: LogFolder, log: Log, cut: Cut) -> None:
    """Compares with a log that was cut on a disk that had room."""
    plain_folder, plain = long_log()
    cut(plain)
    assert known(log) == known(plain)
    assert (log.bases, log.recovery_point, log.high_watermark) == (plain.bases, plain.recovery_point, plain.high_watermark)
    assert noted(sim(log)) == noted(sim(plain))
    assert folder.clean_offsets == plain_folder.clean_offsets
    assert log.producers.snapshots == plain.producers.snapshots
    check_indexes(log)
    assert after_crash(log) == after_crash(plain)


OFFSETS = [1, 9, 14, 20, 25]


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_cut_that_finds_no_room_has_changed_nothing_and_can_be_tried_again(offset: int) -> None:
    def cut(log: Log) -> bool:
        return log.truncate_to(offset, NOW_MS)

    refused = 0
    _, whole = long_log()
    for folder, log, error in refused_cuts(cut, descriptors=False):
        assert isinstance(error, DiskFull)
        assert known(log) == known(whole)
        assert log.recovery_point in (whole.recovery_point, noted(sim(log))[0])
        assert after_crash(log) == after_crash(whole)
        assert cut(log)
        check_same(folder, log, cut)
        refused += 1
    assert refused


@pytest.mark.parametrize("offset", OFFSETS)
def test_a_cut_that_ends_for_want_of_a_descriptor_is_none_or_is_finished_after_the_next_start(offset: int) -> None:
    def cut(log: Log) -> bool:
        return log.truncate_to(offset, NOW_MS)

    _, whole = long_log()
    _, plain = long_log()
    cut(plain)
    for folder, log, error in refused_cuts(cut, descriptors=True):
        if isinstance(error, DiskFull):
            assert known(log) == known(whole)
            assert cut(log)
            check_same(folder, log, cut)
        else:
            assert after_crash(log, cut) == after_crash(plain, cut)


@pytest.mark.parametrize("offset", [5, 14, 100])
@pytest.mark.parametrize("descriptors", [False, True])
def test_a_log_that_cannot_begin_anew_for_want_of_room_does_so_later(offset: int, descriptors: bool) -> None:
    def cut(log: Log) -> None:
        log.reset_to(offset, NOW_MS)

    for folder, log, error in refused_cuts(cut, descriptors=descriptors):
        assert isinstance(error, DiskFull)
        log.delete_due(NOW_MS)
        cut(log)
        check_same(folder, log, cut)


def offsets(log: Log) -> list[int]:
    """What a reader finds that goes from offset to offset."""
    found: list[int] = []
    while (offset := len(found)) < log.end_offset:
        data = log.read(offset, 1, log.end_offset).read()
        found += [header.base_offset + number for _, header in headers(data) for number in range(header.last_offset_delta + 1)]
    return found


@pytest.mark.parametrize("preallocates", [False, True])
def test_a_log_may_outgrow_the_segment_for_which_there_was_no_room(preallocates: bool) -> None:
    config = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=0, preallocate=preallocates)
    outgrown = 0
    for number in range(OPERATIONS_MAX):
        disk = FullDisk()
        folder = folder_on(disk, config)
        log = folder.create(PARTITION, UUID(int=4), NOW_MS)
        add(log, batch(2))
        disk.before_refusal, disk.refuses_descriptors = number, True
        try:
            add(log, batch(value=bytes(200)))
        except DiskFull:
            outgrown += log.bases == [0]
        else:
            if disk.before_refusal is None:
                continue  # it could do without
            assert outgrown > 3
            return
        add(log, batch(3))
        killed = folder_on(disk.crash("kept"), config).logs[PARTITION]
        for each in (log, killed):
            add(each, batch(value=bytes(200)))
            assert each.active.base_offset == 5
            assert offsets(each) == [*range(6)]
        folder.close(NOW_MS)
        again = folder_on(disk, config)
        assert again.was_clean
        assert offsets(again.logs[PARTITION]) == [*range(6)]
    raise AssertionError("it has no end")


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_marker_that_can_be_neither_noted_nor_taken_back_ends_the_disk(has_snapshot: bool) -> None:
    def open_transaction() -> Log:
        _, log = long_log()
        if has_snapshot:
            log.roll(NOW_MS)
        add(log, produced(6, transactional=True))
        return log

    before, failures = known(open_transaction()), 0
    for number in range(OPERATIONS_MAX):
        log = open_transaction()
        disk = log.disk
        assert isinstance(disk, FullDisk)
        disk.before_refusal, disk.refuses_descriptors, disk.for_good = number, True, True
        try:
            end(log, commit=False)
        except DiskFull:
            disk.before_refusal = None
            assert known(log) == before
        except DiskFailed:
            assert disk.failure is not None
            failures += 1
        else:
            assert failures
            return
    raise AssertionError("it has no end")

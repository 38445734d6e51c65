"""A folder of `log.dirs`: its lock, its checkpoints, the mark of a clean stop, and what each name in it means."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    read_partition_metadata,
)
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull, RealDisk, replace_files
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.folder import LogFolder
from odradek.log.names import TopicPartition
from tests.log.disk import SimDisk
from tests.log.partition import NOW_MS, add, batch, fill, known, written

ORDERS = TopicPartition("orders", 0)
MAIL = TopicPartition("mail", 3)
DATA = "/disk/data"
SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0, file_delete_delay_ms=1000)
ID = "0123456789abcdef" * 2


def open_folder(disk: Disk, path: str = DATA, config: LogConfig = SMALL, now_ms: int = NOW_MS) -> LogFolder:
    return LogFolder(disk, path, lambda _: config, now_ms=now_ms, jitter=lambda _: 0, unique_id=lambda: ID)


def with_two_logs() -> tuple[SimDisk, LogFolder]:
    disk = SimDisk()
    folder = open_folder(disk)
    for number, partition in enumerate((ORDERS, MAIL)):
        fill(folder.create(partition, UUID(int=number + 1), NOW_MS), 5)
    return disk, folder


def names(disk: Disk) -> list[str]:
    return [name for name, _ in disk.names(DATA)]


# -- the lock


def note_compacted(folder: LogFolder, partition: TopicPartition, offset: int) -> None:
    folder.clean_offsets[partition] = offset
    replace_files(folder.disk, folder.compacted())


def expire(folder: LogFolder, now_ms: int) -> None:
    for remove in folder.expire(now_ms, now_ms):
        remove()


def test_a_folder_is_one_process_s_only(tmp_path: Path) -> None:
    folder = open_folder(RealDisk(), str(tmp_path / "data"))
    program = (
        "import sys; from odradek.log.config import LogConfig; from odradek.log.disk import RealDisk; "
        "from odradek.log.folder import LogFolder\n"
        "try: LogFolder(RealDisk(), sys.argv[1], lambda _: LogConfig(), now_ms=0, jitter=lambda _: 0, unique_id=lambda: '')\n"
        "except BlockingIOError: print('held')\n"
        "else: print('free')"
    )

    def other_process() -> str:
        arguments = [sys.executable, "-c", program, str(tmp_path / "data")]
        return subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip()

    assert other_process() == "held"
    folder.close(NOW_MS)
    assert other_process() == "free"


def test_a_second_start_is_refused_before_it_touches_anything() -> None:
    disk, folder = with_two_logs()
    before, steps = known(folder.logs[ORDERS]), len(disk.steps)
    with pytest.raises(BlockingIOError):
        open_folder(disk)
    assert known(folder.logs[ORDERS]) == before
    assert [step.kind for step in disk.steps[steps:]] == ["sync_folder"]


def test_a_start_that_fails_gives_the_lock_back() -> None:
    disk, folder = with_two_logs()
    folder.close(NOW_MS)

    def no_config(_: str) -> LogConfig:
        raise KeyError

    with pytest.raises(KeyError):
        LogFolder(disk, DATA, no_config, now_ms=NOW_MS, jitter=lambda _: 0, unique_id=lambda: ID)
    open_folder(disk)


# -- what is in it


def test_a_new_log_and_its_topic_s_id_are_durable_before_anything_is_appended() -> None:
    disk = SimDisk()
    folder = open_folder(disk)
    folder.create(ORDERS, UUID(int=77), NOW_MS)
    after = disk.crash("strict")
    assert read_partition_metadata(after, f"{DATA}/orders-0/partition.metadata") == UUID(int=77)
    assert open_folder(after).logs[ORDERS].end_offset == 0


def test_each_name_means_what_it_means_to_kafka() -> None:
    disk, folder = with_two_logs()
    folder.close(NOW_MS)
    for name in (f"gone-1.{ID}-delete", f"lost-2.{ID}-stray", f"coming-3.{ID}-future", "notes", "__cluster_metadata-0", "x-y"):
        disk.make_folder(f"{DATA}/{name}")
        disk.open(f"{DATA}/{name}/00000000000000000000.log", create=True).append([batch()])
    disk.open(f"{DATA}/file-0", create=True)
    again = open_folder(disk)
    assert {*again.logs} == {ORDERS, MAIL}
    assert {*again.futures} == {TopicPartition("coming", 3)}
    assert again.futures[TopicPartition("coming", 3)].end_offset == 1
    assert again.strays == [f"lost-2.{ID}-stray"]
    left = names(disk)
    assert f"gone-1.{ID}-delete" not in left
    assert {f"lost-2.{ID}-stray", "notes", "__cluster_metadata-0", "x-y", "file-0"} <= {*left}
    for untouched in (f"lost-2.{ID}-stray", "notes", "__cluster_metadata-0"):
        assert [name for name, _ in disk.names(f"{DATA}/{untouched}")] == ["00000000000000000000.log"]


def test_a_deleted_log_is_gone_at_once_and_its_files_after_the_delay() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    found = log.read(0, 10_000, 5)
    expected = found.read()
    folder.delete(ORDERS, NOW_MS)
    assert ORDERS not in folder.logs
    assert f"orders-0.{ID}-delete" in names(disk)
    assert f"orders-0.{ID}-delete" in names(disk.crash("strict"))
    assert ORDERS not in read_offsets(disk, f"{DATA}/{RECOVERY_POINTS}")
    expire(folder, NOW_MS + 999)
    assert f"orders-0.{ID}-delete" in names(disk)
    assert found.read() == expected
    expire(folder, NOW_MS + 1000)
    assert f"orders-0.{ID}-delete" not in names(disk)
    assert folder.create(ORDERS, UUID(int=9), NOW_MS).end_offset == 0


def test_nothing_is_remembered_of_a_deleted_log_when_one_of_its_name_comes() -> None:
    disk, folder = with_two_logs()
    note_compacted(folder, ORDERS, 4)
    note_compacted(folder, MAIL, 3)
    folder.delete(ORDERS, NOW_MS)
    folder.create(ORDERS, UUID(int=9), NOW_MS)
    assert folder.clean_offsets == {MAIL: 3}
    assert read_offsets(disk.crash("strict"), f"{DATA}/{CLEANER_OFFSETS}") == {MAIL: 3}


def test_nor_when_the_power_went_while_it_was_deleted() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.move_high_watermark(5)
    log.move_start(4)
    log.flush(NOW_MS)
    folder.checkpoint()
    note_compacted(folder, ORDERS, 4)
    disk.rename(log.folder, f"{DATA}/orders-0.{ID}-delete")
    again = open_folder(disk.crash("kept"))
    fill(again.create(ORDERS, UUID(int=9), NOW_MS), 2)
    found = open_folder(again.disk.crash("kept")).logs[ORDERS]  # type: ignore[attr-defined]
    assert (found.start_offset, found.end_offset, found.recovery_point) == (0, 2, 0)
    assert again.clean_offsets == {}


def test_a_copy_on_its_way_is_not_judged_by_the_checkpoints_of_the_log_it_will_replace() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.move_high_watermark(5)
    log.move_start(4)
    log.flush(NOW_MS)
    folder.checkpoint()
    disk.make_folder(f"{DATA}/orders-0.{ID}-future")
    disk.open(f"{DATA}/orders-0.{ID}-future/00000000000000000000.log", create=True).append([batch(3), b"torn"])
    again = open_folder(disk.crash("kept"))
    copy = again.futures[ORDERS]
    assert (copy.start_offset, copy.end_offset, copy.damage) == (0, 3, None)
    assert again.logs[ORDERS].start_offset == 4


def test_what_expires_is_what_each_log_s_retention_says() -> None:
    disk = SimDisk()
    folder = open_folder(disk, config=LogConfig(segment_bytes=400, retention_ms=1000, file_delete_delay_ms=0))
    log = folder.create(ORDERS, UUID(int=1), NOW_MS)
    fill(log, 9)
    log.move_high_watermark(9)
    expire(folder, NOW_MS + 500)
    assert log.start_offset == 0
    expire(folder, NOW_MS + 5000)
    assert log.start_offset == 9
    assert not [name for name, _ in disk.names(f"{DATA}/orders-0") if name.endswith(".deleted")]


# -- checkpoints


def test_what_is_to_be_removed_is_not_forgotten_when_a_log_cannot_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, folder = with_two_logs()
    first, second = folder.logs.values()
    fill(first, 30)
    first.move_high_watermark(first.end_offset)
    first.move_start(first.bases[-1])
    due_ms = NOW_MS + first.config.file_delete_delay_ms
    expire(folder, NOW_MS)
    assert [name for name in disk.names(first.folder) if name[0].endswith(".deleted")]

    def refused(_: int) -> None:
        raise DiskFull(errno.EMFILE, os.strerror(errno.EMFILE), second.folder)

    with monkeypatch.context() as patched:
        patched.setattr(second, "delete_expired", refused)
        with pytest.raises(DiskFull):
            expire(folder, due_ms)
    expire(folder, due_ms)
    assert not [name for name in disk.names(first.folder) if name[0].endswith(".deleted")]


def test_checkpoints_have_kafka_s_names_and_say_what_the_logs_say() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.move_high_watermark(4)
    log.move_start(2)
    log.flush(NOW_MS)
    folder.checkpoint()
    assert read_offsets(disk, f"{DATA}/recovery-point-offset-checkpoint") == {ORDERS: 5, MAIL: 0}
    assert read_offsets(disk, f"{DATA}/replication-offset-checkpoint") == {ORDERS: 4, MAIL: 0}
    assert read_offsets(disk, f"{DATA}/log-start-offset-checkpoint") == {ORDERS: 2}
    note_compacted(folder, ORDERS, 3)
    assert read_offsets(disk, f"{DATA}/cleaner-offset-checkpoint") == {ORDERS: 3}


@pytest.mark.parametrize("clean", [True, False])
def test_start_and_high_watermark_are_those_of_the_last_checkpoint(clean: bool) -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.move_high_watermark(4)
    log.move_start(2)
    if clean:
        folder.close(NOW_MS)
    else:
        log.flush(NOW_MS)
        folder.checkpoint()
    again = open_folder(disk.crash("kept")).logs[ORDERS]
    assert (again.start_offset, again.high_watermark, again.end_offset) == (2, 4, 5)


def test_a_high_watermark_is_never_past_the_end_of_what_is_left() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.flush(NOW_MS)
    fill(log, 3)
    log.move_high_watermark(8)
    folder.checkpoint()
    again = open_folder(disk.crash("strict")).logs[ORDERS]
    assert (again.high_watermark, again.end_offset) == (5, 5)


@pytest.mark.parametrize("content", [b"", b"0\n7\n", b"1\n0\n", b"\xff\xfe", b"0\n1\norders 0 x\n", b"0\n1\norders 0 99999\n"])
@pytest.mark.parametrize("name", [RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS])
@pytest.mark.parametrize("clean", [True, False])
def test_a_checkpoint_that_cannot_be_right_costs_no_record(name: str, content: bytes, clean: bool) -> None:
    if name == LOG_STARTS and b"99999" in content:
        return  # a start is believed: what is below it was deleted on purpose
    disk, folder = with_two_logs()
    expected = written(folder.logs[ORDERS])
    if clean:
        folder.close(NOW_MS)
    after = disk.crash("kept")
    after.remove(f"{DATA}/{name}")
    after.open(f"{DATA}/{name}", create=True).append([content])
    log = open_folder(after).logs[ORDERS]
    assert log.damage is None
    assert (written(log), log.start_offset, log.end_offset) == (expected, 0, 5)
    assert log.recovery_point <= log.end_offset
    assert log.high_watermark <= log.end_offset


def test_a_lowered_recovery_point_is_on_disk_before_the_cut() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.flush(NOW_MS)
    folder.checkpoint()
    disk.steps.clear()
    log.truncate_to(2, NOW_MS)
    kinds = [(step.kind, step.path.rsplit("/", 1)[1]) for step in disk.steps]
    cut = next(number for number, (kind, name) in enumerate(kinds) if kind == "truncate" and name.endswith(".log"))
    written_at = next(number for number, (kind, name) in enumerate(kinds) if kind == "rename" and name == RECOVERY_POINTS)
    assert "sync_folder" in [kind for kind, _ in kinds[written_at:cut]]
    assert read_offsets(disk, f"{DATA}/{RECOVERY_POINTS}")[ORDERS] == 2


def test_a_checkpoint_that_was_made_before_a_cut_and_is_written_behind_it_does_not_undo_that() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.flush(NOW_MS)
    note_compacted(folder, ORDERS, 4)
    folder.logs[MAIL].move_high_watermark(1)
    save = folder.saving(folder.checkpoints())  # which a thread will do
    log.truncate_to(2, NOW_MS)
    save()
    after = disk.crash("strict")
    assert read_offsets(after, f"{DATA}/{RECOVERY_POINTS}")[ORDERS] == 2
    assert read_offsets(after, f"{DATA}/{CLEANER_OFFSETS}") == {ORDERS: 2}
    assert read_offsets(after, f"{DATA}/{HIGH_WATERMARKS}")[MAIL] == 1
    folder.checkpoint()
    assert read_offsets(disk, f"{DATA}/{RECOVERY_POINTS}")[ORDERS] == 2


def gone_while_it_runs(disk: SimDisk, folder: LogFolder) -> LogFolder:
    folder.delete(ORDERS, NOW_MS)
    return folder


def set_aside_while_it_runs(disk: SimDisk, folder: LogFolder) -> LogFolder:
    folder.set_aside(ORDERS, NOW_MS)
    return folder


def gone_at_a_start(disk: SimDisk, folder: LogFolder) -> LogFolder:
    folder.discard([folder.forget(ORDERS)], NOW_MS)
    return open_folder(disk.crash("strict"))


@pytest.mark.parametrize("goes", [gone_while_it_runs, set_aside_while_it_runs, gone_at_a_start])
def test_no_log_is_made_while_the_checkpoints_tell_of_another_with_its_name(
    goes: Callable[[SimDisk, LogFolder], LogFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the disk is nearly full: there is room for a small file, and none for all of the checkpoints."""
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.flush(NOW_MS)
    log.move_high_watermark(5)
    log.move_start(3)
    folder.checkpoint()
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise DiskFull(errno.ENOSPC, "no room on the disk")

        patch.setattr(LogFolder, "saving", lambda *_: refuse)
        folder = goes(disk, folder)
        with pytest.raises(DiskFull):
            folder.create(ORDERS, UUID(int=3), NOW_MS)
        assert ORDERS not in folder.logs
    fill(folder.create(ORDERS, UUID(int=3), NOW_MS), 4)
    for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS):
        assert not read_offsets(folder.disk, f"{DATA}/{name}").get(ORDERS)


def test_compacted_is_only_what_is_below_a_cut() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    log.flush(NOW_MS)
    note_compacted(folder, ORDERS, 4)
    log.truncate_to(2, NOW_MS)
    assert folder.clean_offsets[ORDERS] == 2
    assert read_offsets(disk.crash("strict"), f"{DATA}/{CLEANER_OFFSETS}") == {ORDERS: 2}


# -- the mark of a clean stop


def test_the_mark_is_there_only_while_nobody_has_the_folder_open() -> None:
    disk, folder = with_two_logs()
    assert CLEAN_SHUTDOWN not in names(disk)
    folder.close(NOW_MS, broker_epoch=12)
    assert disk.read(f"{DATA}/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":12}'
    assert CLEAN_SHUTDOWN in names(disk.crash("strict"))
    again = open_folder(disk)
    assert (again.was_clean, again.clean_broker_epoch) == (True, 12)
    assert CLEAN_SHUTDOWN not in names(disk.crash("strict"))


def test_it_is_removed_before_anything_is_opened_and_written_after_everything_is_closed() -> None:
    disk, folder = with_two_logs()
    disk.steps.clear()
    folder.close(NOW_MS)
    order = [(step.kind, step.path.rsplit("/", 1)[1]) for step in disk.steps]
    assert order[-2:] == [("rename", CLEAN_SHUTDOWN), ("sync_folder", "data")]
    assert ("rename", RECOVERY_POINTS) in order
    disk.steps.clear()
    open_folder(disk)
    assert [(step.kind, step.path.rsplit("/", 1)[1]) for step in disk.steps][-2:] == [
        ("remove", CLEAN_SHUTDOWN),
        ("sync_folder", "data"),
    ]


def test_a_stop_without_the_mark_is_looked_into() -> None:
    disk, folder = with_two_logs()
    fill(folder.logs[ORDERS], 1)
    after = disk.crash("kept")
    after.flip_bit(f"{DATA}/orders-0/{'0' * 20}.log", 8 * 70)
    again = open_folder(after)
    assert (again.was_clean, again.clean_broker_epoch) == (False, None)
    assert again.logs[ORDERS].end_offset == 0
    assert again.logs[MAIL].end_offset == 5


def test_a_log_whose_epochs_found_no_room_leaves_no_mark() -> None:
    disk, folder = with_two_logs()
    log = folder.logs[ORDERS]
    add(log, batch(), epoch=7)

    def refuse(kind: str, path: str, _: int) -> None:
        if kind in ("create", "append") and path.startswith(f"{log.folder}/{LEADER_EPOCHS}"):
            raise DiskFull(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    disk.faults.on_cost = refuse
    folder.close(NOW_MS)
    disk.faults.on_cost = None
    again = open_folder(disk)
    assert not again.was_clean
    assert again.logs[ORDERS].epochs.latest_epoch == 7


def test_a_damaged_log_leaves_no_mark_and_is_damaged_at_the_next_start() -> None:
    disk, folder = with_two_logs()
    folder.logs[ORDERS].flush(NOW_MS)
    folder.checkpoint()
    after = disk.crash("kept")
    after.flip_bit(f"{DATA}/orders-0/{folder.logs[ORDERS].bases[-1]:020}.log", 8 * 70)
    again = open_folder(after)
    for _ in range(2):
        assert again.logs[ORDERS].damage is not None
        assert add(again.logs[MAIL], batch()).first_offset >= 0  # the others go on
        again.close(NOW_MS)
        assert CLEAN_SHUTDOWN not in names(after)
        again = open_folder(after)
    again.logs[ORDERS].reset_to(0, NOW_MS)
    again.close(NOW_MS)
    assert CLEAN_SHUTDOWN in names(after)


# -- logs that the cluster does not keep here


def test_a_log_that_is_set_aside_is_forgotten_and_kept() -> None:
    disk, folder = with_two_logs()
    assert folder.topic_id(folder.logs[ORDERS]) == UUID(int=1)
    name = folder.set_aside(ORDERS, NOW_MS)
    assert name == f"orders-0.{ID}-stray"
    assert name in names(disk)
    assert list(folder.logs) == [MAIL]
    assert ORDERS not in read_offsets(disk, f"{DATA}/{RECOVERY_POINTS}")
    new = folder.create(ORDERS, UUID(int=3), NOW_MS)
    assert (new.start_offset, new.end_offset, new.high_watermark) == (0, 0, 0)
    folder.close(NOW_MS)
    again = open_folder(disk)
    assert again.strays == [name]
    assert again.topic_id(again.logs[ORDERS]) == UUID(int=3)

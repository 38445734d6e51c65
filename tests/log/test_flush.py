"""Flushing: when it is due, in which order files are synced, and how far the recovery point may move."""

import errno
import os
import threading
from uuid import UUID

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import DiskFull
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from tests.log.disk import SimDisk, Step
from tests.log.partition import FOLDER, NOW_MS, add, batch, end, fill, folder_on, new_log, opened, produced, sim, written

SIZE = len(batch())


# -- when it is due


def test_after_flush_messages_records() -> None:
    log = new_log(segment_bytes=10**6, flush_messages=5)
    add(log, batch(2))
    add(log, batch(2))
    assert not log.flush_due(NOW_MS)
    add(log, batch(2))
    assert log.flush_due(NOW_MS)
    log.flush(NOW_MS)
    assert not log.flush_due(NOW_MS)
    assert log.recovery_point == 6


def test_after_flush_ms_when_there_is_anything_to_flush() -> None:
    log = new_log(flush_ms=1000)
    assert not log.flush_due(NOW_MS + 5000)
    add(log, batch())
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1000)
    log.flush(NOW_MS + 1000)
    add(log, batch())
    assert not log.flush_due(NOW_MS + 1999)
    assert log.flush_due(NOW_MS + 2000)


def test_after_a_roll_for_the_segments_that_were_closed() -> None:
    log = new_log(segment_bytes=SIZE)
    add(log, batch())
    assert not log.flush_due(NOW_MS)
    add(log, batch())
    assert log.flush_due(NOW_MS)
    flush = log.start_flush(closed_only=True)
    flush.run()
    log.finish_flush(flush, NOW_MS)
    assert log.recovery_point == 1
    assert not log.flush_due(NOW_MS)


def test_never_by_itself() -> None:
    log = new_log(segment_bytes=10**6)
    fill(log, 100)
    assert not log.flush_due(NOW_MS + 10**9)


# -- what it syncs, and in which order


def syncs(steps: list[Step]) -> list[str]:
    return [step.path.rsplit("/", 1)[1] for step in steps if step.kind in ("sync", "sync_folder")]


def test_files_are_synced_before_the_folder_that_names_them() -> None:
    log = new_log(segment_bytes=2 * SIZE)
    add(log, produced(0, transactional=True))
    end(log, commit=False)
    add(log, batch())
    sim(log).steps.clear()
    log.start_flush().run()
    order = syncs(sim(log).steps)
    assert order[-3:] == ["leader-epoch-checkpoint.tmp", "orders-0", "orders-0"]
    assert {*order[:-3]} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000002.log",
    }


def test_a_folder_without_new_names_is_not_synced_again() -> None:
    log = new_log(segment_bytes=10**6)
    add(log, batch())
    log.flush(NOW_MS)
    add(log, batch())
    sim(log).steps.clear()
    log.flush(NOW_MS)
    assert syncs(sim(log).steps) == ["00000000000000000000.log"]


def test_a_closed_segment_is_synced_once() -> None:
    log = new_log(segment_bytes=SIZE)
    fill(log, 3)
    log.flush(NOW_MS)
    fill(log, 1)
    sim(log).steps.clear()
    log.flush(NOW_MS)
    assert not [name for name in syncs(sim(log).steps) if name.startswith(("00000000000000000000", "00000000000000000001"))]


def test_what_was_flushed_is_there_without_what_was_not() -> None:
    log = new_log(segment_bytes=3 * SIZE)
    for number in range(8):
        add(log, batch())
        if number == 5:
            log.flush(NOW_MS)
    again = opened(sim(log).crash("strict"), log.config, recovery_point=log.recovery_point)
    assert (again.end_offset, log.recovery_point) == (6, 6)


def test_the_checkpoint_of_the_recovery_point_follows_the_syncs() -> None:
    disk = SimDisk()
    folder = folder_on(disk)
    log = folder.create(TopicPartition("orders", 0), UUID(int=3), NOW_MS)
    fill(log, 3)
    disk.steps.clear()
    log.flush(NOW_MS)
    folder.checkpoint()
    order = syncs(disk.steps)
    assert order.index("00000000000000000000.log") < order.index("recovery-point-offset-checkpoint.tmp")
    renamed = [step.path for step in disk.steps if step.kind == "rename"]
    assert [name.rpartition("/")[2] for name in renamed[:2]] == ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint"]
    assert b"orders 0 3" in disk.crash("strict").read("/disk/data/recovery-point-offset-checkpoint")


# -- on another thread


class Gate(SimDisk):
    """Holds syncs of segments until it is opened."""

    def __init__(self) -> None:
        self.holds = False
        self.entered = threading.Event()
        self.opened = threading.Event()
        super().__init__()

    def change(self, step: Step) -> None:
        super().change(step)
        if self.holds and step.kind == "sync":
            self.entered.set()
            assert self.opened.wait(10)


def test_appends_go_on_during_a_flush_and_are_not_promised_by_it() -> None:
    disk = Gate()
    log = opened(disk, LogConfig(segment_bytes=4 * SIZE))
    fill(log, 3)
    flush = log.start_flush()
    disk.holds = True
    thread = threading.Thread(target=flush.run)
    thread.start()
    assert disk.entered.wait(10)
    fill(log, 6)  # also into new segments
    assert log.read(0, 10_000, 9).size == log.size
    disk.opened.set()
    thread.join()
    log.finish_flush(flush, NOW_MS)
    assert log.recovery_point == 3
    assert log.flush_due(NOW_MS)
    log.flush(NOW_MS)
    assert log.recovery_point == 9
    assert not log.flush_due(NOW_MS)


def test_a_flush_writes_nothing_into_the_folder_of_the_log_that_has_its_name_by_then() -> None:
    disk = SimDisk()
    folder = folder_on(disk)
    log = folder.create(TopicPartition("orders", 0), UUID(int=3), NOW_MS)
    add(log, batch(), epoch=7)
    flush = log.start_flush()
    folder.delete(TopicPartition("orders", 0), NOW_MS)
    new = folder.create(TopicPartition("orders", 0), UUID(int=4), NOW_MS)
    flush.run()
    log.finish_flush(flush, NOW_MS)
    assert LEADER_EPOCHS not in dict(disk.names(new.folder))


@pytest.mark.parametrize("has_written", [False, True])
def test_a_flush_writes_no_epochs_of_before_a_cut_behind_it(has_written: bool) -> None:
    log = new_log(segment_bytes=10**6)
    fill(log, 2, epoch=3)
    log.flush(NOW_MS)
    if has_written:
        add(log, batch(), epoch=5)
    else:
        log.epochs.assign(5, log.end_offset)
    flush = log.start_flush()
    log.truncate_to(2, NOW_MS)
    fill(log, 3, epoch=4)  # of another leader, from before
    flush.run()
    log.finish_flush(flush, NOW_MS)
    again = opened(sim(log).crash("kept"), log.config, recovery_point=log.recovery_point)
    assert again.epochs.entries == log.epochs.entries == [(3, 0), (4, 2)]


def test_nor_does_a_cut_write_them_while_a_flush_does() -> None:
    log = new_log(segment_bytes=10**6)
    held: list[bool] = []
    sim(log).faults.on_cost = lambda kind, path, _: held.append(log.naming.locked()) if path.endswith(".tmp") else None
    for cut in (lambda: log.truncate_to(1, NOW_MS), lambda: log.reset_to(0, NOW_MS)):
        add(log, batch(), epoch=log.epochs.latest_epoch + 1)
        add(log, batch(), epoch=log.epochs.latest_epoch + 1)
        log.flush(NOW_MS)
        held.clear()
        cut()
        assert held
        assert all(held)


def test_names_for_which_there_was_no_descriptor_are_synced_by_the_next_flush() -> None:
    log = new_log(segment_bytes=SIZE)
    fill(log, 3)
    log.flush(NOW_MS)
    fill(log, 3)

    def refuse(kind: str, path: str, _: int) -> None:
        if kind == "sync_folder":
            raise DiskFull(errno.EMFILE, os.strerror(errno.EMFILE), path)

    sim(log).faults.on_cost = refuse
    with pytest.raises(DiskFull):
        log.flush(NOW_MS)
    sim(log).faults.on_cost = None
    sim(log).steps.clear()
    log.flush(NOW_MS)
    assert syncs(sim(log).steps)[-1] == "orders-0"


def test_the_folder_of_a_log_is_not_renamed_while_a_flush_writes_there() -> None:
    disk = SimDisk()
    folder = folder_on(disk)
    log = folder.create(TopicPartition("orders", 0), UUID(int=3), NOW_MS)
    add(log, batch(), epoch=7)
    held: dict[str, bool] = {}
    disk.faults.on_cost = lambda kind, path, _: held.update({path: log.naming.locked()}) if kind == "rename" else None
    log.flush(NOW_MS)
    assert held == {f"{log.folder}/{LEADER_EPOCHS}": True}
    held.clear()
    folder.discard([folder.forget(TopicPartition("orders", 0))], NOW_MS)
    assert held == {f"/disk/data/orders-0.{'0' * 32}-delete": True}


def truncated_during_flush() -> Log:
    log = new_log(segment_bytes=4 * SIZE)
    for _ in range(6):
        add(log, batch())
    flush = log.start_flush()
    flush.run()
    log.truncate_to(2, NOW_MS)
    for _ in range(9):
        add(log, batch(value=b"others now"), epoch=1)
    log.finish_flush(flush, NOW_MS)
    return log


def test_a_flush_promises_nothing_of_what_took_the_place_of_what_it_synced() -> None:
    log = truncated_during_flush()
    assert log.recovery_point <= 2
    again = opened(sim(log).crash("strict"), log.config, recovery_point=log.recovery_point)
    assert again.damage is None


def test_nor_are_segments_taken_for_synced_that_were_closed_after_it() -> None:
    log = truncated_during_flush()
    assert log.flush_due(NOW_MS)
    log.flush(NOW_MS)
    again = opened(sim(log).crash("strict"), log.config, recovery_point=log.recovery_point)
    assert again.end_offset == 11
    assert written(again) == written(log)


def test_a_flush_moves_the_recovery_point_never_back() -> None:
    log = new_log(segment_bytes=10**6)
    fill(log, 3)
    early = log.start_flush()
    fill(log, 3)
    log.flush(NOW_MS)
    early.run()
    log.finish_flush(early, NOW_MS)
    assert log.recovery_point == 6


# -- closing


def test_a_closed_log_is_durable_as_a_whole_and_needs_no_look_at_its_records() -> None:
    log = new_log(segment_bytes=3 * SIZE)
    for number in range(7):
        add(log, produced(number))
    log.flush(NOW_MS)
    add(log, produced(7))
    log.close(NOW_MS)
    disk = sim(log).crash("strict")
    again = opened(disk, log.config, clean=True)
    assert again.end_offset == again.recovery_point == 8
    assert written(again) == written(log)
    assert disk.read(f"{FOLDER}/00000000000000000008.snapshot")
    assert not [step for step in disk.steps if step.kind in ("append", "truncate")]


def test_closing_what_is_settled_syncs_nothing() -> None:
    log = new_log()
    fill(log, 3)
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True)
    sim(log).steps.clear()
    again.close(NOW_MS)
    assert sim(log).steps == []

"""An append that is written apart from its log, which may be gone by then."""

import pytest

from odradek.log.log import Log
from odradek.log.write import Write
from odradek.wire.batch import BatchHeader
from tests.log.disk import SimDisk
from tests.log.partition import FOLDER, NOW_MS, SMALL, add, batch, fill, opened, sim, written


def begun(log: Log) -> Write:
    data, batches = batch(), list[tuple[int, BatchHeader]]()
    log.append(data, leader_epoch=0, now_ms=NOW_MS, unwritten=batches)
    return Write(log, data, batches, NOW_MS)


def delete(log: Log) -> None:
    log.disk.rename(log.folder, f"{FOLDER}.deleted")


@pytest.mark.parametrize(("batches", "segments"), [(0, 1), (1, 1), (7, 2)], ids=["new", "written to before", "rolled"])
def test_the_log_has_what_was_written_when_the_write_is_finished(batches: int, segments: int) -> None:
    log = opened(SimDisk(), SMALL)
    fill(log, batches)
    write = begun(log)
    assert len(log.segments) == segments
    write.run()
    assert log.end_offset == batches
    write.finish()
    assert log.end_offset == batches + 1
    assert written(opened(sim(log).crash("kept"), SMALL)) == written(log)


def test_a_log_that_is_deleted_before_its_first_write_is_no_failure_of_the_disk() -> None:
    log = opened(SimDisk(), SMALL)
    write = begun(log)
    delete(log)
    write.run()
    write.take_back()
    assert log.disk.failure is None
    assert not log.is_being_written


def test_a_write_does_not_touch_a_log_that_was_made_anew_under_the_same_name() -> None:
    log = opened(SimDisk(), SMALL)
    write = begun(log)
    delete(log)
    anew = opened(log.disk, SMALL)
    write.run()
    assert anew.active.file.size == 0
    add(anew, batch(3))
    before = written(anew)
    write.take_back()
    assert written(anew) == before

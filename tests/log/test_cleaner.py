"""Which log is compacted next, how much of it, and what becomes of the result."""

from uuid import UUID

import pytest

from odradek.log.checkpoint import CLEANER_OFFSETS, read_offsets
from odradek.log.compaction import Outcome, compact
from odradek.log.disk import DiskFull
from odradek.log.log import Origin
from odradek.log.names import FileKind, TopicPartition
from odradek.wire.batch import MAGIC_POSITION
from odradek.wire.errors import ProtocolError
from tests.log.compacting import HOUR_MS, PARTITION, Compacted
from tests.log.disk import SimDisk
from tests.log.partition import add, batch, fill, marker, produced

SIZE = len(batch(key=b"k", value=b"v"))


def write(of: Compacted, batches: int, key: bytes = b"k") -> None:
    for _ in range(batches):
        of.write((key, b"v"))


def next_end(of: Compacted) -> int | None:
    """How far the next job would go, if there is one."""
    chosen = of.cleaner.next_job(of.now_ms)
    if chosen is None:
        return None
    of.cleaner.running.pop(chosen[0])
    return chosen[1].end_offset


# -- how dirty a log has to be


def test_a_log_is_worth_it_when_more_than_the_ratio_is_dirty() -> None:
    of = Compacted(min_cleanable_dirty_ratio=0.5)
    for number in range(4):
        write(of, 1, b"%d" % number)
    of.compact()
    for number in range(4, 8):
        assert next_end(of) is None
        write(of, 1, b"%d" % number)
        of.settle()
    found = of.cleaner.range_of(PARTITION, of.now_ms)
    assert (found.dirty_offset, found.end_offset, found.ratio) == (4, 8, 0.5)
    assert next_end(of) is None
    write(of, 1, b"8")
    of.settle()
    assert next_end(of) == 9


def test_a_log_without_anything_dirty_is_left_alone() -> None:
    of = Compacted()
    assert next_end(of) is None
    write(of, 2)
    of.compact()
    assert next_end(of) is None


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    of = Compacted(cleanup_policy=frozenset({"delete"}))
    write(of, 5)
    of.settle()
    assert next_end(of) is None


def test_the_dirtiest_log_comes_first() -> None:
    of = Compacted()
    other = TopicPartition("mail", 1)
    for number in range(6):
        write(of, 1, b"%d" % number)
    of.compact()
    write(of, 3)
    of.settle()
    log = of.folder.create(other, UUID(int=8), of.now_ms)
    fill(log, 2)
    log.roll(of.now_ms)
    log.flush(of.now_ms)
    log.move_high_watermark(2)
    first, second = of.cleaner.next_job(of.now_ms), of.cleaner.next_job(of.now_ms)
    assert first is not None
    assert second is not None
    assert [first[0], second[0]] == [other, PARTITION]
    assert of.cleaner.next_job(of.now_ms) is None  # one job at a time for a log


# -- how long its records have waited


def test_what_is_younger_than_min_compaction_lag_ms_is_left_alone() -> None:
    of = Compacted(min_compaction_lag_ms=HOUR_MS)
    write(of, 2)
    of.log.roll(of.now_ms)
    of.pass_time(HOUR_MS // 2)
    write(of, 2)
    of.settle()
    assert next_end(of) is None
    of.pass_time(HOUR_MS // 2 - 1)
    assert next_end(of) is None
    of.pass_time(1)
    assert next_end(of) == 2
    of.pass_time(HOUR_MS)
    assert next_end(of) == 4


def test_what_has_waited_for_max_compaction_lag_ms_is_worth_it_however_little_it_is() -> None:
    of = Compacted(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=HOUR_MS)
    for number in range(20):
        write(of, 1, b"%d" % number)
    of.pass_time(2 * HOUR_MS)
    of.compact()
    write(of, 1)
    of.settle()
    assert next_end(of) is None
    of.pass_time(HOUR_MS)
    assert next_end(of) is None
    of.pass_time(1)
    assert next_end(of) == 21


# -- what can be compacted at all


def test_the_active_segment_never_is() -> None:
    of = Compacted()
    write(of, 3)
    of.log.flush(of.now_ms)
    of.log.move_high_watermark(3)
    assert next_end(of) is None
    of.log.roll(of.now_ms)
    of.log.flush(of.now_ms)
    assert next_end(of) == 3


def test_only_what_is_committed() -> None:
    of = Compacted()
    for _ in range(3):
        write(of, 2)
        of.log.roll(of.now_ms)
    of.log.flush(of.now_ms)
    for high_watermark, expected in ((0, None), (1, None), (2, 2), (3, 2), (4, 4), (6, 6)):
        of.log.move_high_watermark(high_watermark)
        assert next_end(of) == expected


def test_only_what_is_below_the_first_open_transaction() -> None:
    of = Compacted()
    write(of, 2)
    of.log.roll(of.now_ms)
    add(of.log, produced(0, transactional=True))
    of.settle()
    assert next_end(of) == 2
    add(of.log, marker(commit=True), origin=Origin.COORDINATOR)
    of.settle()
    assert next_end(of) == 4


def test_only_what_is_synced() -> None:
    of = Compacted()
    write(of, 2)
    of.log.roll(of.now_ms)
    of.log.move_high_watermark(2)
    assert next_end(of) is None
    of.log.flush(of.now_ms)
    assert next_end(of) == 2


# -- what becomes of it


def test_the_offset_is_on_disk_only_after_the_segments_are() -> None:
    of = Compacted()
    write(of, 4)
    of.settle()
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    outcome = compact(of.disk, chosen[1])
    disk = of.disk
    assert isinstance(disk, SimDisk)
    disk.steps.clear()
    assert of.cleaner.finish(chosen[0], outcome, of.now_ms)
    order = [(step.kind, step.path.rsplit("/", 1)[1]) for step in disk.steps]
    swapped = order.index(("rename", f"{0:020}.log"))
    assert order.index(("sync_folder", "orders-0"), swapped) < order.index(("rename", CLEANER_OFFSETS))
    assert order[0][1].startswith("recovery-point")
    complete = order.index(("rename", f"{0:020}.timeindex.swap"))
    assert complete < order.index(("sync_folder", "orders-0")) < order.index(("rename", f"{0:020}.log.deleted"))
    assert read_offsets(disk.crash("strict"), f"/disk/data/{CLEANER_OFFSETS}") == {PARTITION: 4}


def test_a_restart_goes_on_from_the_offset() -> None:
    of = Compacted()
    write(of, 4)
    of.compact()
    of.restart()
    write(of, 2)
    of.settle()
    assert of.cleaner.range_of(PARTITION, of.now_ms)[:2] == (4, 6)


def started(of: Compacted) -> tuple[TopicPartition, Outcome]:
    """A compaction whose result is ready, and not taken yet."""
    for _ in range(3):
        write(of, 2)
        of.log.roll(of.now_ms)
    of.settle()
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    return chosen[0], compact(of.disk, chosen[1])


def check_thrown_away(of: Compacted, partition: TopicPartition, outcome: Outcome) -> None:
    before = of.rows()
    assert not of.cleaner.finish(partition, outcome, of.now_ms)
    assert of.rows() == before
    assert PARTITION not in of.folder.clean_offsets
    assert not of.cleaner.running
    assert not [name for name, _ in of.disk.names(of.log.folder) if name.endswith((".cleaned", ".swap"))]


def test_the_result_is_thrown_away_when_the_log_was_truncated_meanwhile() -> None:
    of = Compacted()
    partition, outcome = started(of)
    of.log.truncate_to(3, of.now_ms)
    check_thrown_away(of, partition, outcome)


def test_and_when_it_was_truncated_and_has_grown_again() -> None:
    of = Compacted()
    partition, outcome = started(of)
    of.log.truncate_to(3, of.now_ms)
    write(of, 1, b"other")
    of.log.roll(of.now_ms)
    write(of, 5, b"other")
    check_thrown_away(of, partition, outcome)


def test_and_when_only_its_last_segment_was_truncated_and_has_grown_again() -> None:
    """It is the same segment, and closed as before, with other records in it."""
    of = Compacted()
    partition, outcome = started(of)
    of.log.truncate_to(5, of.now_ms)
    write(of, 2, b"other")
    of.log.roll(of.now_ms)
    write(of, 1, b"other")
    check_thrown_away(of, partition, outcome)


def test_and_when_segments_expired_meanwhile() -> None:
    of = Compacted(cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=2 * SIZE)
    partition, outcome = started(of)
    assert len(outcome.groups) == 3
    of.log.move_start(2)
    assert of.log.delete_expired(of.now_ms)
    check_thrown_away(of, partition, outcome)


def test_and_when_the_log_was_deleted_and_another_has_its_name() -> None:
    of = Compacted(file_delete_delay_ms=0)
    partition, outcome = started(of)
    of.folder.delete(partition, of.now_ms)
    of.log = of.folder.create(partition, UUID(int=9), of.now_ms)
    write(of, 2)
    check_thrown_away(of, partition, outcome)


def test_appends_and_rolls_meanwhile_do_not_matter() -> None:
    of = Compacted()
    partition, outcome = started(of)
    write(of, 2)
    of.log.roll(of.now_ms)
    write(of, 1)
    assert of.cleaner.finish(partition, outcome, of.now_ms)
    assert [offset for offset, _, _ in of.rows()] == [5, 6, 7, 8]


# -- what cannot be compacted


def failed() -> Compacted:
    """One whose compaction has found it damaged."""
    of = Compacted()
    write(of, 3)
    of.settle()
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    of.cleaner.fail(chosen[0], "the CRC at byte 17 is wrong")
    return of


def test_a_log_that_fails_is_set_aside_with_the_reason_until_a_person_says_so() -> None:
    of = failed()
    assert of.cleaner.set_aside == {of.log: "the CRC at byte 17 is wrong"}
    write(of, 10)
    of.settle()
    assert next_end(of) is None
    of.cleaner.retry(PARTITION)
    assert of.cleaner.set_aside == {}
    assert next_end(of) == 13


def test_a_log_that_cannot_be_read_holds_up_no_other() -> None:
    """Its own compaction says what is wrong with it."""
    disk = SimDisk()
    of = Compacted(disk)
    other = of.folder.create(TopicPartition("mail", 1), UUID(int=8), of.now_ms)
    fill(other, 2)
    write(of, 3)
    for log in (of.log, other):
        log.roll(of.now_ms)
        log.flush(of.now_ms)
    of.restart()
    for log in of.folder.logs.values():
        log.move_high_watermark(log.end_offset)
    disk.flip_bit(of.log.segments[0].path(FileKind.LOG), 8 * MAGIC_POSITION)
    chosen = [of.cleaner.next_job(of.now_ms) for _ in range(2)]
    jobs = dict(each for each in chosen if each is not None)
    assert jobs.keys() == {PARTITION, TopicPartition("mail", 1)}
    with pytest.raises(ProtocolError):
        compact(of.disk, jobs[PARTITION])
    compact(of.disk, jobs[TopicPartition("mail", 1)])


def made_anew(of: Compacted) -> None:
    of.folder.delete(PARTITION, of.now_ms)
    of.log = of.folder.create(PARTITION, UUID(int=6), of.now_ms)


def test_what_has_the_name_of_a_log_that_was_set_aside_is_not() -> None:
    of = failed()
    made_anew(of)
    write(of, 2)
    of.settle()
    assert next_end(of) == 2


def test_nor_is_it_when_the_other_fails_as_the_last_thing() -> None:
    of = Compacted()
    partition, outcome = started(of)
    next(of.cleaner.finishing(partition, outcome, of.now_ms))
    made_anew(of)
    of.cleaner.fail(partition, "no such file")
    write(of, 2)
    of.settle()
    assert next_end(of) == 2


def test_without_room_nothing_is_left_behind_and_it_is_done_later() -> None:
    disk = SimDisk()
    of = Compacted(disk)
    write(of, 3)
    of.settle()
    before = disk.names(of.log.folder)
    for room in (0, SIZE - 1, SIZE):  # for nothing, for a part of the segment, for one without its indexes
        chosen = of.cleaner.next_job(of.now_ms)
        assert chosen is not None
        disk.room = room
        with pytest.raises(DiskFull):
            compact(disk, chosen[1])
        assert (disk.names(of.log.folder), disk.room) == (before, room)
        of.cleaner.postpone(chosen[0])
    disk.room = None
    of.compact()
    assert len(of.rows()) == 1


def test_the_others_go_on() -> None:
    of = Compacted()
    write(of, 3)
    of.settle()
    other = of.folder.create(TopicPartition("mail", 1), UUID(int=8), of.now_ms)
    of.cleaner.set_aside[of.log] = "damaged"
    fill(other, 3)
    other.roll(of.now_ms)
    other.flush(of.now_ms)
    other.move_high_watermark(3)
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    assert chosen[0] == ("mail", 1)


def test_a_damaged_log_is_not_tried() -> None:
    of = Compacted()
    write(of, 2)
    of.log.flush(of.now_ms)
    of.folder.checkpoint()
    write(of, 1)
    of.settle()
    disk = of.disk.crash("kept")  # type: ignore[attr-defined]
    disk.flip_bit(f"{of.log.folder}/{0:020}.log", 8 * 70)
    of.disk = disk
    of.open()
    assert of.folder.logs[PARTITION].damage is not None
    assert next_end(of) is None


# -- both policies


def test_compaction_and_retention_work_on_one_log() -> None:
    of = Compacted(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10 * HOUR_MS)
    for day in range(4):
        of.write((b"day %d" % day, b"v"), (b"today", b"%d" % day))
        of.pass_time(4 * HOUR_MS)
        of.log.roll(of.now_ms)
    of.compact()
    assert [key for _, key, _ in of.rows()] == [b"day 0", b"day 1", b"day 2", b"day 3", b"today"]
    of.write((b"new", b"v"))
    of.pass_time(20 * HOUR_MS)
    of.settle()
    of.write((b"newest", b"v"))
    of.log.move_high_watermark(of.log.end_offset)
    of.folder.expire(of.now_ms, of.now_ms)
    assert [key for _, key, _ in of.rows()] == [b"newest"]
    of.compact()
    assert [key for _, key, _ in of.rows()] == [b"newest"]
    assert of.log.start_offset == 9


@pytest.mark.parametrize("start", [1, 4, 7])
def test_a_start_that_moved_past_the_clean_offset_is_where_the_dirty_part_begins(start: int) -> None:
    of = Compacted()
    write(of, 4)
    of.compact()
    write(of, 4)
    of.settle()
    of.log.move_start(start)
    assert of.cleaner.range_of(PARTITION, of.now_ms).dirty_offset == max(start, 4)

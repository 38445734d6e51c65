"""Starting: what is looked at, what is cut, what is built again, and that below the recovery point nothing is ever cut."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.log import Appended, Log
from odradek.log.names import FileKind, FileState, file_name
from odradek.wire.errors import ErrorCode, Refused
from tests.log.disk import PowerLost, SimDisk
from tests.log.medium import Manner
from tests.log.model import batches_of, check_indexes
from tests.log.partition import FOLDER, NOW_MS, add, batch, end, files, fill, known, new_log, opened, produced, sent, sim, written

LOG = FileKind.LOG


def path(offset: int, kind: FileKind = LOG, state: FileState = FileState.CURRENT) -> str:
    return f"{FOLDER}/{file_name(offset, kind, state)}"


def overwritten(disk: SimDisk, name: str, content: bytes) -> SimDisk:
    file = disk.open(name, create=True)
    file.truncate(0)
    file.append([content])
    return disk.crash("kept")


def rich_log() -> Log:
    """Several segments with epochs, producers, transactions that ended either way and one that is open."""
    log = new_log(segment_bytes=400, index_interval_bytes=0)
    for number in range(4):
        add(log, produced(0, producer_id=20 + number, transactional=True), epoch=number)
        fill(log, 2, epoch=number)
        if number < 3:
            end(log, commit=number == 1, producer_id=20 + number)
        add(log, produced(number), epoch=number)
    assert len(log.segments) > 3
    return log


# -- an unclean start: the tail


def tail_log() -> tuple[Log, bytes, bytes]:
    """Three batches of which two are flushed, with the bytes before and of the last one."""
    log = new_log(segment_bytes=10**6)
    for number in range(2):
        add(log, produced(number))
    log.flush(NOW_MS)
    before = written(log)
    add(log, produced(2, transactional=True), epoch=1)
    return log, before, written(log)[len(before) :]


def check_cut(log: Log, before: bytes) -> None:
    """The log is as it was before the last batch came, and goes on."""
    assert log.damage is None
    assert written(log) == before
    assert log.end_offset == 2
    assert not log.producers.ongoing
    assert log.epochs.latest_epoch == 0
    check_indexes(log)
    assert add(log, produced(2)) == Appended(2, 2)


def test_the_log_of_these_tests_is_found_whole_when_nothing_happened_to_it() -> None:
    log, _, _ = tail_log()
    again = opened(sim(log).crash("kept"), log.config, recovery_point=2)
    assert known(again) == known(log)


def test_a_flipped_bit_anywhere_in_a_batch_that_was_not_synced_cuts_it_off() -> None:
    log, before, last = tail_log()
    free = {*range(8), *range(12, 16)}  # base offset and epoch, which the CRC does not cover
    for position in range(len(last)):
        disk = sim(log).crash("kept")
        disk.flip_bit(path(0), 8 * (len(before) + position) + position % 8)
        again = opened(disk, log.config, recovery_point=2)
        if position not in free:
            check_cut(again, before)
        assert again.damage is None
        assert again.end_offset >= 2


def bad_tails(last: bytes) -> Iterator[bytes]:
    yield from (last[:size] for size in range(1, len(last)))  # torn
    yield from (last[:size] + bytes(len(last) - size) for size in range(0, len(last) - 1, 7))  # only its length came
    yield from (bytes(size) for size in (1, 12, 60, 61, 500))
    yield b"\xff" * 100
    yield last[:-1] + b"\xfe" + sent(3)  # a valid one behind a bad one
    yield bytes(100) + sent(3)
    yield sent(0)  # one that goes back
    yield sent(1)


def test_whatever_is_wrong_with_the_tail_is_cut_off_and_all_that_follows_it() -> None:
    log, before, last = tail_log()
    for tail in bad_tails(last):
        disk = overwritten(sim(log).crash("kept"), path(0), before + tail)
        check_cut(opened(disk, log.config, recovery_point=2), before)


def test_garbage_behind_sound_batches_is_cut_off_and_they_stay() -> None:
    log, before, last = tail_log()
    for garbage in (b"\0" * 10, b"\xff" * 100, last[:30]):
        disk = overwritten(sim(log).crash("kept"), path(0), before + last + garbage)
        again = opened(disk, log.config, recovery_point=2)
        assert known(again) == known(log)


def test_segments_behind_a_bad_batch_go_with_their_files_and_do_not_come_back() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    disk = sim(log).crash("kept")
    disk.flip_bit(path(3), 8 * (len(batch()) + 70))
    again = opened(disk, log.config)
    assert (again.end_offset, again.bases) == (4, [0, 3])
    assert not [name for name in files(again) if name.startswith("00000000000000000006")]
    for _ in range(2):
        add(again, batch(value=b"others now"))
    for seed in range(50):
        later = opened(disk.crash("mixed", seed=seed), log.config)
        assert written(again).startswith(written(later))


def test_a_lost_segment_takes_those_behind_it_along() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    disk = sim(log).crash("kept")
    disk.remove(path(3))
    again = opened(disk, log.config)
    assert (again.end_offset, again.bases) == (3, [0])


def test_gaps_below_the_clean_offset_are_what_compaction_left() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    disk = sim(log).crash("kept")
    disk.remove(path(3))
    again = opened(disk, log.config, clean_offset=6)
    assert (again.end_offset, again.bases) == (9, [0, 6])


def test_only_what_may_not_have_been_synced_is_read() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    log.flush(NOW_MS)
    disk = sim(log).crash("kept")
    disk.flip_bit(path(0), 8 * 70)  # rot, which nobody looks for here
    again = opened(disk, log.config, recovery_point=8)
    assert again.damage is None
    assert again.end_offset == 9


def test_a_start_twice_is_a_start_once() -> None:
    log = rich_log()
    disk = sim(log).crash("kept")
    once = opened(disk, log.config)
    assert known(once) == known(log)
    again = opened(disk.crash("kept"), log.config)
    assert known(again) == known(log)


def test_a_real_folder_with_a_torn_tail(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=400, index_interval_bytes=0)
    log = opened(RealDisk(), config, folder=str(tmp_path / "orders-0"))
    fill(log, 7)
    expected = written(log)
    with (tmp_path / "orders-0" / file_name(log.bases[-1], LOG)).open("ab") as file:
        file.write(sent(7)[:-3])
    again = opened(RealDisk(), config, folder=str(tmp_path / "orders-0"))
    assert written(again) == expected
    check_indexes(again)


# -- damage below the recovery point


def damaged_log() -> Log:
    log = new_log(segment_bytes=4 * len(batch()))
    for number in range(10):
        add(log, batch(value=b"value    %d" % number))
    log.flush(NOW_MS)
    disk = sim(log).crash("kept")
    disk.flip_bit(path(8), 8 * 70)
    return opened(disk, log.config, recovery_point=10)


def test_below_the_recovery_point_nothing_is_cut() -> None:
    log = damaged_log()
    assert log.damage is not None
    assert log.damage.offset == 8
    assert "CRC" in log.damage.reason or "says" in log.damage.reason
    assert (log.bases, log.end_offset, log.recovery_point) == ([0, 4, 8], 10, 10)
    assert log.size == 10 * len(batch())


def test_a_damaged_log_is_read_up_to_the_damage_and_not_written() -> None:
    log = damaged_log()
    assert [found.base_offset for found in batches_of(log.read(3, 10_000, 8).read())] == [3, 4, 5, 6, 7]
    with pytest.raises(Refused) as refused:
        add(log, batch())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(Refused) as refused:
        log.append_as_follower(sent(10), now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("field", [0, 8, 16])
def test_a_read_that_meets_broken_headers_is_a_corrupt_message(field: int) -> None:
    log = new_log()
    fill(log, 5)
    disk = sim(log).crash("kept")
    disk.flip_bit(path(0), 8 * (2 * len(batch(value=b"value 0")) + field) + 6)
    log.disk = disk
    log.segments[0]._file = disk.open(path(0))
    log.segments[0]._boundaries.clear()
    log.segments[0].index.reset()
    with pytest.raises(Refused) as refused:
        log.read(4, 1000, 5)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_reset_repairs_it() -> None:
    log = damaged_log()
    log.reset_to(0, NOW_MS)
    assert log.damage is None
    log.append_as_follower(sent(0, 3), now_ms=NOW_MS)
    log.close(NOW_MS)
    again = opened(sim(log).crash("strict"), log.config, clean=True)
    assert (again.damage, again.end_offset) == (None, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_rot_in_a_segment_that_a_start_reads_for_its_producers_is_damage(clean: bool) -> None:
    log = new_log(segment_bytes=3 * len(produced(0)))
    for number in range(10):
        add(log, produced(number))
    log.flush(NOW_MS)
    disk = sim(log).crash("kept")
    for name in files(log):
        if name.endswith(".snapshot"):
            disk.remove(f"{FOLDER}/{name}")  # so that all has to be read
    disk.flip_bit(path(3), 8 * (len(produced(0)) + 16) + 6)  # the magic of its second batch
    again = opened(disk, log.config, clean=clean, recovery_point=10)
    assert again.damage is not None
    assert (again.damage.offset, again.end_offset) == (4, 10)
    assert again.read(0, 10_000, 3)
    with pytest.raises(Refused):
        add(again, batch())
    again.close(NOW_MS)
    again.reset_to(0, NOW_MS)
    add(again, batch())


@pytest.mark.parametrize("flush", [True, False])
def test_damage_is_found_again_at_every_start_until_it_is_repaired(flush: bool) -> None:
    log = new_log(segment_bytes=4 * len(batch()))
    for _ in range(3):
        add(log, batch())
    log.flush(NOW_MS)
    for _ in range(9):  # segments that were not synced follow
        add(log, batch())
    disk = sim(log).crash("kept")
    disk.flip_bit(path(0), 8 * (len(batch()) + 70))
    again = opened(disk, log.config, recovery_point=3)
    for _ in range(2):
        assert again.damage is not None
        assert again.damage.offset == 1
        if flush:
            again.flush(NOW_MS)
        steps = len(sim(again).steps)
        again.close(NOW_MS)
        assert len(sim(again).steps) == steps  # it is left as it was found
        again = opened(sim(again).crash("kept"), log.config, recovery_point=again.recovery_point)


# -- small files that are missing or damaged


def changed(content: bytes) -> Iterator[bytes]:
    yield b""
    yield content[: len(content) // 2]
    yield b"\xff" + content[1:]
    yield content[:-1]


SMALL_FILES: dict[str, Callable[[Log], str]] = {
    "snapshot": lambda log: path(log.end_offset, FileKind.SNAPSHOT),
    "leader epochs": lambda _: f"{FOLDER}/leader-epoch-checkpoint",
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("what", SMALL_FILES)
def test_a_damaged_small_file_is_built_again(what: str, clean: bool) -> None:
    log = rich_log()
    log.close(NOW_MS)
    name = SMALL_FILES[what](log)
    for content in changed(log.disk.read(name)):
        disk = overwritten(sim(log).crash("kept"), name, content)
        assert known(opened(disk, log.config, clean=clean, recovery_point=log.end_offset)) == known(log), f"{content!r}"


@pytest.mark.parametrize("clean", [True, False])
def test_epochs_of_records_that_were_deleted_and_came_back_are_read_again(clean: bool) -> None:
    log = rich_log()
    log.close(NOW_MS)
    content = b"0\n1\n3 20\n"  # as it was saved after records were deleted
    disk = overwritten(sim(log).crash("kept"), SMALL_FILES["leader epochs"](log), content)
    assert known(opened(disk, log.config, clean=clean, recovery_point=log.end_offset)) == known(log)


@pytest.mark.parametrize("clean", [True, False])
def test_missing_snapshots_are_made_up_for_by_reading_more(clean: bool) -> None:
    log = rich_log()
    log.close(NOW_MS)
    disk = sim(log).crash("kept")
    for name in [name for name in files(log) if name.endswith(".snapshot")]:
        disk.remove(f"{FOLDER}/{name}")
    assert known(opened(disk, log.config, clean=clean, recovery_point=log.end_offset)) == known(log)


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_index_that_is_cut_or_disordered_is_built_again(clean: bool) -> None:
    log = rich_log()
    log.close(NOW_MS)
    for name in [name for name in files(log) if name.endswith(".txnindex")]:
        content = log.disk.read(f"{FOLDER}/{name}")
        for bad in (content[:-1], b"\1" + content[1:], content + content, content[:18] + bytes(8) + content[26:]):
            disk = overwritten(sim(log).crash("kept"), f"{FOLDER}/{name}", bad)
            again = opened(disk, log.config, clean=clean, recovery_point=log.end_offset)
            assert known(again) == known(log), f"{name} {bad!r}"


def test_a_transaction_index_is_built_again_with_what_was_not_synced() -> None:
    log = rich_log()
    disk = sim(log).crash("kept")
    for name in [name for name in files(log) if name.endswith(".txnindex")]:
        disk.remove(f"{FOLDER}/{name}")
    assert known(opened(disk, log.config)) == known(log)


def test_indexes_that_belong_to_no_segment_are_removed() -> None:
    log = new_log()
    fill(log, 2)
    disk = sim(log)
    for kind in (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX):
        disk.open(path(77, kind), create=True)
    disk.open(f"{FOLDER}/notes.txt", create=True)
    again = opened(disk, log.config)
    assert [name for name in files(again) if "77" in name] == []
    assert "notes.txt" in files(again)


def test_what_is_below_the_start_in_the_checkpoint_is_not_shown() -> None:
    log = new_log(segment_bytes=10**6)
    fill(log, 9)
    log.close(NOW_MS)
    again = opened(sim(log), log.config, clean=True, start_offset=5)
    assert (again.start_offset, again.end_offset) == (5, 9)
    assert [*again.epochs.entries] == [(0, 5)]


def test_epochs_that_a_start_reads_in_what_was_not_synced_are_on_disk_when_that_is() -> None:
    """A log that was cut, and written on, may be as it was before after a loss of power: with the epochs of then."""
    log = new_log(segment_bytes=10**6)
    fill(log, 4, epoch=3)
    log.flush(NOW_MS)
    fill(log, 4, epoch=5)
    again = opened(sim(log).crash("kept"), log.config, recovery_point=4)
    assert [*again.epochs.entries] == [(3, 0), (5, 4)]
    assert [*opened(sim(again).crash("kept"), log.config, clean=True).epochs.entries] == [(3, 0)]
    again.flush(NOW_MS)
    assert [*opened(sim(again).crash("kept"), log.config, clean=True).epochs.entries] == [(3, 0), (5, 4)]


def test_a_start_past_all_that_is_left_begins_there_anew() -> None:
    log = new_log(segment_bytes=10**6)
    fill(log, 4)
    again = opened(sim(log).crash("kept"), log.config, start_offset=50)
    assert (again.start_offset, again.end_offset, again.bases) == (50, 50, [50])


def test_a_transaction_that_began_below_the_start_is_still_open_without_a_snapshot() -> None:
    log = new_log(segment_bytes=10**6)
    add(log, produced(0, transactional=True))
    fill(log, 3)
    log.close(NOW_MS)
    disk = sim(log).crash("kept")
    disk.remove(path(4, FileKind.SNAPSHOT))
    for clean in (True, False):
        again = opened(disk.crash("kept"), log.config, clean=clean, recovery_point=4, start_offset=2)
        again.move_high_watermark(4)
        assert again.last_stable_offset == 2


# -- a compaction that was interrupted


def interrupted(*states: tuple[int, FileState], opens: bool = True) -> Log:
    """Segments at 0, 3 and 6, and the files that a compaction of the first two had made when it was stopped."""
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    log.flush(NOW_MS)
    disk = sim(log).crash("kept")
    for base, state in states:
        content = sent(base + 2) if base < 6 else b""
        disk = overwritten(disk, path(base, LOG, state), content)
        for kind in (FileKind.INDEX, FileKind.TIME_INDEX):
            disk = overwritten(disk, path(base, kind, state), b"")
    if not opens:
        log.disk = disk
        return log
    return opened(disk, log.config, recovery_point=9, clean_offset=9)


def bases_of(log: Log) -> list[int]:
    assert not [name for name in files(log) if name.endswith((".cleaned", ".swap", ".deleted"))]
    return [found.base_offset for found in batches_of(written(log))]


def test_cleaned_files_are_removed_and_the_old_segments_stay() -> None:
    assert bases_of(interrupted((0, FileState.CLEANED), (3, FileState.CLEANED))) == [*range(9)]


def test_swapped_files_take_the_place_of_the_old_segments() -> None:
    log = interrupted((0, FileState.SWAP), (3, FileState.SWAP))
    assert bases_of(log) == [2, 5, 6, 7, 8]
    assert log.bases == [0, 3, 6]
    check_indexes(log)


def test_one_that_stands_for_several_takes_the_place_of_all() -> None:
    log = new_log(segment_bytes=3 * len(batch()))
    for _ in range(9):
        add(log, batch())
    log.flush(NOW_MS)
    disk = overwritten(sim(log).crash("kept"), path(0, LOG, FileState.SWAP), sent(1) + sent(5))
    again = opened(disk, log.config, recovery_point=9, clean_offset=9)
    assert bases_of(again) == [1, 5, 6, 7, 8]
    assert again.bases == [0, 6]


def test_what_is_swapped_past_a_cleaned_file_is_not_complete() -> None:
    assert bases_of(interrupted((0, FileState.SWAP), (3, FileState.CLEANED))) == [2, 3, 4, 5, 6, 7, 8]
    assert bases_of(interrupted((0, FileState.CLEANED), (3, FileState.SWAP))) == [*range(9)]


@pytest.mark.parametrize("manner", ["strict", "kept", "mixed"])
def test_when_the_power_goes_while_it_is_finished_it_is_finished_next_time(manner: Manner) -> None:
    found = interrupted((0, FileState.SWAP), (3, FileState.SWAP), opens=False)
    for step in range(100):
        disk = sim(found).crash("kept")
        disk.stop_at(step)
        try:
            opened(disk, found.config, recovery_point=9, clean_offset=9)
            break
        except PowerLost:
            log = opened(disk.crash(manner, seed=step), found.config, recovery_point=9, clean_offset=9)
            assert bases_of(log) == [2, 5, 6, 7, 8], f"step {step}, {disk.steps[-1]}"
            check_indexes(log)
    assert step > 8


@pytest.mark.parametrize("manner", ["strict", "kept", "mixed"])
def test_when_the_power_goes_while_a_tail_is_cut_it_is_cut_next_time(manner: Manner) -> None:
    log = rich_log()
    expected = known(log)
    damaged = sim(log).crash("kept")
    damaged.open(path(log.bases[-1])).append([b"garbage" * 20])
    step = 0
    for step in range(1000):
        disk = damaged.crash("kept")
        disk.stop_at(step)
        try:
            opened(disk, log.config)
            break
        except PowerLost:
            assert known(opened(disk.crash(manner, seed=step), log.config)) == expected, f"step {step}, {disk.steps[-1]}"
    assert step > 20


def test_deleted_files_are_removed() -> None:
    assert bases_of(interrupted((0, FileState.DELETED), (3, FileState.DELETED))) == [*range(9)]

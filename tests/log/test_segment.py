"""Segments: when a new one begins, how sparse their indexes are, and that an index which lies never leads to wrong records."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from odradek.log.config import LogConfig
from odradek.log.log import Appended, Log, Origin
from odradek.log.lookup import TimestampOffset, aborted, offset_for_timestamp, offset_of_max_timestamp
from odradek.log.names import FileKind, file_name
from odradek.wire.errors import Refused
from odradek.wire.records import Record, build
from tests.log.disk import SimDisk
from tests.log.model import batches_of, check_indexes, whole_batches
from tests.log.partition import FOLDER, NOW_MS, add, batch, fill, marker, new_log, opened, produced, sent, sim

SIZE = len(batch())
HOUR_MS = 3_600_000


# -- when a new segment begins


def test_by_size_before_it_would_be_larger_than_segment_bytes() -> None:
    log = new_log(segment_bytes=3 * SIZE)
    for _ in range(7):
        add(log, batch())
    assert log.bases == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * SIZE, 3 * SIZE, SIZE]


def test_by_the_timestamps_of_batches_not_by_the_clock() -> None:
    log = new_log(segment_ms=HOUR_MS)
    add(log, batch(at=NOW_MS), now_ms=NOW_MS)
    add(log, batch(at=NOW_MS + HOUR_MS), now_ms=NOW_MS + 50 * HOUR_MS)
    assert log.bases == [0]
    add(log, batch(at=NOW_MS + HOUR_MS + 1), now_ms=NOW_MS)
    assert log.bases == [0, 2]


def test_by_the_clock_where_records_have_no_timestamps() -> None:
    log = new_log(segment_ms=HOUR_MS)
    add(log, batch(at=-1), now_ms=NOW_MS)
    add(log, batch(at=-1), now_ms=NOW_MS + HOUR_MS)
    assert log.bases == [0]
    add(log, batch(at=-1), now_ms=NOW_MS + HOUR_MS + 1)
    assert log.bases == [0, 2]
    add(log, batch(at=-1), now_ms=NOW_MS + 2 * HOUR_MS + 1)
    assert log.bases == [0, 2]


def test_an_empty_segment_waits_for_ever() -> None:
    log = new_log(segment_ms=HOUR_MS)
    add(log, batch(at=NOW_MS + 9 * HOUR_MS), now_ms=NOW_MS + 9 * HOUR_MS)
    assert log.bases == [0]


def test_sooner_by_a_jitter_that_every_segment_draws_anew() -> None:
    draws = iter([100, 40, 70, 0, 0, 0])
    config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
    asked = []
    log = opened(SimDisk(), config, jitter=lambda limit: asked.append(limit) or next(draws))  # type: ignore[func-returns-value]
    add(log, batch(at=NOW_MS))
    add(log, batch(at=NOW_MS + 900))
    assert log.bases == [0]
    add(log, batch(at=NOW_MS + 901))
    assert log.bases == [0, 2]
    add(log, batch(at=NOW_MS + 901 + 960))
    assert log.bases == [0, 2]
    add(log, batch(at=NOW_MS + 901 + 961))
    assert log.bases == [0, 2, 4]
    assert asked == [500, 500, 500]


def test_when_the_offset_index_is_full() -> None:
    log = new_log(segment_bytes=10**6, index_interval_bytes=0, segment_index_bytes=5 * 8)
    for _ in range(14):
        add(log, batch(at=5))  # one timestamp: one entry in the time index
    assert log.bases == [0, 6, 12]
    assert [len(segment.index) for segment in log.segments] == [5, 5, 1]


def test_when_the_time_index_has_room_for_one_entry_only() -> None:
    log = new_log(segment_bytes=10**6, index_interval_bytes=0, segment_index_bytes=5 * 12)
    fill(log, 14)
    assert log.bases == [0, 5, 10]
    assert [len(segment.time_index) for segment in log.segments] == [4, 4, 3]


@pytest.mark.parametrize(("gap", "rolls"), [(2**31 - 1, False), (2**31, True)])
def test_when_an_offset_is_too_far_from_the_base(gap: int, rolls: bool) -> None:
    log = new_log(index_interval_bytes=0)
    log.append_as_follower(sent(0), now_ms=NOW_MS)
    log.append_as_follower(sent(gap), now_ms=NOW_MS)
    assert len(log.segments) == 1 + rolls
    assert batches_of(log.read(1, 1000, log.end_offset).read())[0].base_offset == gap
    check_indexes(log)


def test_two_batches_that_no_segment_can_hold_are_taken_one_by_one() -> None:
    log = new_log()
    data = sent(0) + sent(2**32)
    assert log.append_as_follower(data, now_ms=NOW_MS) == Appended(0, 0)
    assert log.append_as_follower(data[len(sent(0)) :], now_ms=NOW_MS) == Appended(2**32, 2**32)


@pytest.mark.parametrize(("policy", "rolls"), [("compact", True), ("delete", False)])
def test_when_it_could_not_be_compacted_in_time_otherwise(policy: str, rolls: bool) -> None:
    log = new_log(max_compaction_lag_ms=1000, segment_ms=HOUR_MS, cleanup_policy=frozenset({policy}))
    add(log, batch(at=NOW_MS))
    add(log, batch(at=NOW_MS + 1001))
    assert len(log.segments) == 1 + rolls


def test_a_new_segment_begins_where_the_old_one_ends_with_a_snapshot_of_the_producers() -> None:
    log = new_log(segment_bytes=2 * SIZE)
    log.append_as_follower(sent(0), now_ms=NOW_MS)
    log.append_as_follower(sent(5), now_ms=NOW_MS)
    log.append_as_follower(sent(9), now_ms=NOW_MS)
    assert log.bases == [0, 6]
    assert log.producers.snapshots == [6]


# -- how sparse the indexes are


@pytest.mark.parametrize("interval", [0, SIZE, 2 * SIZE, 5 * SIZE])
def test_an_entry_comes_after_more_than_index_interval_bytes(interval: int) -> None:
    log = new_log(segment_bytes=10**6, index_interval_bytes=interval)
    fill(log, 30)
    check_indexes(log)
    positions = [log.active.index.entry(number)[1] for number in range(len(log.active.index))]
    assert positions[0] > interval or (interval == 0 and positions[0] > 0)
    for before, after in zip([0, *positions], positions):
        assert interval < after - before <= interval + 2 * SIZE


# -- indexes that lie


def sound_log() -> Log:
    """Twelve batches of one record in two segments; times rise but for one."""
    log = new_log(segment_bytes=6 * SIZE, index_interval_bytes=0)
    for number in range(12):
        at = NOW_MS + (number if number != 4 else 20) * 10
        add(log, batch(at=at, value=b"value %02d" % number), now_ms=NOW_MS)
    log.close(NOW_MS)
    assert len(log.segments) == 2
    return log


def answers(log: Log) -> list[object]:
    """What anybody can ask of a log."""
    found: list[object] = [log.read(offset, 150, log.end_offset).read() for offset in range(log.end_offset)]
    found += [len(log.read(0, 10_000, upper)) for upper in range(log.end_offset)]
    found += [offset_for_timestamp(log, NOW_MS + ago) for ago in range(-5, 220, 10)]
    found += [offset_of_max_timestamp(log), log.end_offset, [segment.max_timestamp() for segment in log.segments]]
    return found


SOUND = sound_log()
EXPECTED = answers(SOUND)
INDEXES = [file_name(base, kind) for base in (0, 6) for kind in (FileKind.INDEX, FileKind.TIME_INDEX)]


def with_changed_file(name: str, change: Callable[[bytearray], None]) -> SimDisk:
    """The disk of a sound log, but for one file."""
    disk = sim(SOUND).crash("strict")
    path = f"{FOLDER}/{name}"
    content = bytearray(disk.read(path))
    change(content)
    file = disk.open(path)
    file.truncate(0)
    file.append([content])
    return disk.crash("kept")


def test_the_log_of_these_tests_has_indexes() -> None:
    log = SOUND
    assert log.bases == [0, 6]
    assert all(len(segment.index) > 3 and len(segment.time_index) > 3 for segment in log.segments)
    assert EXPECTED[0] != EXPECTED[1]
    assert TimestampOffset(NOW_MS + 200, 4, 0) in EXPECTED


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", INDEXES)
def test_a_flipped_bit_in_an_index_changes_no_answer(name: str, clean: bool) -> None:
    for number in range(8 * len(sim(SOUND).read(f"{FOLDER}/{name}"))):
        disk = with_changed_file(name, lambda content, n=number: content.__setitem__(n // 8, content[n // 8] ^ 1 << n % 8))  # type: ignore[misc]
        assert answers(opened(disk, SOUND.config, clean=clean, recovery_point=12)) == EXPECTED, f"bit {number} of {name}"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", INDEXES[2:])  # of the segment that is appended to
def test_a_flipped_bit_in_an_index_keeps_nothing_from_being_appended(name: str, clean: bool) -> None:
    def grown(disk: SimDisk) -> list[object]:
        log = opened(disk, replace(SOUND.config, segment_bytes=9 * SIZE), clean=clean, recovery_point=12)
        for number in range(12, 15):
            add(log, batch(at=NOW_MS + number * 10, value=b"value %02d" % number), now_ms=NOW_MS)
        assert log.bases == SOUND.bases
        return answers(log)

    expected = grown(sim(SOUND).crash("strict"))
    for number in range(8 * len(sim(SOUND).read(f"{FOLDER}/{name}"))):
        disk = with_changed_file(name, lambda content, n=number: content.__setitem__(n // 8, content[n // 8] ^ 1 << n % 8))  # type: ignore[misc]
        assert grown(disk) == expected, f"bit {number} of {name}"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", INDEXES)
def test_a_short_or_long_or_empty_index_changes_no_answer(name: str, clean: bool) -> None:
    size = len(sim(SOUND).read(f"{FOLDER}/{name}"))
    for kept in range(size):
        disk = with_changed_file(name, lambda content, kept=kept: content.__delitem__(slice(kept, None)))  # type: ignore[misc]
        assert answers(opened(disk, SOUND.config, clean=clean, recovery_point=12)) == EXPECTED, f"{kept} bytes of {name}"
    for tail in (b"\0" * 24, b"\xff" * 24, b"\x7f" * 24):
        disk = with_changed_file(name, lambda content, tail=tail: content.extend(tail))  # type: ignore[misc]
        assert answers(opened(disk, SOUND.config, clean=clean, recovery_point=12)) == EXPECTED, f"{tail!r} behind {name}"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", INDEXES)
def test_a_missing_index_is_built_again(name: str, clean: bool) -> None:
    disk = sim(SOUND).crash("strict")
    before = disk.read(f"{FOLDER}/{name}")
    disk.remove(f"{FOLDER}/{name}")
    log = opened(disk, SOUND.config, clean=clean, recovery_point=12)
    assert disk.read(f"{FOLDER}/{name}") == before
    assert answers(log) == EXPECTED


@pytest.mark.parametrize("kind", ["leader", "follower"])
def test_a_batch_that_cannot_be_read_keeps_nothing_from_being_appended(kind: str) -> None:
    """It is behind the one with the greatest timestamp, which an append has to know."""
    log = new_log(segment_bytes=10**6)
    fill(log, 1, at=NOW_MS + 100)
    fill(log, 5)
    log.close(NOW_MS)
    disk, (position, header) = sim(log), [*log.active.batches()][3]
    disk.flip_bit(log.active.path(FileKind.LOG), 8 * (position + 16))  # of its magic
    again = opened(disk, log.config, clean=True)
    for _ in range(2):
        size = again.size
        if kind == "leader":
            add(again, batch())
        else:
            again.append_as_follower(sent(again.end_offset), now_ms=NOW_MS)
        assert again.size == size + len(batch())
    again.roll(NOW_MS)
    add(again, batch())
    assert again.end_offset == 9
    with pytest.raises(Refused):
        again.read(header.base_offset, 1, again.end_offset)


@pytest.mark.parametrize("inside", [1, 17, 60, SIZE - 1])
def test_an_entry_that_points_into_a_batch_is_not_believed(inside: int) -> None:
    def point_inside(content: bytearray) -> None:
        position = int.from_bytes(content[4:8], "big") + inside
        content[4:8] = position.to_bytes(4, "big")

    log = opened(with_changed_file(file_name(0, FileKind.INDEX), point_inside), SOUND.config, clean=True)
    assert answers(log) == EXPECTED
    check_indexes(log)


def test_a_flipped_bit_in_an_index_hides_no_aborted_transaction() -> None:
    log = new_log(segment_bytes=10**6, index_interval_bytes=0)
    for number in range(6):
        add(log, produced(0, epoch=number, transactional=True))
        add(log, marker(commit=False, epoch=number), origin=Origin.COORDINATOR)
    log.close(NOW_MS)
    path = log.active.path(FileKind.INDEX)
    for bit in range(8 * len(log.disk.read(path))):
        disk = sim(log).crash("strict")
        disk.flip_bit(path, bit)
        again = opened(disk, log.config, clean=True)
        for offset in range(0, 12, 2):
            found = again.read(offset, 4 * SIZE, 12)
            seen = {header.base_offset for _, header in whole_batches(found.read()) if not header.is_control}
            told = {aborted.first_offset for aborted in aborted(again, offset, found)}
            assert seen <= told, f"bit {bit}"


# -- looking up by time


def test_the_first_record_at_or_past_a_timestamp_is_found_inside_of_its_batch() -> None:
    log = new_log()
    add(log, build([Record(number, NOW_MS + 10 * number, b"key", b"value") for number in range(5)]), epoch=3)
    assert offset_for_timestamp(log, NOW_MS + 11) == TimestampOffset(NOW_MS + 20, 2, 3)
    assert offset_for_timestamp(log, NOW_MS + 40) == TimestampOffset(NOW_MS + 40, 4, 3)
    assert offset_for_timestamp(log, NOW_MS + 41) is None


def test_nothing_below_the_start_is_found_by_time() -> None:
    log = new_log()
    fill(log, 12)
    add(log, batch(5, at=NOW_MS + 50))
    log.move_high_watermark(17)
    for start in (9, 14):  # also inside of a batch
        log.move_start(start)
        found = offset_for_timestamp(log, NOW_MS)
        assert found is not None
        assert found.offset == start


def test_the_first_of_several_records_with_the_greatest_timestamp_is_found() -> None:
    log = new_log()
    for at in (5, 9, 7, 9, 3):
        add(log, batch(2, at=NOW_MS + at))
    assert offset_of_max_timestamp(log) == TimestampOffset(NOW_MS + 9, 2, 0)
    assert offset_of_max_timestamp(new_log()) is None

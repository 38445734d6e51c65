"""The sparse indexes: what is found in them, what they save, and what they refuse to believe."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.disk import Disk, RealDisk
from odradek.log.index import CorruptIndex, Index, OffsetIndex, TimeIndex
from tests.log.disk import SimDisk

PATH = "/disk/0.index"
BASE = 100


def offset_index(disk: Disk | None = None, *, new: bool = True, bytes_max: int = 1000) -> OffsetIndex:
    return OffsetIndex(disk or SimDisk(), PATH, BASE, bytes_max, new=new)


def time_index(disk: Disk | None = None, *, new: bool = True, bytes_max: int = 1000) -> TimeIndex:
    return TimeIndex(disk or SimDisk(), PATH, BASE, bytes_max, new=new)


def content(disk: Disk) -> bytes:
    return disk.read(PATH)


# -- look-ups


@given(st.sets(st.integers(0, 200)), st.integers(-2, 203))
def test_a_position_is_that_of_the_last_entry_up_to_the_offset(relative: set[int], wanted: int) -> None:
    index = offset_index()
    for offset in sorted(relative):
        index.append(BASE + offset, offset * 10)
    assert index.position_before(BASE + wanted) == max([offset * 10 for offset in relative if offset <= wanted], default=0)


@given(st.sets(st.integers(0, 200)), st.integers(0, 2030))
def test_a_position_at_or_after_another_is_that_of_the_first_entry_there(relative: set[int], position: int) -> None:
    index = offset_index()
    for offset in sorted(relative):
        index.append(BASE + offset, offset * 10)
    assert index.position_at_or_after(position) == min([o * 10 for o in relative if o * 10 >= position], default=None)


@given(st.lists(st.integers(0, 50)), st.integers(-1, 51))
def test_no_timestamp_before_the_offset_of_a_look_up_is_greater(timestamps: list[int], wanted: int) -> None:
    index = time_index()
    for number, timestamp in enumerate(timestamps):
        index.append(timestamp, BASE + number)
    before = index.entry_before(wanted)[1] - BASE
    assert all(timestamp <= wanted for timestamp in timestamps[: before + (before > 0)])


def test_a_time_index_notes_only_greater_timestamps() -> None:
    index = time_index()
    for number, timestamp in enumerate([5, 4, 5, 9]):
        index.append(timestamp, BASE + number)
    assert [index.entry(number) for number in range(len(index))] == [(5, 0), (9, 3)]
    assert index.last() == (9, BASE + 3)


def test_an_empty_time_index_has_no_timestamp() -> None:
    assert time_index().last() == (-1, BASE)


def test_an_index_is_full_at_its_bytes_and_a_time_index_one_entry_before() -> None:
    offsets, times = offset_index(bytes_max=23), time_index(bytes_max=36)
    for number in range(2):
        assert not offsets.is_full
        assert not times.is_full
        offsets.append(BASE + number, number)
        times.append(number, BASE + number)
    assert offsets.is_full  # 2 entries of 8 in 23 bytes
    assert times.is_full  # 3 of 12 would fit in 36, and the last is for the end of the segment


# -- cutting


def test_entries_at_or_past_an_offset_are_cut_off() -> None:
    offsets, times = offset_index(), time_index()
    for number in range(5):
        offsets.append(BASE + number * 10, number)
        times.append(number, BASE + number * 10)
    offsets.truncate_to(BASE + 20)
    times.truncate_to(BASE + 20)
    assert len(offsets) == len(times) == 2
    assert offsets.entry(1) == (10, 1)
    assert times.last() == (1, BASE + 10)


# -- saving


def saved(disk: Disk) -> list[tuple[int, int]]:
    index = offset_index(disk, new=False)
    return [index.entry(number) for number in range(len(index))]


def test_saving_appends_what_is_new() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(BASE, 0)
    index.save()
    index.append(BASE + 1, 9)
    disk.steps.clear()
    index.save()
    assert [(step.kind, step.size) for step in disk.steps] == [("append", 8)]
    assert saved(disk) == [(0, 0), (1, 9)]


def test_what_was_cut_off_is_gone_from_the_disk_before_anything_takes_its_place() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    for number in range(4):
        index.append(BASE + number, number)
    index.save()
    index.truncate_to(BASE + 2)
    index.append(BASE + 9, 9)
    disk.steps.clear()
    index.save()
    assert [step.kind for step in disk.steps] == ["truncate", "sync", "append"]
    assert saved(disk) == [(0, 0), (1, 1), (9, 9)]
    assert saved(disk.crash("torn")) == [(0, 0), (1, 1)]


def test_an_index_that_was_let_go_is_mapped_again(tmp_path: Path) -> None:
    disk = RealDisk()
    index = OffsetIndex(disk, str(tmp_path / "0.index"), BASE, 1000, new=True)
    index.append(BASE + 3, 30)
    index.let_go()
    assert index.position_before(BASE + 5) == 30
    index.append(BASE + 7, 70)
    index.let_go()
    assert [index.entry(number) for number in range(len(index))] == [(3, 30), (7, 70)]


def test_a_reset_index_is_empty_on_disk_too() -> None:
    disk = SimDisk()
    index = offset_index(disk)
    index.append(BASE, 0)
    index.save()
    index.reset()
    assert len(index) == 0
    assert content(disk) == content(disk.crash("kept")) == b""


def test_a_longer_file_than_the_index_in_memory_is_cut_when_it_is_saved() -> None:
    disk = SimDisk()
    disk.open(PATH, create=True).append([bytes(24)])
    index = offset_index(disk)
    index.append(BASE + 1, 5)
    index.save()
    assert saved(disk) == [(1, 5)]


# -- what cannot be right


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (OffsetIndex, [(5, 10), (5, 20)]),
        (OffsetIndex, [(5, 10), (4, 20)]),
        (OffsetIndex, [(5, 10), (6, 9)]),
        (OffsetIndex, [(-1, 0)]),
        (OffsetIndex, [(1, -1)]),
        (TimeIndex, [(5, 10), (5, 20)]),
        (TimeIndex, [(7, 10), (6, 11)]),
        (TimeIndex, [(5, 10), (6, 9)]),
        (TimeIndex, [(5, -1)]),
    ],
)
def test_an_index_whose_end_does_not_rise_is_corrupt(kind: type[Index], entries: list[tuple[int, int]]) -> None:
    disk = SimDisk()
    disk.open(PATH, create=True).append([kind.ENTRY.pack(*entry) for entry in entries])
    with pytest.raises(CorruptIndex):
        len(kind(disk, PATH, BASE, 1000))


@pytest.mark.parametrize("size", [1, 7, 9, 15])
def test_an_index_of_broken_entries_is_corrupt(size: int) -> None:
    disk = SimDisk()
    disk.open(PATH, create=True).append([bytes(size)])
    with pytest.raises(CorruptIndex):
        offset_index(disk, new=False).position_before(BASE)

"""Ranges of offsets: whatever they are cut into, all of them once."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.client.records import TopicPartition
from odradek.spark.options import Offsets, from_json, to_json
from odradek.spark.ranges import Range, limited, ranges, split

places = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))
offsets = st.dictionaries(places, st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=6)
limits = st.one_of(st.none(), st.integers(1, 40))


def sides(found: dict[TopicPartition, tuple[int, int]]) -> tuple[Offsets, Offsets]:
    return {place: start for place, (start, _) in found.items()}, {place: start + size for place, (start, size) in found.items()}


@given(offsets, limits, limits)
def test_ranges_cover_every_offset_once(
    found: dict[TopicPartition, tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    start, end = sides(found)
    parts = split(ranges(start, end), partitions_min, records_max)
    covered = [(part.place, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == sorted((place, offset) for place in end for offset in range(start[place], end[place]))
    assert all(part.size > 0 for part in parts)
    if records_max is not None:
        assert all(part.size <= records_max for part in parts)


@given(st.integers(1, 300), st.integers(1, 20))
def test_one_partition_is_cut_into_as_many_as_were_asked_for(size: int, partitions_min: int) -> None:
    parts = split([Range(TopicPartition("a", 0), 5, 5 + size)], partitions_min, None)
    assert len(parts) == min(size, partitions_min)
    assert max(part.size for part in parts) - min(part.size for part in parts) <= 1


@given(offsets, st.integers(1, 100))
def test_a_limited_batch_goes_forward_everywhere_and_stays_near_its_limit(
    found: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    start, end = sides(found)
    to = limited(start, end, offsets_max)
    assert to.keys() == end.keys()
    assert all(start[place] < to[place] <= end[place] for place in end if end[place] > start[place])
    taken = sum(to[place] - start[place] for place in end)
    assert taken <= offsets_max + len(end)  # one of each partition where anything waits
    total = sum(end[place] - start[place] for place in end)
    assert to == end or total > offsets_max


@given(st.dictionaries(places, st.integers(0, 1 << 60)))
def test_offsets_are_the_same_after_a_checkpoint(found: Offsets) -> None:
    assert from_json(to_json(found)) == found

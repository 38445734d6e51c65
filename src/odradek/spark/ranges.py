"""What a batch reads: ranges of offsets, how many of those that wait go into a micro-batch, and how they are split into tasks.

Invariants
 1. Ranges of one partition do not overlap and leave nothing out.
 2. A micro-batch that has a limit gives each partition its part of it by what waits there, and one offset at least where
    anything does, so that none starves.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import ceil

from odradek.client.records import TopicPartition
from odradek.spark.options import Offsets


class Range:
    """Offsets of a partition, from `start` up to `end`, for one task."""

    __slots__ = ("end", "place", "start")

    def __init__(self, place: TopicPartition, start: int, end: int) -> None:
        self.place, self.start, self.end = place, start, end

    def __repr__(self) -> str:
        return f"{self.place} {self.start}-{self.end}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and (self.place, self.start, self.end) == (other.place, other.start, other.end)

    def __hash__(self) -> int:
        return hash((self.place, self.start, self.end))

    @property
    def size(self) -> int:
        return self.end - self.start

    def cut(self, parts: int) -> list["Range"]:
        """Into so many of nearly the same size; fewer where it has fewer offsets."""
        parts = max(min(parts, self.size), 1)
        ends = [self.start + self.size * part // parts for part in range(parts + 1)]
        return [Range(self.place, start, end) for start, end in pairwise(ends)]


def ranges(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[Range]:
    return [Range(place, start[place], end[place]) for place in sorted(end) if end[place] > start[place]]


def split(found: list[Range], partitions_min: int | None, records_max: int | None) -> list[Range]:
    """So that none has more offsets than `records_max`, and then that there are `partitions_min` of them, of like size."""
    if records_max is not None:
        found = [part for each in found for part in each.cut(ceil(each.size / records_max))]
    total = sum(each.size for each in found)
    if partitions_min is None or len(found) >= partitions_min or not total:
        return found
    whole = [each for each in found if each.size * partitions_min <= total]  # those that are not more than a part
    large = [each for each in found if each.size * partitions_min > total]
    wanted, total = partitions_min - len(whole), sum(each.size for each in large)
    parts = [part for each in large for part in each.cut(max(round(wanted * each.size / total), 1))]
    return sorted([*whole, *parts], key=lambda each: (each.place, each.start))


def limited(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """Ends that are so many offsets after the starts, or a few more where there are many partitions."""
    waiting = {place: end[place] - start[place] for place in end if end[place] > start[place]}
    total = sum(waiting.values())
    if total <= offsets_max:
        return end
    return {
        place: min(start[place] + max(waiting[place] * offsets_max // total, 1), end[place]) if place in waiting else end[place]
        for place in end
    }

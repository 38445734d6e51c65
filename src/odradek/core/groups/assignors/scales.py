"""Members on a pair of scales: who has least, and who has most, while partitions go from these to those.

The members stand in the order of how many partitions they had at first. Two ranges of them are looked at: one at the light end,
all of whose members are on one level once each has got a partition, and one at the heavy end, the same way round.

                       heavy, and nothing to give
        light              heavy  |
        [..->  ]###[##<-  ]######|##
"""


class Scales:
    __slots__ = (
        "heavy_end",
        "heavy_level",
        "heavy_next",
        "heavy_start",
        "light_end",
        "light_level",
        "light_next",
        "ordered",
        "sizes",
    )

    def __init__(self, sizes: list[int], members: list[int]) -> None:
        assert members
        self.sizes = sizes  # by member; changes while partitions move
        self.ordered = sorted(members, key=lambda number: (sizes[number], number))
        self.light_end = 0
        self.light_level = sizes[self.ordered[0]] - 1
        self.light_next = 0
        self.heavy_start = self.heavy_end = len(members)
        self.heavy_level = sizes[self.ordered[-1]] + 1
        self.heavy_next = len(members) - 1

    @property
    def is_balanced(self) -> bool:
        return self.heavy_level - self.light_level <= 1

    def next_lightest(self) -> int:
        """Who is to get the next partition."""
        if self.light_next >= self.light_end:  # each of the range has got one: it is a level higher, and may grow
            self.light_level += 1
            while self.light_end < len(self.ordered) and self.sizes[self.ordered[self.light_end]] == self.light_level:
                self.light_end += 1
            self.light_next = 0
        self.light_next += 1
        return self.ordered[self.light_next - 1]

    def next_heaviest(self) -> int | None:
        """Who is to give a partition; None when nobody is left who could."""
        if self.heavy_next < self.heavy_start:
            if self.heavy_end <= self.heavy_start and self.heavy_start > 0:  # all of the range are excluded: begin a new one
                self.heavy_level = self.sizes[self.ordered[self.heavy_start - 1]]
            else:
                self.heavy_level -= 1
            while self.heavy_start > 0 and self.sizes[self.ordered[self.heavy_start - 1]] == self.heavy_level:
                self.heavy_start -= 1
            self.heavy_next = self.heavy_end - 1
        if self.heavy_next < 0:
            return None
        self.heavy_next -= 1
        return self.ordered[self.heavy_next + 1]

    def exclude_heaviest(self) -> None:
        """The one that `next_heaviest` gave has nothing to give: it changes places with the last of the range, which shrinks."""
        place, last = self.heavy_next + 1, self.heavy_end - 1
        self.ordered[place], self.ordered[last] = self.ordered[last], self.ordered[place]
        self.heavy_end -= 1

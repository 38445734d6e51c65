"""One committed offset of a group, as a register: what may be read from it, given who wrote what and when.

Invariants
 1. A commit may be read while it is under way, and for ever if nobody knows how it ended.
 2. An acknowledged one may be read until another was begun after its end, and acknowledged.
 3. What was seen had been written: what had ended before its beginning is overwritten, too.
 4. That nothing is committed is a value as any other, which was there before the first commit.
"""

from typing import Final

import msgspec

from tests.checker.history import UNKNOWN_OFFSET

BEFORE_ALL: Final = -1


class Written(msgspec.Struct):
    """All commits of one value."""

    begun: int  # the first
    under_way: set[int] = set()
    ended: int | None = None  # the last that was acknowledged


class Register:
    def __init__(self) -> None:
        self.values: dict[int, Written] = {UNKNOWN_OFFSET: Written(BEFORE_ALL, ended=BEFORE_ALL)}
        self.newest = BEFORE_ALL  # the beginning of the last commit that is known of: what had ended before is overwritten

    def begin(self, commit: int, offset: int, at: int) -> None:
        self.values.setdefault(offset, Written(at)).under_way.add(commit)

    def see(self, offset: int) -> None:
        self.newest = max(self.newest, self.values[offset].begun)

    def refuse(self, commit: int, offset: int) -> None:
        self.values[offset].under_way.discard(commit)

    def acknowledge(self, commit: int, offset: int, begun: int, at: int, is_final: bool) -> None:
        written = self.values[offset]
        if is_final:
            written.under_way.discard(commit)
        written.ended = at
        self.newest = max(self.newest, begun)

    def forget(self, at: int) -> None:
        """Something was lost: all that ever was may be again."""
        self.newest = BEFORE_ALL
        for written in self.values.values():
            written.ended = at

    def may_be(self, offset: int, newest: int) -> bool:
        """Whether one who asked when `newest` was the newest may see this."""
        written = self.values.get(offset)
        return written is not None and (bool(written.under_way) or (written.ended is not None and written.ended >= newest))

    def possible(self, newest: int) -> list[int]:
        return sorted(offset for offset in self.values if self.may_be(offset, newest))

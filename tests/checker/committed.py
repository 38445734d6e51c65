"""One committed offset of a group, as a register: what may be read from it, given who wrote what and when.

Invariants
 1. A commit may be read while it is under way, and for ever if nobody knows how it ended.
 2. An acknowledged one may be read until another was begun after its end, and acknowledged.
 3. What was seen had been written: what had ended before its beginning is overwritten, too.
 4. Once the partition was given to another member, what the former one had sent has happened, or never will.
 5. That nothing is committed is a value as any other, which was there before the first commit.
"""

from typing import Final

import msgspec

from tests.checker.history import UNKNOWN_OFFSET

BEFORE_ALL: Final = -1
NOBODY: Final = ""  # who commits without being a member


class Written(msgspec.Struct):
    """All commits of one value."""

    begun: int  # the first
    under_way: dict[int, str] = {}  # and the member who sent it
    ended: int | None = None  # the last that was acknowledged


class Register:
    def __init__(self) -> None:
        self.values: dict[int, Written] = {UNKNOWN_OFFSET: Written(BEFORE_ALL, ended=BEFORE_ALL)}
        self.newest = BEFORE_ALL  # the beginning of the last commit that is known of: what had ended before is overwritten

    def begin(self, commit: int, offset: int, at: int, member: str = NOBODY) -> None:
        self.values.setdefault(offset, Written(at)).under_way[commit] = member

    def see(self, offset: int) -> None:
        self.newest = max(self.newest, self.values[offset].begun)

    def refuse(self, commit: int, offset: int) -> None:
        self.values[offset].under_way.pop(commit, None)

    def acknowledge(self, commit: int, offset: int, begun: int, at: int, is_final: bool) -> None:
        written = self.values[offset]
        if is_final:
            written.under_way.pop(commit, None)
        written.ended = at
        self.newest = max(self.newest, begun)

    def settle(self, owner: str, at: int) -> None:
        for written in self.values.values():
            if gone := [commit for commit, member in written.under_way.items() if member not in (NOBODY, owner)]:
                written.ended = at
                for commit in gone:
                    del written.under_way[commit]

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

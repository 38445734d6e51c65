"""The disks of one simulated machine, across the lives of the processes on it, and everything that can happen to them.

A node gets `new_disk`, which it asks for a disk for each of its folders; each folder here is a volume of its own. All else is for
who makes the faults. None of them asks for a clock or for chance of its own.

Invariants
 1. What one life has written, the next one finds, as the page cache keeps it; what was not synced ends with the power.
 2. Nothing that is left of a dead process changes anything, nor holds a lock.
 3. What failed to sync is gone when the process is: a person has looked at the disk, and its pages were read in again.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from odradek.wire.batch import HEADER_SIZE, MAGIC_POSITION, BatchHeader, headers
from tests.log.disk import Faults, SimDisk, SimLock
from tests.log.medium import Manner, Medium, Node

Ending: TypeAlias = Callable[[], None]  # what ends a fault


class DiskFault(msgspec.Struct):
    """Calls of these kinds fail with EIO on paths that it concerns: so many times, or as long as it is there."""

    kinds: tuple[str, ...]
    concerns: Callable[[str], bool]
    times: int | None = None
    failed: int = 0

    def fails(self, kind: str, path: str) -> bool:
        if kind not in self.kinds or (self.times is not None and self.failed >= self.times) or not self.concerns(path):
            return False
        self.failed += 1
        return True


class SimDisks:
    def __init__(self, folders: Sequence[str], clock: Callable[[], int]) -> None:
        """`clock` gives the wall clock's milliseconds, for the times at which files were changed."""
        assert folders
        self.folders = tuple(folders)
        self.medium = Medium(*folders)
        self.medium.clock = clock
        self.faults = Faults()
        self._io_faults: list[DiskFault] = []
        self._views: list[SimDisk] = []
        self._locks: dict[str, SimLock] = {}

    def new_disk(self) -> SimDisk:
        """For one folder of the process that lives now."""
        view = SimDisk(self.folders[0], self.medium, faults=self.faults, locks=self._locks, is_recorded=False)
        self._views.append(view)
        return view

    # -- the end of a process, and of the machine

    def kill(self) -> None:
        """The process is gone, killed or stopped."""
        for view in self._views:
            view.turn_off()
        self._views.clear()
        self._locks.clear()
        for _, node in self._files():
            node.forget()

    def lose_power(self, manner: Manner, dice: random.Random, *, kept_bytes: int = 0, zeros: bool = False) -> None:
        """The machine is gone, and with it what was not synced; when it is back nothing is in memory."""
        self.kill()
        self.medium = self.medium.crash(manner, dice, kept_bytes=kept_bytes, zeros=zeros)
        self.chill()

    def wipe(self, folder: str) -> None:
        """Somebody has put a new disk in the place of this one."""
        assert not self._views, "no process may use it"
        self.medium.folder(folder).names.clear()
        self.medium.folder(folder).durable.clear()
        self.medium.volumes[folder].used_bytes = 0

    # -- what happens while it runs

    def fill(self, folder: str, room_bytes: int = 0) -> None:
        """From now on there is no more room than this in a folder."""
        self.medium.volumes[folder].room = room_bytes

    def make_room(self, folder: str) -> None:
        self.medium.volumes[folder].room = None

    def fail(
        self, kinds: tuple[str, ...], concerns: Callable[[str], bool] = lambda _: True, times: int | None = None
    ) -> DiskFault:
        """Begins a fault; it lasts until `heal` when it has no number of times."""
        fault = DiskFault(kinds, concerns, times)
        self._io_faults.append(fault)
        self.faults.fails = self._fails
        return fault

    def heal(self) -> None:
        """The disk is as good as new, and has room; a process that has seen it fail trusts it no more than before."""
        self._io_faults.clear()
        self.faults.fails = None
        for folder in self.folders:
            self.make_room(folder)

    def _fails(self, kind: str, path: str) -> bool:
        return any(fault.fails(kind, path) for fault in self._io_faults)

    def chill(self, concerns: Callable[[str], bool] = lambda _: True) -> None:
        """Takes files out of memory: a read of them has to wait for the disk."""
        for path, node in self._files():
            if concerns(path) and node.content:
                node.is_cold = True

    def cold_segments(self, concerns: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Segments that are sealed and synced, in order: nothing of them is expected to change."""
        found = [(path, node) for path, node in self._files() if path.endswith(".log") and concerns(path)]
        last = {path.rsplit("/", 1)[0]: path for path, _ in found}
        return [path for path, node in found if path not in last.values() and node.content and not node.unsynced]

    def paths(self, concerns: Callable[[str], bool]) -> list[str]:
        """Of the files that have something in them."""
        return [path for path, node in self._files() if concerns(path) and node.content]

    def flip_bit(self, path: str, dice: random.Random, bit: int | None = None) -> int:
        """Rot in one file; gives the byte that is wrong from now on."""
        node = self.medium.node(path)
        byte, any_bit = divmod(dice.randrange(8 * len(node.content)), 8)
        node.flip(byte, any_bit if bit is None else bit)
        return byte

    def break_batch(self, path: str, dice: random.Random, below: int | None = None) -> Ending | None:
        """Rot in the header of some batch of a segment, so that whoever comes by sees it: what is wrong in records alone, only
        their readers see. Gives what puts it right; None when there is no batch, or none that ends at or below an offset."""
        found = self._batch(path, dice, below)
        return None if found is None else self._break(path, found[0] + MAGIC_POSITION, dice.randrange(2, 8))

    def break_records(self, path: str, dice: random.Random, below: int | None = None) -> Ending | None:
        """The same in its records."""
        found = self._batch(path, dice, below)
        if found is None or found[1].size == HEADER_SIZE:
            return None
        at, header = found
        return self._break(path, dice.randrange(at + HEADER_SIZE, at + header.size), dice.randrange(8))

    def _break(self, path: str, byte: int, bit: int) -> Ending:
        """Gives what puts it right, unless the file is another one by then."""
        node = self.medium.node(path)
        node.flip(byte, bit)
        rotten = bytes(node.content)

        def mend() -> None:
            for other, left in self._files():
                if other == path and left.is_rotten and left.content.startswith(rotten):
                    left.flip(byte, bit)
                    left.is_rotten = False

        return mend

    def _batch(self, path: str, dice: random.Random, below: int | None) -> tuple[int, BatchHeader] | None:
        node = self.medium.node(path)
        if node.is_rotten:
            return None
        found = [(at, header) for at, header in headers(bytes(node.content)) if below is None or header.next_offset <= below]
        return dice.choice(found) if found else None

    def used_bytes(self, folder: str) -> int:
        return self.medium.volumes[folder].used_bytes

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Every file, as a process would read it."""
        for path, node in self._files():
            yield path, bytes(node.content)

    def _files(self) -> Iterator[tuple[str, Node]]:
        for folder in self.folders:
            yield from self.medium.files(folder)

"""Real disks with the faults of real disks, for nodes inside a test: one that fills up, one that is slow, one that fails.

Each is `RealDisk` with something in its way; `new_disk` of a node makes one for each of its folders.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence

from odradek.log.disk import DiskFull, RealDisk, RealFile
from odradek.node.writing import SLOW_APPEND_SECONDS
from odradek.wire.varint import Buffer

SLOW_SECONDS = 2 * SLOW_APPEND_SECONDS
GATE_SECONDS_MAX = 60


class Volume:
    """Room that several disks share; when it is used up, nothing can be written and no file made."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self.lock = threading.Lock()

    def take(self, size: int, path: str) -> None:
        with self.lock:
            if size > self.room_bytes or self.room_bytes <= 0:
                raise DiskFull(errno.ENOSPC, "no room on the disk", path)
            self.room_bytes -= size

    def give(self, size: int) -> None:
        with self.lock:
            self.room_bytes += size

    def fill(self) -> None:
        with self.lock:
            self.room_bytes = 0


class SmallFile(RealFile):
    __slots__ = ()
    disk: "SmallDisk"

    def append(self, buffers: Sequence[Buffer]) -> int:
        size = sum(map(len, buffers))
        self.disk.volume.take(size, self.path)
        return super().append(buffers)

    def truncate(self, size: int) -> None:
        self.disk.volume.give(self.size - size)
        super().truncate(size)


class SmallDisk(RealDisk):
    def __init__(self, volume: Volume) -> None:
        super().__init__()
        self.volume = volume

    def open(self, path: str, *, create: bool = False) -> SmallFile:
        self.check()
        if create and not os.path.exists(path):
            self.volume.take(0, path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SmallFile(self, path, os.open(path, flags, 0o644))

    def make_folder(self, path: str) -> None:
        if not os.path.exists(path):
            self.volume.take(0, path)
        super().make_folder(path)

    def rename(self, old: str, new: str) -> None:
        replaced = size_of(new)
        super().rename(old, new)
        self.volume.give(replaced)

    def remove(self, path: str) -> None:
        self.volume.give(size_of(path))
        super().remove(path)

    def remove_folder(self, path: str) -> None:
        self.volume.give(sum(size for _, size in self.names(path) if size > 0))
        super().remove_folder(path)

    def reserve(self, path: str, size: int) -> None:
        self.volume.take(size, path)
        super().reserve(path, size)

    def space(self, path: str) -> tuple[int, int]:
        return 2**40, self.volume.room_bytes


def size_of(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


class Gate:
    """What happens to some files takes until the gate is opened, when a thread does it. On the thread that made the gate, which
    is the loop's, it takes SLOW_SECONDS: long enough to be noticed."""

    def __init__(self, concerns: Callable[[str, str], bool]) -> None:
        """`concerns` says of an operation (append, sync, warm) on a path whether it is slow."""
        self.concerns = concerns
        self.is_open = threading.Event()
        self.is_open.set()
        self.loop = threading.get_ident()
        self.waiting = 0
        self.loop_waited = 0  # how often the loop did

    def close(self) -> None:
        self.is_open.clear()

    def open(self) -> None:
        self.is_open.set()

    def pass_through(self, operation: str, path: str) -> None:
        if self.is_open.is_set() or not self.concerns(operation, path):
            return
        if threading.get_ident() == self.loop:
            self.loop_waited += 1
            time.sleep(SLOW_SECONDS)
            return
        self.waiting += 1
        assert self.is_open.wait(GATE_SECONDS_MAX), "nobody has opened the gate"
        self.waiting -= 1


class SlowFile(RealFile):
    __slots__ = ()
    disk: "SlowDisk"

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.disk.gate.pass_through("append", self.path)
        if self.disk.is_full:
            raise DiskFull(errno.ENOSPC, "no room on the disk", self.path)
        return super().append(buffers)

    def sync(self) -> None:
        self.disk.gate.pass_through("sync", self.path)
        super().sync()

    def is_warm(self, position: int, length: int) -> bool:
        return self.path not in self.disk.cold

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        return self.is_warm(position, len(into)) and super().read_now(position, into)

    def _read(self, position: int, length: int) -> bytes:
        if not self.is_warm(position, length):
            self.disk.gate.pass_through("warm", self.path)
        return super()._read(position, length)

    def warm(self, position: int, length: int) -> None:
        self.disk.gate.pass_through("warm", self.path)
        self.disk.cold.discard(self.path)


class SlowDisk(RealDisk):
    """A disk behind a gate. Files in `cold` have to be read in before they can be read at once."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        self.cold: set[str] = set()
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> SlowFile:
        self.check()
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SlowFile(self, path, os.open(path, flags, 0o644))


class Fault:
    """What fails from now on: calls (append, sync, read) on files whose paths have something in them."""

    def __init__(self) -> None:
        self.calls: tuple[str, ...] = ()
        self.part = ""

    def begin(self, part: str, *calls: str) -> None:
        self.calls, self.part = calls, part

    def concerns(self, call: str, path: str) -> bool:
        return call in self.calls and self.part in path


class FailingFile(RealFile):
    __slots__ = ()
    disk: "FailingDisk"

    def _check(self, call: str) -> None:
        if self.disk.fault.concerns(call, self.path):
            raise self.disk.fail(OSError(errno.EIO, os.strerror(errno.EIO), self.path))

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check("append")
        return super().append(buffers)

    def sync(self) -> None:
        self._check("sync")
        super().sync()

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        self._check("read")
        return super().read_now(position, into)

    def _read(self, position: int, length: int) -> bytes:
        self._check("read")
        return super()._read(position, length)


class FailingDisk(RealDisk):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def open(self, path: str, *, create: bool = False) -> FailingFile:
        self.check()
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return FailingFile(self, path, os.open(path, flags, 0o644))

"""A disk in memory that loses power, fills up, fails and flips bits: what the tests hand in for a `Disk`.

What is on it is a `Medium`; this is how one process sees it. Whatever changes the disk is a numbered step. A test runs once to
learn the steps, then again for each of them with `stop_at`, takes the disk that is found after the power came back (`crash`), and
looks at what recovery makes of it.

Invariants
 1. Paths, errors and answers are those of `RealDisk`.
 2. A disk that is off, because the power went or its process is gone, raises whatever is asked, and changes nothing.
"""

import errno
import os
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from odradek.log.disk import Cold, DiskFailed, DiskFull
from odradek.wire.varint import Buffer
from tests.log.medium import VOLUME_BYTES, Folder, Manner, Medium, Node, Write

SYNCS = ("sync", "sync_folder")
NO_ROOM = "no room on the disk"


class PowerLost(Exception):
    """The process is gone. Only `crash` can still be asked."""


class Step(NamedTuple):
    kind: str
    path: str
    size: int = 0


class Faults:
    """What goes wrong, and how long things take, for all disks that share it."""

    def __init__(self) -> None:
        self.fails: Callable[[str, str], bool] | None = None  # asked of an operation and a path
        self.on_cost: Callable[[str, str, int], None] | None = None  # told of each operation, its path and how many bytes it is


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, node: Node) -> None:
        self.disk = disk
        self.path = path
        self.node = node
        self.size = len(node.content)

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        self.disk.ask("append", self.path, len(data))
        start = self.size
        growth = max(start + len(data) - len(self.node.content), 0)
        self.disk.check_room(self.path, growth)
        kept = self.disk.begin(Step("append", self.path, len(data)))
        if kept is not None:  # the power goes while this is written
            self.node.change(Write(start, data[:kept]), self.disk.now_ms)
            raise self.disk.lose_power()
        if data:
            self.node.change(Write(start, data), self.disk.now_ms)
        self.disk.take_room(self.path, self.node, growth)
        self.size = start + len(data)
        return start

    def read(self, position: int, length: int) -> bytes:
        if self.node.is_cold and self.disk.is_hasty:
            self.disk.check()
            raise Cold(partial(self.warm, position, length))
        self.disk.ask("read", self.path, length)
        return bytes(self.node.content[position : position + length])

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        self.disk.check()
        if self.node.is_cold or position + len(into) > len(self.node.content):
            return False
        into[:] = self.read(position, len(into))
        return True

    def is_warm(self, position: int, length: int) -> bool:
        self.disk.check()
        return not self.node.is_cold

    def warm(self, position: int, length: int) -> None:
        self.disk.ask("warm", self.path, length)
        self.node.is_cold = False

    def allocate(self, size: int) -> None:
        self.disk.check()

    def truncate(self, size: int) -> None:
        self.disk.ask("truncate", self.path, size)
        self.disk.change(Step("truncate", self.path, size))
        self.disk.take_room(self.path, self.node, min(size - len(self.node.content), 0))
        self.node.change(Write(size, None), self.disk.now_ms)
        self.size = size

    def sync(self) -> None:
        self.disk.check()
        self.disk.change(Step("sync", self.path))
        try:
            self.disk.ask("sync", self.path, sum(len(write.data or b"") for write in self.node.unsynced))
        except DiskFailed:
            self.node.fail_sync()
            raise
        self.node.sync()

    def send(self, connected: socket.socket, position: int, size: int) -> int:
        data = self.read(position, size)
        return connected.send(data) if data else 0


class SimLock:
    def __init__(self, locks: dict[str, "SimLock"], path: str) -> None:
        self.locks = locks
        self.path = path

    def release(self) -> None:
        if self.locks.get(self.path) is self:
            del self.locks[self.path]


class SimDisk:
    """See above. `root` is there, and durable, from the beginning."""

    def __init__(
        self,
        root: str = "/disk",
        medium: Medium | None = None,
        *,
        faults: Faults | None = None,
        locks: dict[str, SimLock] | None = None,
        is_recorded: bool = True,
    ) -> None:
        """Not `is_recorded`, it keeps no steps: for long runs."""
        self.failure: OSError | None = None
        self.is_hasty = False
        self.root = root
        self.medium = medium or Medium(root)
        self.faults = faults or Faults()
        self.locks = {} if locks is None else locks
        self.steps: list[Step] = []
        self._is_recorded = is_recorded
        self._stop: tuple[int, int | None] | None = None
        self._is_off = False

    # -- what can happen to it

    @property
    def now_ms(self) -> int:
        return self.medium.clock()

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.medium.clock = lambda: now_ms

    @property
    def room(self) -> int | None:
        """Of the volume that the root is."""
        return self.medium.volume(self.root).room

    @room.setter
    def room(self, room: int | None) -> None:
        self.medium.volume(self.root).room = room

    def stop_at(self, step: int, kept_bytes: int | None = None) -> None:
        """The power goes instead of this step (the first is 0), or, of an append, after so many of its bytes were written."""
        self._stop = (step, kept_bytes)

    def turn_off(self) -> None:
        """The process is gone: finalizers of what it left may still run, and can do nothing."""
        self._is_off = True

    def fail_sync(self, fails: Callable[[str], bool]) -> None:
        """From now on syncs of these paths fail, and with the first one the disk."""
        self.faults.fails = lambda kind, path: kind in SYNCS and fails(path)

    def flip_bit(self, path: str, position: int) -> None:
        """Rot: the bit is wrong in memory and on the disk, and no step says so."""
        self.medium.node(path).flip(*divmod(position, 8))

    def crash(self, manner: Manner = "strict", *, kept_bytes: int = 0, zeros: bool = False, seed: int = 0) -> "SimDisk":
        """The disk as it is found after the power was lost, see `Medium.crash`."""
        medium = self.medium.crash(manner, random.Random(seed), kept_bytes=kept_bytes, zeros=zeros)
        return SimDisk(self.root, medium)

    # -- steps and failures

    def check(self) -> None:
        if self._is_off:
            raise PowerLost("the process that had this disk is gone")
        if self.failure is not None:
            raise DiskFailed(*self.failure.args) from self.failure

    def ask(self, kind: str, path: str, size: int = 0) -> None:
        """Before an operation: whether it can be done, and what it costs."""
        self.check()
        faults = self.faults
        if faults.on_cost is not None:
            faults.on_cost(kind, path, size)
        if faults.fails is not None and faults.fails(kind, path):
            raise self.fail(OSError(errno.EIO, os.strerror(errno.EIO), path))

    def begin(self, step: Step) -> int | None:
        """Numbers a step. PowerLost when it is the one to stop at; the bytes to write before, when it is an append."""
        if self._stop is None and not self._is_recorded:
            return None
        number = len(self.steps)
        self.steps.append(step)
        if self._stop is None or number < self._stop[0]:
            return None
        if step.kind == "append" and self._stop[1] is not None:
            return self._stop[1]
        raise self.lose_power()

    def change(self, step: Step) -> None:
        self.begin(step)

    def lose_power(self) -> PowerLost:
        self._is_off = True
        return PowerLost(f"at step {len(self.steps) - 1}, {self.steps[-1]}")

    def fail(self, error: OSError) -> DiskFailed:
        self.failure = self.failure or error
        return DiskFailed(*error.args)

    def check_room(self, path: str, size: int) -> None:
        room = self.medium.volume(path).room
        if room is not None and size > room:
            raise DiskFull(errno.ENOSPC, NO_ROOM, path)

    def take_room(self, path: str, node: Node, size: int) -> None:
        if not node.is_removed:  # which has given it back
            self.medium.volume(path).used_bytes += size

    # -- what a Disk does

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check()
        folder, name = self.medium.walk(path)
        if name not in folder.names and create:
            self.ask("create", path)
            self.change(Step("create", path))
            self.medium.name((folder, name, Node(modified_ms=self.now_ms)))
        return SimFile(self, path, self.medium.node(path))

    def map(self, path: str) -> Buffer:
        return self.read(path)

    def read(self, path: str) -> bytes:
        self.check()
        content = self.medium.node(path).content
        self.ask("read", path, len(content))
        return bytes(content)

    def names(self, folder: str) -> list[tuple[str, int]]:
        self.check()
        found = self.medium.folder(folder).names.items()
        return sorted((name, -1 if isinstance(node, Folder) else len(node.content)) for name, node in found)

    def modified_ms(self, path: str) -> int:
        self.check()
        return self.medium.find(path).modified_ms

    def rename(self, old: str, new: str) -> None:
        self.check()
        old_folder, old_name = self.medium.walk(old)
        new_folder, new_name = self.medium.walk(new)
        node = self.medium.find(old)
        replaced = new_folder.names.get(new_name)
        if node is replaced:
            return
        fault = 0
        if new.startswith(old + "/"):
            fault = errno.EINVAL
        elif old.startswith(new + "/"):
            fault = errno.ENOTEMPTY
        elif isinstance(replaced, Folder) and not isinstance(node, Folder):
            fault = errno.EISDIR
        elif isinstance(node, Folder) and isinstance(replaced, Node):
            fault = errno.ENOTDIR
        elif isinstance(replaced, Folder) and replaced.names:
            fault = errno.ENOTEMPTY
        if fault:
            raise OSError(fault, os.strerror(fault), old, None, new)
        self.ask("rename", new)
        self.change(Step("rename", f"{old} -> {new}"))
        if isinstance(replaced, Node):
            self._give_room(new, replaced)
        self.medium.name((old_folder, old_name, None), (new_folder, new_name, node))

    def remove(self, path: str) -> None:
        self.check()
        try:
            folder, name = self.medium.walk(path)
            node = self.medium.node(path)
        except FileNotFoundError:
            return
        self.ask("remove", path)
        self.change(Step("remove", path))
        self._give_room(path, node)
        self.medium.name((folder, name, None))

    def _give_room(self, path: str, node: Node) -> None:
        self.take_room(path, node, -len(node.content))
        node.is_removed = True

    def make_folder(self, path: str) -> None:
        self.check()
        parts = [part for part in path.split("/") if part]
        for depth in range(1, len(parts) + 1):
            part = "/" + "/".join(parts[:depth])
            folder, name = self.medium.walk(part)
            if name not in folder.names:
                self.change(Step("make_folder", part))
                self.medium.name((folder, name, Folder()))
            elif depth == len(parts) and not isinstance(folder.names[name], Folder):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def remove_folder(self, path: str) -> None:
        self.check()
        folder = self.medium.folder(path)
        for name, node in [*folder.names.items()]:
            if isinstance(node, Folder):
                self.remove_folder(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.change(Step("remove_folder", path))
        parent, name = self.medium.walk(path)
        self.medium.name((parent, name, None))

    def sync_folder(self, path: str) -> None:
        self.check()
        folder = self.medium.folder(path)
        self.change(Step("sync_folder", path))
        self.ask("sync_folder", path)
        self.medium.sync_names(folder)

    def space(self, path: str) -> tuple[int, int]:
        self.check()
        volume = self.medium.volume(path)
        limit, room = volume.limit_bytes, volume.room
        return (VOLUME_BYTES, VOLUME_BYTES) if limit is None or room is None else (limit, max(room, 0))

    def reserve(self, path: str, size: int) -> None:
        self.remove(path)
        file = self.open(path, create=True)
        try:
            file.append([bytes(size)])
        except DiskFull:
            file.truncate(0)
            raise

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        lock = self.locks[path] = SimLock(self.locks, path)
        return lock

    # -- to and from a real folder

    def export(self, folder: Path, path: str | None = None) -> None:
        """Writes what is in a folder of this disk (its root unless told) into a real one, as it is now."""
        for name, node in self.medium.folder(path or self.root).names.items():
            if isinstance(node, Folder):
                (folder / name).mkdir()
                self.export(folder / name, f"{path or self.root}/{name}")
            else:
                (folder / name).write_bytes(node.content)
                os.utime(folder / name, ns=(node.modified_ms * 1_000_000,) * 2)

    def import_from(self, folder: Path, path: str | None = None) -> None:
        """Puts what is in a real folder into one of this disk, durably; no step says so."""
        target = self.medium.folder(path or self.root)
        for entry in sorted(folder.iterdir()):
            if entry.is_dir():
                node = target.names.get(entry.name)
                if not isinstance(node, Folder):
                    target.names[entry.name] = target.durable[entry.name] = Folder()
                self.import_from(entry, f"{path or self.root}/{entry.name}")
            else:
                modified_ms = entry.stat().st_mtime_ns // 1_000_000
                target.names[entry.name] = target.durable[entry.name] = Node(entry.read_bytes(), modified_ms)

    def paths(self, path: str | None = None) -> Iterator[str]:
        """All files below a folder."""
        self.check()
        return (found for found, _ in self.medium.files(path or self.root))

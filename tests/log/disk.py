"""A disk in memory that loses power, fills up, fails to sync and flips bits: what the log's tests hand in for a `Disk`.

A file has what was written and what is durable, that is, what was there at its last sync; so has every folder for the names in
it. Whatever changes the disk is a numbered step. A test runs once to learn the steps, then again for each of them with `stop_at`,
takes the disk that is found after the power came back (`crash`), and looks at what recovery makes of it.

Invariants
 1. A file's content is durable when the file was synced; its name, or that it has none, when its folder was synced.
 2. Paths, errors and answers are those of `RealDisk`.
 3. `crash` leaves this disk as it is: one run may end in several ways.
"""

import errno
import io
import os
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from odradek.log.disk import DiskFailed, DiskFull
from odradek.wire.varint import Buffer

Manner: TypeAlias = Literal["strict", "kept", "torn", "mixed"]


class PowerLost(Exception):
    """The process is gone. Only `crash` can still be asked."""


class Step(NamedTuple):
    kind: str
    path: str
    size: int = 0


class Write(NamedTuple):
    """Bytes at a position, not synced yet; without bytes, a cut or stretch to a size."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            resize(content, self.position)
        else:
            if self.position > len(content):
                resize(content, self.position)
            content[self.position : self.position + len(self.data)] = self.data


class Node:
    """A file, whatever its name is."""

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        self.content = bytearray(content)
        self.durable = content
        self.unsynced: list[Write] = []
        self.modified_ms = modified_ms

    def change(self, write: Write, now_ms: int) -> None:
        write.apply(self.content)
        self.unsynced.append(write)
        self.modified_ms = now_ms

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.unsynced.clear()

    def after(self, writes: Sequence[Write]) -> bytes:
        content = bytearray(self.durable)
        for write in writes:
            write.apply(content)
        return bytes(content)

    def torn(self, kept_bytes: int, *, zeros: bool) -> bytes:
        """What is there when only so many unsynced bytes reached the disk; of the rest, with `zeros`, the length did."""
        writes = []
        for write in self.unsynced:
            if write.data is None:
                writes.append(write)
                continue
            kept = write.data[:kept_bytes]
            lost = len(write.data) - len(kept)
            kept_bytes -= len(kept)
            writes.append(Write(write.position, kept + bytes(lost) if zeros else kept))
            if lost and not zeros:
                break
        return self.after(writes)


class Folder:
    def __init__(self) -> None:
        self.names: dict[str, Node | Folder] = {}
        self.durable: dict[str, Node | Folder] = {}
        self.modified_ms = 0


class Naming(NamedTuple):
    """A change of names that is there as a whole or not at all: a file made, renamed or removed."""

    changes: list[tuple[Folder, str, "Node | Folder | None"]]

    def apply(self, names_of: Callable[[Folder], dict[str, "Node | Folder"]]) -> None:
        for folder, name, node in self.changes:
            if node is None:
                names_of(folder).pop(name, None)
            else:
                names_of(folder)[name] = node

    def touches(self, folders: list[Folder]) -> bool:
        return any(folder is other for folder, _, _ in self.changes for other in folders)


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, node: Node) -> None:
        self.disk = disk
        self.path = path
        self.node = node
        self.size = len(node.content)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.disk.check()
        data = b"".join(buffers)
        start = self.size
        growth = max(start + len(data) - len(self.node.content), 0)
        if self.disk.room is not None and growth > self.disk.room:
            raise DiskFull(errno.ENOSPC, "no room on the disk", self.path)
        kept = self.disk.begin(Step("append", self.path, len(data)))
        if kept is not None:  # the power goes while this is written
            self.node.change(Write(start, data[:kept]), self.disk.now_ms)
            raise self.disk.lose_power()
        if data:
            self.node.change(Write(start, data), self.disk.now_ms)
        self.disk.take_room(growth)
        self.size = start + len(data)
        return start

    def read(self, position: int, length: int) -> bytes:
        self.disk.check()
        return bytes(self.node.content[position : position + length])

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        into[:] = self.read(position, len(into))
        return True

    def is_warm(self, position: int, length: int) -> bool:
        return True

    def warm(self, position: int, length: int) -> None:
        self.disk.check()

    def allocate(self, size: int) -> None:
        self.disk.check()

    def truncate(self, size: int) -> None:
        self.disk.change(Step("truncate", self.path, size))
        self.disk.take_room(min(size - len(self.node.content), 0))
        self.node.change(Write(size, None), self.disk.now_ms)
        self.size = size

    def sync(self) -> None:
        self.disk.change(Step("sync", self.path))
        self.disk.fail_if_told(self.path)
        self.node.sync()

    def send(self, connected: socket.socket, position: int, size: int) -> int:
        data = self.read(position, size)
        return connected.send(data) if data else 0

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")


class SimLock:
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self.disk = disk
        self.path = path

    def release(self) -> None:
        self.disk.locks.discard(self.path)


class SimDisk:
    """See above. `root` is there, and durable, from the beginning."""

    def __init__(self, root: str = "/disk") -> None:
        self.failure: OSError | None = None
        self.is_hasty = False
        self.root = root
        self.now_ms = 0
        self.room: int | None = None
        self.steps: list[Step] = []
        self.locks: set[str] = set()
        self._tree = Folder()
        self._unsynced: list[Naming] = []
        self._stop: tuple[int, int | None] | None = None
        self._is_off = False
        self._fails_sync: Callable[[str], bool] = lambda _: False
        self._make_folders(root)
        self._name_all_durably()
        self.steps.clear()

    # -- what can happen to it

    def stop_at(self, step: int, kept_bytes: int | None = None) -> None:
        """The power goes instead of this step (the first is 0), or, of an append, after so many of its bytes were written."""
        self._stop = (step, kept_bytes)

    def fail_sync(self, fails: Callable[[str], bool]) -> None:
        """From now on syncs of these paths fail, and with the first one the disk."""
        self._fails_sync = fails

    def flip_bit(self, path: str, position: int) -> None:
        """Rot: the bit is wrong in memory and on the disk, and no step says so."""
        node = self._node(path)
        byte, bit = divmod(position, 8)
        node.content[byte] ^= 1 << bit
        if byte < len(node.durable):
            node.durable = node.durable[:byte] + bytes([node.durable[byte] ^ 1 << bit]) + node.durable[byte + 1 :]

    def crash(self, manner: Manner = "strict", *, kept_bytes: int = 0, zeros: bool = False, seed: int = 0) -> "SimDisk":
        """The disk as it is found after the power was lost.

        strict  what was not synced is gone, content and names
        kept    everything is there
        torn    all names, and of each file's unsynced writes the first `kept_bytes`; the rest is gone, or there as `zeros`
        mixed   by the seed: of each file some first part of the unsynced writes, of each folder some first changes of names
        """
        dice = random.Random(seed)
        names = self._names_after(manner, dice)
        contents: dict[int, bytes] = {}

        def content_of(node: Node) -> bytes:
            if id(node) not in contents:
                contents[id(node)] = self._content_after(node, manner, kept_bytes, zeros, dice)
            return contents[id(node)]

        def copy(folder: Folder) -> Folder:
            found = Folder()
            for name, node in names.get(id(folder), folder.durable).items():
                if isinstance(node, Folder):
                    found.names[name] = copy(node)
                else:
                    found.names[name] = Node(content_of(node), node.modified_ms)
            found.durable = dict(found.names)
            return found

        after = SimDisk(self.root)
        after.now_ms, after.room = self.now_ms, self.room
        after._tree = copy(self._tree)
        return after

    def _names_after(self, manner: Manner, dice: random.Random) -> dict[int, dict[str, Node | Folder]]:
        names: dict[int, dict[str, Node | Folder]] = {}
        if manner == "strict":
            return names
        left: dict[int, int] = {}
        for naming in self._unsynced:
            folders = {id(folder): folder for folder, _, _ in naming.changes}
            if manner == "mixed":
                for key, folder in folders.items():
                    if key not in left:
                        left[key] = dice.randint(0, sum(other.touches([folder]) for other in self._unsynced))
                if any(left[key] == 0 for key in folders):
                    left.update(dict.fromkeys(folders, 0))  # nothing that comes later in these folders is there
                    continue
                left.update({key: left[key] - 1 for key in folders})
            naming.apply(lambda folder: names.setdefault(id(folder), dict(folder.durable)))
        return names

    @staticmethod
    def _content_after(node: Node, manner: Manner, kept_bytes: int, zeros: bool, dice: random.Random) -> bytes:
        if manner == "strict":
            return node.durable
        if manner == "kept":
            return bytes(node.content)
        if manner == "torn":
            return node.torn(kept_bytes, zeros=zeros)
        unsynced = sum(len(write.data) for write in node.unsynced if write.data is not None)
        whole = dice.randint(0, len(node.unsynced))
        if dice.random() < 0.3:
            return node.after(node.unsynced[:whole])
        return node.torn(dice.randint(0, unsynced), zeros=dice.random() < 0.3)

    # -- steps and failures

    def check(self) -> None:
        if self._is_off:
            raise PowerLost
        if self.failure is not None:
            raise DiskFailed(*self.failure.args) from self.failure

    def begin(self, step: Step) -> int | None:
        """Numbers a step. PowerLost when it is the one to stop at; the bytes to write before, when it is an append."""
        self.check()
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

    def fail_if_told(self, path: str) -> None:
        if self._fails_sync(path):
            raise self.fail(OSError(errno.EIO, "the sync failed", path))

    def take_room(self, size: int) -> None:
        if self.room is not None:
            self.room -= size

    # -- paths

    def _walk(self, path: str) -> tuple[Folder, str]:
        """The folder that a path's last name is in."""
        parts = [part for part in path.split("/") if part]
        folder = self._tree
        for part in parts[:-1]:
            node = folder.names.get(part)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = node
        return folder, parts[-1]

    def _find(self, path: str) -> Node | Folder:
        folder, name = self._walk(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return folder.names[name]

    def _node(self, path: str) -> Node:
        node = self._find(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _folder(self, path: str) -> Folder:
        folder = self._find(path)
        if not isinstance(folder, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return folder

    def _name(self, *changes: tuple[Folder, str, Node | Folder | None]) -> None:
        naming = Naming([*changes])
        naming.apply(lambda folder: folder.names)
        self._unsynced.append(naming)

    def _name_all_durably(self) -> None:
        for naming in self._unsynced:
            naming.apply(lambda folder: folder.durable)
        self._unsynced.clear()

    # -- what a Disk does

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.check()
        folder, name = self._walk(path)
        if name not in folder.names and create:
            self.change(Step("create", path))
            self._name((folder, name, Node(modified_ms=self.now_ms)))
        return SimFile(self, path, self._node(path))

    def map(self, path: str) -> Buffer:
        return self.read(path)

    def read(self, path: str) -> bytes:
        self.check()
        return bytes(self._node(path).content)

    def names(self, folder: str) -> list[tuple[str, int]]:
        self.check()
        found = self._folder(folder).names.items()
        return sorted((name, -1 if isinstance(node, Folder) else len(node.content)) for name, node in found)

    def modified_ms(self, path: str) -> int:
        self.check()
        return self._find(path).modified_ms

    def rename(self, old: str, new: str) -> None:
        self.check()
        old_folder, old_name = self._walk(old)
        new_folder, new_name = self._walk(new)
        node = self._find(old)
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
        self.change(Step("rename", f"{old} -> {new}"))
        if isinstance(replaced, Node):
            self.take_room(-len(replaced.content))
        self._name((old_folder, old_name, None), (new_folder, new_name, node))

    def remove(self, path: str) -> None:
        self.check()
        try:
            folder, name = self._walk(path)
            node = self._node(path)
        except FileNotFoundError:
            return
        self.change(Step("remove", path))
        self.take_room(-len(node.content))
        self._name((folder, name, None))

    def make_folder(self, path: str) -> None:
        self.check()
        self._make_folders(path)

    def _make_folders(self, path: str) -> None:
        parts = [part for part in path.split("/") if part]
        for depth in range(1, len(parts) + 1):
            part = "/" + "/".join(parts[:depth])
            folder, name = self._walk(part)
            if name not in folder.names:
                self.change(Step("make_folder", part))
                self._name((folder, name, Folder()))
            elif depth == len(parts) and not isinstance(folder.names[name], Folder):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def remove_folder(self, path: str) -> None:
        self.check()
        folder = self._folder(path)
        for name, node in [*folder.names.items()]:
            if isinstance(node, Folder):
                self.remove_folder(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.change(Step("remove_folder", path))
        parent, name = self._walk(path)
        self._name((parent, name, None))

    def sync_folder(self, path: str) -> None:
        """Also what else has to be there for these names to be: the other folder of a rename, and what came before in it."""
        self.check()
        needed = [self._folder(path)]
        self.change(Step("sync_folder", path))
        self.fail_if_told(path)
        later = []
        now = []
        for naming in reversed(self._unsynced):
            if naming.touches(needed):
                needed += [folder for folder, _, _ in naming.changes]
                now.append(naming)
            else:
                later.append(naming)
        for naming in reversed(now):
            naming.apply(lambda folder: folder.durable)
        self._unsynced = later[::-1]

    def space(self, path: str) -> tuple[int, int]:
        self.check()
        return 2**40, 2**40 if self.room is None else self.room

    def reserve(self, path: str, size: int) -> None:
        self.remove(path)
        file = self.open(path, create=True)
        try:
            file.append([bytes(size)])
        except DiskFull:
            self.remove(path)
            raise

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.locks.add(path)
        return SimLock(self, path)

    # -- to and from a real folder

    def export(self, folder: Path, path: str | None = None) -> None:
        """Writes what is in a folder of this disk (its root unless told) into a real one, as it is now."""
        for name, node in self._folder(path or self.root).names.items():
            if isinstance(node, Folder):
                (folder / name).mkdir()
                self.export(folder / name, f"{path or self.root}/{name}")
            else:
                (folder / name).write_bytes(node.content)
                os.utime(folder / name, ns=(node.modified_ms * 1_000_000,) * 2)

    def import_from(self, folder: Path, path: str | None = None) -> None:
        """Puts what is in a real folder into one of this disk, durably; no step says so."""
        target = self._folder(path or self.root)
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
        for name, size in self.names(path or self.root):
            whole = f"{path or self.root}/{name}"
            if size < 0:
                yield from self.paths(whole)
            else:
                yield whole


def resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))

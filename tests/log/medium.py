"""What is on simulated disks: names and bytes, those that a process sees and those that a power loss leaves.

A file has what was written and what is durable, that is, what was there at its last sync; so has every folder for the names in
it. A medium outlives the processes that use it; they see it through `SimDisk`.

Invariants
 1. A file's content is durable when the file was synced; its name, or that it has none, when its folder was synced.
 2. Nothing costs more than what it writes or reads: a sync copies nothing, and knows only the names of its own folder.
 3. What a failed sync was to make durable never is, whatever is synced later: the kernel has marked the pages clean.
 4. `crash` leaves the medium as it is: one run may end in several ways. The same dice, the same end.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

Manner: TypeAlias = Literal["strict", "kept", "torn", "mixed"]

WHOLE_WRITES_SHARE = 0.3  # of the files after a mixed crash: some have whole writes only,
ZEROS_SHARE = 0.3  # and of some the length reached the disk, and the bytes did not
VOLUME_BYTES = 2**40  # of one that never fills up


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
    """A file, whatever its name is. Durable are the first `_same` bytes of the content, and `_saved` behind them."""

    __slots__ = ("_same", "_saved", "_separate", "content", "is_cold", "is_removed", "is_rotten", "modified_ms", "unsynced")

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        self.content = bytearray(content)
        self.unsynced: list[Write] = []
        self.modified_ms = modified_ms
        self.is_cold = False  # not in memory: who is in haste does not get it
        self.is_removed = False
        self.is_rotten = False  # a bit has flipped
        self._same = len(content)
        self._saved = b""
        self._separate: bytearray | None = None  # what is durable, where a sync has failed

    @property
    def durable(self) -> bytes:
        return bytes(self._separate) if self._separate is not None else bytes(self.content[: self._same]) + self._saved

    @property
    def durable_bytes(self) -> int:
        """How many of the first bytes of the content are durable."""
        if self._separate is None:
            return self._same
        both = zip(self.content, self._separate)
        return next((at for at, (one, other) in enumerate(both) if one != other), min(len(self.content), len(self._separate)))

    def change(self, write: Write, now_ms: int) -> None:
        if write.position < self._same:
            self._saved = bytes(self.content[write.position : self._same]) + self._saved
            self._same = write.position
        write.apply(self.content)
        self.unsynced.append(write)
        self.modified_ms = now_ms

    def sync(self) -> None:
        if self._separate is None:
            self._same, self._saved = len(self.content), b""
        else:
            for write in self.unsynced:
                write.apply(self._separate)
        self.unsynced.clear()

    def fail_sync(self) -> None:
        self._separate = bytearray(self.durable)
        self.unsynced.clear()

    def forget(self) -> None:
        """What a failed sync lost leaves the memory too."""
        if self._separate is not None:
            self.content = bytearray(self.after(self.unsynced))
            if not self.unsynced:
                self._separate, self._same, self._saved = None, len(self.content), b""

    def flip(self, byte: int, bit: int) -> None:
        self.is_rotten = True
        self.content[byte] ^= 1 << bit
        if self._separate is not None:
            if byte < len(self._separate):
                self._separate[byte] ^= 1 << bit
        elif self._same <= byte < self._same + len(self._saved):
            saved = bytearray(self._saved)
            saved[byte - self._same] ^= 1 << bit
            self._saved = bytes(saved)

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

    def after_crash(self, manner: Manner, kept_bytes: int, zeros: bool, dice: random.Random) -> bytes:
        if manner == "strict":
            return self.durable
        if manner == "kept":
            return bytes(self.content)
        if manner == "torn":
            return self.torn(kept_bytes, zeros=zeros)
        unsynced = sum(len(write.data) for write in self.unsynced if write.data is not None)
        whole = dice.randint(0, len(self.unsynced))
        if dice.random() < WHOLE_WRITES_SHARE:
            return self.after(self.unsynced[:whole])
        return self.torn(dice.randint(0, unsynced), zeros=dice.random() < ZEROS_SHARE)


class Folder:
    __slots__ = ("durable", "modified_ms", "names", "unsynced")

    def __init__(self) -> None:
        self.names: dict[str, Node | Folder] = {}
        self.durable: dict[str, Node | Folder] = {}
        self.unsynced: dict[int, Naming] = {}  # by their numbers
        self.modified_ms = 0


class Naming(NamedTuple):
    """A change of names that is there as a whole or not at all: a file made, renamed or removed."""

    changes: tuple[tuple[Folder, str, "Node | Folder | None"], ...]

    def apply(self, names_of: Callable[[Folder], dict[str, "Node | Folder"]]) -> None:
        for folder, name, node in self.changes:
            if node is None:
                names_of(folder).pop(name, None)
            else:
                names_of(folder)[name] = node


class Volume:
    """Room that all files below a folder share. Without a limit it never fills up."""

    def __init__(self, used_bytes: int = 0, limit_bytes: int | None = None) -> None:
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes

    @property
    def room(self) -> int | None:
        return None if self.limit_bytes is None else self.limit_bytes - self.used_bytes

    @room.setter
    def room(self, room: int | None) -> None:
        self.limit_bytes = None if room is None else self.used_bytes + room


class Medium:
    """See above. The folders that it is made with are there, and durable, from the beginning; each is a volume of its own."""

    def __init__(self, *folders: str) -> None:
        self.clock: Callable[[], int] = lambda: 0
        self.volumes = {folder: Volume() for folder in folders}
        self.tree = Folder()
        self._unsynced: dict[int, Naming] = {}
        self._namings = 0
        for folder in folders:
            self._make_folder(folder)

    def _make_folder(self, path: str) -> None:
        folder = self.tree
        for part in path.strip("/").split("/"):
            found = folder.names.setdefault(part, Folder())
            folder.durable[part] = found
            assert isinstance(found, Folder), f"{path} goes through a file"
            folder = found

    def volume(self, path: str) -> Volume:
        for folder, volume in self.volumes.items():
            if path.startswith(folder) and path[len(folder) :][:1] in ("", "/"):
                return volume
        raise FileNotFoundError(errno.ENOENT, "no volume is mounted there", path)

    # -- paths

    def walk(self, path: str) -> tuple[Folder, str]:
        """The folder that a path's last name is in."""
        *parts, last = [part for part in path.split("/") if part]
        folder = self.tree
        for part in parts:
            node = folder.names.get(part)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = node
        return folder, last

    def find(self, path: str) -> Node | Folder:
        folder, name = self.walk(path)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return folder.names[name]

    def node(self, path: str) -> Node:
        node = self.find(path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def folder(self, path: str) -> Folder:
        folder = self.find(path)
        if not isinstance(folder, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return folder

    def files(self, path: str) -> Iterator[tuple[str, Node]]:
        """All below a folder, by name."""
        for name, node in sorted(self.folder(path).names.items()):
            if isinstance(node, Folder):
                yield from self.files(f"{path}/{name}")
            else:
                yield f"{path}/{name}", node

    # -- names

    def name(self, *changes: tuple[Folder, str, Node | Folder | None]) -> None:
        naming = Naming(changes)
        naming.apply(lambda folder: folder.names)
        self._namings += 1
        self._unsynced[self._namings] = naming
        for folder, _, _ in changes:
            folder.unsynced[self._namings] = naming

    def sync_names(self, folder: Folder) -> None:
        """Also what else has to be there for these names to be: the other folder of a rename, and what came before in it."""
        now = dict(folder.unsynced)
        left = sorted(now)
        while left:
            number = left.pop()
            for other, _, _ in now[number].changes:
                if other is not folder:
                    earlier = {each: naming for each, naming in other.unsynced.items() if each < number and each not in now}
                    now.update(earlier)
                    left = sorted([*left, *earlier])
        for number in sorted(now):
            self._make_durable(number, now[number])

    def _make_durable(self, number: int, naming: Naming) -> None:
        folder, name, node = naming.changes[0]
        gone = folder.durable.get(name)
        if node is None and len(naming.changes) == 1 and isinstance(gone, Folder):
            for each in gone.unsynced:  # nobody will ever see these names
                self._unsynced.pop(each, None)
            gone.unsynced.clear()
        naming.apply(lambda each: each.durable)
        self._unsynced.pop(number, None)
        for other, _, _ in naming.changes:
            other.unsynced.pop(number, None)

    # -- what the power leaves

    def crash(self, manner: Manner, dice: random.Random, *, kept_bytes: int = 0, zeros: bool = False) -> "Medium":
        """What is found after the power was lost.

        strict  what was not synced is gone, content and names
        kept    everything is there
        torn    all names, and of each file's unsynced writes the first `kept_bytes`; the rest is gone, or there as `zeros`
        mixed   by the dice: of each file some first part of the unsynced writes, of each folder some first changes of names
        """
        names = self._names_after(manner, dice)
        contents: dict[int, bytes] = {}

        def content_of(node: Node) -> bytes:
            if id(node) not in contents:
                contents[id(node)] = node.after_crash(manner, kept_bytes, zeros, dice)
            return contents[id(node)]

        def copy(folder: Folder) -> Folder:
            found = Folder()
            for name, node in names.get(id(folder), folder.durable).items():
                if isinstance(node, Folder):
                    found.names[name] = copy(node)
                else:
                    found.names[name] = left = Node(content_of(node), node.modified_ms)
                    left.is_rotten = node.is_rotten
            found.durable = dict(found.names)
            return found

        after = Medium()
        after.clock = self.clock
        after.tree = copy(self.tree)
        for path, volume in self.volumes.items():
            used = sum(len(node.content) for _, node in after.files(path))
            after.volumes[path] = Volume(used, volume.limit_bytes)
        return after

    def _names_after(self, manner: Manner, dice: random.Random) -> dict[int, dict[str, Node | Folder]]:
        names: dict[int, dict[str, Node | Folder]] = {}
        if manner == "strict":
            return names
        left: dict[int, int] = {}
        for naming in self._unsynced.values():
            folders = {id(folder): folder for folder, _, _ in naming.changes}
            if manner == "mixed":
                for key, folder in folders.items():
                    if key not in left:
                        left[key] = dice.randint(0, len(folder.unsynced))
                if any(left[key] == 0 for key in folders):
                    left.update(dict.fromkeys(folders, 0))  # nothing that comes later in these folders is there
                    continue
                left.update({key: left[key] - 1 for key in folders})
            naming.apply(lambda folder: names.setdefault(id(folder), dict(folder.durable)))
        return names


def resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))

"""The seam to the disk: every byte that the log reads or writes goes through a `Disk`.

One `Disk` stands for one log folder. `RealDisk` is the operating system's; the tests hand in one that forgets what was
not synced, tears writes, fills up and fails. Nothing is buffered above the operating system.

Invariants
 1. After a failed sync or read, or a write that could be neither finished nor undone, or any other call that failed for another
    reason than that there is no such file, or no room for it, the disk has failed: every later call raises `DiskFailed`.
    Nothing is retried: the kernel may have dropped the pages and marked them clean.
 2. An append is there as a whole or not at all: what a full disk took is cut off again before `DiskFull` is raised.
 3. A file that somebody still reads stays open: its descriptor is closed when the last reference to the `File` is gone.
"""

import errno
import fcntl
import mmap
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import get_ident
from typing import Protocol

from odradek.wire.varint import Buffer

WRITE_BUFFERS_MAX = 1024  # IOV_MAX of Linux
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a limit on the size of files is one on room too
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)  # another moment there may be one: the disk is as sound as before
WARM_BYTES = 1024 * 1024  # read in at once
KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE of Linux
MAP_BYTES_MIN = 64 * 1024  # less is read: a process may have 65,530 maps, and a read of this size takes no longer


class DiskFailed(OSError):
    """This folder can no longer be trusted; its partitions are offline until a person has looked at it."""


class DiskFull(OSError):
    """There was no room; nothing was written, and the next append may succeed."""


class Cold(Exception):
    """Bytes that are not in memory, asked for in haste. `warm` reads them in, on any thread."""

    def __init__(self, warm: Callable[[], None]) -> None:
        super().__init__()
        self.warm = warm


class File(Protocol):
    """One open file. Every position is explicit, and `size` is what has been written."""

    path: str
    size: int

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Writes all buffers at the end; gives the position of the first byte."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """The bytes from there on, fewer than asked for only where the file ends. Cold when the disk is in haste, and would have
        to be waited for."""
        ...

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        """Fills a buffer with the bytes from there on; False when the disk would have to be waited for."""
        ...

    def is_warm(self, position: int, length: int) -> bool:
        """Whether these bytes are in memory, as far as it can be told."""
        ...

    def warm(self, position: int, length: int) -> None:
        """Reads bytes into memory, on any thread."""
        ...

    def allocate(self, size: int) -> None:
        """Takes room on the disk to grow to a size, all or none of it; what is in the file stays as it is."""
        ...

    def truncate(self, size: int) -> None:
        """Room that was allocated behind it is given back."""
        ...

    def sync(self) -> None: ...

    def send(self, connected: socket.socket, position: int, size: int) -> int:
        """Sends bytes from there on, as many as the socket takes now; gives how many, 0 where the file ends. BlockingIOError when
        it takes none, and whatever else the socket raises."""
        ...


class Disk(Protocol):
    """One log folder's files. Paths are whole paths."""

    failure: OSError | None
    is_hasty: bool  # for a moment, reads of files by the thread that made the disk do not wait for it

    def fail(self, error: OSError) -> DiskFailed:
        """Something that has to be there is not: the disk is not trusted any more."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """A file to read and append to; `create` makes it when it is missing, else FileNotFoundError."""
        ...

    def map(self, path: str) -> Buffer:
        """A whole file as read-only memory, read as it is touched. FileNotFoundError when there is none."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file. FileNotFoundError when there is none."""
        ...

    def names(self, folder: str) -> list[tuple[str, int]]:
        """What is in a folder, by name, with the size of each file, -1 for folders."""
        ...

    def modified_ms(self, path: str) -> int: ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces what was there. FileNotFoundError when there is nothing to rename."""
        ...

    def remove(self, path: str) -> None:
        """A file that is gone already is no error."""
        ...

    def make_folder(self, path: str) -> None:
        """A folder that is there already is no error."""
        ...

    def remove_folder(self, path: str) -> None:
        """With all that is in it."""
        ...

    def sync_folder(self, path: str) -> None:
        """Makes the names in a folder durable: files made, renamed and removed."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """The bytes of the volume, and how many of them are left."""
        ...

    def reserve(self, path: str, size: int) -> None:
        """A file that takes so much room and holds nothing. DiskFull when there is not as much; then it is empty."""
        ...

    def lock(self, path: str) -> "Lock":
        """Takes the lock that Kafka takes. BlockingIOError when another process holds it."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Writes a small file as a whole: after a crash the old content is there or the new, never a mixture."""
    replace_files(disk, {path: content})


def replace_files(disk: Disk, contents: dict[str, bytes]) -> None:
    """The same for many: everything is written before anything is synced, so that the file system can do it in one go."""
    files = []
    for path, content in contents.items():
        temporary = path + ".tmp"
        disk.remove(temporary)
        files.append(disk.open(temporary, create=True))
        files[-1].append([content])
    for file in files:
        file.sync()
    for path in contents:
        disk.rename(path + ".tmp", path)
    for folder in dict.fromkeys(map(os.path.dirname, contents)):
        disk.sync_folder(folder)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("__weakref__", "disk", "fd", "path", "size")

    def __init__(self, disk: "RealDisk", path: str, fd: int) -> None:
        self.disk = disk
        self.path = path
        self.fd = fd
        self.size = os.fstat(fd).st_size

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.disk.check()
        start = self.size
        try:
            self._write(buffers, start)
        except OSError as error:
            self._undo(start, error)
            if error.errno in NO_ROOM:
                raise DiskFull(error.errno, "no room on the disk", self.path) from error
            raise self.disk.fail(error) from error
        return start

    def _write(self, buffers: Sequence[Buffer], position: int) -> None:
        if len(buffers) == 1 and os.pwrite(self.fd, buffers[0], position) == len(buffers[0]):  # nearly always
            self.size = position + len(buffers[0])
            return
        for first in range(0, len(buffers), WRITE_BUFFERS_MAX):
            some = buffers[first : first + WRITE_BUFFERS_MAX]
            wanted = sum(map(len, some))
            written = os.pwritev(self.fd, some, position)
            if written < wanted:  # rare: the rest one by one, which ends in the error that stopped us
                rest = memoryview(b"".join(some))[written:]
                while rest:
                    count = os.pwrite(self.fd, rest, position + written)
                    written += count
                    rest = rest[count:]
            position += wanted
        self.size = position

    def _undo(self, size: int, cause: OSError) -> None:
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise self.disk.fail(error) from cause

    def read(self, position: int, length: int) -> bytes:
        if self.disk.is_hasty and get_ident() == self.disk.thread:
            found = bytearray(max(min(length, self.size - position), 0))
            if not self.read_now(position, found):
                raise Cold(partial(self.warm, position, length))
            return bytes(found)
        self.disk.check()
        return self._read(position, length)

    def _read(self, position: int, length: int) -> bytes:
        try:
            data = os.pread(self.fd, length, position)
            while 0 < len(data) < length:  # a signal, or more than the kernel gives at once
                more = os.pread(self.fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self.disk.fail(error) from error
        return data

    def read_now(self, position: int, into: bytearray | memoryview) -> bool:
        self.disk.check()
        try:
            return os.preadv(self.fd, [into], position, os.RWF_NOWAIT) == len(into)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise self.disk.fail(error) from error
            into[:] = self._read(position, len(into))  # a file system that cannot tell
            return True

    def is_warm(self, position: int, length: int) -> bool:
        """Asks for the last byte: the first was there when it was found, and what was read or written together is in memory
        together."""
        self.disk.check()
        try:
            os.preadv(self.fd, [bytearray(1)], max(min(position + length, self.size) - 1, position), os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # a file system that cannot tell
                raise self.disk.fail(error) from error
        return True

    def warm(self, position: int, length: int) -> None:
        try:
            for start in range(position, position + length, WARM_BYTES):
                os.pread(self.fd, min(WARM_BYTES, position + length - start), start)
        except OSError as error:
            self.disk.fail(error)  # who reads next is told

    def allocate(self, size: int) -> None:
        import ctypes  # rarely needed, and Python's own posix_fallocate would fill the file with zeros

        self.disk.check()
        fallocate = ctypes.CDLL(None).fallocate
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        if fallocate(self.fd, KEEP_SIZE, 0, size) != 0:  # no room, or a file system that cannot: it goes on without
            self.truncate(self.size)

    def truncate(self, size: int) -> None:
        self.disk.check()
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise self.disk.fail(error) from error
        self.size = size

    def sync(self) -> None:
        self.disk.check()
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise self.disk.fail(error) from error

    def send(self, connected: socket.socket, position: int, size: int) -> int:
        self.disk.check()
        return os.sendfile(connected.fileno(), self.fd, position, size)

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.fd)


class RealLock:
    """A POSIX record lock, as Java's FileLock takes it. Closing any descriptor of the file would release it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def release(self) -> None:
        os.close(self.fd)


class RealDisk:
    """The disk of this machine."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.is_hasty = False
        self.thread = get_ident()  # whose haste it is: other threads may wait

    def check(self) -> None:
        if self.failure is not None:
            raise DiskFailed(*self.failure.args) from self.failure

    def fail(self, error: OSError) -> DiskFailed:
        self.failure = self.failure or error
        return DiskFailed(*error.args)

    @contextmanager
    def _calling(self, path: str, *, passes: type[OSError] | tuple[type[OSError], ...] = ()) -> Iterator[None]:
        """Around a call of the operating system: what goes wrong is the disk's failure, unless it is what `passes`, there is
        no room, or no descriptor."""
        self.check()
        try:
            yield
        except OSError as error:
            if isinstance(error, passes):
                raise
            if error.errno in NO_ROOM:
                raise DiskFull(error.errno, "no room on the disk", path) from error
            if error.errno in NO_DESCRIPTOR:
                raise DiskFull(error.errno, error.strerror, path) from error
            raise self.fail(error) from error

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with self._calling(path, passes=FileNotFoundError):
            return RealFile(self, path, os.open(path, flags, 0o644))

    def map(self, path: str) -> Buffer:
        with self._calling(path, passes=FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                if size < MAP_BYTES_MIN:
                    return os.read(fd, size)
                return memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
            finally:
                os.close(fd)

    def read(self, path: str) -> bytes:
        with self._calling(path, passes=FileNotFoundError), open(path, "rb") as file:
            return file.read()

    def names(self, folder: str) -> list[tuple[str, int]]:
        found = []
        with self._calling(folder, passes=(FileNotFoundError, NotADirectoryError)), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed just now, or a link that leads nowhere
                    found.append((entry.name, -1 if entry.is_dir() else entry.stat().st_size))
        return sorted(found)

    def modified_ms(self, path: str) -> int:
        with self._calling(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, old: str, new: str) -> None:
        with self._calling(new, passes=FileNotFoundError):  # a longer name may need another block of the folder
            os.rename(old, new)

    def remove(self, path: str) -> None:
        with self._calling(path), suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str) -> None:
        with self._calling(path):
            os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        with self._calling(path):
            shutil.rmtree(path)

    def sync_folder(self, path: str) -> None:
        with self._calling(path, passes=FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            except OSError as error:
                raise self.fail(error) from error
            finally:
                os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        with self._calling(path):
            volume = os.statvfs(path)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def reserve(self, path: str, size: int) -> None:
        with self._calling(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError:
                os.ftruncate(fd, 0)
                raise
            finally:
                os.close(fd)

    def lock(self, path: str) -> RealLock:
        with self._calling(path, passes=BlockingIOError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise
        return RealLock(fd)

"""What the operating system says goes wrong, and what the disk makes of it: its failure, no room, a file that is not there; and
writes that it cuts short."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import WRITE_BUFFERS_MAX, Disk, DiskFailed, DiskFull, RealDisk
from odradek.log.loading import open_log
from tests.sim.mutants.disk import short_writes

Call = Callable[[Disk, str], object]

CALLS: dict[str, tuple[str, Call]] = {
    "open": ("open", lambda disk, path: disk.open(path, create=True)),
    "map": ("open", lambda disk, path: disk.map(path)),
    "names": ("scandir", lambda disk, path: disk.names(os.path.dirname(path))),
    "modified_ms": ("stat", lambda disk, path: disk.modified_ms(path)),
    "rename": ("rename", lambda disk, path: disk.rename(path, path + ".new")),
    "remove": ("unlink", lambda disk, path: disk.remove(path)),
    "make_folder": ("makedirs", lambda disk, path: disk.make_folder(path + ".folder")),
    "sync_folder": ("fsync", lambda disk, path: disk.sync_folder(os.path.dirname(path))),
    "space": ("statvfs", lambda disk, path: disk.space(path)),
    "lock": ("open", lambda disk, path: disk.lock(path + ".lock")),
}


def raising(number: int) -> Callable[..., object]:
    def call(*_: object, **__: object) -> object:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    return str(file)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_fails_ends_the_disk(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, call = CALLS[name]
    disk = RealDisk()
    with monkeypatch.context() as patch:
        patch.setattr(os, function, raising(errno.EIO))
        with pytest.raises(DiskFailed):
            call(disk, path)
    assert disk.failure is not None
    with pytest.raises(DiskFailed):  # also when the operating system would be willing again
        call(disk, path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_neither_want_of_room_nor_of_descriptors_ends_the_disk(path: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", raising(number))
        with pytest.raises(DiskFull):
            disk.open(path)
    assert disk.open(path).size == len(b"content")


def test_a_file_that_is_not_there_ends_no_disk(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "nothing")
    calls: list[Call] = [
        lambda disk, path: disk.open(path),
        lambda disk, path: disk.read(path),
        lambda disk, path: disk.map(path),
        lambda disk, path: disk.rename(path, path + ".new"),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call(disk, path)
    assert disk.failure is None


def test_a_segment_that_somebody_removed_ends_the_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    log = open_log(disk, str(tmp_path), LogConfig(), now_ms=0, clean=True)
    log.active.release()
    (tmp_path / f"{0:020d}.log").unlink()
    with pytest.raises(DiskFailed):
        log.active.file.read(0, 1)
    assert disk.failure is not None


def test_a_folder_that_was_deleted_while_it_is_synced_is_no_failure(tmp_path: Path) -> None:
    """As when a topic goes whose segments are being flushed."""
    disk = RealDisk()
    with pytest.raises(FileNotFoundError):
        disk.sync_folder(str(tmp_path / "gone"))
    assert disk.failure is None


# -- writes that the system cuts short

WRITES: dict[str, list[bytes]] = {
    "one buffer": [b"a" * 5000],
    "some": [b"b" * 3000, b"", b"c" * 2000],
    "more than go at once": [bytes([number % 256]) * 7 for number in range(WRITE_BUFFERS_MAX + 100)],
}


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The kernel writes up to there, and refuses what follows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("what", WRITES)
def test_a_write_that_is_cut_short_and_cannot_be_finished_is_none(path: str, what: str) -> None:
    disk = RealDisk()
    file = disk.open(path)
    with files_no_larger_than(file.size + 3500), pytest.raises(DiskFull):
        file.append(WRITES[what])
    assert disk.failure is None
    assert file.size == os.path.getsize(path) == len(b"content")
    assert file.append(WRITES[what]) == len(b"content")
    assert Path(path).read_bytes() == b"content" + b"".join(WRITES[what])


@pytest.mark.parametrize("what", WRITES)
def test_a_write_that_is_cut_short_is_finished(path: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pwritev, most = os.pwrite, os.pwritev, 1000
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:most], position))
    monkeypatch.setattr(os, "pwritev", lambda fd, data, position: pwritev(fd, [b"".join(data)[:most]], position))
    file = RealDisk().open(path)
    assert file.append(WRITES[what]) == len(b"content")
    assert file.size == os.path.getsize(path)
    assert Path(path).read_bytes() == b"content" + b"".join(WRITES[what])


def test_it_would_be_taken_for_a_whole_one_without_the_rule(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short_writes(monkeypatch)
    file = RealDisk().open(path)
    with files_no_larger_than(file.size + 3500):
        file.append(WRITES["some"])
    assert file.size > os.path.getsize(path)

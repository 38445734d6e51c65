"""The simulated disk does what the real one does, and its faults are the ones that it promises."""

import os
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from odradek.log.disk import Disk, DiskFailed, DiskFull, File, RealDisk, replace_file
from tests.log.disk import PowerLost, SimDisk
from tests.log.medium import Manner

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.one_of(NAMES, st.builds("{}/{}".format, NAMES, NAMES), st.builds("{}/{}/{}".format, NAMES, NAMES, NAMES))


class DisksAlike(RuleBasedStateMachine):
    """The same calls, on a real folder and on a simulated one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.real = RealDisk()
        self.sim = SimDisk(self.folder)
        self.files: list[tuple[File, File]] = []

    def teardown(self) -> None:
        self.files.clear()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Disk], object]) -> tuple[object, object]:
        """What both give, or the numbers of their errors; of some of these the real disk says that it has failed."""
        answers: list[object] = []
        for disk in (self.real, self.sim):
            try:
                answers.append(call(disk))
            except OSError as error:
                answers.append((OSError, error.errno))
        self.real.failure = None
        return answers[0], answers[1]

    def same(self, call: Callable[[Disk], object]) -> None:
        real, sim = self.both(call)
        assert real == sim

    @rule(path=PATHS, create=st.booleans())
    def open(self, path: str, create: bool) -> None:
        real, sim = self.both(lambda disk: disk.open(f"{self.folder}/{path}", create=create))
        if isinstance(real, tuple) or isinstance(sim, tuple):
            assert real == sim
        else:
            self.files.append((real, sim))  # type: ignore[arg-type]

    @rule(number=st.integers(0, 9), data=st.lists(st.binary(max_size=5), max_size=3))
    def append(self, number: int, data: list[bytes]) -> None:
        if self.files:
            real, sim = self.files[number % len(self.files)]
            assert real.append(data) == sim.append(data)

    @rule(number=st.integers(0, 9), size=st.integers(0, 20))
    def truncate(self, number: int, size: int) -> None:
        if self.files:
            for file in self.files[number % len(self.files)]:
                file.truncate(size)

    @rule(number=st.integers(0, 9))
    def sync(self, number: int) -> None:
        if self.files:
            for file in self.files[number % len(self.files)]:
                file.sync()

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.same(lambda disk: disk.rename(f"{self.folder}/{old}", f"{self.folder}/{new}"))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.same(lambda disk: disk.remove(f"{self.folder}/{path}"))

    @rule(path=PATHS)
    def make_folder(self, path: str) -> None:
        self.same(lambda disk: disk.make_folder(f"{self.folder}/{path}"))

    @rule(path=PATHS)
    def remove_folder(self, path: str) -> None:
        self.same(lambda disk: disk.remove_folder(f"{self.folder}/{path}"))

    @rule(path=PATHS)
    def sync_folder(self, path: str) -> None:
        self.same(lambda disk: disk.sync_folder(f"{self.folder}/{path}"))

    @rule(path=PATHS)
    def look(self, path: str) -> None:
        self.same(lambda disk: disk.read(f"{self.folder}/{path}"))
        if os.path.isfile(f"{self.folder}/{path}"):
            self.same(lambda disk: bytes(disk.map(f"{self.folder}/{path}")))
        self.same(lambda disk: disk.names(f"{self.folder}/{path}"))
        self.same(lambda disk: disk.modified_ms(f"{self.folder}/{path}") >= 0)

    @rule(data=st.binary(max_size=9), path=PATHS)
    def replace(self, path: str, data: bytes) -> None:
        self.same(lambda disk: replace_file(disk, f"{self.folder}/{path}", data))

    @invariant()
    def alike(self) -> None:
        self.same(lambda disk: disk.names(self.folder))
        for real, sim in self.files:
            assert real.size == sim.size
            assert real.read(0, 100) == sim.read(0, 100)
            assert real.read(3, 2) == sim.read(3, 2)


def test_behaves_as_the_real_disk() -> None:
    run_state_machine_as_test(DisksAlike, settings=settings(max_examples=60, stateful_step_count=40))


@pytest.mark.parametrize("disk_class", [RealDisk, SimDisk])
def test_a_file_is_sent_as_far_as_it_goes_and_the_socket_takes_it(disk_class: type[RealDisk | SimDisk], tmp_path: Path) -> None:
    disk = SimDisk(str(tmp_path)) if disk_class is SimDisk else RealDisk()
    file = disk.open(f"{tmp_path}/f", create=True)
    file.append([b"0123456789" * 100_000])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert file.send(ours, 3, 4) == 4
        assert theirs.recv(100) == b"3456"
        assert file.send(ours, 999_998, 100) == 2
        assert file.send(ours, 1_000_000, 100) == 0
        assert theirs.recv(100) == b"89"
        full = iter(lambda: file.send(ours, 0, 1_000_000), None)
        with pytest.raises(BlockingIOError):
            deque(full, 0)
        theirs.close()
        with pytest.raises(ConnectionError):
            file.send(ours, 0, 1)


def disk_with(content: bytes) -> tuple[SimDisk, File]:
    """A file with durable content and name."""
    disk = SimDisk()
    file = disk.open("/disk/f", create=True)
    file.append([content])
    file.sync()
    disk.sync_folder("/disk")
    return disk, file


def test_strict_crash_forgets_content_that_was_not_synced() -> None:
    disk, file = disk_with(b"old")
    file.append([b" and new"])
    assert disk.crash("strict").read("/disk/f") == b"old"
    assert disk.crash("kept").read("/disk/f") == b"old and new"
    file.truncate(1)
    assert disk.crash("strict").read("/disk/f") == b"old"
    file.sync()
    assert disk.crash("strict").read("/disk/f") == b"o"


def test_strict_crash_forgets_names_that_were_not_synced() -> None:
    disk, _ = disk_with(b"old")
    disk.rename("/disk/f", "/disk/g")
    disk.open("/disk/h", create=True).sync()
    assert disk.crash("strict").names("/disk") == [("f", 3)]
    assert disk.crash("kept").names("/disk") == [("g", 3), ("h", 0)]
    disk.sync_folder("/disk")
    disk.remove("/disk/g")
    assert disk.crash("strict").names("/disk") == [("g", 3), ("h", 0)]


def test_syncing_one_folder_of_a_rename_makes_it_durable_in_both() -> None:
    disk, _ = disk_with(b"old")
    disk.make_folder("/disk/d")
    disk.rename("/disk/f", "/disk/d/f")
    assert list(disk.crash("strict").paths()) == ["/disk/f"]
    disk.sync_folder("/disk/d")
    assert list(disk.crash("strict").paths()) == ["/disk/d/f"]


def test_removed_folder_comes_back_until_its_parent_is_synced() -> None:
    disk = SimDisk()
    disk.make_folder("/disk/p")
    disk.open("/disk/p/x", create=True)
    disk.sync_folder("/disk/p")
    disk.sync_folder("/disk")
    disk.remove_folder("/disk/p")
    assert list(disk.crash("strict").paths()) == ["/disk/p/x"]
    disk.sync_folder("/disk")
    assert disk.crash("strict").names("/disk") == []


def test_torn_crash_keeps_the_first_unsynced_bytes() -> None:
    disk, file = disk_with(b"old")
    file.append([b"12"])
    file.append([b"345"])
    kept = [disk.crash("torn", kept_bytes=count).read("/disk/f") for count in range(6)]
    assert kept == [b"old", b"old1", b"old12", b"old123", b"old1234", b"old12345"]
    zeros = [disk.crash("torn", kept_bytes=count, zeros=True).read("/disk/f") for count in range(6)]
    assert zeros == [b"old".ljust(8, b"\0"), b"old1".ljust(8, b"\0"), b"old12\0\0\0", b"old123\0\0", b"old1234\0", b"old12345"]


@given(st.integers(0, 10**6))
def test_mixed_crash_keeps_a_first_part_of_each(seed: int) -> None:
    disk, file = disk_with(b"old")
    file.append([b"1234"])
    for name in "abc":
        disk.open(f"/disk/{name}", create=True).append([b"x"])
    after = disk.crash("mixed", seed=seed)
    names = [name for name, _ in after.names("/disk")]
    assert names in (["f"], ["a", "f"], ["a", "b", "f"], ["a", "b", "c", "f"])
    content = after.read("/disk/f")
    assert b"old1234".startswith(content.rstrip(b"\0"))
    assert 3 <= len(content) <= 7
    assert [*disk.crash("mixed", seed=seed).paths()] == [*after.paths()]


def test_every_step_can_be_the_last() -> None:
    def run(disk: SimDisk) -> None:
        replace_file(disk, "/disk/f", b"first")
        replace_file(disk, "/disk/f", b"second")

    whole = SimDisk()
    run(whole)
    kinds = ["create", "append", "sync", "rename", "sync_folder"] * 2
    assert [step.kind for step in whole.steps] == kinds
    seen = set()
    for step in range(len(whole.steps)):
        for kept_bytes in (None, 0, 2, 5):
            disk = SimDisk()
            disk.stop_at(step, kept_bytes)
            with pytest.raises(PowerLost):
                run(disk)
            with pytest.raises(PowerLost):
                disk.names("/disk")
            manners: list[Manner] = ["strict", "kept", "torn", "mixed"]
            for manner in manners:
                after = disk.crash(manner, seed=step, kept_bytes=1)
                names = dict(after.names("/disk"))
                content = after.read("/disk/f") if "f" in names else None
                assert content in (None, b"first", b"second")
                assert content is not None or step < 5
                seen.add(content)
    assert seen == {None, b"first", b"second"}


def test_an_append_that_is_cut_is_there_in_part() -> None:
    disk, file = disk_with(b"old")
    disk.stop_at(len(disk.steps), kept_bytes=2)
    with pytest.raises(PowerLost):
        file.append([b"n", b"ew"])
    assert disk.crash("kept").read("/disk/f") == b"oldne"
    assert disk.crash("strict").read("/disk/f") == b"old"


def test_full_disk_takes_an_append_as_a_whole_or_not_at_all() -> None:
    disk, file = disk_with(b"old")
    disk.room = 4
    with pytest.raises(DiskFull):
        file.append([b"123", b"45"])
    assert (disk.read("/disk/f"), file.size, disk.room) == (b"old", 3, 4)
    file.append([b"1234"])
    assert disk.room == 0
    file.truncate(2)
    assert disk.room == 5
    disk.remove("/disk/f")
    assert disk.room == 7


def test_failed_sync_fails_the_disk_for_ever() -> None:
    disk, file = disk_with(b"old")
    disk.fail_sync(lambda path: path.endswith("/f"))
    disk.sync_folder("/disk")
    file.append([b"new"])
    with pytest.raises(DiskFailed):
        file.sync()
    assert disk.failure is not None
    for call in (file.sync, lambda: disk.read("/disk/f"), lambda: file.append([b""]), lambda: disk.names("/disk")):
        with pytest.raises(DiskFailed):
            call()
    assert disk.crash("strict").read("/disk/f") == b"old"


def test_flipped_bit_stays_flipped() -> None:
    disk, file = disk_with(b"abc")
    file.append([b"d"])
    disk.flip_bit("/disk/f", 8)
    disk.flip_bit("/disk/f", 24)
    assert disk.read("/disk/f") == b"acce"
    assert disk.crash("strict").read("/disk/f") == b"acc"


def test_removed_and_renamed_files_stay_readable() -> None:
    disk, file = disk_with(b"abc")
    disk.rename("/disk/f", "/disk/g")
    disk.remove("/disk/g")
    assert file.read(0, 9) == b"abc"
    file.append([b"d"])
    assert file.read(3, 1) == b"d"


def test_clock_locks_and_descriptors() -> None:
    disk, file = disk_with(b"abc")
    disk.now_ms = 77
    file.append([b"d"])
    assert disk.modified_ms("/disk/f") == 77
    lock = disk.lock("/disk/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/disk/.lock")
    lock.release()
    disk.lock("/disk/.lock")
    assert not hasattr(file, "fileno")  # it has no descriptor


def test_goes_to_a_real_folder_and_back(tmp_path: Path) -> None:
    disk, _ = disk_with(b"abc")
    disk.make_folder("/disk/t-0/deep")
    disk.now_ms = 5_000
    disk.open("/disk/t-0/x", create=True).append([b"new"])
    disk.export(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["f", "t-0"]
    assert (tmp_path / "t-0" / "x").read_bytes() == b"new"
    back = SimDisk()
    back.import_from(tmp_path)
    assert [*back.paths()] == ["/disk/f", "/disk/t-0/x"]
    assert back.modified_ms("/disk/t-0/x") == 5_000
    assert back.names("/disk/t-0") == [("deep", -1), ("x", 3)]
    assert back.crash("strict").read("/disk/t-0/x") == b"new"

"""The disks of a simulated machine: what a killed process, a power loss, a full or broken disk leave to the next life."""

import asyncio
import errno
import random

import pytest

from odradek.log.disk import Cold, DiskFailed, DiskFull
from odradek.wire.batch import CorruptBatch, read_header
from tests.log.disk import PowerLost
from tests.log.partition import sent
from tests.sim.disk import SimDisks

FOLDERS = ("/a/data", "/b/data")


def new_disks() -> SimDisks:
    return SimDisks(FOLDERS, lambda: 77)


def test_the_next_life_finds_what_the_last_one_wrote_and_takes_its_locks() -> None:
    disks = new_disks()
    old = disks.new_disk()
    old.lock("/a/data/.lock")
    old.open("/a/data/f", create=True).append([b"unsynced"])
    disks.kill()
    new = disks.new_disk()
    new.lock("/a/data/.lock")
    assert new.read("/a/data/f") == b"unsynced"


def test_what_is_left_of_a_dead_process_changes_nothing() -> None:
    disks = new_disks()
    old = disks.new_disk()
    file, lock = old.open("/a/data/f", create=True), old.lock("/a/data/.lock")
    file.append([b"1"])

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            file.append([b"2"])

    waiting = wait_for_ever()
    loop = asyncio.new_event_loop()
    loop.call_soon(lambda: waiting.send(None))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    disks.kill()
    new = disks.new_disk()
    held = new.lock("/a/data/.lock")
    for change in (
        lambda: file.append([b"2"]),
        lambda: file.truncate(0),
        file.sync,
        lambda: file.read(0, 1),
        lambda: old.rename("/a/data/f", "/a/data/g"),
        lambda: old.remove("/a/data/f"),
        lambda: old.open("/a/data/g", create=True),
        lambda: old.make_folder("/a/data/d"),
        lambda: old.sync_folder("/a/data"),
        lambda: old.lock("/a/data/other"),
        lambda: old.names("/a/data"),
    ):
        with pytest.raises(PowerLost):
            change()
    with pytest.raises(PowerLost):
        waiting.close()
    lock.release()
    with pytest.raises(BlockingIOError):
        new.lock("/a/data/.lock")
    held.release()
    assert new.read("/a/data/f") == b"1"
    assert new.names("/a/data") == [(".lock", 0), ("f", 1)]


def test_a_power_loss_takes_what_was_not_synced_and_the_dice_say_what_is_torn() -> None:
    def lost(seed: int) -> bytes:
        disks = new_disks()
        disk = disks.new_disk()
        file = disk.open("/a/data/f", create=True)
        file.append([b"synced "])
        file.sync()
        disk.sync_folder("/a/data")
        for word in range(20):
            file.append([b"%d " % word])
        disks.lose_power("mixed", random.Random(seed))
        with pytest.raises(PowerLost):
            file.read(0, 1)
        return disks.new_disk().read("/a/data/f")

    found = [lost(seed) for seed in range(20)]
    assert found == [lost(seed) for seed in range(20)]
    assert len(set(found)) > 5
    assert all(content.startswith(b"synced ") for content in found)


def test_each_folder_has_its_room() -> None:
    disks = new_disks()
    disk = disks.new_disk()
    first, second = disk.open("/a/data/f", create=True), disk.open("/b/data/f", create=True)
    first.append([b"12345"])
    disks.fill("/a/data", 3)
    with pytest.raises(DiskFull):
        first.append([b"1234"])
    second.append([b"1234"])
    assert (disk.space("/a/data/x")[1], disks.used_bytes("/a/data"), disks.used_bytes("/b/data")) == (3, 5, 4)
    disk.remove("/a/data/f")
    first.truncate(0)  # which has no name any more, and no room to give back
    assert disk.space("/a/data")[1] == 8
    disks.make_room("/a/data")
    disk.open("/a/data/g", create=True).append([bytes(100)])


def test_room_is_what_the_power_left() -> None:
    disks = new_disks()
    disk = disks.new_disk()
    disk.open("/a/data/f", create=True).append([bytes(10)])
    disks.fill("/a/data", 0)
    disks.lose_power("strict", random.Random(0))
    assert disks.new_disk().space("/a/data") == (10, 10)


def test_a_failed_sync_fails_one_disk_and_what_it_was_to_keep_is_lost_for_ever() -> None:
    disks = new_disks()
    failing, other = disks.new_disk(), disks.new_disk()
    file = failing.open("/a/data/f", create=True)
    failing.sync_folder("/a/data")
    file.append([b"lost"])
    fault = disks.fail(("sync",), lambda path: path.startswith("/a/"), times=1)
    with pytest.raises(DiskFailed) as failed:
        file.sync()
    assert (failed.value.errno, fault.failed) == (errno.EIO, 1)
    with pytest.raises(DiskFailed):
        failing.names("/a/data")
    other.open("/b/data/f", create=True).sync()
    failing.failure = None  # as if nobody had noticed
    file.append([b"late"])
    file.sync()
    assert disks.medium.crash("strict", random.Random(0)).node("/a/data/f").content == b"\0\0\0\0late"
    disks.kill()
    assert disks.new_disk().read("/a/data/f") == b"\0\0\0\0late"


def test_calls_fail_until_the_disk_is_healed() -> None:
    disks = new_disks()
    for kind in ("append", "read"):
        disk = disks.new_disk()
        file = disk.open("/a/data/f", create=True)
        disks.fail((kind,), lambda path: path.endswith("/f"))
        with pytest.raises(DiskFailed):
            file.append([b"1"]) if kind == "append" else file.read(0, 1)
        disks.heal()
        with pytest.raises(DiskFailed):
            file.append([b"1"])
        disks.new_disk().open("/a/data/f").append([b"1"])


def test_rot_is_in_sealed_synced_segments_and_stays_there() -> None:
    disks = new_disks()
    disk = disks.new_disk()
    for folder in ("/a/data/t-0", "/b/data/u-0"):
        disk.make_folder(folder)
        for base in (0, 5, 9):
            file = disk.open(f"{folder}/{base:020}.log", create=True)
            file.append([b"\0\0\0\0"])
            if base != 5 or folder == "/b/data/u-0":
                file.sync()
    cold = disks.cold_segments()
    assert cold == [f"/a/data/t-0/{0:020}.log", f"/b/data/u-0/{0:020}.log", f"/b/data/u-0/{5:020}.log"]
    assert disks.cold_segments(lambda path: "t-0" in path) == cold[:1]
    byte = disks.flip_bit(cold[0], random.Random(3))
    content = disk.read(cold[0])
    assert [number for number, value in enumerate(content) if value] == [byte]
    disks.lose_power("kept", random.Random(0))
    assert disks.new_disk().read(cold[0]) == content


def is_broken(batch: bytes) -> bool:
    try:
        read_header(batch)
    except CorruptBatch:
        return True
    return False


def test_a_broken_batch_is_one_whose_header_cannot_be_read() -> None:
    disks = new_disks()
    file = disks.new_disk().open("/a/data/f", create=True)
    sizes = [len(sent(offset)) for offset in range(3)]
    file.append([sent(0), sent(1), sent(2)])
    assert disks.break_batch("/a/data/f", random.Random(0), below=0) is None
    mend = disks.break_batch("/a/data/f", random.Random(0), below=2)
    assert mend is not None
    assert is_broken(file.read(0, sizes[0])) != is_broken(file.read(sizes[0], sizes[1]))
    assert disks.break_batch("/a/data/f", random.Random(0)) is None  # once is enough
    mend()
    assert file.read(0, sum(sizes)) == sent(0) + sent(1) + sent(2)


def test_what_is_not_in_memory_is_cold_until_it_is_read_in() -> None:
    disks = new_disks()
    disk = disks.new_disk()
    file = disk.open("/a/data/f", create=True)
    file.append([b"1234"])
    disks.chill()
    buffer = bytearray(4)
    assert (file.is_warm(0, 4), file.read_now(0, buffer), file.read(0, 4)) == (False, False, b"1234")
    disk.is_hasty = True
    with pytest.raises(Cold) as cold:
        file.read(0, 4)
    cold.value.warm()
    assert (file.read(0, 4), file.is_warm(0, 4), file.read_now(0, buffer), bytes(buffer)) == (b"1234", True, True, b"1234")
    assert not file.read_now(1, buffer)  # the file ends before


def test_every_operation_tells_what_it_is_so_that_it_can_cost_something() -> None:
    disks = new_disks()
    seen: list[tuple[str, str, int]] = []
    disks.faults.on_cost = lambda kind, path, size: seen.append((kind, path, size))
    disk = disks.new_disk()
    file = disk.open("/a/data/f", create=True)
    file.append([b"12", b"3"])
    file.append([b"4"])
    file.sync()
    file.read(0, 2)
    disk.rename("/a/data/f", "/a/data/g")
    disk.sync_folder("/a/data")
    file.warm(0, 4)
    disk.remove("/a/data/g")
    kinds = [("create", 0), ("append", 3), ("append", 1), ("sync", 4), ("read", 2), ("rename", 0), ("sync_folder", 0)]
    assert [(kind, size) for kind, _, size in seen] == [*kinds, ("warm", 4), ("remove", 0)]
    assert disk.modified_ms("/a/data") == 0
    assert disk.steps == []  # a long run keeps none


def test_a_new_disk_in_an_old_place_is_empty() -> None:
    disks = new_disks()
    disks.new_disk().open("/a/data/f", create=True).append([b"1"])
    disks.kill()
    disks.wipe("/a/data")
    assert (disks.new_disk().names("/a/data"), disks.used_bytes("/a/data")) == ([], 0)

"""Snapshots of the metadata: when they are made, of what, and what a start makes of them."""

import asyncio
from threading import Event
from typing import Any

import pytest

from odradek.core.raft.batches import SnapshotId, metadata_batch
from odradek.core.raft.effects import (
    Append,
    HighWatermark,
    LostLeadership,
    WriteSnapshot,
)
from odradek.node.metadata_log import MetadataLog, MetadataLost, write_snapshot
from odradek.node.quorum import Quorum
from tests.log.disk import SimDisk
from tests.node.metadata import (
    CONFIG,
    FOLDER,
    LOG,
    TickingMachine,
    content,
    create,
    new_disk,
    register,
    run,
    snapshot_batches,
    started,
    topic,
    with_log,
)


def names(disk: SimDisk, ending: str) -> list[str]:
    return [name for name, _ in disk.names(LOG) if name.endswith(ending)]


def test_a_snapshot_is_made_after_so_many_bytes_and_is_enough_to_load_from() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER, with_log(max_record_bytes_between_snapshots=1000))
        await register(host, b"1" * 16)
        for number in range(30):
            await create(host, f"t{number}", retention_ms="7")
        await host.quorum.close()
        assert len(names(disk, ".checkpoint")) > 2
        again = Quorum(disk, FOLDER, CONFIG, TickingMachine())
        assert again.metadata_log.loaded is not None
        assert again.metadata_log.loaded[0].offset > 0
        assert content(again.image) == content(host.quorum.image)

    run(story())


def test_old_snapshots_and_segments_go_and_the_newest_stays() -> None:
    disk = new_disk()
    config = with_log(
        segment_bytes=2000,
        max_record_bytes_between_snapshots=1500,
        max_retention_bytes=4000,
        file_delete_delay_ms=0,
    )

    async def story() -> None:
        host = await started(disk, FOLDER, config)
        for number in range(100):
            await host.quorum.commit(host.quorum.append([topic(number)]))
        await host.quorum.snapshots.take()
        host.quorum.snapshots.expire()
        assert host.quorum.log.start_offset > 0
        assert f"{0:020d}-{0:010d}.checkpoint" not in names(disk, ".checkpoint")
        assert len(host.quorum.metadata_log.snapshots) == 1
        image = content(host.quorum.image)
        await host.quorum.close()
        again = await started(disk, FOLDER, config)
        assert content(again.quorum.image) == image
        assert len(again.quorum.image.topics) == 100
        assert not names(disk, ".deleted")
        assert not names(disk, ".part")

    run(story())


def test_a_snapshot_that_is_overtaken_by_one_of_the_leader_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be told to followers who need a newer one, and the log would never be let go of again."""
    disk, newer, may_write = new_disk(), SnapshotId(1000, 5), Event()

    def write_late(*written: Any) -> int:
        may_write.wait()
        return write_snapshot(*written)

    monkeypatch.setattr("odradek.node.snapshots.write_snapshot", write_late)

    async def story() -> None:
        quorum = (await started(disk, FOLDER)).quorum
        taking = asyncio.create_task(quorum.snapshots.take())
        await asyncio.sleep(0)
        quorum._input(lambda _: [WriteSnapshot(newer, 0, b"".join(snapshot_batches()))])
        quorum.machine.installed = lambda *_: []  # type: ignore[method-assign]
        await quorum._install(newer)
        may_write.set()
        assert await taking is None
        assert quorum.metadata_log.snapshots == [newer]
        assert names(disk, ".checkpoint") == [newer.name]

    run(story())


def test_a_snapshot_is_made_of_what_is_synced_here() -> None:
    """A follower that is behind hears with the records themselves that they are committed. Were there a snapshot of them when
    the power goes, what is torn would be below it, where nothing is ever cut off: the node would not start."""
    disk, config = new_disk(), with_log(max_record_bytes_between_snapshots=1)

    async def story() -> None:
        quorum = (await started(disk, FOLDER, config)).quorum
        while quorum.snapshots.task is not None:
            await asyncio.wait([quorum.snapshots.task])
        quorum._flush_soon = lambda: None  # type: ignore[method-assign]  # it takes long
        end = quorum.end_offset
        batch = metadata_batch([topic(1)], base_offset=end, epoch=1, now_ms=1)
        quorum._input(lambda _: [LostLeadership(1), Append(batch, end), HighWatermark(end + 1)])
        assert list(quorum.image.topics) == ["topic-1"]
        while quorum.snapshots.task is not None:
            await asyncio.wait([quorum.snapshots.task])
        again = MetadataLog(disk.crash("torn", kept_bytes=70), FOLDER, CONFIG.log, 1)
        assert again.end_offset == end

    run(story())


def test_old_snapshots_go_by_age() -> None:
    disk = new_disk()
    config = with_log(max_retention_ms=10_000, max_retention_bytes=-1, file_delete_delay_ms=0)
    machine = TickingMachine()

    async def story() -> None:
        host = await started(disk, FOLDER, config, machine)
        await host.quorum.commit(host.quorum.append([topic(1)]))
        first = await host.quorum.snapshots.take()
        machine.now_ms += 20_000
        host.quorum.snapshots.expire()
        assert first in host.quorum.metadata_log.snapshots  # nothing newer stands for it
        await host.quorum.commit(host.quorum.append([topic(2)]))
        second = await host.quorum.snapshots.take()
        host.quorum.snapshots.expire()
        assert host.quorum.metadata_log.snapshots == [second]
        assert await host.quorum.snapshots.take() is None
        assert host.quorum.log.start_offset == second.offset if second else False

    run(story())


def test_a_broken_snapshot_is_passed_over_while_the_log_tells_the_same_and_erases_nothing() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await host.quorum.commit(host.quorum.append([topic(1)]))
        snapshot = await host.quorum.snapshots.take()
        assert snapshot is not None
        await host.quorum.close()
        disk.flip_bit(f"{LOG}/{snapshot.name}", 8 * 100)
        again = await started(disk, FOLDER)
        assert list(again.quorum.image.topics) == ["topic-1"]
        assert snapshot.name in names(disk, ".checkpoint")

    run(story())


def test_without_the_snapshot_that_the_log_begins_with_nothing_starts_and_nothing_is_erased() -> None:
    disk = new_disk()
    config = with_log(segment_bytes=1000, max_retention_bytes=0, file_delete_delay_ms=0)

    async def story() -> None:
        host = await started(disk, FOLDER, config)
        for number in range(40):
            await host.quorum.commit(host.quorum.append([topic(number)]))
        snapshot = await host.quorum.snapshots.take()
        assert snapshot is not None
        host.quorum.snapshots.expire()
        assert host.quorum.log.bases[0] > 0
        await host.quorum.close()
        disk.flip_bit(f"{LOG}/{snapshot.name}", 8 * 100)
        kept = {name: disk.read(f"{LOG}/{name}") for name in [*names(disk, ".log"), *names(disk, ".checkpoint")]}
        with pytest.raises(MetadataLost, match=snapshot.name):
            Quorum(disk, FOLDER, config, TickingMachine())
        assert {name: disk.read(f"{LOG}/{name}") for name in kept} == kept

    run(story())


def test_a_snapshot_that_is_ahead_of_the_log_takes_its_place() -> None:
    """As a voter leaves it that had fetched a snapshot from a leader and was killed."""
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await host.quorum.close()
        write_snapshot(disk, LOG, SnapshotId(1000, 5), snapshot_batches())
        again = await started(disk, FOLDER)
        assert (again.quorum.epoch, again.quorum.log.start_offset, list(again.quorum.image.topics)) == (6, 1000, ["topic-7"])
        assert again.quorum.metadata_log.snapshots == [SnapshotId(1000, 5)]  # or the log would never be let go of again

    run(story())

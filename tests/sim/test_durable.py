"""What is promised of disks is checked before the power goes: each of these checks fails where something is broken."""

from collections.abc import Callable

import pytest

from odradek.core.raft.batches import SnapshotId
from odradek.log.checkpoint import RECOVERY_POINTS
from odradek.log.log import Log
from odradek.log.names import FileKind, TopicPartition
from odradek.log.transaction_index import AbortedTransaction
from odradek.node.node import Node
from tests.log.disk import SimDisk
from tests.sim.cluster import SimCluster
from tests.sim.steady import steady_cluster
from tests.sim.structural.durable import recovery_points_on_disk
from tests.sim.structural.findings import Violated
from tests.sim.structure import Structure

BREAK_SECONDS = 1.0


class Broken:
    """A cluster at peace, and a log of it that is flushed; its recovery point is on disk."""

    def __init__(self) -> None:
        self.cluster: SimCluster = steady_cluster()
        self.structure = Structure(self.cluster)
        self.node: Node = self.cluster.nodes[1]
        self.folder = self.node.partitions.folders[0]
        self.log: Log = self.folder.logs[TopicPartition("t", 0)]
        self.log.flush(0)
        self.folder.checkpoint()
        self.structure.check()

    @property
    def path(self) -> str:
        return self.log.active.path(FileKind.LOG)

    @property
    def disk(self) -> SimDisk:
        disk = self.log.disk
        assert isinstance(disk, SimDisk)
        return disk


@pytest.fixture
def broken() -> Broken:
    return Broken()


# -- what there is


def unsynced_records(broken: Broken) -> None:
    broken.disk.medium.node(broken.path)._same -= 1


def nameless_segment(broken: Broken) -> None:
    folder, name = broken.disk.medium.walk(broken.path)
    del folder.durable[name]


def unsynced_aborted(broken: Broken) -> None:
    broken.log.active.transactions.append(AbortedTransaction(7, 0, 1, 2))


def forward_checkpoint(broken: Broken) -> None:
    broken.log.recovery_point -= 1


def segment_behind_the_end(broken: Broken) -> None:
    folder, _ = broken.disk.medium.walk(broken.path)
    broken.disk.open(f"{broken.log.folder}/{99:020}.log", create=True)
    broken.disk.medium.sync_names(folder)


def forgotten_epoch(broken: Broken) -> None:
    broken.log.epochs.truncate_from_end(0)
    broken.structure.partitions.committed.clear()


def nameless_snapshot(broken: Broken) -> None:
    metadata = broken.node.quorum.metadata_log
    metadata.log.start_offset = 1
    metadata.snapshots.append(SnapshotId(1, 1))


FOUND: dict[str, Callable[[Broken], None]] = {
    "and on the disk up to": unsynced_records,
    "has no name on the disk": nameless_segment,
    "txnindex has 0 of 34 bytes": unsynced_aborted,
    "by its checkpoint": forward_checkpoint,
    "has a segment at 99 on its disk": segment_behind_the_end,
    "for one of leader epoch -1": forgotten_epoch,
    "no snapshot from there on has its name on the disk": nameless_snapshot,
}


@pytest.mark.parametrize("what", FOUND)
def test_what_is_not_as_it_was_promised_is_found(broken: Broken, what: str) -> None:
    FOUND[what](broken)
    with pytest.raises(Violated, match=what):
        broken.structure.check()


# -- what is done


def cut_below_the_recovery_point(broken: Broken) -> None:
    broken.log.active.cut(0)


def append_after_a_cut(broken: Broken) -> None:
    broken.log.recovery_point = 0
    broken.folder.checkpoint()
    file = broken.log.active.file
    file.truncate(0)
    file.append([b"other"])


def write_in_place(broken: Broken) -> None:
    broken.disk.open(f"{broken.folder.path}/{RECOVERY_POINTS}").append([b"more"])


def rename_unsynced(broken: Broken) -> None:
    path = f"{broken.folder.path}/{RECOVERY_POINTS}"
    broken.disk.open(path + ".tmp", create=True).append([b"0\n0\n"])
    broken.disk.rename(path + ".tmp", path)


DONE: dict[str, Callable[[Broken], None]] = {
    "is cut at 0, and was synced up to": cut_below_the_recovery_point,
    "was cut, and is written before that is synced": append_after_a_cut,
    "is written where it stands": write_in_place,
    "gets its name before it is synced": rename_unsynced,
}


@pytest.mark.parametrize("what", DONE)
def test_what_must_not_be_done_is_found(broken: Broken, what: str) -> None:
    DONE[what](broken)
    with pytest.raises(Violated, match=what):
        broken.cluster.world.run(broken.cluster.world.now_s + BREAK_SECONDS)


def test_what_was_cut_in_a_life_before_need_not_be_synced_before_the_next_writes(broken: Broken) -> None:
    """It knows no epochs of its own there before it has synced them."""
    member, durable, path = broken.cluster.members[1], broken.structure.durable, broken.path
    broken.log.recovery_point = 0
    broken.folder.checkpoint()
    broken.log.active.file.truncate(0)
    assert durable.seen(member, "append", path, 5)
    member.kill()
    member.start()
    assert not durable.seen(member, "append", path, 5)


def test_the_recovery_points_on_disk_are_those_after_a_loss_of_power(broken: Broken) -> None:
    medium, name = broken.disk.medium, TopicPartition("t", 0)
    assert recovery_points_on_disk(medium, broken.folder.path)[name] == broken.log.recovery_point > 0
    medium.node(f"{broken.folder.path}/{RECOVERY_POINTS}").is_rotten = True
    assert recovery_points_on_disk(medium, broken.folder.path) == {}

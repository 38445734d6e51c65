"""Rot: what a fault breaks is broken, what ends it puts it right, and a cluster at peace comes to peace again after each."""

import errno
import random

import pytest

from odradek.log.disk import DiskFull
from odradek.log.names import FileKind, TopicPartition
from odradek.wire.batch import check, headers
from odradek.wire.errors import ProtocolError
from tests.log.disk import NO_ROOM
from tests.log.medium import Node
from tests.log.partition import NOW_MS, add, batch, new_log, sim
from tests.sim.cluster import SimCluster
from tests.sim.faults import KINDS, Faults
from tests.sim.loop import SimLoop
from tests.sim.steady import steady_cluster
from tests.sim.structural.files import check_found
from tests.sim.structural.findings import Violated
from tests.sim.structural.pace import SLOW_APPENDS_MAX, PaceChecks
from tests.sim.structure import Structure, unsettled

PEACE_SECONDS_MAX = 120.0
AT_PEACE = ["rot at a start", "rot of indexes", "rot of snapshots", "rot of a checkpoint", "rot of the metadata"]


def broken_batches(file: Node) -> list[int]:
    content, found = bytes(file.content), []
    for at, header in headers(content):
        try:
            check(content, at, header)
        except ProtocolError:
            found.append(header.base_offset)
    return found


def come_to_peace(cluster: SimCluster) -> None:
    cluster.world.run(cluster.world.now_s + PEACE_SECONDS_MAX, lambda: not unsettled(cluster))
    assert unsettled(cluster) == ""


def flushed_cluster() -> SimCluster:
    """With something of everything that can rot."""
    cluster = steady_cluster()
    for node in cluster.nodes.values():
        folder = node.partitions.folders[0]
        for log in folder.logs.values():
            log.roll(0)
            log.flush(0)
        folder.checkpoint()
    return cluster


@pytest.mark.parametrize("kind", AT_PEACE)
def test_a_cluster_comes_to_peace_again_whatever_rots(kind: str) -> None:
    cluster = steady_cluster() if kind == "rot at a start" else flushed_cluster()
    structure, faults = Structure(cluster), Faults(cluster, {})
    for node in cluster.nodes.values():
        for log in node.partitions.folders[0].logs.values():
            log.flush(0)
    assert any(faults.begin(kind) for _ in range(20)), "it could begin"
    assert faults.counts[kind] == 1
    cluster.world.run(cluster.world.now_s + KINDS[kind].seconds_max)
    come_to_peace(cluster)
    structure.check_whole()


def test_a_disk_that_is_replaced_is_filled_again_by_the_others() -> None:
    cluster = steady_cluster(5)
    faults = Faults(cluster, {})
    assert any(faults.begin("disk replaced") for _ in range(50))
    member = faults.lossy
    assert member is not None
    assert not member.config.is_controller
    assert not member.disks.paths(lambda path: path.endswith(".log")), "nothing is left"
    cluster.world.run(cluster.world.now_s + KINDS["disk replaced"].seconds_max)
    come_to_peace(cluster)
    Structure(cluster).check_whole()


def test_records_that_are_read_wrong_are_read_right_again_unless_the_file_is_another_one() -> None:
    cluster = steady_cluster()
    disks = cluster.members[1].disks
    path = cluster.nodes[1].partitions.folders[0].logs[TopicPartition("t", 0)].active.path(FileKind.LOG)
    file, before = disks.medium.node(path), bytes(disks.medium.node(path).content)
    mend = disks.break_records(path, random.Random(1))
    assert mend is not None
    assert len(broken_batches(file)) == 1
    assert disks.break_records(path, random.Random(1)) is None, "once is enough"
    mend()
    assert not broken_batches(file)
    assert bytes(file.content) == before
    again = disks.break_records(path, random.Random(1))
    assert again is not None
    file.content[:] = b"other"
    again()
    assert bytes(file.content) == b"other"


def test_a_full_disk_that_ends_a_node_which_served_is_told() -> None:
    cluster = steady_cluster()
    member, node = cluster.members[2], cluster.nodes[2]
    node.fail(DiskFull(errno.ENOSPC, NO_ROOM))
    cluster.world.run(cluster.world.now_s + 1)
    assert [NO_ROOM in each for each in member.breakdowns] == [True]
    come_to_peace(cluster)


def test_a_loop_that_waits_for_its_slow_disk_again_and_again_is_found() -> None:
    cluster = steady_cluster()
    member, loop, pace = cluster.members[1], cluster.members[1].loop, PaceChecks()
    assert isinstance(loop, SimLoop)
    for _ in range(SLOW_APPENDS_MAX):
        assert not pace.seen(member, loop, "append", "/disk0/node-1/t-0/0.log", 0.1)
    assert not pace.seen(member, loop, "append", "/disk0/node-1/__consumer_offsets-0/0.log", 0.1)
    assert "writes it on the loop" in pace.seen(member, loop, "append", "/disk0/node-1/t-0/0.log", 0.1)
    loop.is_threaded = True
    assert not pace.seen(member, loop, "append", "/disk0/node-1/t-0/0.log", 0.1)
    loop.is_threaded = False
    assert not pace.seen(member, loop, "append", "/disk0/node-1/t-0/0.log", 0.1)


@pytest.mark.parametrize(("relative", "is_rotten"), [(1, True), (1, False), (2, True)])
def test_an_entry_of_a_time_index_may_rot_into_that_of_another_batch_of_the_same_time(relative: int, is_rotten: bool) -> None:
    log = new_log(segment_bytes=10_000)
    for at in (NOW_MS, NOW_MS, NOW_MS - 1):
        add(log, batch(at=at))
    medium, (segment,) = sim(log).medium, log.segments
    medium.node(segment.path(FileKind.TIME_INDEX)).is_rotten = is_rotten
    check_found("it", log, medium)
    segment._max_timestamp = (NOW_MS, relative)
    if relative == 1 and is_rotten:
        check_found("it", log, medium)
    else:
        with pytest.raises(Violated, match="for its greatest timestamp"):
            check_found("it", log, medium)

"""The metadata quorum of one voter."""

import asyncio
import errno
import json
from pathlib import Path

import msgspec
import pytest

from odradek.core.config.broker import BrokerConfig
from odradek.core.metadata.features import UnsupportedFeature
from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.effects import (
    InstallSnapshot,
    LostLeadership,
    QuorumBroken,
    Truncate,
    WriteSnapshot,
)
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.disk import DiskFailed, DiskFull, RealDisk
from odradek.log.names import FileKind
from odradek.node.format import format_folder
from odradek.node.metadata_log import MetadataLog, MetadataLogConfig
from odradek.node.quorum import Quorum, QuorumError
from odradek.node.quorum_config import QuorumConfig
from odradek.node.reserve import Reserve
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import AbortTransactionRecord, BeginTransactionRecord, FeatureLevelRecord
from tests.log.disk import NO_ROOM, SimDisk
from tests.node.metadata import (
    CLUSTER_ID,
    CONFIG,
    DIRECTORY_ID,
    ENDPOINTS,
    FOLDER,
    LOG,
    NODE,
    TickingMachine,
    content,
    create,
    new_disk,
    register,
    run,
    snapshot_batches,
    started,
    topic,
)


def test_every_start_begins_a_new_epoch_and_the_vote_is_on_disk() -> None:
    disk = new_disk()

    async def story() -> None:
        for epoch in (1, 2, 3):
            host = await started(disk, FOLDER)
            assert host.quorum.epoch == epoch
            state = json.loads(disk.read(f"{LOG}/quorum-state"))
            assert (state["leaderEpoch"], state["leaderId"], state["data_version"]) == (epoch, NODE, 1)
            await host.quorum.close()

    run(story())


def test_what_was_committed_is_there_at_the_next_start() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await register(host, b"1" * 16)
        await create(host, "t", 3, retention_ms="5")
        image = content(host.quorum.image)
        await host.quorum.close()
        again = Quorum(disk, FOLDER, CONFIG, TickingMachine())
        assert content(again.image) == image
        assert again.image.offset == host.quorum.image.offset

    run(story())


def test_the_answer_comes_when_the_brokers_image_has_it() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await register(host, b"1" * 16)
        seen: list[int] = []
        host.quorum.on_commit(lambda entries: seen.extend(offset for offset, _ in entries))
        first = host.quorum.end_offset
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*[create(host, name) for name in names])
        assert list(host.quorum.image.topics) == names
        assert seen == list(range(first, first + 40))
        assert host.controller is not None
        assert content(host.controller.image) == content(host.quorum.image)

    run(story())


def test_the_status_is_that_of_the_log() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        host.quorum.append([topic(1)])
        status = host.status()
        assert (status.leader_id, status.leader_epoch, status.voters.ids) == (NODE, 1, [NODE])
        assert status.high_watermark == status.log_end_offset - 1 == host.quorum.end_offset - 1
        await host.quorum.close()
        assert host.status().high_watermark == host.quorum.end_offset

    run(story())


def test_many_commits_share_a_sync() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await register(host, b"1" * 16)
        before = sum(step.kind == "sync" for step in disk.steps)
        await asyncio.gather(*[create(host, f"t{number}") for number in range(50)])
        assert sum(step.kind == "sync" for step in disk.steps) - before <= 3

    run(story())


def test_nothing_is_committed_before_its_sync() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        host.quorum.append([topic(1)])
        assert host.quorum.image.topics == {}
        await host.quorum.commit(host.quorum.end_offset - 1)
        assert list(host.quorum.image.topics) == ["topic-1"]

    run(story())


def test_a_failed_sync_ends_the_quorum_and_tells_everybody() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        told: list[BaseException] = []
        host.quorum.on_failure(told.append)
        disk.fail_sync(lambda path: path.endswith(".log"))
        with pytest.raises(DiskFailed):
            await host.quorum.commit(host.quorum.append([topic(1)]))
        assert len(told) == 1
        assert host.quorum.image.topics == {}
        with pytest.raises(DiskFailed):
            host.quorum.append([topic(2)])
        with pytest.raises(DiskFailed):
            await host.quorum.commit(0)
        await host.quorum.close()

    run(story())


def test_a_full_disk_refuses_the_decision_and_the_next_one_finds_room() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await register(host, b"1" * 16)
        end, disk.room = host.quorum.end_offset, 10
        with pytest.raises(Refused) as refusal:
            await create(host, "t")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert host.controller is not None
        assert (host.quorum.end_offset, host.controller.image.topics) == (end, {})
        disk.room = None
        await create(host, "t")
        assert list(host.quorum.image.topics) == ["t"]

    run(story())


@pytest.mark.parametrize("position", [0, 3])
def test_a_snapshot_of_the_leader_for_which_there_is_no_room_ends_nothing(position: int) -> None:
    disk, snapshot = new_disk(), SnapshotId(100, 1)

    async def story() -> None:
        host = await started(disk, FOLDER)
        if position:
            host.quorum._do(WriteSnapshot(snapshot, 0, bytes(position)))
        disk.room = 0
        host.quorum._do(WriteSnapshot(snapshot, position, b"the rest of it"))
        host.quorum._do(InstallSnapshot(snapshot))
        disk.room = None
        await asyncio.sleep(0.05)
        assert host.quorum.failure is None
        await create(host, "t")

    run(story())


def full_until_the_reserve_is_given(disk: SimDisk, quorum: Quorum, ending: str) -> Reserve:
    """There is no room for files with this ending in their names."""
    reserve = quorum.reserve = Reserve(disk, FOLDER, 10_000)
    assert reserve.make()
    reserve.made()

    def look(kind: str, path: str, _: int) -> None:
        if reserve.is_there and kind in ("create", "append") and path.endswith(ending):
            raise DiskFull(errno.ENOSPC, NO_ROOM, path)

    disk.faults.on_cost = look
    return reserve


def test_a_cut_that_finds_no_room_is_given_the_reserve() -> None:
    disk = new_disk()

    async def story() -> None:
        quorum = (await started(disk, FOLDER)).quorum
        reserve = full_until_the_reserve_is_given(disk, quorum, "leader-epoch-checkpoint.tmp")
        quorum._input(lambda _: [LostLeadership(1), Truncate(0)])
        assert (quorum.failure, quorum.end_offset, reserve.is_in_use) == (None, 0, True)

    run(story())


def test_a_log_that_begins_anew_and_finds_no_room_is_given_the_reserve() -> None:
    disk, snapshot = new_disk(), SnapshotId(1000, 5)

    async def story() -> None:
        quorum = (await started(disk, FOLDER)).quorum
        quorum._input(lambda _: [WriteSnapshot(snapshot, 0, b"".join(snapshot_batches()))])
        reserve = full_until_the_reserve_is_given(disk, quorum, f"{snapshot.offset:020}.log")
        quorum.machine.installed = lambda *_: []  # type: ignore[method-assign]
        await quorum._install(snapshot)
        assert (quorum.failure, quorum.log.start_offset, reserve.is_in_use) == (None, 1000, True)
        assert list(quorum.image.topics) == ["topic-7"]

    run(story())


def test_a_flush_that_finds_no_room_for_an_index_is_given_the_reserve() -> None:
    disk = new_disk()

    async def story() -> None:
        quorum = (await started(disk, FOLDER)).quorum
        reserve = full_until_the_reserve_is_given(disk, quorum, quorum.log.active.time_index.path)
        quorum.log.roll(quorum.now_ms())
        await quorum.commit(quorum.append([topic(1)]))
        assert (quorum.failure, reserve.is_in_use) == (None, True)

    run(story())


def test_the_settings_are_those_of_the_node() -> None:
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "advertised.listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/data",
        "metadata.log.segment.bytes": "10000000",
        "metadata.max.retention.ms": "5",
    }
    config = QuorumConfig.of(BrokerConfig(settings), "c", DIRECTORY_ID, ENDPOINTS)
    assert (config.node_id, config.static_voters) == (1, "1@localhost:9093")
    assert config.log == MetadataLogConfig(segment_bytes=10_000_000, max_retention_ms=5)


def test_what_is_larger_than_a_batch_is_refused_and_leaves_no_trace() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        end = host.quorum.end_offset
        records: list[tuple[Message, int]] = [(BeginTransactionRecord(name="x" * 30_000), 0)] * 300
        with pytest.raises(Refused) as refusal:
            host.quorum.append(records)
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION
        assert host.quorum.end_offset == end

    run(story())


def test_a_transaction_that_was_left_open_is_aborted() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        await host.quorum.commit(host.quorum.append([(BeginTransactionRecord(name="half"), 0), topic(1)]))
        assert host.quorum.image.topics == {}
        await host.quorum.close()
        host = await started(disk, FOLDER)
        assert host.quorum.image.transaction is None
        assert host.quorum.image.topics == {}
        kinds = [type(record) for entries in host.quorum.metadata_log.entries(0) for _, record in entries.records]
        assert kinds[-1] is AbortTransactionRecord

    run(story())


def test_a_feature_level_of_a_newer_version_stops_the_start() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        with pytest.raises(UnsupportedFeature):  # nor does a node that runs go on with it
            await host.quorum.commit(host.quorum.append([(FeatureLevelRecord(name="metadata.version", feature_level=31), 0)]))
        await host.quorum.close()
        with pytest.raises(UnsupportedFeature, match=r"metadata\.version at level 31.*knows the levels 7 to 30"):
            Quorum(disk, FOLDER, CONFIG, TickingMachine())

    run(story())


def test_what_is_appended_while_the_leadership_is_lost_is_not_waited_for() -> None:
    """Others would commit something else at its offset."""
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        offset = host.quorum.append([topic(1)])
        host.quorum._input(host.quorum.machine.stop)
        with pytest.raises(Refused) as refused:
            await host.quorum.commit(offset)
        assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run(story())


def test_what_a_killed_process_has_left_in_memory_is_synced_by_the_next_before_anybody_is_told() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        end_offset = host.quorum.append([topic(1)])
        unsynced = host.quorum.log.active.path(FileKind.LOG)
        assert disk.medium.node(unsynced).unsynced
        disk.rename(f"{LOG}/quorum-state", f"{LOG}/quorum-state.tmp")
        disk.rename(f"{LOG}/quorum-state.tmp", f"{LOG}/quorum-state")  # as if it had been written anew
        opened = MetadataLog(disk, FOLDER, CONFIG.log, 1)
        assert opened.end_offset == end_offset + 1
        assert not disk.medium.node(unsynced).unsynced
        assert not disk.medium.folder(LOG).unsynced

    run(story())


def test_an_offset_within_a_batch_is_never_committed() -> None:
    disk = new_disk()

    async def story() -> None:
        host = await started(disk, FOLDER)
        last = host.quorum.append([topic(1), topic(2)])
        await host.quorum.commit(last)
        host.quorum.applied_offset = last - 1
        with pytest.raises(QuorumBroken, match=f"committed up to {last}, and {LOG} has no batch that ends there"):
            host.quorum._apply(last)

    run(story())


# -- who votes


def test_a_folder_of_static_voters_is_served_with_the_setting_and_not_without(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "data")
    format_folder(disk, path, node_id=NODE, cluster_id="c", directory_id=DIRECTORY_ID, now_ms=1)
    static = msgspec.structs.replace(CONFIG, static_voters="1@127.0.0.1:9093")

    async def story() -> None:
        host = await started(disk, path, static)
        state = json.loads(disk.read(f"{path}/__cluster_metadata-0/quorum-state"))
        assert state == {
            "clusterId": "",
            "leaderId": 1,
            "leaderEpoch": 1,
            "votedId": -1,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": 1}],
            "data_version": 0,
        }
        assert host.quorum.kraft_version == 0
        await host.quorum.snapshots.take()
        await host.quorum.close()
        with pytest.raises(QuorumError, match=r"controller\.quorum\.voters"):
            Quorum(disk, path, CONFIG, TickingMachine())
        assert Quorum(disk, path, static, TickingMachine()).voters == host.quorum.voters

    run(story())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"node_id": 2}, "node.id=2"),
        ({"directory_id": b"another folder's"}, "directory.id"),
    ],
)
def test_a_node_that_is_no_voter_does_not_start(changed: dict[str, object], message: str) -> None:
    disk = new_disk()
    with pytest.raises(QuorumError, match=message):
        Quorum(disk, FOLDER, msgspec.structs.replace(CONFIG, **changed), TickingMachine())


def test_a_controller_that_does_not_vote_follows_those_who_do() -> None:
    """Also one whose folder was lost: the voters know it by the folder that it had."""
    disk = SimDisk()
    there = Voter(2, b"another folder's", (("CONTROLLER", "elsewhere", 9094),))
    for voters in ((there,), (there, Voter(NODE, b"a folder that is", ENDPOINTS))):
        path = f"/disk/{len(voters)}"

        format_folder(
            disk, path, node_id=NODE, cluster_id=CLUSTER_ID, directory_id=DIRECTORY_ID, now_ms=0, voters=VoterSet(voters)
        )
        quorum = Quorum(disk, path, CONFIG, TickingMachine())
        assert not quorum.machine.is_voter
        assert quorum.voters.ids == [voter.id for voter in voters]


def test_new_addresses_of_the_voter_are_written_into_the_log() -> None:
    disk = new_disk()

    async def story() -> None:
        await (await started(disk, FOLDER)).quorum.close()
        moved = msgspec.structs.replace(CONFIG, endpoints=(("CONTROLLER", "elsewhere", 9094),))
        await (await started(disk, FOLDER, moved)).quorum.close()
        found = Quorum(disk, FOLDER, CONFIG, TickingMachine()).voters
        assert found == VoterSet((Voter(NODE, DIRECTORY_ID, moved.endpoints),))

    run(story())

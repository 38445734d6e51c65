"""The structural checks hold for a cluster at peace, and each of them fails where something is broken."""

import random
from collections.abc import Callable

import msgspec
import pytest

from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.metadata.topics import RECOVERING
from odradek.core.raft.batches import SnapshotId, encode_snapshot
from odradek.core.raft.election import QUORUM_STATE, Election
from odradek.core.raft.states import NEVER_MS, Download, Follower, Unattached
from odradek.core.raft.voters import VoterSet
from odradek.log.log import Log
from odradek.log.names import FileKind
from odradek.log.segment import Segment
from odradek.node.coordinators import Shard
from odradek.node.node import Node
from odradek.node.partition import Partition
from odradek.wire.batch import read_header
from odradek.wire.messages import FeatureLevelRecord, PartitionChangeRecord
from odradek.wire.records import Record, build
from tests.log.medium import Medium, Write
from tests.sim.cluster import SimCluster
from tests.sim.machine import BEGIN_MS
from tests.sim.steady import Client, steady_cluster, tell
from tests.sim.structural.files import check_files
from tests.sim.structural.findings import Violated
from tests.sim.structural.groups import check_groups
from tests.sim.structural.logs import Batch, check_known
from tests.sim.structure import Structure, unsettled


class Broken:
    """A cluster at peace, with short ways to what can be broken in it."""

    def __init__(self) -> None:
        self.cluster = steady_cluster()
        self.structure = Structure(self.cluster)
        self.structure.check_whole()

    def led(self, topic: str = "t", index: int = 0) -> tuple[Node, Partition]:
        for node in self.cluster.nodes.values():
            if index in node.partitions.by_name.get(topic, {}):
                return node, node.partitions.by_name[topic][index]
        raise AssertionError(f"nobody leads {topic}-{index}")

    def followed(self, topic: str = "t", index: int = 0) -> tuple[Node, Log]:
        for node in self.cluster.nodes.values():
            for follower, log in node.partitions.replication.logs.items():
                if (follower.topic, follower.index) == (topic, index):
                    return node, log
        raise AssertionError(f"nobody follows {topic}-{index}")

    def medium(self, node: Node) -> Medium:
        return self.cluster.members[node.node_id].disks.medium

    def overwrite(self, node: Node, log: Log, byte: int) -> None:
        self.medium(node).node(log.segments[0].path(FileKind.LOG)).content[byte] ^= 1

    def shard(self, group_id: str) -> Shard[GroupCoordinator]:
        for node in self.cluster.nodes.values():
            for shard in node.groups.shards.values():
                if group_id in shard.coordinator.shard.groups:
                    return shard
        raise AssertionError(f"nobody coordinates {group_id}")

    def leader(self) -> Node:
        (found,) = [node for node in self.cluster.nodes.values() if node.controller.is_active]
        return found

    def others(self) -> list[Node]:
        return [node for node in self.cluster.nodes.values() if not node.controller.is_active]


@pytest.fixture
def broken() -> Broken:
    return Broken()


def test_a_cluster_at_peace_violates_nothing(broken: Broken) -> None:
    structure = broken.structure
    assert unsettled(broken.cluster) == ""
    assert structure.groups_compared == 3
    assert structure.logs_opened == 2 * 3 * (2 + 2 + 2 + 1)  # t, compacted, __consumer_offsets and the metadata, on three nodes
    compared = {each.name for each in structure.partitions.committed.values() if each.end_offset}
    assert {"t-0", "t-1", "compacted-0", "compacted-1"} <= compared
    assert structure.quorum.committed.end_offset > 10
    assert len(structure.quorum.reference.digests) > 1


def test_looking_changes_nothing_that_the_nodes_do() -> None:
    def steps(is_looking: bool) -> tuple[int, float]:
        cluster = steady_cluster()
        structure = Structure(cluster)
        for _ in range(20):
            if is_looking:
                structure.check_whole()
            cluster.world.run(cluster.world.now_s + 0.1)
        return cluster.world.steps, cluster.world.now_s

    assert steps(True) == steps(False)


def test_a_replica_in_sync_that_cuts_what_is_committed_is_found_at_once(broken: Broken) -> None:
    _, log = broken.followed()
    log.truncate_to(5, 0)
    assert broken.structure.cuts
    with pytest.raises(Violated, match="in sync, and ends at 5"):
        broken.cluster.world.run(broken.cluster.world.now_s + 0.000_001)


def test_nothing_is_violated_after_a_restart(broken: Broken) -> None:
    world = broken.cluster.world
    broken.cluster.members[2].kill()
    broken.cluster.members[3].lose_power("mixed")
    for member in (2, 3):
        broken.cluster.members[member].start_soon(0.5)
    for _ in range(100):
        world.run(world.now_s + 0.2)
        broken.structure.check()
    broken.structure.check_whole()
    assert unsettled(broken.cluster) == ""


# -- partitions


def two_leaders(broken: Broken) -> None:
    node, partition = broken.led()
    epoch = ((partition.topic_id, 0), partition.leader_epoch)
    broken.structure.partitions.leaders[epoch] = node.node_id + 1


def watermark_goes_back(broken: Broken) -> None:
    _, partition = broken.led()
    partition.leader.high_watermark -= 1
    partition.log.high_watermark -= 1


def two_watermarks(broken: Broken) -> None:
    broken.led()[1].log.high_watermark -= 1


def committed_past_the_end(broken: Broken) -> None:
    _, partition = broken.led()
    partition.log.high_watermark = partition.log.end_offset + 1


def segments_out_of_order(broken: Broken) -> None:
    broken.led()[1].log.bases[0] += 1


def epochs_out_of_order(broken: Broken) -> None:
    log = broken.led()[1].log
    log.epochs.entries.append(log.epochs.entries[0]._replace(epoch=-1))


def isr_that_is_not_waited_for(broken: Broken) -> None:
    broken.led()[1].leader.maximal_isr = ()


def leader_without_a_name(broken: Broken) -> None:
    node, partition = broken.led()
    node.partitions.by_name["t"] = {}
    node.partitions.by_id[partition.topic_id] = {0: partition}


def other_bytes(broken: Broken) -> None:
    node, log = broken.followed()
    broken.overwrite(node, log, 70)
    broken.structure.partitions.committed.clear()


def other_bytes_after_a_restart(broken: Broken) -> None:
    node, log = broken.followed()
    broken.overwrite(node, log, 70)
    log.cuts += 1  # so that it is looked at again


def other_record_in_a_compacted_log(broken: Broken) -> None:
    node, log = broken.followed("compacted")
    broken.overwrite(node, log, log.segments[0].size - 3)
    log.cuts += 1


def hole(broken: Broken) -> None:
    node, log = broken.followed()
    file = broken.medium(node).node(log.segments[0].path(FileKind.LOG))
    second = next(position for position, _ in log.segments[0].batches() if position)
    file.content[second + 7] += 1  # its base offset
    log.cuts += 1


def in_sync_without_the_records(broken: Broken) -> None:
    _, log = broken.followed()
    log.end_offset = log.high_watermark = log.recovery_point = 1


PARTITIONS: dict[str, Callable[[Broken], None]] = {
    "lead t-0 in leader epoch": two_leaders,
    "high watermark of t-0 goes back": watermark_goes_back,
    "the leader has the high watermark": two_watermarks,
    "starts at": committed_past_the_end,
    "has segments at": segments_out_of_order,
    "has the leader epochs": epochs_out_of_order,
    "waits for": isr_that_is_not_waited_for,
    "by its name None": leader_without_a_name,
    "has other records at 0 on": other_bytes,
    "than node . had when they were committed": other_bytes_after_a_restart,
    "has another record at": other_record_in_a_compacted_log,
    "goes on at": hole,
    "in sync, and ends at 1": in_sync_without_the_records,
}


@pytest.mark.parametrize("what", PARTITIONS)
def test_a_broken_partition_is_found(broken: Broken, what: str) -> None:
    PARTITIONS[what](broken)
    with pytest.raises(Violated, match=what):
        broken.structure.check()


def test_what_an_unclean_election_lost_is_not_missed(broken: Broken) -> None:
    node, log = broken.followed()
    _, partition = broken.led()
    broken.structure.quorum._changed(
        PartitionChangeRecord(topic_id=partition.topic_id, partition_id=0, leader_recovery_state=RECOVERING)
    )
    broken.overwrite(node, log, 70)
    log.cuts += 1
    broken.structure.check()


def test_rot_is_not_taken_for_a_bug(broken: Broken) -> None:
    node, log = broken.followed()
    broken.medium(node).node(log.segments[0].path(FileKind.LOG)).flip(70, 1)
    broken.structure.check_whole()


def test_a_producer_is_missed_for_as_long_as_producers_are_kept(broken: Broken) -> None:
    _, log = broken.followed()
    data = bytes(build([Record(0, BEGIN_MS, b"k", b"v")], leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0))
    batch, forgotten_ms = Batch(read_header(data), data), BEGIN_MS + log.config.producer_id_expiration_ms
    check_known("t-0", log, [batch], forgotten_ms, forgotten_ms)
    with pytest.raises(Violated, match="t-0 does not know the batch of producer 7 at 0"):
        check_known("t-0", log, [batch], forgotten_ms - 1, forgotten_ms - 1)


# -- the quorum


def led_twice(broken: Broken) -> None:
    leader = broken.leader()
    broken.structure.quorum.leaders[leader.quorum.epoch] = (leader.node_id, 7)


def controller_without_a_quorum(broken: Broken) -> None:
    broken.others()[0].controller.controller = broken.leader().controller.controller


def epoch_goes_back(broken: Broken) -> None:
    leader = broken.leader()
    broken.structure.quorum.epochs[leader.quorum.config.directory_id] = leader.quorum.epoch + 1


def two_votes(broken: Broken) -> None:
    voted = next(iter(broken.structure.quorum.votes))
    broken.structure.quorum.votes[voted] += 1
    for node in broken.cluster.nodes.values():
        path = f"{node.quorum.metadata_log.folder}/{QUORUM_STATE}"
        saved = Election.of(bytes(broken.medium(node).node(path).content))
        state = msgspec.structs.replace(saved, epoch=voted[1], voted_id=2)
        if node.quorum.config.directory_id == voted[0]:
            broken.structure.quorum.votes[voted] = 1
            broken.medium(node).node(path).content[:] = state.to_json(1, [])


def metadata_taken_back(broken: Broken) -> None:
    broken.others()[0].quorum.log.high_watermark -= 1


def other_metadata(broken: Broken) -> None:
    node = broken.others()[0]
    broken.overwrite(node, node.quorum.log, 70)
    node.quorum.log.cuts += 1


def leader_without_what_is_committed(broken: Broken) -> None:
    broken.structure.quorum.committed.end_offset += 100


def other_image(broken: Broken) -> None:
    broken.others()[0].image.features["kraft.version"] = 9


def image_that_is_not_served(broken: Broken) -> None:
    node = broken.others()[0]
    node.image = node.image.copy()


def other_snapshot(broken: Broken) -> None:
    node = broken.others()[0]
    image = node.image
    snapshot = SnapshotId(image.offset + 1, image.epoch)
    records = [(FeatureLevelRecord(name="metadata.version", feature_level=25), 0)]
    batches = encode_snapshot(records, epoch=image.epoch, now_ms=0, timestamp_ms=0)
    disk = broken.cluster.members[node.node_id].disks.new_disk()
    file = disk.open(f"{node.quorum.metadata_log.folder}/{snapshot.name}", create=True)
    file.append(list(batches))
    file.sync()
    node.quorum.metadata_log.snapshots.append(snapshot)


def snapshot_without_its_end(broken: Broken) -> None:
    other_snapshot(broken)
    node = broken.others()[0]
    name = node.quorum.metadata_log.snapshots[-1].name
    del broken.medium(node).node(f"{node.quorum.metadata_log.folder}/{name}").content[-10:]


def metadata_that_was_not_synced(broken: Broken) -> None:
    broken.structure.quorum._synced_offset = -1
    for node in broken.cluster.nodes.values():
        if node is not broken.leader():
            file = broken.medium(node).node(node.quorum.log.segments[-1].path(FileKind.LOG))
            file._same -= 1


def far_ahead(broken: Broken) -> None:
    quorum = broken.others()[0].quorum.machine._quorum
    quorum.state = Unattached(quorum.epoch + 20, NEVER_MS)


def deaf_leader(broken: Broken) -> None:
    leadership = broken.leader().quorum.machine.leadership
    assert leadership is not None
    for voter in leadership.voters.values():
        voter.last_fetch_ms = 0
    broken.structure.authority._idle_ms[broken.leader().node_id, 1] = 0
    broken.cluster.world.now_s += 20


def leader_that_does_not_vote(broken: Broken) -> None:
    leader = broken.leader().quorum
    others = VoterSet(tuple(voter for voter in leader.voters.voters if voter.id != leader.config.node_id))
    leader.machine._quorum.history.note(leader.committed_offset - 1, others.to_record())


def two_changes_of_voters(broken: Broken) -> None:
    leader = broken.leader().quorum
    for at in range(2):
        leader.machine._quorum.history.note(leader.end_offset + at, leader.voters.to_record())


def voter_that_never_fetched(broken: Broken) -> None:
    leader = broken.leader().quorum
    history, voters = leader.machine._quorum.history, leader.voters
    history._voters.rows = [(0, VoterSet(voters.voters[:2])), (leader.committed_offset - 1, voters)]
    added = broken.cluster.members[voters.voters[2].id]
    names = added.disks.medium.folder(added.metadata_folder).durable
    for name in [name for name in names if name.endswith(".log")]:
        del names[name]
    broken.structure.quorum._synced_offset = broken.structure.quorum.committed.end_offset


def controller_of_another_mind(broken: Broken) -> None:
    controller = broken.leader().controller.controller
    assert controller is not None
    controller.image.features["kraft.version"] = 9


def snapshot_that_was_not_synced(broken: Broken) -> None:
    other_snapshot(broken)
    node = broken.others()[0]
    name = node.quorum.metadata_log.snapshots[-1].name
    broken.medium(node).node(f"{node.quorum.metadata_log.folder}/{name}").unsynced.append(Write(0, b""))


def start_without_a_snapshot(broken: Broken) -> None:
    node = broken.others()[0]
    node.quorum.log.start_offset = node.quorum.log.high_watermark


def endless_lease(broken: Broken) -> None:
    session = broken.leader().session
    session.certain_until_ms += session.timeout_ms


QUORUM: dict[str, Callable[[Broken], None]] = {
    "and is none of the voters": leader_that_does_not_vote,
    "changes the voters at": two_changes_of_voters,
    "a voter, whose metadata ends at 0": voter_that_never_fetched,
    "thinks other than the log": controller_of_another_mind,
    "the snapshot .* is not synced": snapshot_that_was_not_synced,
    "there is no snapshot there": start_without_a_snapshot,
    "lead epoch": led_twice,
    "has a controller, and does not lead": controller_without_a_quorum,
    "the epoch of node . goes back": epoch_goes_back,
    "votes for 1 and for 2": two_votes,
    "takes back metadata": metadata_taken_back,
    "the metadata log has other records": other_metadata,
    "leads the quorum, ends at": leader_without_what_is_committed,
    "is not what the log says up to": other_image,
    "serves another image": image_that_is_not_served,
    "where nobody has led the quorum": far_ahead,
    "no majority has fetched from it": deaf_leader,
    "and is fenced sooner": endless_lease,
    "metadata is committed up to .* and synced up to": metadata_that_was_not_synced,
    "the snapshot .* is not what the log says": other_snapshot,
    "the snapshot .* cannot be read": snapshot_without_its_end,
}


def test_who_is_asked_for_a_snapshot_by_a_majority_leads_on(broken: Broken) -> None:
    deaf_leader(broken)
    follower = broken.others()[0].quorum.machine._quorum
    assert isinstance(follower.state, Follower)
    follower.state.download = Download(SnapshotId(1, 0))
    follower.state.fetch_deadline_ms = int(broken.cluster.world.now_s * 1000) + follower.config.fetch_timeout_ms
    broken.structure.authority.check(broken.cluster)
    follower.state.download = None  # and not for the log after it
    broken.structure.authority.check(broken.cluster)
    broken.cluster.world.now_s += 20
    with pytest.raises(Violated, match="no majority has fetched from it"):
        broken.structure.authority.check(broken.cluster)


def test_who_is_elected_again_between_two_looks_has_its_time_to_be_fetched_from(broken: Broken) -> None:
    deaf_leader(broken)
    broken.leader().quorum.machine._quorum.state.epoch += 1
    broken.structure.authority.check(broken.cluster)
    broken.cluster.world.now_s += 20
    with pytest.raises(Violated, match="no majority has fetched from it"):
        broken.structure.authority.check(broken.cluster)


def test_who_led_between_two_looks_is_known_by_its_followers(broken: Broken) -> None:
    for other in broken.others():
        other.quorum.machine._quorum.state.epoch += 20
    broken.structure.authority.check(broken.cluster)
    assert broken.structure.authority.epoch_led == broken.others()[0].quorum.epoch


@pytest.mark.parametrize("what", QUORUM)
def test_a_broken_quorum_is_found(broken: Broken, what: str) -> None:
    QUORUM[what](broken)
    with pytest.raises(Violated, match=what):
        broken.structure.check()


# -- groups


def lost_group(broken: Broken) -> None:
    del broken.shard("simple").coordinator.shard.groups["simple"]


def other_offset(broken: Broken) -> None:
    offsets = broken.shard("simple").coordinator.shard.offsets.by_group["simple"]["t"]
    offsets[0] = msgspec.structs.replace(offsets[0], offset=8)


def other_generation(broken: Broken) -> None:
    group = broken.shard("classic").coordinator.shard.classic("classic")
    assert group is not None
    group.generation_id += 1


def leaderless(broken: Broken) -> None:
    group = broken.shard("classic").coordinator.shard.classic("classic")
    assert group is not None
    group.waiting_joins += 1


def other_epoch(broken: Broken) -> None:
    group = broken.shard("consumer").coordinator.shard.consumer("consumer")
    assert group is not None
    group.epoch += 1


def open_transaction(broken: Broken) -> None:
    broken.shard("simple").coordinator.shard.offsets.transactions[5] = {}


GROUPS: dict[str, Callable[[Broken], None]] = {
    "has the groups": lost_group,
    "has other offsets than its log": other_offset,
    "classic is not what its log says": other_generation,
    "waits for 1 joins": leaderless,
    "consumer is not what its log says": other_epoch,
    "in open transactions": open_transaction,
}


@pytest.mark.parametrize("what", GROUPS)
def test_a_coordinator_that_is_not_its_replay_is_found(broken: Broken, what: str) -> None:
    assert check_groups(broken.cluster) == 3
    GROUPS[what](broken)
    with pytest.raises(Violated, match=what):
        check_groups(broken.cluster)


# -- files


def test_a_broken_batch_that_nobody_has_read_is_found(broken: Broken) -> None:
    node, log = broken.followed()
    log.roll(0)
    log.flush(0)
    node.partitions.folders[0].checkpoint()
    check_files(broken.cluster)
    broken.overwrite(node, log, 70)
    with pytest.raises(Violated, match="has a broken batch at 0"):
        check_files(broken.cluster)


def test_a_log_that_opens_with_damage_is_found(broken: Broken) -> None:
    node, log = broken.followed()
    log.flush(0)
    node.partitions.folders[0].checkpoint()
    broken.overwrite(node, log, 70)
    with pytest.raises(Violated, match="opens with damage at 0"):
        check_files(broken.cluster)


def test_a_log_that_is_shorter_on_disk_is_found(broken: Broken) -> None:
    node, log = broken.followed()
    del broken.medium(node).node(log.segments[-1].path(FileKind.LOG)).content[-1:]
    with pytest.raises(Violated, match=r"ends at .*, and at .* in the running node"):
        check_files(broken.cluster)


def test_a_log_that_lost_what_was_synced_is_found(broken: Broken) -> None:
    _, log = broken.followed()
    log.recovery_point = log.end_offset
    with pytest.raises(Violated, match="was synced up to"):
        check_files(broken.cluster, "strict", random.Random(0))


def test_a_batch_that_is_not_found_by_its_offset_is_found(broken: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Segment, "locate", lambda *_: None)
    with pytest.raises(Violated, match="has a batch at 0, and None is found"):
        check_files(broken.cluster)


# -- peace


def behind(cluster: SimCluster) -> str:
    cluster.members[2].kill()
    return unsettled(cluster)


def test_who_is_missing_or_behind_is_told(broken: Broken) -> None:
    cluster = broken.cluster
    node, log = broken.followed()
    before, log.high_watermark = log.high_watermark, log.high_watermark - 1
    assert unsettled(cluster) == f"node {node.node_id} has not caught up with t-0"
    log.high_watermark = before
    node.quorum.log.high_watermark -= 1
    assert unsettled(cluster).startswith("metadata is committed up to")
    node.quorum.log.high_watermark += 1
    assert behind(cluster) == "nodes [2] do not serve"
    cluster.world.run(cluster.world.now_s + 20)
    cluster.members[2].start()
    cluster.world.run(cluster.world.now_s + 0.01)
    assert unsettled(cluster)

    async def produce(client: Client) -> None:
        await client.produce("t", 0, (b"k", b"v"))

    tell(cluster, produce)
    cluster.world.run(cluster.world.now_s + 10)
    assert unsettled(cluster) == ""


def test_who_has_led_between_two_looks_is_known_by_what_it_has_answered(broken: Broken) -> None:
    authority, node = broken.structure.authority, broken.others()[0]
    epoch = node.quorum.epoch + 20
    node.quorum.machine._quorum.state = Unattached(epoch, int(broken.cluster.world.now_s * 1000))
    with pytest.raises(Violated, match="where nobody has led the quorum"):
        authority.check(broken.cluster)
    leader = next(node.quorum.machine.leadership for node in broken.cluster.nodes.values() if node.quorum.machine.is_leader)
    assert leader is not None
    leader.epoch = epoch - 1
    authority.answers(leader)
    leader.epoch = 0
    authority.check(broken.cluster)

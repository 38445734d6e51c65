"""The metadata quorum, over all nodes and over time.

Invariants that are checked
 1. An epoch has one leader, in one life of its process.
 2. A node votes once in an epoch, and its epoch never goes back, over all its lives.
 3. What is committed of the metadata log stands, byte for byte, on every node; nobody takes back what he knows to be committed.
 4. The image of every node is what a replay of the committed log gives at its offset; so is every snapshot, and what a controller
    has decided once all of it is committed. What has the name of a snapshot on a disk is whole, and synced; the start of a log
    has one; a node that starts begins with what its newest one says.
 5. A controller is where the quorum is led, and nowhere else.
 6. What is committed is synced on the disks of a majority of the voters, whether they are up or not.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.snapshot import snapshot_records
from odradek.core.metadata.topics import RECOVERING
from odradek.core.partition.replica import TopicIdPartition
from odradek.core.raft.batches import CorruptSnapshot, SnapshotId, decode_snapshot, parse_snapshot_name, read_batch
from odradek.core.raft.election import NOBODY, QUORUM_STATE, Election
from odradek.log.log import Log
from odradek.node.node import Node
from odradek.node.quorum import Quorum
from odradek.wire.log_records import encode_metadata_record
from odradek.wire.message import Message
from odradek.wire.messages import PartitionChangeRecord
from tests.log.medium import Medium
from tests.log.medium import Node as File
from tests.sim.structural.findings import Violated, hold
from tests.sim.structural.logs import Batch, Committed, check_log
from tests.sim.structural.synced import synced_last

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster, SimNode


def digest(image: MetadataImage) -> bytes:
    """Of all that an image says; in which order it came to say it does not matter."""
    encoded = sorted(encode_metadata_record(record, version) for record, version in snapshot_records(image))
    return hashlib.blake2b(b"".join(encoded), digest_size=16).digest()


class Reference:
    """The committed log, replayed by itself, batch by batch."""

    def __init__(self, changed: Callable[[PartitionChangeRecord], None]) -> None:
        self.image = MetadataImage()
        self.changed = changed
        self.replayed: Callable[[MetadataImage, Sequence[Message]], None] = lambda *_: None
        self.digests: dict[int, bytes] = {-1: digest(self.image)}  # by the offset of the last record
        self._ahead: dict[int, Batch] = {}  # by base offset
        self._next_offset = 0

    def take(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            if batch.header.base_offset >= self._next_offset:
                self._ahead[batch.header.base_offset] = batch

    def digest_at(self, offset: int) -> bytes | None:
        """What an image that ends with the record at an offset has to say; None where that is not known."""
        while self.image.offset < offset and self._next_offset in self._ahead:
            batch = self._ahead.pop(self._next_offset)
            entries = read_batch(batch.data, 0, batch.header)
            for _, record in () if entries.is_control else entries.records:
                self.image.replay(record)
                if isinstance(record, PartitionChangeRecord):
                    self.changed(record)
            self.image.advance(batch.header.last_offset, batch.header.leader_epoch, batch.header.max_timestamp)
            self.replayed(self.image, [] if entries.is_control else [record for _, record in entries.records])
            self._next_offset = batch.header.next_offset
        if self.image.offset == offset and offset not in self.digests:
            self.digests[offset] = digest(self.image)
        return self.digests.get(offset)


class QuorumChecks:
    def __init__(self, elected_uncleanly: Callable[[TopicIdPartition], None]) -> None:
        self.elected_uncleanly = elected_uncleanly
        self.leaders: dict[int, tuple[int, int]] = {}  # by epoch: node and life
        self.votes: dict[tuple[bytes, int], int] = {}  # by folder and epoch
        self.epochs: dict[bytes, int] = {}  # by folder
        self.high_watermarks: dict[tuple[int, int], int] = {}  # by node and life
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.committed = Committed("the metadata log")
        self.reference = Reference(self._changed)
        self._synced_offset = -1
        self._looked_at: dict[tuple[int, int, str], None] = {}  # by node, life and name

    def _changed(self, record: PartitionChangeRecord) -> None:
        if record.leader_recovery_state == RECOVERING:
            self.elected_uncleanly((record.topic_id, record.partition_id))

    def check(self, cluster: "SimCluster") -> None:
        quorums = [
            (member.life, node, node.quorum, member.disks.medium)
            for number, node in cluster.nodes.items()
            for member in [cluster.members[number]]
        ]
        for life, node, quorum, medium in quorums:
            self._check_election(node, life, quorum, medium)
        for life, node, quorum, medium in quorums:
            self._check_log(node, life, quorum.log, medium)
        for _, node, quorum, _ in sorted(quorums, key=lambda found: found[2].image.offset):
            self._check_image(node, quorum)
            self._check_start(node, quorum)
        for member in cluster.members.values():
            self._check_snapshots(member)
        self._check_synced(cluster, [quorum for _, _, quorum, _ in quorums])

    def _check_election(self, node: Node, life: int, quorum: Quorum, medium: Medium) -> None:
        who, epoch, folder = f"node {node.node_id}", quorum.epoch, quorum.config.directory_id
        if quorum.machine.is_leader:
            known = self.leaders.setdefault(epoch, (node.node_id, life))
            hold(
                known == (node.node_id, life),
                f"{who} (life {life}) and node {known[0]} (life {known[1]}) lead epoch {epoch}",
            )
        hold(quorum.machine.is_leader or not node.controller.is_active, f"{who} has a controller, and does not lead the quorum")
        hold(epoch >= self.epochs.get(folder, 0), f"the epoch of {who} goes back from {self.epochs.get(folder)} to {epoch}")
        self.epochs[folder] = epoch
        try:
            election = Election.of(bytes(medium.node(f"{quorum.metadata_log.folder}/{QUORUM_STATE}").content))
        except FileNotFoundError:
            return
        if election.voted_id != NOBODY:
            voted = self.votes.setdefault((folder, election.epoch), election.voted_id)
            hold(voted == election.voted_id, f"{who} votes for {voted} and for {election.voted_id} in epoch {election.epoch}")

    def _check_log(self, node: Node, life: int, log: Log, medium: Medium) -> None:
        who = f"node {node.node_id}"
        check_log(f"the metadata log of {who}", log)
        place = (node.node_id, life)
        before = self.high_watermarks.get(place, 0)
        hold(log.high_watermark >= before, f"{who} takes back metadata from {before} to {log.high_watermark}, which is committed")
        self.high_watermarks[place] = log.high_watermark
        self.reference.take(self.committed.look(who, medium, log, log.high_watermark, is_compacted=False))
        is_leading = node.quorum.machine.is_leader and node.quorum.epoch == max(self.epochs.values())  # as far as anybody knows
        if is_leading:
            known = self.committed.end_offset
            hold(log.end_offset >= known, f"{who} leads the quorum, ends at {log.end_offset}, and {known} is committed")

    def _check_synced(self, cluster: "SimCluster", quorums: list[Quorum]) -> None:
        known = self.committed.end_offset
        knowing = [quorum for quorum in quorums if quorum.end_offset >= known]  # others may not have heard who votes
        sets = {tuple((voter.id, voter.directory_id) for voter in quorum.voters.voters) for quorum in knowing}
        is_changing = len(sets) != 1 or any(quorum.machine._quorum.history.voters_offset >= known for quorum in knowing)
        if known == self._synced_offset or is_changing:  # while the voters change it is not clear whom to count
            return
        (voters,) = sets
        ends = {}
        for number, _ in voters:
            member = cluster.members[number]
            _, ends[number] = synced_last(member.disks.medium, member.metadata_folder)
        having = [number for number, end in ends.items() if end >= known]
        hold(len(having) > len(voters) // 2, f"metadata is committed up to {known}, and synced up to {ends}")
        self._synced_offset = known

    def _check_image(self, node: Node, quorum: Quorum) -> None:
        image = quorum.image
        expected = self.reference.digest_at(image.offset)
        if expected is not None and image.transaction is None:
            hold(digest(image) == expected, f"the image of node {node.node_id} is not what the log says up to {image.offset}")
        controller = node.controller.controller
        if controller is not None and expected is not None and quorum.end_offset == image.offset + 1:
            decided = f"the controller of node {node.node_id} thinks other than the log, which is committed up to {image.offset}"
            hold(digest(controller.image) == expected, decided)
        hold(node.image is image, f"node {node.node_id} serves another image than that of its quorum")

    def _check_snapshots(self, member: "SimNode") -> None:
        """Those on its disk, whether it is up or not: what has the name of a snapshot is one, and is synced."""
        try:
            names = member.disks.medium.folder(member.metadata_folder).names
        except FileNotFoundError:
            return  # a disk that was replaced, and has nothing on it yet
        for name, file in names.items():
            parsed, place = parse_snapshot_name(name), (member.number, member.life, name)
            if not isinstance(file, File) or parsed is None or parsed[1] or file.is_rotten or place in self._looked_at:
                continue
            self._looked_at[place] = None
            self._check_snapshot(f"the snapshot {name} of node {member.number}", parsed[0], file)

    def _check_snapshot(self, what: str, snapshot: SnapshotId, file: File) -> None:
        hold(not file.unsynced, f"{what} is not synced")
        try:
            records = decode_snapshot(bytes(file.content)).records
        except CorruptSnapshot as error:
            raise Violated(f"{what} cannot be read: {error}") from error
        image = MetadataImage()
        for record in records:
            image.replay(record)
        said = digest(image)
        known = self.snapshots.setdefault(snapshot, said)
        hold(known == said, f"{what} is not that of others")
        expected = self.reference.digest_at(snapshot.offset - 1)
        hold(expected in (None, said), f"{what} is not what the log says")

    def check_beginning(self, node: Node) -> None:
        """A node that begins knows what the snapshot says that it was loaded from."""
        image, loaded = node.quorum.image, node.quorum.metadata_log.loaded
        known = None if loaded is None or image.offset != loaded[0].offset - 1 else self.snapshots.get(loaded[0])
        begins = f"node {node.node_id} begins with an image that is not what its snapshot said when it was written"
        hold(known is None or digest(image) == known, begins)

    def _check_start(self, node: Node, quorum: Quorum) -> None:
        start, snapshots = quorum.log.start_offset, quorum.metadata_log.snapshots
        hold(
            start == 0 or any(snapshot.offset >= start for snapshot in snapshots),
            f"the metadata log of node {node.node_id} starts at {start}, and there is no snapshot there",
        )

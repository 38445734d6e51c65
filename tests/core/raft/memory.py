"""A metadata log in memory that forgets what was not synced, and the voters of a test."""

from typing import NamedTuple
from zlib import crc32

from odradek.core.raft.batches import SnapshotId, decode_snapshot, encode_snapshot, read_batch
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.voters import Voter, VoterSet, parse_voters
from odradek.wire.batch import headers
from odradek.wire.records import Record, build
from odradek.wire.varint import Buffer

CLUSTER_ID = "mCGyQBd0S4SkqXBYfqL7Rg"
LISTENER = "CONTROLLER"


def directory_of(node_id: int, life: int = 0) -> bytes:
    return bytes([life + 1] * 8) + node_id.to_bytes(8, "big")


def voter_of(node_id: int) -> Voter:
    return Voter(node_id, directory_of(node_id), ((LISTENER, f"node-{node_id}", 9093),))


def voters_of(*node_ids: int) -> VoterSet:
    return VoterSet(tuple(voter_of(node_id) for node_id in node_ids))


def fixed_voters_of(*node_ids: int) -> VoterSet:
    """Voters of controller.quorum.voters, which does not name their folders."""
    return parse_voters(",".join(f"{node_id}@node-{node_id}:9093" for node_id in node_ids), LISTENER)


def data_batch(base_offset: int, epoch: int, value: bytes = b"x") -> bytes:
    return bytes(build([Record(base_offset, 0, None, value)], base_offset=base_offset, leader_epoch=epoch))


def snapshot_bytes(snapshot: SnapshotId, kraft_version: int, voters: VoterSet | None) -> bytes:
    pieces = encode_snapshot([], epoch=snapshot.epoch, now_ms=0, timestamp_ms=0, kraft_version=kraft_version, voters=voters)
    return b"".join(pieces)


class Batch(NamedTuple):
    base_offset: int
    end_offset: int
    epoch: int
    data: bytes

    @property
    def crc(self) -> int:
        return crc32(self.data)


class MemoryLog:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.start = SnapshotId(0, 0)  # where the log begins, and after which epoch
        self.synced_offset = 0

    @property
    def start_offset(self) -> int:
        return self.start.offset

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start.epoch

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        return min(self.snapshots, default=None)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        found = self.start.epoch, self.start.offset
        for batch in self.batches:
            if batch.epoch > epoch:
                break
            found = batch.epoch, batch.end_offset
        return found

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return len(self.snapshots[snapshot]) if snapshot in self.snapshots else None

    # -- what a host does with it

    def append(self, records: Buffer) -> None:
        for position, header in headers(records):
            assert header.base_offset == self.end_offset
            assert header.leader_epoch >= self.last_epoch
            data = bytes(memoryview(records)[position : position + header.size])
            self.batches.append(Batch(header.base_offset, header.last_offset + 1, header.leader_epoch, data))

    def truncate(self, end_offset: int) -> None:
        while self.batches and self.batches[-1].end_offset > end_offset:
            self.batches.pop()
        self.synced_offset = min(self.synced_offset, self.end_offset)

    def read(self, offset: int, bytes_max: int) -> bytes:
        found = [batch.data for batch in self.batches if batch.base_offset >= offset]
        taken: list[bytes] = []
        size = 0
        for data in found:
            if taken and size + len(data) > bytes_max:
                taken.append(data[: bytes_max - size])  # a log is read by bytes: the last batch may be cut
                break
            taken.append(data)
            size += len(data)
        return b"".join(taken)

    def begin_at(self, snapshot: SnapshotId, data: bytes) -> None:
        """All that was there gives way to a snapshot."""
        self.snapshots = {snapshot: data}
        self.batches = []
        self.start = snapshot
        self.synced_offset = snapshot.offset

    def take_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """A snapshot of what the log holds; the log before it goes."""
        self.snapshots = {snapshot: data}
        self.batches = [batch for batch in self.batches if batch.base_offset >= snapshot.offset]
        self.start = snapshot

    def epoch_before(self, offset: int) -> int:
        found = [batch.epoch for batch in self.batches if batch.end_offset <= offset]
        return found[-1] if found else self.start.epoch

    def history(self, static_voters: VoterSet, formatted: VoterSet | None) -> VoterHistory:
        """What a start reads of it. `formatted` is what the snapshot of formatting says."""
        history = VoterHistory(static_voters)
        newest = self.newest_snapshot
        if newest is not None:
            snapshot = decode_snapshot(self.snapshots[newest])
            history.note_snapshot(newest, snapshot.kraft_version, snapshot.voters)
        elif formatted is not None:
            history.note_snapshot(SnapshotId(0, 0), 1, formatted)
        for batch in self.batches:
            for position, header in headers(batch.data):
                if header.is_control:
                    for offset, message in read_batch(batch.data, position, header).records:
                        history.note(offset, message)
        return history

"""The folder `__cluster_metadata-0`: the log of the metadata, its snapshots, and the vote of this node.

Kafka's own files. Nothing here waits; the quorum decides which thread does what.

Invariants
 1. Where the log does not begin at 0, a sound snapshot ends at its start or behind it. Snapshots and segments go only when a
    newer sound snapshot stands for them.
 2. A snapshot is there as a whole or not at all: it is written to `.part`, synced, renamed, and the folder synced.
 3. A snapshot that is not sound is passed over and left where it is; if nothing else tells what it told, the node does not start.
 4. What a sound snapshot holds was committed, so it was synced: nothing below its end is ever cut off the log.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from uuid import UUID

import msgspec

from odradek.core.raft.batches import (
    CorruptSnapshot,
    Entries,
    Snapshot,
    SnapshotId,
    decode_snapshot,
    parse_snapshot_name,
    read_batch,
    snapshot_timestamp_ms,
)
from odradek.core.raft.election import QUORUM_STATE, Election
from odradek.log.checkpoint import PARTITION_METADATA, read_partition_metadata, write_partition_metadata
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull, replace_file
from odradek.log.folder import METADATA_LOG
from odradek.log.loading import open_log
from odradek.wire.errors import ProtocolError

METADATA_TOPIC_ID = UUID(int=1)
PART = ".part"
DELETED = ".deleted"


class MetadataLost(Exception):
    """The folder does not tell what the cluster is: it says which file is broken, and what to do."""


class MetadataLogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings `metadata.log.*` and `metadata.max.*`, with Kafka's defaults."""

    segment_bytes: int = 2**30
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_record_bytes_between_snapshots: int = 20 * 2**20
    max_snapshot_interval_ms: int = 3600 * 1000
    max_retention_bytes: int = 100 * 2**20
    max_retention_ms: int = 7 * 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000


def create_metadata_folder(disk: Disk, data_folder: str) -> str:
    """The folder of the metadata log, empty but for the id of its topic."""
    folder = f"{data_folder}/{METADATA_LOG}"
    disk.make_folder(folder)
    disk.sync_folder(data_folder)
    path = f"{folder}/{PARTITION_METADATA}"
    if read_partition_metadata(disk, path) is None:
        write_partition_metadata(disk, path, METADATA_TOPIC_ID)
    return folder


def write_snapshot(disk: Disk, folder: str, snapshot: SnapshotId, batches: Iterable[bytes | bytearray]) -> int:
    """Writes a snapshot, on any thread; gives its size."""
    path = f"{folder}/{snapshot.name}"
    disk.remove(path + PART)
    file = disk.open(path + PART, create=True)
    try:
        for batch in batches:
            file.append([batch])
    except DiskFull:
        disk.remove(path + PART)
        raise
    file.sync()
    disk.rename(path + PART, path)
    disk.sync_folder(folder)
    return file.size


class MetadataLog:
    def __init__(self, disk: Disk, data_folder: str, config: MetadataLogConfig, now_ms: int) -> None:
        """Opens what is there, or begins anew. MetadataLost when a part of it is missing."""
        self.disk = disk
        self.config = config
        self.folder = create_metadata_folder(disk, data_folder)
        self.deletions: list[tuple[int, str]] = []
        self.snapshots = self._find_snapshots()
        self.loaded = self._newest_sound()  # the snapshot that the log is read after
        self.log = open_log(
            disk,
            self.folder,
            LogConfig(
                segment_bytes=config.segment_bytes,
                segment_ms=config.segment_ms,
                file_delete_delay_ms=config.file_delete_delay_ms,
                retention_ms=-1,
                retention_bytes=-1,
            ),
            now_ms=now_ms,
            clean=False,
            recovery_point=self.loaded[0].offset if self.loaded else 0,
        )
        self._check_complete(now_ms)
        if self.loaded and self.loaded[0].offset == self.log.start_offset:
            self._drop_before(self.loaded[0])  # a crash came in between
        for name in self._names(PART, DELETED):
            disk.remove(f"{self.folder}/{name}")
        self._sync(now_ms)

    def _sync(self, now_ms: int) -> None:
        """What a process that was killed has left may be in memory only: from now on others are told of it, and of the vote."""
        flush = self.log.start_flush()
        flush.run()
        with suppress(DiskFull):  # of small files, as always
            self.log.finish_flush(flush, now_ms)
        self.disk.sync_folder(self.folder)

    def _names(self, *endings: str) -> list[str]:
        parsed = ((name, parse_snapshot_name(name)) for name, _ in self.disk.names(self.folder))
        return [name for name, found in parsed if found is not None and found[1] in endings]

    def _find_snapshots(self) -> list[SnapshotId]:
        parsed = [parse_snapshot_name(name) for name in self._names("")]
        return sorted(found[0] for found in parsed if found is not None)

    def _newest_sound(self) -> tuple[SnapshotId, Snapshot] | None:
        self.unsound: dict[SnapshotId, str] = {}
        for snapshot in reversed(self.snapshots):
            try:
                return snapshot, self.read_snapshot(snapshot)
            except CorruptSnapshot as error:
                self.unsound[snapshot] = str(error)
        return None

    def read_snapshot(self, snapshot: SnapshotId) -> Snapshot:
        return decode_snapshot(self.disk.read(f"{self.folder}/{snapshot.name}"))

    def _check_complete(self, now_ms: int) -> None:
        """Refuses a folder with a hole between snapshot and log."""
        log = self.log
        if log.damage is not None:
            raise MetadataLost(
                f"{self.folder} is damaged at offset {log.damage.offset} ({log.damage.reason}), below what was committed: "
                "restore the folder from a copy"
            )
        begin = self.loaded[0].offset if self.loaded else 0
        newest_unsound = max(self.unsound, default=None)
        needed = newest_unsound.offset if newest_unsound else 0
        if log.start_offset > begin or log.end_offset < needed:
            broken = "; ".join(f"{snapshot.name}: {reason}" for snapshot, reason in self.unsound.items())
            raise MetadataLost(
                f"{self.folder} has the log from offset {log.start_offset} to {log.end_offset}, and no sound snapshot "
                f"{'up to its start' if log.start_offset > begin else 'of its end'} ({broken or 'there is none'}): "
                "restore the folder from a copy"
            )
        if self.loaded and (begin > log.end_offset or self.loaded[0].epoch > max(log.epochs.latest_epoch, 0)):
            log.reset_to(begin, now_ms)  # a follower had fetched the snapshot, and not yet let go of its log

    # -- what the quorum asks

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_epoch(self) -> int:
        """Of the last record, or of the snapshot that an empty log begins with."""
        return max(self.log.epochs.latest_epoch, self.snapshots[-1].epoch if self.snapshots else 0, 0)

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        return next(iter(self._sound), None)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return self._sound[-1] if self._sound else None

    @property
    def _sound(self) -> list[SnapshotId]:
        return [snapshot for snapshot in self.snapshots if snapshot not in self.unsound]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to this one, and where it ends; a snapshot at the start counts as a record of its epoch."""
        found = self.log.epochs.end_offset_for(epoch, self.log.end_offset)
        oldest = self.oldest_snapshot
        if oldest is not None and oldest.offset == self.log.start_offset and (found[0] < 0 or found[1] <= oldest.offset):
            return oldest.epoch, oldest.offset
        return found if found[0] >= 0 else (self.last_epoch, self.log.end_offset)

    def snapshot_size(self, snapshot: SnapshotId) -> int | None:
        return None if snapshot not in self._sound else self.disk.open(f"{self.folder}/{snapshot.name}").size

    def snapshot_bytes(self, snapshot: SnapshotId, position: int, bytes_max: int) -> bytes:
        return self.disk.open(f"{self.folder}/{snapshot.name}").read(position, bytes_max)

    def took(self, snapshot: SnapshotId) -> bool:
        """One that was made here is written. False when the log begins behind it by now: then it is of no use."""
        if snapshot.offset < self.log.start_offset:
            self.disk.remove(f"{self.folder}/{snapshot.name}")
            return False
        self.snapshots.append(snapshot)
        return True

    # -- a snapshot that the leader sends

    def write_part(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """A piece of it, in order; position 0 begins anew."""
        path = f"{self.folder}/{snapshot.name}{PART}"
        if position == 0:
            self.disk.remove(path)
        file = self.disk.open(path, create=True)
        assert file.size == position
        file.append([data])

    def finish_part(self, snapshot: SnapshotId) -> Snapshot:
        """All of it is there: checks and syncs it, on any thread. CorruptSnapshot when it is not sound."""
        path = f"{self.folder}/{snapshot.name}"
        loaded = decode_snapshot(self.disk.read(path + PART))
        self.disk.open(path + PART).sync()
        self.disk.rename(path + PART, path)
        self.disk.sync_folder(self.folder)
        return loaded

    def begin_at(self, snapshot: SnapshotId, now_ms: int) -> None:
        """The log goes on behind a snapshot, which stands for all that was before."""
        self.snapshots = sorted({*self.snapshots, snapshot})
        self.log.reset_to(snapshot.offset, now_ms)
        self._drop_before(snapshot)

    def _drop_before(self, start: SnapshotId) -> None:
        """Snapshots that end before the log begins are of no use; they would stand in the way of letting go of later ones."""
        for snapshot in [found for found in self.snapshots if found < start]:
            self.disk.remove(f"{self.folder}/{snapshot.name}")
            self.snapshots.remove(snapshot)
            self.unsound.pop(snapshot, None)

    def entries(self, offset: int) -> Iterator[Entries]:
        """What the log holds from an offset on."""
        for segment, position, header in self.log.batches(offset):
            batch = segment.file.read(position, header.size)
            try:
                yield read_batch(batch, 0, header)
            except ProtocolError as error:
                raise MetadataLost(
                    f"{self.folder} has records at offset {header.base_offset} that this version does not know ({error}): "
                    "start a version that knows them, or the Apache Kafka that wrote them"
                ) from error

    # -- the vote

    def read_election(self) -> Election:
        try:
            return Election.of(self.disk.read(f"{self.folder}/{QUORUM_STATE}"))
        except FileNotFoundError:
            return Election()

    def write_election(self, election: Election, kraft_version: int, voter_ids: list[int]) -> None:
        replace_file(self.disk, f"{self.folder}/{QUORUM_STATE}", election.to_json(kraft_version, voter_ids))

    # -- what has had its time

    def clean(self, now_ms: int) -> None:
        """Lets go of snapshots, and of the log before the next one, as `metadata.max.retention.bytes` and `.ms` say."""
        self._clean_by_size(now_ms)
        self._clean_by_age(now_ms)
        self.delete_due(now_ms)

    def _clean_by_size(self, now_ms: int) -> None:
        if self.config.max_retention_bytes < 0:
            return
        sizes = dict(self.disk.names(self.folder))
        total = sum(sizes.get(snapshot.name, 0) for snapshot in self.snapshots)

        def is_due(snapshot: SnapshotId) -> bool:
            nonlocal total
            if self.log.size + total <= self.config.max_retention_bytes:
                return False
            total -= sizes.get(snapshot.name, 0)
            return True

        self._clean_while(is_due, now_ms)

    def _clean_by_age(self, now_ms: int) -> None:
        if self.config.max_retention_ms < 0:
            return

        def is_due(snapshot: SnapshotId) -> bool:
            with suppress(CorruptSnapshot):
                timestamp_ms = snapshot_timestamp_ms(self.disk.map(f"{self.folder}/{snapshot.name}"))
                return now_ms - timestamp_ms > self.config.max_retention_ms
            return False

        self._clean_while(is_due, now_ms)

    def _clean_while(self, is_due: Callable[[SnapshotId], bool], now_ms: int) -> None:
        """Deletes the oldest snapshots and moves the log's start up to the next one; the newest always stays."""
        for oldest, following in pairwise(self._sound):
            if not is_due(oldest) or following.offset <= self.log.start_offset:
                return
            self.log.move_start(following.offset)
            self.log.delete_expired(now_ms)
            for snapshot in [found for found in self.snapshots if found < following]:
                path = f"{self.folder}/{snapshot.name}"
                self.disk.rename(path, path + DELETED)
                self.deletions.append((now_ms + self.config.file_delete_delay_ms, path + DELETED))
                self.snapshots.remove(snapshot)
                self.unsound.pop(snapshot, None)

    def delete_due(self, now_ms: int) -> None:
        """Removes files that nobody can be reading any more."""
        self.log.delete_due(now_ms)
        for _, path in [entry for entry in self.deletions if entry[0] <= now_ms]:
            self.disk.remove(path)
        self.deletions = [entry for entry in self.deletions if entry[0] > now_ms]

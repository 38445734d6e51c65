"""The metadata quorum of one voter: appends records to the metadata log, syncs them, and says when they are committed.

A record is committed when it is on disk. Syncs run on a thread, one at a time; what is appended meanwhile is in the next one. The
image of what is committed is here, and so are the snapshots that are made of it.

Invariants
 1. Every start begins a new epoch, and its vote is on disk before anything is appended in it.
 2. `image` and `on_commit` see only what is synced, in the order of the log, a batch at a time.
 3. A failed sync ends it: nothing is committed any more, and everybody who waits is told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from odradek.core.config.broker import BrokerConfig
from odradek.core.metadata.features import check_levels
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.snapshot import snapshot_records
from odradek.core.raft.batches import (
    BATCH_BYTES_MAX,
    SnapshotId,
    control_batch,
    encode_snapshot,
    leader_change,
    metadata_batch,
    voters_messages,
)
from odradek.core.raft.election import candidacy, leadership
from odradek.core.raft.voters import Voter, VoterSet, parse_voters
from odradek.log.disk import Disk, DiskFailed, DiskFull
from odradek.log.log import Origin
from odradek.node.metadata_log import MetadataLog, MetadataLogConfig, write_snapshot
from odradek.node.reserve import Reserve
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import KRaftVersionRecord, NoOpRecord, VotersRecord

Committed = Callable[[list[tuple[int, Message]]], None]
Result = TypeVar("Result")

logger = logging.getLogger("odradek.quorum")


class QuorumError(Exception):
    """This node cannot be the voter that its folder or its configuration speaks of."""


class QuorumConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    directory_id: bytes
    endpoints: tuple[tuple[str, str, int], ...]  # of the controller's listeners: name, host, port
    static_voters: str = ""  # controller.quorum.voters
    log: MetadataLogConfig = MetadataLogConfig()

    @classmethod
    def of(cls, config: BrokerConfig, directory_id: bytes, endpoints: Sequence[tuple[str, str, int]]) -> "QuorumConfig":
        return cls(
            node_id=config.node_id,
            directory_id=directory_id,
            endpoints=tuple(endpoints),
            static_voters=",".join(config.names("controller.quorum.voters")),
            log=MetadataLogConfig(
                segment_bytes=config.integer("metadata.log.segment.bytes"),
                segment_ms=config.integer("metadata.log.segment.ms"),
                max_record_bytes_between_snapshots=config.integer("metadata.log.max.record.bytes.between.snapshots"),
                max_snapshot_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
                max_retention_bytes=config.integer("metadata.max.retention.bytes"),
                max_retention_ms=config.integer("metadata.max.retention.ms"),
            ),
        )


class Appended(NamedTuple):
    """A batch that waits for its sync."""

    base_offset: int
    records: list[Message]
    next_offset: int
    size: int
    timestamp_ms: int


class Quorum:
    def __init__(
        self, disk: Disk, data_folder: str, config: QuorumConfig, now_ms: Callable[[], int], reserve: Reserve | None = None
    ) -> None:
        """Reads what the folder says. MetadataLost, QuorumError or UnsupportedFeature when that cannot be served."""
        self.disk = disk
        self.reserve = reserve
        self.config = config
        self.now_ms = now_ms
        self.metadata_log = MetadataLog(disk, data_folder, config.log, now_ms())
        self.log = self.metadata_log.log
        self.image = MetadataImage()
        self.kraft_version = 0
        self.voters: VoterSet | None = None
        self.voters_offset = -1  # of the record that names them; -1 when only the first snapshot does
        self.bytes_since_snapshot = 0
        self._load()
        check_levels(self.image.features)
        self.voters = self._checked_voters()
        self.epoch = -1
        self.failure: BaseException | None = None
        self._failed: list[Callable[[BaseException], None]] = []
        self._callbacks: list[Committed] = []
        self._appended: deque[Appended] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._snapshot_time = 0.0
        self._idle_since = -1  # the end of the log at the last look

    # -- loading

    def _load(self) -> None:
        offset = 0
        if self.metadata_log.loaded is not None:
            found, snapshot = self.metadata_log.loaded
            offset = found.offset
            self.kraft_version, self.voters = snapshot.kraft_version, snapshot.voters
            self.voters_offset = offset - 1
            for record in snapshot.records:
                self.image.replay(record)
            self.image.advance(offset - 1, found.epoch, snapshot.timestamp_ms)
        for entries in self.metadata_log.entries(offset):
            header = entries.header
            for at, message in entries.records:
                if not entries.is_control:
                    self.image.replay(message)
                elif isinstance(message, KRaftVersionRecord):
                    self.kraft_version = message.kraft_version
                elif isinstance(message, VotersRecord):
                    self.voters, self.voters_offset = VoterSet.of(message), at
            self.image.advance(header.last_offset, header.leader_epoch, header.max_timestamp)
            self.bytes_since_snapshot += header.size

    @property
    def is_new(self) -> bool:
        """Whether the log tells nothing of a cluster yet."""
        return not self.image.features

    def _checked_voters(self) -> VoterSet:
        config = self.config
        if self.kraft_version == 0:
            if not config.static_voters:
                raise QuorumError(
                    f"{self.metadata_log.folder} does not say who votes: set controller.quorum.voters as it was when the folder "
                    "was formatted, or format a new folder"
                )
            voters = parse_voters(config.static_voters, config.endpoints[0][0])
        else:
            assert self.voters is not None
            voters = self.voters
        voter = voters.find(config.node_id)
        if voter is None or (self.kraft_version and voter.directory_id != config.directory_id):
            raise QuorumError(
                f"node.id={config.node_id} with the directory.id of its meta.properties is no voter of "
                f"{self.metadata_log.folder}, which has {voters.ids}: start the node that the folder belongs to"
            )
        if len(voters.voters) > 1:
            raise QuorumError(f"the metadata quorum has the voters {voters.ids}, and only one is served yet")
        return voters

    # -- leading

    async def start(self) -> None:
        """Becomes the leader of a new epoch; when it is done, all that was loaded is committed."""
        assert self.voters is not None
        config, log = self.config, self.metadata_log
        won = candidacy(log.read_election(), log.latest_epoch, config.node_id, config.directory_id)
        for election in (won, leadership(won)):
            self._with_reserve(partial(log.write_election, election, self.kraft_version, self.voters.ids))
        self.epoch = won.epoch
        messages = [leader_change(config.node_id, self.voters.ids)]
        here = Voter(config.node_id, config.directory_id, config.endpoints)
        if self.kraft_version and (self.voters_offset < 0 or self.voters.find(config.node_id) != here):
            self.voters = self.voters.with_voter(here)
            messages += voters_messages(self.kraft_version, self.voters)
            self.voters_offset = self.log.end_offset + len(messages) - 1
        now_ms = self.now_ms()
        batch = control_batch(messages, base_offset=self.log.end_offset, epoch=self.epoch, now_ms=now_ms)
        self._snapshot_time = asyncio.get_running_loop().time()
        await self.commit(self._append(batch, [], now_ms))
        log.clean(self.now_ms())

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.end_offset

    @property
    def committed_offset(self) -> int:
        """The offset up to which everything is committed."""
        return self.log.high_watermark

    def append(self, records: Sequence[tuple[Message, int]]) -> int:
        """Appends records as one batch; gives the offset of the last. Refused when there is no room: then nothing has changed."""
        assert records
        assert self.epoch >= 0, "start comes first"
        now_ms = self.now_ms()
        batch = metadata_batch(records, base_offset=self.log.end_offset, epoch=self.epoch, now_ms=now_ms)
        if len(batch) > BATCH_BYTES_MAX:
            reason = f"the records of this request have {len(batch)} bytes, and the metadata log takes {BATCH_BYTES_MAX} at once"
            raise Refused(ErrorCode.POLICY_VIOLATION, reason)
        return self._append(batch, [record for record, _ in records], now_ms)

    def append_if_idle(self) -> None:
        """To be called now and then: an empty record when nothing was appended since the last call, so that who follows sees how
        far behind it is. It is not worth the reserve: without room there is none."""
        if self.log.end_offset == self._idle_since and self.failure is None:
            nothing, now_ms = NoOpRecord(), self.now_ms()
            batch = metadata_batch([(nothing, 0)], base_offset=self.log.end_offset, epoch=self.epoch, now_ms=now_ms)
            with suppress(Refused, DiskFailed):  # of which the node hears otherwise
                self._append(batch, [nothing], now_ms, with_reserve=False)
        self._idle_since = self.log.end_offset

    def _append(self, batch: bytearray, records: list[Message], now_ms: int, *, with_reserve: bool = True) -> int:
        if self.failure is not None:
            raise self.failure
        size = len(batch)
        append = partial(self.log.append, batch, leader_epoch=self.epoch, now_ms=now_ms, origin=Origin.RAFT)
        try:
            appended = self._with_reserve(append) if with_reserve else append()
        except DiskFull as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {self.metadata_log.folder} is full") from error
        except DiskFailed as error:
            self._fail(error)
            raise
        self._appended.append(Appended(appended.first_offset, records, appended.last_offset + 1, size, now_ms))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._ended)
        return appended.last_offset

    def _with_reserve(self, work: Callable[[], Result]) -> Result:
        return work() if self.reserve is None else self.reserve.first(work)

    async def commit(self, offset: int) -> None:
        """Waits until everything up to an offset is committed, and `image` and `on_commit` know of it."""
        if self.failure is not None:
            raise self.failure
        if offset >= self.committed_offset:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, done))  # offsets only grow, but for one that waits for what others appended
            await done

    def on_commit(self, callback: Committed) -> None:
        """Has committed records handed over, a batch at a time: each with its offset."""
        self._callbacks.append(callback)

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Says when the disk has failed: the node has to end without its clean mark."""
        self._failed.append(callback)

    async def _flush(self) -> None:
        """Syncs until nothing is left to sync."""
        loop = asyncio.get_running_loop()
        try:
            while self._appended:
                flush = self.log.start_flush()
                await loop.run_in_executor(None, flush.run)
                with suppress(DiskFull):  # of small files, which a start can do without: the records themselves are synced
                    self.log.finish_flush(flush, self.now_ms())
                self._advance(flush.offset)
        finally:
            self._flushing = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that failed, of whatever, fails the quorum: nobody knows what it left undone."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _advance(self, offset: int) -> None:
        self.log.move_high_watermark(offset)
        while self._appended and self._appended[0].next_offset <= offset:
            batch = self._appended.popleft()
            for record in batch.records:
                self.image.replay(record)
            self.image.advance(batch.next_offset - 1, self.epoch, batch.timestamp_ms)
            self.bytes_since_snapshot += batch.size
            if batch.records:
                entries = list(enumerate(batch.records, start=batch.base_offset))
                for callback in self._callbacks:
                    callback(entries)
        still: deque[tuple[int, asyncio.Future[None]]] = deque()
        for waited, done in self._waiting:
            if waited >= offset:
                still.append((waited, done))
            elif not done.done():
                done.set_result(None)
        self._waiting = still
        self._snapshot_if_due()

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(error)
        self._waiting.clear()
        for callback in self._failed:
            callback(error)

    # -- snapshots

    def _snapshot_if_due(self) -> None:
        loop = asyncio.get_running_loop()
        waited_ms = (loop.time() - self._snapshot_time) * 1000
        interval_ms = self.config.log.max_snapshot_interval_ms
        is_large = self.bytes_since_snapshot >= self.config.log.max_record_bytes_between_snapshots
        if self._snapshotting is None and not self.is_new and (is_large or 0 < interval_ms <= waited_ms):
            self._snapshotting = loop.create_task(self._snapshot())
            self._snapshotting.add_done_callback(self._ended)

    async def _snapshot(self) -> None:
        """Writes what is committed now to a snapshot, and lets go of what it stands for."""
        loop = asyncio.get_running_loop()
        try:
            await self.take_snapshot()
            self.metadata_log.clean(self.now_ms())
        except DiskFull:  # the log goes on without; the next one may find room
            self.bytes_since_snapshot = 0
        finally:
            self._snapshot_time = loop.time()
            self._snapshotting = None

    async def take_snapshot(self) -> SnapshotId | None:
        """A snapshot of the image; None when there is one already."""
        image = self.image
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        self.bytes_since_snapshot = 0
        if snapshot in self.metadata_log.snapshots:
            return None
        batches = encode_snapshot(
            list(snapshot_records(image)),
            epoch=image.epoch,
            now_ms=self.now_ms(),
            timestamp_ms=image.timestamp_ms,
            kraft_version=self.kraft_version,
            voters=self.voters if self.kraft_version else None,
        )
        write = partial(write_snapshot, self.disk, self.metadata_log.folder, snapshot, batches)
        await asyncio.get_running_loop().run_in_executor(None, write)
        self.metadata_log.snapshots.append(snapshot)
        return snapshot

    def expire(self) -> None:
        """To be called now and then: removes what has had its time."""
        with suppress(DiskFull):  # of names; the next time there may be room
            self.metadata_log.clean(self.now_ms())

    async def close(self) -> None:
        """Waits for what is under way, and leaves the folder as a clean stop does."""
        under_way = [task for task in (self._flushing, self._snapshotting) if task is not None]
        await asyncio.gather(*under_way, return_exceptions=True)
        if self.failure is None:
            try:
                self.log.close(self.now_ms())
            except DiskFull:
                logger.error("%s: there is no room on the disk to stop cleanly; nothing is lost", self.metadata_log.folder)
            self.metadata_log.delete_due(self.now_ms())

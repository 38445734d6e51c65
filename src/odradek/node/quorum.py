"""This node in the metadata quorum: it does what the machine of the quorum (core/raft) decides.

The log, its snapshots and the vote are on disk here; what is committed is in `image`, and told to `on_commit`. A node that votes
may come to lead; one that does not only follows. A single voter is a quorum like any other: it elects itself.

Invariants
 1. The effects of one input are done in their order, before the next input.
 2. `image` and `on_commit` see only what is committed, in the order of the log, a batch at a time.
 3. A failed sync ends it: nothing is committed any more, and everybody who waits is told.
 4. Who waits for a commit learns when this node leads no more: whether the record is ever committed, nobody knows then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from odradek.api.context import Context
from odradek.core.metadata.features import check_levels
from odradek.core.metadata.image import MetadataImage
from odradek.core.raft.batches import (
    BATCH_BYTES_MAX,
    CorruptSnapshot,
    Entries,
    Snapshot,
    SnapshotId,
    control_batch,
    metadata_batch,
)
from odradek.core.raft.effects import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    Append,
    AppendControl,
    BecameLeader,
    Effect,
    HighWatermark,
    InstallSnapshot,
    LeaderIs,
    LostLeadership,
    Persist,
    Probe,
    QuorumBroken,
    Send,
    Truncate,
    WriteSnapshot,
)
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.machine import Raft
from odradek.core.raft.states import NEVER_MS
from odradek.core.raft.voters import VoterSet, parse_voters
from odradek.log.disk import Disk, DiskFailed, DiskFull
from odradek.log.log import Origin
from odradek.node.machine import Machine
from odradek.node.metadata_log import MetadataLog
from odradek.node.peers import Channel, Unreachable, is_listening
from odradek.node.quorum_config import QuorumConfig
from odradek.node.reserve import Reserve
from odradek.node.snapshots import Snapshots
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import FeatureLevelRecord, FetchRequest, FetchSnapshotRequest, NoOpRecord

PROBE_MS: Final = 1000
RESIGN_MS: Final = 500

Committed = Callable[[list[tuple[int, Message]]], None]
Result = TypeVar("Result")

logger = logging.getLogger("odradek.quorum")


class QuorumError(Exception):
    """This node cannot be the voter that its folder or its configuration speaks of."""


class Appended(NamedTuple):
    """A batch that this node has appended as the leader, and that is not committed yet."""

    base_offset: int
    records: list[Message]
    next_offset: int
    size: int
    timestamp_ms: int


class Quorum:
    def __init__(self, disk: Disk, data_folder: str, config: QuorumConfig, host: Machine, reserve: Reserve | None = None) -> None:
        """Reads what the folder says. MetadataLost, QuorumError or UnsupportedFeature when that cannot be served."""
        self.disk = disk
        self.reserve = reserve
        self.config = config
        self.host = host
        self.now_ms = now_ms = host.wall_ms
        self.metadata_log = MetadataLog(disk, data_folder, config.log, now_ms())
        self.log = self.metadata_log.log
        self.image = MetadataImage()
        static = parse_voters(config.static_voters, config.listener) if config.static_voters else VoterSet(())
        history = VoterHistory(static)
        self._load(history)
        self._check_voters(history)
        self.machine = Raft(config.raft(), self.metadata_log, history, self.metadata_log.read_election(), host.random.randrange)
        self.snapshots = Snapshots(disk, self.metadata_log, self.image, self.machine, now_ms)
        self.leader = LeaderIs(-1, -1)
        self.is_active = False  # it leads, and all that was before its epoch is committed
        self.failure: BaseException | None = None
        self.on_active: Callable[[], None] = lambda: None
        self.on_inactive: Callable[[], None] = lambda: None
        self.on_voters: Callable[[], None] = lambda: None
        self.applied_offset = self.image.offset + 1  # of the next record that goes into the image
        self._epoch_start = 0
        self._failed: list[Callable[[BaseException], None]] = []
        self._callbacks: list[Committed] = []
        self._inputs: deque[Callable[[int], list[Effect]]] = deque()
        self._is_doing = False
        self._appended: deque[Appended] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._leader_waiters: dict[asyncio.Future[None], None] = {}
        self._channels: dict[tuple[int, str, int, bool], Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._idle_since = -1  # the end of the log at the last look
        if self.voters.ids == [config.node_id]:  # whatever the only voter has is committed
            self._apply(self.log.end_offset)

    # -- loading

    def _load(self, history: VoterHistory) -> None:
        """The snapshot is committed; what of the log behind it is, the quorum will say."""
        offset = 0
        if self.metadata_log.loaded is not None:
            found, snapshot = self.metadata_log.loaded
            offset = found.offset
            history.note_snapshot(found, snapshot.kraft_version, snapshot.voters)
            self._replay_snapshot(self.image, found, snapshot)
            self.log.move_high_watermark(max(found.offset, self.log.start_offset))
        for entries in self.metadata_log.entries(offset):
            for at, message in entries.records if entries.is_control else ():
                history.note(at, message)

    def _replay_snapshot(self, image: MetadataImage, found: SnapshotId, snapshot: Snapshot) -> None:
        for record in snapshot.records:
            image.replay(record)
        image.advance(found.offset - 1, found.epoch, snapshot.timestamp_ms)
        check_levels(image.features)

    def _check_voters(self, history: VoterHistory) -> None:
        config, voters = self.config, history.voters
        if history.kraft_version == 0 and not config.static_voters and config.endpoints and not config.bootstrap:
            raise QuorumError(
                f"{self.metadata_log.folder} does not say who votes: set controller.quorum.voters as it was when the folder "
                "was formatted, or format a new folder"
            )
        if not config.endpoints:
            return
        here = {(host, port) for _, host, port in config.endpoints}
        others = [voter for voter in voters.voters if voter.id != config.node_id]
        there = {(host, port) for voter in others for _, host, port in voter.endpoints} - here
        if voters.voters and not voters.is_voter(config.raft().key) and not there:  # nobody else can lead
            raise QuorumError(
                f"node.id={config.node_id} with the directory.id of its meta.properties is no voter of "
                f"{self.metadata_log.folder}, which has {voters.ids}: start the node that the folder belongs to"
            )

    @property
    def is_new(self) -> bool:
        """Whether the metadata tells nothing of a cluster yet."""
        return not self.image.features

    @property
    def epoch(self) -> int:
        return self.machine.epoch

    @property
    def voters(self) -> VoterSet:
        return self.machine.voters

    @property
    def kraft_version(self) -> int:
        return self.machine.kraft_version

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.log.end_offset

    @property
    def committed_offset(self) -> int:
        """The offset up to which everything is committed, as far as is known here."""
        return self.log.high_watermark

    # -- inputs and effects

    def start(self) -> None:
        """Takes part."""
        self._input(self.machine.start)
        self.snapshots.begin()

    def receive(self, request: Message, ctx: Context) -> None:
        """A request that is for the quorum; it is answered when the machine says so."""
        ctx.later()
        self._input(lambda now_ms: self.machine.receive(ctx.answer, request, ctx.version, now_ms, ctx.connection.listener))

    def _input(self, happened: Callable[[int], list[Effect]]) -> None:
        self._inputs.append(happened)
        if self._is_doing or self.failure is not None:
            return
        self._is_doing = True
        try:
            while self._inputs:
                for effect in self._inputs.popleft()(self._monotonic_ms()):
                    self._do(effect)
        except (DiskFull, DiskFailed, QuorumBroken) as error:
            self._fail(error)
        finally:
            self._is_doing = False
        self._set_timer()

    def _monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.machine.deadline_ms < NEVER_MS and self.failure is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self.machine.deadline_ms / 1000, self._input, self.machine.tick)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._spawn(self._send(effect))
            case Answer(ticket, response):
                ticket(response)  # type: ignore[operator]
            case AnswerFetch():
                partition = effect.response.responses[0].partitions[0]
                partition.records = self.log.read(effect.offset, effect.bytes_max, self.log.end_offset)
                effect.ticket(effect.response)  # type: ignore[operator]
            case AnswerSnapshot():
                part = effect.response.topics[0].partitions[0]
                part.unaligned_records = self.metadata_log.snapshot_bytes(effect.snapshot, effect.position, effect.bytes_max)
                effect.ticket(effect.response)  # type: ignore[operator]
            case Persist(election, kraft_version, voter_ids):
                self._with_reserve(partial(self.metadata_log.write_election, election, kraft_version, voter_ids))
            case AppendControl(messages, base_offset, epoch):
                now_ms = self.now_ms()
                batch = control_batch(messages, base_offset=base_offset, epoch=epoch, now_ms=now_ms)
                self._append(batch, [], epoch, now_ms)
                self.on_voters()  # they may be others now
            case Append(records, _):
                self._with_reserve(partial(self.log.append_as_follower, bytes(records), now_ms=self.now_ms()))
                self._flush_soon()
            case Truncate(end_offset):
                self._with_reserve(partial(self.log.truncate_to, end_offset, self.now_ms()))
                self._input(partial(self.machine.synced, self.log.end_offset))
            case WriteSnapshot(snapshot, position, data):
                self._write_part(snapshot, position, bytes(data))
            case InstallSnapshot(snapshot):
                self._spawn(self._install(snapshot))
            case BecameLeader(_, epoch_start):
                self._epoch_start = epoch_start
            case LostLeadership():
                self._lose_leadership()
            case LeaderIs():
                self._know_leader(effect)
            case HighWatermark(offset):
                self._advance(offset)
            case Probe(node):
                self._spawn(self._probe(node.id, node.host, node.port))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that failed, of whatever, fails the quorum: nobody knows what it left undone."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    # -- other nodes

    async def _send(self, send: Send) -> None:
        """Fetches, which a leader holds back, have a connection of their own: no vote waits behind one, or one behind a vote."""
        node = send.node
        is_fetch = isinstance(send.request, FetchRequest | FetchSnapshotRequest)
        key = (node.id, node.host, node.port, is_fetch)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(
                self.host, node.host, node.port, f"raft-{self.config.node_id}", partial(self._lost, node.id)
            )
        response = APIS[send.request.schema.key].response
        answer: Message | None = None
        is_refused = False
        try:
            answer = await channel.ask(send.request, response, self.config.request_timeout_ms)
        except Unreachable as error:
            is_refused = error.is_refused
        self._input(partial(self.machine.responded, send.correlation_id, answer))
        if is_refused:
            self._input(partial(self.machine.refused, node.id))

    def _lost(self, node_id: int) -> None:
        self._input(partial(self.machine.reset, node_id))

    async def _probe(self, node_id: int, host: str, port: int) -> None:
        if await is_listening(self.host, host, port, PROBE_MS) is False:
            self._input(partial(self.machine.refused, node_id))

    def _know_leader(self, leader: LeaderIs) -> None:
        if leader.is_known:
            logger.debug("node %d leads the quorum in epoch %d", leader.leader_id, leader.epoch)
        self.leader = leader
        waiters, self._leader_waiters = self._leader_waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def leader_changed(self, timeout_ms: float) -> None:
        """Until somebody else leads, or the time is over."""
        waiter = asyncio.get_running_loop().create_future()
        self._leader_waiters[waiter] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_ms / 1000):
                    await waiter
        finally:
            self._leader_waiters.pop(waiter, None)

    # -- leading

    def append(self, records: Sequence[tuple[Message, int]]) -> int:
        """Appends records as one batch; gives the offset of the last. Refused when this node does not lead, or has no room: then
        nothing has changed."""
        assert records
        if not self.machine.is_leader:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        now_ms, epoch = self.now_ms(), self.machine.epoch
        batch = metadata_batch(records, base_offset=self.log.end_offset, epoch=epoch, now_ms=now_ms)
        if len(batch) > BATCH_BYTES_MAX:
            reason = f"the records of this request have {len(batch)} bytes, and the metadata log takes {BATCH_BYTES_MAX} at once"
            raise Refused(ErrorCode.POLICY_VIOLATION, reason)
        try:
            return self._append(batch, [record for record, _ in records], epoch, now_ms)
        except DiskFull as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {self.metadata_log.folder} is full") from error
        except DiskFailed as error:
            self._fail(error)
            raise

    def upgrade(self, kraft_version: int) -> None:
        """Raises kraft.version: the voters of the settings go into the log."""
        self._input(partial(self.machine.upgrade, kraft_version))

    def append_if_idle(self) -> None:
        """To be called now and then: an empty record when nothing was appended since the last call, so that who follows sees how
        far behind it is. It is not worth the reserve: without room there is none."""
        if self.log.end_offset == self._idle_since and self.failure is None and self.is_active:
            nothing, now_ms, epoch = NoOpRecord(), self.now_ms(), self.machine.epoch
            batch = metadata_batch([(nothing, 0)], base_offset=self.log.end_offset, epoch=epoch, now_ms=now_ms)
            with suppress(DiskFull, DiskFailed):  # of which the node hears otherwise
                self._append(batch, [nothing], epoch, now_ms, with_reserve=False)
        self._idle_since = self.log.end_offset

    def _append(self, batch: bytearray, records: list[Message], epoch: int, now_ms: int, *, with_reserve: bool = True) -> int:
        if self.failure is not None:
            raise self.failure
        size = len(batch)
        append = partial(self.log.append, batch, leader_epoch=epoch, now_ms=now_ms, origin=Origin.RAFT)
        appended = self._with_reserve(append) if with_reserve else append()
        self._appended.append(Appended(appended.first_offset, records, appended.last_offset + 1, size, now_ms))
        self._flush_soon()
        self._input(self.machine.appended)
        return appended.last_offset

    def _with_reserve(self, work: Callable[[], Result]) -> Result:
        return work() if self.reserve is None else self.reserve.first(work)

    async def commit(self, offset: int) -> None:
        """Waits until everything up to an offset is committed, and `image` and `on_commit` know of it. Refused when this node
        leads no more: it may have lost that with the append, and what is committed at the offset is then another's."""
        if self.failure is not None:
            raise self.failure
        if not self.machine.is_leader:
            raise Refused(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller")
        if offset >= self.committed_offset:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, done))  # offsets only grow, but for one that waits for what others appended
            await done

    def _lose_leadership(self) -> None:
        self._appended.clear()
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(Refused(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller"))
        self._waiting.clear()
        if self.is_active:
            self.is_active = False
            self.on_inactive()

    # -- syncing and committing

    def _flush_soon(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())
            self._flushing.add_done_callback(self._ended)

    async def _flush(self) -> None:
        """Syncs until nothing is left to sync."""
        loop = asyncio.get_running_loop()
        synced = -1
        try:
            while synced < self.log.end_offset:
                flush, cuts = self._with_reserve(self.log.start_flush), self.log.cuts
                await loop.run_in_executor(None, flush.run)
                with suppress(DiskFull):  # of small files, which a start can do without: the records themselves are synced
                    self.log.finish_flush(flush, self.now_ms())
                synced = min(flush.offset, self.log.end_offset)
                if cuts == self.log.cuts:  # otherwise what was synced is gone in part, and the next round says how far it is
                    self._input(partial(self.machine.synced, synced))
        finally:
            self._flushing = None

    def _advance(self, offset: int) -> None:
        if offset > self.log.high_watermark:
            self.log.move_high_watermark(offset)
        self._apply(offset)
        still: deque[tuple[int, asyncio.Future[None]]] = deque()
        for waited, done in self._waiting:
            if waited >= offset:
                still.append((waited, done))
            elif not done.done():
                done.set_result(None)
        self._waiting = still
        if self.machine.is_leader and not self.is_active and offset > self._epoch_start:
            self.is_active = True
            self.on_active()
        if not self.is_new:
            self.snapshots.take_if_due(self._ended)

    def _apply(self, offset: int) -> None:
        """Replays what is committed: what this node appended itself it still has, everything else is in the log."""
        while self.applied_offset < offset:
            while self._appended and self._appended[0].base_offset < self.applied_offset:
                self._appended.popleft()
            if self._appended and self._appended[0].base_offset == self.applied_offset:
                batch = self._appended.popleft()
                records = list(enumerate(batch.records, start=batch.base_offset))
                self._replayed(records, batch.next_offset - 1, self.machine.epoch, batch.timestamp_ms, batch.size)
                continue
            before = self.applied_offset
            for entries in self.metadata_log.entries(before):
                if entries.header.last_offset >= offset or self._appended_begins_at(entries):
                    break
                header = entries.header
                records = [] if entries.is_control else entries.records
                self._replayed(records, header.last_offset, header.leader_epoch, header.max_timestamp, header.size)
            if self.applied_offset == before:
                raise QuorumBroken(
                    f"node {self.leader.leader_id} says that metadata is committed up to {offset}, and "
                    f"{self.metadata_log.folder} has no batch that ends there after {before}: one of the two folders is not of "
                    "this cluster or was set back; format the folder of the node that is wrong, and let it join anew"
                )

    def _appended_begins_at(self, entries: Entries) -> bool:
        return bool(self._appended) and self._appended[0].base_offset == entries.header.base_offset

    def _replayed(self, records: list[tuple[int, Message]], last_offset: int, epoch: int, timestamp_ms: int, size: int) -> None:
        for _, record in records:
            self.image.replay(record)
            if isinstance(record, FeatureLevelRecord):
                check_levels(self.image.features)
        self.applied_offset = last_offset + 1
        self.image.advance(last_offset, epoch, timestamp_ms)
        self.snapshots.bytes_since += size
        if records:
            for callback in self._callbacks:
                callback(records)

    def on_commit(self, callback: Committed) -> None:
        """Has committed records handed over, a batch at a time, each with its offset; none when a snapshot took their place."""
        self._callbacks.append(callback)

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Says when the disk has failed: the node has to end without its clean mark."""
        self._failed.append(callback)

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(error)
        self._waiting.clear()
        for callback in self._failed:
            callback(error)

    # -- snapshots of the leader

    def _write_part(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        try:
            self._with_reserve(partial(self.metadata_log.write_part, snapshot, position, data))
        except DiskFull as error:
            self._cannot_install(error)

    def _cannot_install(self, error: Exception) -> None:
        logger.warning("a snapshot of the leader cannot be used: %s", error)
        self._input(self.machine.install_failed)

    async def _install(self, snapshot: SnapshotId) -> None:
        """Begins anew at a snapshot that the leader sent."""
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(None, self.metadata_log.finish_part, snapshot)
        except (CorruptSnapshot, DiskFull, FileNotFoundError) as error:
            self._cannot_install(error)
            return
        image = MetadataImage()
        self._replay_snapshot(image, snapshot, loaded)
        self._with_reserve(partial(self.metadata_log.begin_at, snapshot, self.now_ms()))
        self.image.become(image)
        self.applied_offset = snapshot.offset
        self._input(partial(self.machine.installed, snapshot, loaded.kraft_version, loaded.voters))
        for callback in self._callbacks:
            callback([])

    # -- the end

    async def _resign(self) -> None:
        """Leads no more and does not campaign, and tells the others, so that one of them takes over at once."""
        self._input(self.machine.stop)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=RESIGN_MS / 1000)

    async def close(self) -> None:
        """Leaves the quorum, waits for what is under way, and leaves the folder as a clean stop does."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        if self.failure is None:
            await self._resign()
        if self._timer is not None:
            self._timer.cancel()
        for channel in self._channels.values():
            channel.close()
        under_way = [task for task in (self._flushing, self.snapshots.task) if task is not None]
        await asyncio.gather(*under_way, *self._tasks, return_exceptions=True)
        if self.failure is None:
            self.failure = QuorumError("the quorum is closed")
            try:
                self.log.close(self.now_ms())
            except DiskFull:
                logger.error("%s: there is no room on the disk to stop cleanly; nothing is lost", self.metadata_log.folder)
            self.metadata_log.delete_due(self.now_ms())

"""The coordinators of one kind on this node: one for each partition of their topic that it leads.

A coordinator is a replay of its partition (core/coordinator). Its host loads it, appends what it writes, keeps its timers, and
tells it when its records are committed.

Invariants
 1. Effects are done in their order, and the coordinator steps again only when all are done.
 2. A partition that is being loaded answers COORDINATOR_LOAD_IN_PROGRESS, one that is not here NOT_COORDINATOR.
 3. A partition that cannot be read is loaded when it can be, or by another that leads it then.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from odradek.api.context import Context
from odradek.core.coordinator.coordinator import Coordinator
from odradek.core.coordinator.events import (
    NOBODY,
    CancelTimer,
    Committed,
    Effect,
    Now,
    Reply,
    Request,
    SetTimer,
    TimerFired,
    TimerKey,
    Write,
    WriteFailed,
)
from odradek.core.coordinator.partitioning import partition_of
from odradek.core.metadata.image import MetadataImage
from odradek.log.disk import DiskFailed
from odradek.node.partition import Partition
from odradek.node.timers import Timer, Timers
from odradek.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatch, check, read_header
from odradek.wire.compression import Codec
from odradek.wire.control import ControlType, read_end_marker
from odradek.wire.errors import ErrorCode, Refused, UnknownRecord
from odradek.wire.log_records import decode_coordinator_record, encode_coordinator_record
from odradek.wire.message import Message
from odradek.wire.records import Record, build, records

LOAD_BYTES = 1024 * 1024  # read and replayed before others have their turn
RELOAD_MS = 5_000  # until what could not be loaded is tried again
SYNC_RETRY_SECONDS: Final = 1.0  # when there was no room
LOAD_TIMER: Final[TimerKey] = ("load",)

Machine = TypeVar("Machine", bound=Coordinator)

logger = logging.getLogger("odradek.coordinators")


class Shard(Generic[Machine]):
    """One coordinator and its partition."""

    def __init__(
        self, partition: Partition, coordinator: Machine, codec: Codec, timers: Timers, now_ms: Callable[[], int]
    ) -> None:
        self.partition = partition
        self.coordinator = coordinator
        self.codec = codec
        self.timers = timers
        self.wall_ms = now_ms
        self.running: dict[TimerKey, Timer] = {}
        self.events: deque[Any] = deque()
        self.told = -1  # the high watermark that the coordinator knows
        self.is_stepping = False
        self.is_syncing = False
        self.is_loaded = False
        self.next_offset = 0  # the first that is not replayed, until all is loaded
        self.loaded_offset = 0  # where the log ended then
        self.is_closed = False

    def now(self) -> Now:
        return Now(self.timers.now_ms(), self.wall_ms())

    # -- loading

    async def load(self) -> None:
        """Replays the partition. What cannot be read is tried again after a while, from there on."""
        partition = self.partition
        self.next_offset = max(self.next_offset, partition.log_start)
        count = 0
        try:
            while self.next_offset < partition.log_end and not self._is_gone():
                count += await self._load_some()
        except DiskFailed:
            raise  # which takes the partition away
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no coordinator without this
            self._load_later(error)
            return
        if self._is_gone():
            return
        if count:
            logger.info("%s: %d records loaded", partition, count)
        self.is_loaded, self.loaded_offset = True, partition.log_end
        self._do(self.coordinator.loaded(self.now()))
        partition.readers[self] = None
        self._tell_committed()

    async def _load_some(self) -> int:
        """Replays what one read gives, and lets others have their turn."""
        partition, offset, count = self.partition, self.next_offset, 0
        found = await partition.host.work.patiently(
            partition.log, lambda: partition.log.read(offset, LOAD_BYTES, partition.log_end)
        )
        data = await partition.host.work.patiently(partition.log, found.read)
        for position, header in whole_batches(data):
            check(data, position, header)
            count += self._replay(data, position, header)
            self.next_offset = header.next_offset
        if self.next_offset <= offset:
            raise CorruptBatch(f"{len(data)} bytes, and no whole batch", f"offset {offset}", 0)
        await asyncio.sleep(0)
        return count

    def _is_gone(self) -> bool:
        """Whether the log may be cut by now: nobody is to load it for this leader."""
        return self.is_closed or self.partition.is_closed

    def _load_later(self, error: Exception) -> None:
        partition, offset = self.partition, self.next_offset
        logger.error("%s: its coordinator cannot be loaded from offset %d on: %s", partition, offset, error)
        if self._is_gone():
            return
        if isinstance(error, CorruptBatch) or (isinstance(error, Refused) and error.code is ErrorCode.CORRUPT_MESSAGE):
            partition.host.damaged(partition, offset, str(error))
        self.running[LOAD_TIMER] = self.timers.after(RELOAD_MS, lambda: partition.host.work.spawn(self.load()))

    def _replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        """All of a batch, or nothing where it cannot be understood."""
        if header.is_control:
            for record in records(data, position, header):
                is_commit = read_end_marker(record)[0] is ControlType.COMMIT
                self.coordinator.replay_end_of_transaction(record.offset, header.producer_id, is_commit)
            return 1
        producer_id = header.producer_id if header.is_transactional else -1
        entries = []
        for record in records(data, position, header):
            if record.key is not None:
                with suppress(UnknownRecord):  # of a later version: it stays in the log
                    entries.append((record.offset, decode_coordinator_record(self.partition.topic, record.key, record.value)))
        for offset, entry in entries:
            self.coordinator.replay(offset, entry.key, entry.value, producer_id)
        return header.record_count

    # -- running

    def partition_changed(self, _: object) -> None:
        if not self.is_closed:
            self._tell_committed()

    def _tell_committed(self) -> None:
        """What flush.messages wants synced counts when it is."""
        committed, log = self.partition.high_watermark, self.partition.log
        if log.has_many_unflushed:
            committed = min(committed, log.recovery_point)
            if not self.is_syncing:
                self.is_syncing = True
                self.partition.host.work.spawn(self._sync())
        if committed > self.told:
            self.told = committed
            self.step(Committed(committed))

    async def _sync(self) -> None:
        """One sync after the other, as long as one is asked for: what is written meanwhile waits for the next."""
        log = self.partition.log
        while log.has_many_unflushed and not self._is_gone():
            before = log.recovery_point
            with suppress(Refused):
                await self.partition.host.work.flush(log)
            if log.recovery_point == before:  # there was no room
                await asyncio.sleep(SYNC_RETRY_SECONDS)
            else:
                self.partition_changed(log)
        self.is_syncing = False
        if not self._is_gone():
            self.partition_changed(log)

    def step(self, event: Any) -> None:
        """Has the coordinator take an event, after those that are under way, and when it is loaded."""
        self.events.append(event)
        if self.is_stepping or not self.is_loaded:
            return
        self.is_stepping = True
        try:
            while self.events:
                self._do(self.coordinator.step(self.events.popleft(), self.now()))
        finally:
            self.is_stepping = False

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(ticket, response):
                    ticket(response)  # type: ignore[operator]
                case Write():
                    self._write(effect)
                case SetTimer(key, deadline_ms, is_first):
                    if not (is_first and key in self.running):
                        self._set_timer(key, deadline_ms)
                case CancelTimer(key):
                    if (timer := self.running.pop(key, None)) is not None:
                        timer.cancel()
                case _:
                    self._do_own(effect)

    def _do_own(self, effect: Any) -> None:
        """What only one kind of coordinator asks for."""
        raise AssertionError(f"{type(effect).__name__} is not done here")

    def _write(self, write: Write) -> None:
        wall_ms = self.wall_ms()
        entries = []
        for number, record in enumerate(write.records):
            key, value = encode_coordinator_record(record.key, record.value, record.version)
            entries.append(Record(number, wall_ms, key, value))
        author = write.author
        batch = build(
            entries,
            base_sequence=0,
            codec=self.codec,
            producer_id=author.producer_id,
            producer_epoch=author.epoch,
            transactional=author is not NOBODY,
        )
        try:
            appended = self.partition.append_own(batch, wall_ms, author.verification)
        except Refused as refused:
            logger.warning("%s: its coordinator could not write: %s", self.partition, refused)
            self.events.append(WriteFailed(write, refused.code))
            return
        self.coordinator.appended(write, appended.first_offset)
        self._tell_committed()

    def marked(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """The end of a transaction was appended. One that is being loaded comes to it by itself."""
        if self.is_loaded:
            self.coordinator.replay_end_of_transaction(offset, producer_id, is_commit)
            self._tell_committed()

    def _set_timer(self, key: TimerKey, deadline_ms: int) -> None:
        if (timer := self.running.pop(key, None)) is not None:
            timer.cancel()

        def fire() -> None:
            self.running.pop(key, None)
            self.step(TimerFired(key))

        self.running[key] = self.timers.after(deadline_ms - self.timers.now_ms(), fire)

    def close(self) -> None:
        """Somebody else's now, or nobody's."""
        self.is_closed = True
        self.partition.readers.pop(self, None)
        for timer in self.running.values():
            timer.cancel()
        self.running.clear()
        for effect in self.coordinator.unloaded(self.now()):
            if isinstance(effect, Reply):
                effect.ticket(effect.response)  # type: ignore[operator]


Hosted = TypeVar("Hosted", bound="Shard[Any]")


class Coordinators(ABC, Generic[Hosted]):
    topic: str  # whose partitions are coordinators

    def __init__(self, image: MetadataImage, timers: Timers, now_ms: Callable[[], int]) -> None:
        self.image = image
        self.timers = timers
        self.now_ms = now_ms
        self.shards: dict[int, Hosted] = {}

    @abstractmethod
    def _new_shard(self, partition: Partition) -> Hosted: ...

    async def follow_partitions(self, led: dict[int, Partition]) -> None:
        """Has a coordinator for each partition of the topic that is led here."""
        for index, shard in list(self.shards.items()):
            if led.get(index) is not shard.partition:
                del self.shards[index]
                shard.close()
        for index, partition in led.items():
            if index not in self.shards:
                shard = self.shards[index] = self._new_shard(partition)
                if partition.log_start == partition.log_end:
                    await shard.load()
                else:
                    partition.host.work.spawn(shard.load())

    def loaded(self) -> list[Hosted]:
        return [shard for shard in self.shards.values() if shard.is_loaded]

    def find(self, name: str) -> Hosted | ErrorCode:
        """The image counts, which partitions and coordinators follow later: another may have changed what is known here."""
        topic = self.image.topics.get(self.topic)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        index = partition_of(name, len(topic.partitions))
        shard = self.shards.get(index)
        if shard is None or shard.partition.is_closed or topic.partitions[index].leader != shard.partition.host.node_id:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def begin(
        self,
        name: str,
        request: Message,
        ctx: Context,
        given: Callable[[Message | ErrorCode], None],
        version: int | None = None,
    ) -> None:
        shard = self.find(name)
        if isinstance(shard, ErrorCode):
            given(shard)
        else:
            asked = of_client(given, request, ctx)
            asked.version = ctx.version if version is None else version
            shard.step(asked)

    def submit(self, name: str, request: Message, ctx: Context, failed: Callable[[ErrorCode], Message]) -> None:
        ctx.later()
        shard = self.find(name)
        if isinstance(shard, ErrorCode):
            ctx.answer(failed(shard))
        else:
            shard.step(of_client(ctx.answer, request, ctx))

    async def ask(self, name: str, request: Message, ctx: Context) -> Message | ErrorCode:
        """What a coordinator has of a name. Whoever may be the coordinator no longer does not know what was committed elsewhere;
        whoever has just become it does not know yet what of the log that it has loaded is committed."""
        shard = self.find(name)
        if isinstance(shard, ErrorCode):
            return shard
        if not shard.partition.is_certain:
            return ErrorCode.NOT_COORDINATOR
        if shard.partition.high_watermark < shard.loaded_offset:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return await ask(shard, request, ctx)

    async def ask_all(self, request: Message, ctx: Context) -> tuple[list[Message], ErrorCode]:
        loading = any(not shard.is_loaded for shard in self.shards.values())
        answers = [await ask(shard, request, ctx) for shard in self.loaded()]
        return answers, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()
        self.shards.clear()


async def ask(shard: Shard[Any], request: Message, ctx: Context, verification: object = None) -> Message:
    answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def give(response: Message) -> None:
        if not answer.done():
            answer.set_result(response)

    asked = of_client(give, request, ctx)
    asked.verification = verification
    shard.step(asked)
    return await answer


def of_client(give: Callable[[Any], None], request: Message, ctx: Context) -> Request:
    return Request(give, request, ctx.version, ctx.client_id or "", f"/{ctx.connection.client_host}")


def whole_batches(data: bytes) -> list[tuple[int, BatchHeader]]:
    """The batches of what was read, without one that is cut off at the end."""
    found, position = [], 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append((position, header))
        position += header.size
    return found

"""The group coordinators of this node: one for each partition of __consumer_offsets that it leads.

A coordinator is a replay of its partition (core/groups). Its host loads it, appends what it writes, keeps its timers, and tells
it when its records are committed.

Invariants
 1. Effects are done in their order, and the coordinator steps again only when all are done.
 2. A partition that is being loaded answers COORDINATOR_LOAD_IN_PROGRESS, one that is not here NOT_COORDINATOR.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from odradek.api.context import Context
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.group import group_config as settings_of
from odradek.core.controller.configs import GROUP_RESOURCE
from odradek.core.groups.config import ConsumerOverrides, GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.groups.events import (
    CancelTimer,
    Committed,
    ConfigChanged,
    Effect,
    Event,
    Now,
    Reply,
    Request,
    SetTimer,
    TimerFired,
    TimerKey,
    TopicsChanged,
    TopicsDeleted,
    Write,
    WriteFailed,
)
from odradek.core.groups.partitioning import partition_of
from odradek.core.metadata.delta import Delta
from odradek.core.metadata.image import MetadataImage
from odradek.node.partition import Partition
from odradek.node.timers import Timer, Timers
from odradek.wire.batch import HEADER_SIZE, BatchHeader, read_header
from odradek.wire.compression import Codec
from odradek.wire.control import ControlType, read_end_marker
from odradek.wire.errors import ErrorCode, Refused, UnknownRecord
from odradek.wire.log_records import decode_coordinator_record, encode_coordinator_record
from odradek.wire.message import Message
from odradek.wire.records import Record, build, records

CONSUMER_OFFSETS = "__consumer_offsets"
LOAD_BYTES = 1024 * 1024  # read and replayed before others have their turn

logger = logging.getLogger("odradek.groups")


class Shard:
    """One coordinator and its partition."""

    def __init__(
        self,
        partition: Partition,
        config: GroupConfig,
        image: MetadataImage,
        timers: Timers,
        now_ms: Callable[[], int],
    ) -> None:
        self.partition = partition
        self.codec = Codec(config.offsets_topic_compression_codec)
        self.timers = timers
        self.wall_ms = now_ms
        unique_id = partition.host.machine.unique_id
        self.coordinator = GroupCoordinator(config, lambda: str(unique_id()), partition.high_watermark, image)
        self.running: dict[TimerKey, Timer] = {}
        self.events: deque[Event] = deque()
        self.told = -1  # the high watermark that the coordinator knows
        self.is_stepping = False
        self.is_loaded = False
        self.loaded_offset = 0  # where the log ended then
        self.is_closed = False

    @property
    def is_certain(self) -> bool:
        host = self.partition.host
        return host.session.is_certain(host.monotonic_ms())

    def now(self) -> Now:
        return Now(self.timers.now_ms(), self.wall_ms())

    # -- loading

    async def load(self) -> None:
        """Replays the partition."""
        partition = self.partition
        offset, count = partition.log_start, 0
        while offset < partition.log_end and not self.is_closed:
            found = await partition.host.work.patiently(
                partition.log,
                lambda at=offset: partition.log.read(at, LOAD_BYTES, partition.log_end),  # type: ignore[misc]
            )
            data = await partition.host.work.patiently(partition.log, found.read)
            for position, header in whole_batches(data):
                count += self._replay(data, position, header)
                offset = header.next_offset
            await asyncio.sleep(0)
        if self.is_closed:
            return
        if count:
            logger.info("%s: %d records of groups and offsets loaded", partition, count)
        self.is_loaded, self.loaded_offset = True, partition.log_end
        self._do(self.coordinator.loaded(self.now()))
        partition.readers[self] = None
        self._tell_committed()

    def _replay(self, data: bytes, position: int, header: BatchHeader) -> int:
        if header.is_control:
            for record in records(data, position, header):
                is_commit = read_end_marker(record)[0] is ControlType.COMMIT
                self.coordinator.replay_end_of_transaction(record.offset, header.producer_id, is_commit)
            return 1
        producer_id = header.producer_id if header.is_transactional else -1
        for record in records(data, position, header):
            if record.key is not None:
                with suppress(UnknownRecord):  # of a later version: it stays in the log
                    entry = decode_coordinator_record(CONSUMER_OFFSETS, record.key, record.value)
                    self.coordinator.replay(record.offset, entry.key, entry.value, producer_id)
        return header.record_count

    # -- running

    def partition_changed(self, _: object) -> None:
        if not self.is_closed:
            self._tell_committed()

    def _tell_committed(self) -> None:
        if self.partition.high_watermark > self.told:
            self.told = self.partition.high_watermark
            self.step(Committed(self.told))

    def step(self, event: Event) -> None:
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

    def _write(self, write: Write) -> None:
        wall_ms = self.wall_ms()
        entries = []
        for number, record in enumerate(write.records):
            key, value = encode_coordinator_record(record.key, record.value, record.version)
            entries.append(Record(number, wall_ms, key, value))
        try:
            appended = self.partition.append_own(build(entries, base_sequence=0, codec=self.codec), wall_ms)
        except Refused as refused:
            logger.warning("%s: records of groups could not be written: %s", self.partition, refused)
            self.events.append(WriteFailed(write, refused.code))
            return
        self.coordinator.appended(write, appended.first_offset)
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


class Groups:
    def __init__(self, image: MetadataImage, config: BrokerConfig, timers: Timers, now_ms: Callable[[], int]) -> None:
        self.image = image
        self.config = group_config(config, image)
        self.timers = timers
        self.now_ms = now_ms
        self.shards: dict[int, Shard] = {}

    async def follow(self, led: dict[int, Partition], delta: Delta) -> None:
        """Has a coordinator for each partition of __consumer_offsets that is led here, and tells them what became of topics."""
        for index, shard in list(self.shards.items()):
            if led.get(index) is not shard.partition:
                del self.shards[index]
                shard.close()
        for index, partition in led.items():
            if index not in self.shards:
                shard = self.shards[index] = Shard(partition, self.config, self.image, self.timers, self.now_ms)
                if partition.log_start == partition.log_end:
                    await shard.load()
                else:
                    partition.host.work.spawn(shard.load())
        for event in topic_events(delta, self.image):
            for shard in self.shards.values():
                shard.step(event)

    def configure(self, config: BrokerConfig) -> None:
        """The node's settings have changed, or those that groups have of their own."""
        changed = group_config(config, self.image)
        if changed != self.config:
            self.config = changed
            for shard in self.shards.values():
                shard.step(ConfigChanged(changed))

    def loaded(self) -> list[Shard]:
        return [shard for shard in self.shards.values() if shard.is_loaded]

    def find(self, group_id: str) -> Shard | ErrorCode:
        topic = self.image.topics.get(CONSUMER_OFFSETS)
        shard = self.shards.get(partition_of(group_id, len(topic.partitions))) if topic is not None else None
        if shard is None:
            return ErrorCode.NOT_COORDINATOR
        return shard if shard.is_loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def submit(self, group_id: str, request: Message, ctx: Context, failed: Callable[[ErrorCode], Message]) -> None:
        ctx.later()
        shard = self.find(group_id)
        if isinstance(shard, ErrorCode):
            ctx.answer(failed(shard))
        else:
            shard.step(of_client(ctx.answer, request, ctx))

    async def ask(self, group_id: str, request: Message, ctx: Context) -> Message | ErrorCode:
        """What a group has. Whoever may be the coordinator no longer does not know what was committed elsewhere; whoever has
        just become it does not know yet what of the log that it has loaded is committed."""
        shard = self.find(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        if not shard.is_certain:
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


async def ask(shard: Shard, request: Message, ctx: Context) -> Message:
    answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def give(response: Message) -> None:
        if not answer.done():
            answer.set_result(response)

    shard.step(of_client(give, request, ctx))
    return await answer


def of_client(give: Callable[[Any], None], request: Message, ctx: Context) -> Request:
    return Request(give, request, ctx.version, ctx.client_id or "", f"/{ctx.connection.client_host}")


def group_config(config: BrokerConfig, image: MetadataImage) -> GroupConfig:
    names = [name for name in GroupConfig.__struct_fields__ if name != "overrides"]
    values: dict[str, Any] = {name: config.resolved(name.replace("_", ".")) for name in names}
    overrides = {}
    for (kind, group_id), given in image.configs.items():
        if kind == GROUP_RESOURCE:
            own = settings_of(config, given)
            overrides[group_id] = ConsumerOverrides(
                own.consumer_session_timeout_ms, own.consumer_heartbeat_interval_ms, own.consumer_assignment_interval_ms
            )
    return GroupConfig(**values, overrides=overrides)


def topic_events(delta: Delta, image: MetadataImage) -> list[Event]:
    """What a change of the metadata means to groups."""
    deleted = {topic.name: topic.id for topic in delta.topics_deleted.values()}
    ids = [*delta.topics_created, *(topic_id for topic_id, _ in delta.partitions)]
    changed = {image.topics_by_id[topic_id].name for topic_id in ids if topic_id in image.topics_by_id} | deleted.keys()
    events: list[Event] = [TopicsDeleted(deleted)] if deleted else []
    if changed:
        events.append(TopicsChanged(frozenset(changed), bool(delta.topics_created)))
    return events


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

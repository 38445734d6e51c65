"""The coordinator of the groups in one partition of __consumer_offsets. Sans-IO.

    coordinator = GroupCoordinator(config, new_id, high_watermark, image)    # the image is read, and is the host's
    for each record of the log: coordinator.replay(...); for each marker: coordinator.replay_end_of_transaction(...)
    effects = coordinator.loaded(now)
    effects = coordinator.step(event, now)            # again and again; events.py says what to do with the effects
    effects = coordinator.unloaded(now)               # leadership is lost, or the log is cut: throw it away after this

A request becomes records and an answer. The records are appended and replayed (`appended`), and the answer leaves when the high
watermark has passed them. A classic group lives ahead of its records; all else is changed by replay alone.

Invariants
 1. Replaying all that was written gives the durable part of the live state: groups, generations, members, assignments, offsets.
 2. `writes` is in the order of the log.
 3. Every request is answered once, at the latest by `unloaded`.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from odradek.core.groups.classic import timers as classic_timers
from odradek.core.groups.classic.group import ClassicGroup
from odradek.core.groups.classic.join import join_group
from odradek.core.groups.classic.leave import leave_group
from odradek.core.groups.classic.rebalance import answer_sync, refuse_join
from odradek.core.groups.classic.sync import heartbeat, sync_group
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer import life
from odradek.core.groups.consumer.describing import describe_consumer_groups
from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.heartbeat import consumer_heartbeat
from odradek.core.groups.events import (
    Committed,
    ConfigChanged,
    Effect,
    Event,
    Now,
    Request,
    Sequel,
    TimerFired,
    TimerKey,
    TopicsChanged,
    TopicsDeleted,
    Turn,
    Write,
    WriteFailed,
)
from odradek.core.groups.expiry import expired, in_writes
from odradek.core.groups.listing import delete_groups, describe_groups, list_groups
from odradek.core.groups.offset_requests import commit_offsets, delete_offsets, fetch_offsets
from odradek.core.groups.offsets import NO_PRODUCER_ID
from odradek.core.groups.records import offset_tombstone
from odradek.core.groups.sequels import Answer, Followed, Nothing
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)

EXPIRY_TIMER: Final[TimerKey] = ("offsets-expiry",)
COMMIT_TIMER: Final[TimerKey] = ("offsets-commit",)


class Waiting:
    """A write, or a read behind one, that is not committed."""

    __slots__ = ("deadline_ms", "last_offset", "sequel")

    def __init__(self, last_offset: int, deadline_ms: int, sequel: Sequel) -> None:
        self.last_offset = last_offset
        self.deadline_ms = deadline_ms
        self.sequel = sequel


class GroupCoordinator:
    """Groups and offsets of one partition, and the requests for them that wait."""

    __slots__ = ("has_commit_timer", "high_watermark", "log_end", "shard", "writes")

    def __init__(
        self, config: GroupConfig, new_id: Callable[[], str], high_watermark: int = 0, image: MetadataImage | None = None
    ) -> None:
        self.shard = Shard(config, new_id, high_watermark, image or MetadataImage())
        self.high_watermark = high_watermark
        self.log_end = 0
        self.writes: deque[Waiting] = deque()
        self.has_commit_timer = False

    # What the log says

    def replay(self, offset: int, key: Message, value: Message | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """One record. `producer_id` is that of a transactional batch."""
        self.log_end = offset + 1
        self.shard.replay(offset, key, value, producer_id)

    def replay_end_of_transaction(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """The marker that commits or aborts what the producer committed here."""
        self.log_end = offset + 1
        self.shard.offsets.replay_end_of_transaction(offset, producer_id, is_commit)

    def appended(self, write: Write, base_offset: int) -> None:
        """The records of a write are in the log from this offset on."""
        for index, record in enumerate(write.records):
            self.replay(base_offset + index, record.key, record.value)
        self.writes.append(Waiting(self.log_end - 1, write.deadline_ms, write.sequel))

    # Life

    def loaded(self, now: Now) -> list[Effect]:
        """All of the log is replayed: from now on requests are served, and time counts."""
        turn = self._turn(now)
        self.shard.is_live = True
        for group in self.shard.groups.values():
            if isinstance(group, ClassicGroup):
                classic_timers.start(self.shard, group, turn)
            elif isinstance(group, ConsumerGroup):
                life.start(self.shard, group, turn)
        turn.set_timer(EXPIRY_TIMER, self.shard.config.offsets_retention_check_interval_ms)
        return turn.effects

    def unloaded(self, now: Now) -> list[Effect]:
        """Somebody else is the coordinator: all who wait are told so."""
        turn = self._turn(now)
        while self.writes:
            sequel = self.writes.popleft().sequel
            while isinstance(sequel, Followed):
                sequel = sequel.sequel
            if isinstance(sequel, Answer):  # the others' requests wait in their groups
                sequel.failed(ErrorCode.NOT_COORDINATOR, turn)
        for group in self.shard.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    refuse_join(group, member, ErrorCode.NOT_COORDINATOR, member.member_id, turn)
                    answer_sync(member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR), turn)
        return turn.effects

    def step(self, event: Event, now: Now) -> list[Effect]:
        turn = self._turn(now)
        match event:
            case Request():
                self._serve(event, turn)
            case Committed():
                self._commit(event.high_watermark, turn)
            case TimerFired():
                self._fire(event.key, turn)
            case WriteFailed():
                event.write.sequel.failed(event.error, turn)
            case TopicsDeleted():
                places = self.shard.offsets.places_of_topics(event.topics)
                self._write_all([offset_tombstone(place) for place in places], turn)
            case TopicsChanged():
                life.topics_changed(self.shard, event)
            case ConfigChanged():
                self.shard.config = event.config
        for sequel in turn.settling:
            self._settle(sequel, turn)
        if not self.has_commit_timer and any(isinstance(effect, Write) for effect in turn.effects):
            self._start_commit_timer(turn)
        return turn.effects

    def _turn(self, now: Now) -> Turn:
        return Turn(now, self.shard.config.offsets_commit_timeout_ms)

    def _serve(self, request: Request, turn: Turn) -> None:
        shard, message = self.shard, request.message
        match message:
            case HeartbeatRequest():
                heartbeat(shard, request, message, turn)
            case OffsetCommitRequest():
                commit_offsets(shard, request, message, turn)
            case ConsumerGroupHeartbeatRequest():
                consumer_heartbeat(shard, request, message, turn)
            case OffsetFetchRequest():
                self._answer_fetch(request, message, turn)
            case JoinGroupRequest():
                join_group(shard, request, message, turn)
            case SyncGroupRequest():
                sync_group(shard, request, message, turn)
            case LeaveGroupRequest():
                leave_group(shard, request, message, turn)
            case DescribeGroupsRequest():
                turn.reply(request.ticket, describe_groups(shard, message, request.version))
            case ConsumerGroupDescribeRequest():
                turn.settle(Answer(request, describe_consumer_groups(shard, message)))
            case ListGroupsRequest():
                turn.reply(request.ticket, list_groups(shard, message))
            case DeleteGroupsRequest():
                delete_groups(shard, request, message, turn)
            case OffsetDeleteRequest():
                delete_offsets(shard, request, message, turn)
            case _:
                raise AssertionError(f"{type(message).__name__} is not for a group coordinator")

    def _answer_fetch(self, request: Request, message: OffsetFetchRequest, turn: Turn) -> None:
        response = fetch_offsets(self.shard, message)
        if message.require_stable:
            turn.settle(Answer(request, response))
        else:
            turn.reply(request.ticket, response)

    def _settle(self, sequel: Sequel, turn: Turn) -> None:
        if self.log_end <= self.high_watermark:
            sequel.committed(turn)
            return
        deadline_ms = turn.now.monotonic_ms + turn.commit_timeout_ms
        self.writes.append(Waiting(self.log_end - 1, deadline_ms, sequel))
        self._start_commit_timer(turn)

    def _commit(self, high_watermark: int, turn: Turn) -> None:
        self.high_watermark = max(self.high_watermark, high_watermark)
        self.shard.offsets.commit(self.high_watermark)
        while self.writes and self.writes[0].last_offset < self.high_watermark:
            self.writes.popleft().sequel.committed(turn)

    # Timers

    def _fire(self, key: TimerKey, turn: Turn) -> None:
        if key == EXPIRY_TIMER:
            self._write_all(expired(self.shard, turn.now.wall_ms), turn)
            turn.set_timer(EXPIRY_TIMER, self.shard.config.offsets_retention_check_interval_ms)
        elif key == COMMIT_TIMER:
            self._give_up_commits(turn)
        elif key[0].startswith("consumer-"):
            life.fire(self.shard, key, turn)
        else:
            classic_timers.fire(self.shard, key, turn)

    def _start_commit_timer(self, turn: Turn) -> None:
        """One timer for all writes: they come with ascending deadlines, and are mostly gone when it fires."""
        if not self.has_commit_timer:
            self.has_commit_timer = True
            turn.set_timer(COMMIT_TIMER, turn.commit_timeout_ms)

    def _give_up_commits(self, turn: Turn) -> None:
        """Who waits too long for a commit is told so; the records stay, and may be committed yet."""
        self.has_commit_timer = False
        now_ms = turn.now.monotonic_ms
        while self.writes and self.writes[0].deadline_ms <= now_ms:
            self.writes.popleft().sequel.failed(ErrorCode.REQUEST_TIMED_OUT, turn)
        if self.writes:
            self.has_commit_timer = True
            turn.set_timer(COMMIT_TIMER, self.writes[0].deadline_ms - now_ms)

    def _write_all(self, records: list[CoordinatorRecord], turn: Turn) -> None:
        for part in in_writes(records):
            turn.write(part, Nothing())

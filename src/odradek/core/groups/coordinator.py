"""The coordinator of the groups in one partition of __consumer_offsets. Sans-IO.

    coordinator = GroupCoordinator(config, new_id, high_watermark, image)    # the image is read, and is the host's

A classic group lives ahead of its records; all else is changed by replay alone.

Invariants, beside those of every coordinator
 1. Replaying all that was written gives groups, generations, members, assignments and offsets.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.core.coordinator.coordinator import Coordinator
from odradek.core.coordinator.events import (
    Effect,
    Now,
    Request,
    TimerKey,
    Turn,
)
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
from odradek.core.groups.events import ConfigChanged, TopicsChanged, TopicsDeleted
from odradek.core.groups.expiry import expired
from odradek.core.groups.listing import delete_groups, describe_groups, list_groups
from odradek.core.groups.offset_requests import commit_in_transaction, commit_offsets, delete_offsets, fetch_offsets
from odradek.core.groups.records import offset_tombstone
from odradek.core.groups.sequels import Answer, Followed
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
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
    TxnOffsetCommitRequest,
)

EXPIRY_TIMER: Final[TimerKey] = ("offsets-expiry",)


class GroupCoordinator(Coordinator):
    """Groups and offsets of one partition, and the requests for them that wait."""

    __slots__ = ("shard",)

    def __init__(
        self, config: GroupConfig, new_id: Callable[[], str], high_watermark: int = 0, image: MetadataImage | None = None
    ) -> None:
        super().__init__(high_watermark)
        self.shard = Shard(config, new_id, high_watermark, image or MetadataImage())

    @property
    def commit_timeout_ms(self) -> int:
        return self.shard.config.offsets_commit_timeout_ms

    # What the log says

    def _replay(self, offset: int, key: Message, value: Message | None, producer_id: int) -> None:
        self.shard.replay(offset, key, value, producer_id)

    def _replay_end(self, offset: int, producer_id: int, is_commit: bool) -> None:
        self.shard.offsets.replay_end_of_transaction(offset, producer_id, is_commit)

    def _commit(self, turn: Turn) -> None:  # noqa: ARG002 - nothing follows from it
        self.shard.offsets.commit(self.high_watermark)

    # Life

    def loaded(self, now: Now) -> list[Effect]:
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

    def _happen(self, event: Any, turn: Turn) -> None:
        match event:
            case TopicsDeleted():
                places = self.shard.offsets.places_of_topics(event.topics)
                self._write_all([offset_tombstone(place) for place in places], turn)
            case TopicsChanged():
                life.topics_changed(self.shard, event)
            case ConfigChanged():
                self.shard.config = event.config
            case _:
                raise AssertionError(f"{type(event).__name__} does not happen to groups")

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
            case TxnOffsetCommitRequest():
                commit_in_transaction(shard, request, message, turn)
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

    def _fire(self, key: TimerKey, turn: Turn) -> None:
        if key == EXPIRY_TIMER:
            self._write_all(expired(self.shard, turn.now.wall_ms), turn)
            turn.set_timer(EXPIRY_TIMER, self.shard.config.offsets_retention_check_interval_ms)
        elif key[0].startswith("consumer-"):
            life.fire(self.shard, key, turn)
        else:
            classic_timers.fire(self.shard, key, turn)

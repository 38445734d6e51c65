"""Members that still use the classic protocol, in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A JoinGroup is what a heartbeat is to a native member: it says what the member owns and wants, and takes it one step further; its
epoch is the generation. SyncGroup gives it what it has. Heartbeat says whether it should join again: because the epoch has risen,
because it must give something up, or because something it waits for is free.

Invariants
 1. A member that was told to join again is fenced when it does not within its rebalance timeout; so is one that does not sync.
"""

from msgspec.structs import replace

from odradek.core.coordinator.events import Request, Turn
from odradek.core.groups.classic.member import protocols_of, rebalance_timeout_ms
from odradek.core.groups.consumer.downgrade import can_downgrade_by_replacing, classic_assignment, downgrade
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from odradek.core.groups.consumer.heartbeat import (
    check_instance,
    check_room,
    reconcile,
    replace_static,
    static_member,
    unknown_member,
    update_epoch,
    write_or_settle,
)
from odradek.core.groups.consumer.leaving import leaving_member, remove_members
from odradek.core.groups.consumer.member import ClassicMetadata, ConsumerMember, MemberState
from odradek.core.groups.consumer.regexes import RegexChange, update_regexes
from odradek.core.groups.consumer.target import update_target
from odradek.core.groups.consumer.timers import join_timer, restart_session, sync_timer
from odradek.core.groups.refusals import SEVERAL_MEMBERS_FROM, join_answer, join_refusal
from odradek.core.groups.sequels import Answer
from odradek.core.groups.shard import Shard
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.log_records import decode_consumer_protocol
from odradek.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_FROM = 4  # KIP-394


class Joined(Answer):
    """A classic member has joined: from now on the time counts that it has to sync."""

    __slots__ = ("group_id", "member", "shard")

    def __init__(
        self, request: Request, response: JoinGroupResponse, shard: Shard, group_id: str, member: ConsumerMember
    ) -> None:
        super().__init__(request, response)
        self.shard = shard
        self.group_id = group_id
        self.member = member

    def committed(self, turn: Turn) -> None:
        member_id = self.member.member_id
        turn.cancel_timer(join_timer(self.group_id, member_id))
        if self.shard.consumer(self.group_id) is not None:
            turn.set_timer(sync_timer(self.group_id, member_id), self.member.rebalance_timeout_ms)
        super().committed(turn)


def join_consumer_group(shard: Shard, group: ConsumerGroup, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    try:
        join(shard, group, request, message, turn)
    except Refused as refused:
        turn.reply(request.ticket, join_refusal(request.version, refused.code, message.member_id))


def join(shard: Shard, group: ConsumerGroup, request: Request, message: JoinGroupRequest, turn: Turn) -> None:
    subscription = check_join(shard, group, message)
    draft = Draft(group)
    member_id = message.member_id or shard.new_id()
    check_room(shard, draft, member_id)
    if not message.member_id and message.group_instance_id is None and request.version >= MEMBER_ID_REQUIRED_FROM:
        return turn.reply(request.ticket, join_refusal(request.version, ErrorCode.MEMBER_ID_REQUIRED, member_id))
    is_downgrade = can_downgrade_by_replacing(shard, group, static_member(draft, message.group_instance_id or ""))
    member = joining_member(draft, message, member_id)
    timeout_ms = rebalance_timeout_ms(message, request.version)
    updated = replace(
        member,
        instance_id=member.instance_id if message.group_instance_id is None else message.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        topics=frozenset(subscription.topics),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMetadata(message.session_timeout_ms, tuple(protocols_of(message))),
    )
    if updated != member:
        draft.put(updated)
    is_changed = updated.topics != member.topics
    is_changed = update_regexes(shard, draft, member, updated, turn) is not RegexChange.NONE or is_changed
    update_epoch(shard, draft, is_changed)
    if not is_downgrade:
        update_target(shard, draft, turn.now.wall_ms)
    is_behind = draft.group.epoch > draft.group.target_epoch
    if not (is_downgrade and is_behind):
        updated = reconcile(shard, draft, updated, owned_partitions(subscription, shard.image), is_changed, turn)
    sequel = Joined(request, joined_answer(updated, message, request.version), shard, group.group_id, updated)
    if is_downgrade:
        return downgrade(shard, draft, sequel, turn, is_rebalancing=is_behind)
    restart_session(shard, group.group_id, updated, turn)
    return write_or_settle(draft, sequel, turn)


def check_join(shard: Shard, group: ConsumerGroup, message: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What the member wants, which it says alike for all its protocols."""
    names = {protocol.name for protocol in message.protocols}
    if shard.config.is_migration_disabled or not group.supports_classic(message.protocol_type, names):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {group.group_id} does not take these protocols.")
    try:
        return decode_consumer_protocol(ConsumerProtocolSubscription, message.protocols[0].metadata)
    except ProtocolError as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member's subscription cannot be read: {error}.") from None


def joining_member(draft: Draft, message: JoinGroupRequest, member_id: str) -> ConsumerMember:
    group = draft.group
    if message.group_instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    static = static_member(draft, message.group_instance_id)
    if not message.member_id:
        return ConsumerMember(member_id=member_id) if static is None else replace_static(draft, static, member_id)
    if static is None:
        raise unknown_member(member_id, group.group_id)
    check_instance(static, member_id)
    return static


def owned_partitions(
    subscription: ConsumerProtocolSubscription, image: MetadataImage
) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=image.topics[topic.topic].id, partitions=topic.partitions)
        for topic in subscription.owned_partitions
        if topic.topic in image.topics
    ]


def joined_answer(member: ConsumerMember, message: JoinGroupRequest, version: int) -> JoinGroupResponse:
    """Nobody leads: the coordinator assigns."""
    answer = JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=message.protocols[0].name,
    )
    return join_answer(version, answer)


# Sync and heartbeat


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ConsumerMember:
    member = group.members.get(member_id)
    if instance_id is not None:
        static = group.members.get(group.static_members.get(instance_id, ""))
        if static is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        check_instance(static, member_id)
    if member is None or not member.is_classic:
        raise unknown_member(member_id, group.group_id)
    if generation_id != member.epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"The member is in generation {member.epoch}, not in {generation_id}.")
    return member


def sync_consumer_group(shard: Shard, group: ConsumerGroup, request: Request, message: SyncGroupRequest, turn: Turn) -> None:
    try:
        member = classic_member(group, message.member_id, message.group_instance_id, message.generation_id)
        assert member.classic is not None
        name, subscription = member.classic.protocols[0]
        if message.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or message.protocol_name not in (None, name):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member has joined with the protocol {name}.")
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            call_to_join(group, member, turn)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, f"Group {group.group_id} is in epoch {group.epoch}: join again.")
    except Refused as refused:
        return turn.reply(request.ticket, SyncGroupResponse(error_code=refused.code))
    turn.cancel_timer(sync_timer(group.group_id, member.member_id))
    restart_session(shard, group.group_id, member, turn)
    partitions = {topic_id: frozenset(found) for topic_id, found in member.assigned.items()}
    response = SyncGroupResponse(
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignment=classic_assignment(partitions, subscription, shard.image),
    )
    return turn.settle(Answer(request, response))


def beat_in_consumer_group(shard: Shard, group: ConsumerGroup, request: Request, message: HeartbeatRequest, turn: Turn) -> None:
    error = ErrorCode.NONE
    try:
        member = classic_member(group, message.member_id, message.group_instance_id, message.generation_id)
        restart_session(shard, group.group_id, member, turn)
        if should_join(group, member):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            call_to_join(group, member, turn)
    except Refused as refused:
        error = refused.code
    turn.settle(Answer(request, HeartbeatResponse(error_code=error)))


def should_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_release(member)


def call_to_join(group: ConsumerGroup, member: ConsumerMember, turn: Turn) -> None:
    turn.set_timer(join_timer(group.group_id, member.member_id), member.rebalance_timeout_ms, is_first=True)


# Leaving


def leave_consumer_group(
    shard: Shard, group: ConsumerGroup, request: Request, members: list[LeaveGroupRequest.MemberIdentity], turn: Turn
) -> None:
    """Classic members leave; an administrator removes members of either kind."""
    answers = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in members:
        error = ErrorCode.NONE
        try:
            member = leaving_member(group, identity.member_id, identity.group_instance_id, may_be_unnamed=True)
            leaving[member.member_id] = member
        except Refused as refused:
            error = refused.code
        answers.append(
            LeaveGroupResponse.MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    answer = Answer(request, leave_answer(answers, request.version))
    if leaving:
        remove_members(shard, group, list(leaving.values()), answer, turn)
    else:
        turn.settle(answer)


def leave_answer(answers: list[LeaveGroupResponse.MemberResponse], version: int) -> LeaveGroupResponse:
    if version < SEVERAL_MEMBERS_FROM:
        return LeaveGroupResponse(error_code=answers[0].error_code)
    return LeaveGroupResponse(members=answers)

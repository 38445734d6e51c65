"""ConsumerGroupHeartbeat: how a member joins, lives, and learns what it has.

 1. The member is made, or updated; when its subscription or the topics have changed, the group's epoch rises.
 2. A new epoch gets its target.
 3. The member goes one step towards the target.

Invariants
 1. The answer leaves when all that it says is committed.
 2. A member of another epoch is fenced, but for one whose last answer may have been lost: it has the epoch before, and owns
    nothing that it was not given.
"""

from msgspec.structs import replace

from odradek.core.coordinator.events import Request, Turn
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.leaving import leave
from odradek.core.groups.consumer.member import LEAVE_EPOCH, NO_TIMEOUT, STATIC_LEAVE_EPOCH, ConsumerMember, OwnedPartitions
from odradek.core.groups.consumer.reconciliation import Owned, owns_only, reconciled
from odradek.core.groups.consumer.records import (
    assignment_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    removal,
    target_record,
)
from odradek.core.groups.consumer.regexes import RegexChange, update_regexes
from odradek.core.groups.consumer.target import update_target
from odradek.core.groups.consumer.timers import restart_session, watch_revocation
from odradek.core.groups.consumer.upgrade import joined_group
from odradek.core.groups.consumer.validity import check_request
from odradek.core.groups.sequels import Answer
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


def consumer_heartbeat(shard: Shard, request: Request, message: ConsumerGroupHeartbeatRequest, turn: Turn) -> None:
    try:
        check_request(message, request.version, shard.config)
        if message.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            leave(shard, request, message, turn)
        else:
            beat(shard, request, message, turn)
    except Refused as refused:
        response = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
        turn.settle(Answer(request, response))


def beat(shard: Shard, request: Request, message: ConsumerGroupHeartbeatRequest, turn: Turn) -> None:
    draft = find_group(shard, message, turn)
    check_room(shard, draft, message.member_id)
    member_id = message.member_id or shard.new_id()
    member = find_member(draft, message, member_id)
    updated = replace(
        member,
        instance_id=member.instance_id if message.instance_id is None else message.instance_id,
        rack_id=member.rack_id if message.rack_id is None else message.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if message.rebalance_timeout_ms == NO_TIMEOUT else message.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if message.server_assignor is None else message.server_assignor,
        topics=member.topics if message.subscribed_topic_names is None else frozenset(message.subscribed_topic_names),
        regex=member.regex if message.subscribed_topic_regex is None else message.subscribed_topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )
    result = update_member(shard, draft, member, updated, message.topic_partitions, turn)
    restart_session(shard, message.group_id, result, turn)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=shard.config.consumer_settings(message.group_id).heartbeat_interval_ms,
    )
    if message.member_epoch == 0 or is_full(message) or member.assigned != result.assigned:
        response.assignment = assignment(result.assigned)
    write_or_settle(draft, Answer(request, response), turn)


def find_group(shard: Shard, message: ConsumerGroupHeartbeatRequest, turn: Turn) -> Draft:
    if message.member_epoch == 0:
        return joined_group(shard, message.group_id, turn)
    group = shard.consumer(message.group_id)
    if group is None:
        is_there = message.group_id in shard.groups
        reason = f"Group {message.group_id} {'is no consumer group' if is_there else 'is not there'}."
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    return Draft(group)


def check_room(shard: Shard, draft: Draft, member_id: str) -> None:
    limit = shard.config.group_consumer_max_size
    if len(draft.group.members) >= limit and member_id not in draft.group.members:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {draft.group.group_id} has {limit} members, and group.consumer.max.size allows no more.",
        )


# Who it is


def find_member(draft: Draft, message: ConsumerGroupHeartbeatRequest, member_id: str) -> ConsumerMember:
    is_joining = message.member_epoch == 0
    if message.instance_id is None:
        member = draft.group.members.get(member_id)
        if member is None and not is_joining:
            raise unknown_member(member_id, draft.group.group_id)
        member = member or ConsumerMember(member_id=member_id)
        check_epoch(member, message.member_epoch, message.topic_partitions)
        return member
    static = static_member(draft, message.instance_id)
    if is_joining:
        if static is not None and not static.is_classic and static.epoch != STATIC_LEAVE_EPOCH:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} cannot join: its instance id {message.instance_id} belongs to member "
                f"{static.member_id}, which has not left.",
            )
        if static is not None:
            return replace_static(draft, static, member_id)
        return draft.group.members.get(member_id) or ConsumerMember(member_id=member_id)
    if static is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {message.instance_id} is unknown.")
    check_instance(static, member_id)
    check_epoch(static, message.member_epoch, message.topic_partitions)
    return static


def static_member(draft: Draft, instance_id: str) -> ConsumerMember | None:
    return draft.group.members.get(draft.group.static_members.get(instance_id, ""))


def replace_static(draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member that comes back has what it had before it left."""
    group = draft.group
    member = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
    target = group.target_of(old)
    draft.add(
        *removal(group.group_id, old.member_id),
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, target),
        assignment_record(group.group_id, member),
    )
    return member


def unknown_member(member_id: str, group_id: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in group {group_id}.")


def check_instance(static: ConsumerMember, member_id: str) -> None:
    if static.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} was replaced: its instance id {static.instance_id} belongs to member {static.member_id}.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    if epoch in (0, member.epoch):  # who comes with 0 joins, perhaps again
        return
    if epoch == member.previous_epoch and epoch < member.epoch and owns_only(owned, member.assigned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member's epoch {epoch} is {relation} than {member.epoch}, which the coordinator knows: the member must give up all "
        "its partitions and join again.",
    )


# What changes


def update_member(
    shard: Shard, draft: Draft, member: ConsumerMember, updated: ConsumerMember, owned: Owned, turn: Turn
) -> ConsumerMember:
    """Puts the updated member into the group, and takes the group and the member as far as they can go."""
    if updated != member:
        draft.put(updated)
    regex_change = update_regexes(shard, draft, member, updated, turn)
    is_renamed = updated.topics != member.topics
    update_epoch(shard, draft, is_renamed or regex_change is RegexChange.RESOLVED)
    update_target(shard, draft, turn.now.wall_ms)
    return reconcile(shard, draft, updated, owned, is_renamed or regex_change is not RegexChange.NONE, turn)


def update_epoch(shard: Shard, draft: Draft, is_changed: bool) -> None:
    """Raises the group's epoch when it is new, or its subscriptions or its topics have changed."""
    group = draft.group
    if not (group.epoch == 0 or is_changed or group.is_metadata_stale):
        return
    found_hash = shard.metadata_hash(group.subscribed_topics)
    epoch = group.epoch
    if epoch == 0 or is_changed or found_hash != group.metadata_hash:
        epoch += 1
        draft.add(epoch_record(group.group_id, epoch, found_hash))
    if group.has_partition_metadata:
        draft.add(partition_metadata_tombstone(group.group_id))
    live = shard.consumer(group.group_id)
    if live is not None:
        live.refreshed_epoch = epoch


def reconcile(
    shard: Shard, draft: Draft, member: ConsumerMember, owned: Owned, has_new_subscription: bool, turn: Turn
) -> ConsumerMember:
    moved = reconciled(draft.group, member, owned, has_new_subscription, shard.image)
    if moved != member:
        draft.assign(moved)
        watch_revocation(draft.group.group_id, moved, turn)
    return moved


# The answer


def is_full(message: ConsumerGroupHeartbeatRequest) -> bool:
    """The member has lost its way, and says everything again."""
    is_subscribed = message.subscribed_topic_names is not None or message.subscribed_topic_regex is not None
    return message.rebalance_timeout_ms != NO_TIMEOUT and is_subscribed and message.topic_partitions is not None


def assignment(partitions: OwnedPartitions) -> ConsumerGroupHeartbeatResponse.Assignment:
    topic = ConsumerGroupHeartbeatResponse.TopicPartitions
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[topic(topic_id=topic_id, partitions=sorted(found)) for topic_id, found in partitions.items()]
    )


def write_or_settle(draft: Draft, sequel: Answer, turn: Turn) -> None:
    if draft.records:
        turn.write(draft.records, sequel)
    else:
        turn.settle(sequel)

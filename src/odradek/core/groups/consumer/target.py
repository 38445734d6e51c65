"""The target of a group's epoch: what each member should have.

Invariants
 1. The target of an epoch is computed once, and not sooner after the last one than the assignment interval.
"""

from odradek.core.groups.assignors import ASSIGNORS
from odradek.core.groups.assignors.members import NO_PARTITIONS, AssignedMember
from odradek.core.groups.consumer.draft import Draft
from odradek.core.groups.consumer.records import target_epoch_record, target_record
from odradek.core.groups.shard import Shard


def update_target(shard: Shard, draft: Draft, wall_ms: int) -> None:
    group = draft.group
    if group.target_epoch >= group.epoch or not is_due(shard, draft, wall_ms):
        return
    topics = shard.image.topics
    members = {}
    for member_id in sorted(group.members):
        member = group.members[member_id]
        members[member_id] = AssignedMember(
            topics=frozenset(topics[name].id for name in group.topics_of(member) if name in topics),
            assigned=group.target.get(member_id, NO_PARTITIONS),
            instance_id=member.instance_id,
        )
    counts = {topics[name].id: len(topics[name].partitions) for name in group.subscribed_topics if name in topics}
    name = group.preferred_assignor()
    if name not in shard.config.group_consumer_assignors:
        name = shard.config.group_consumer_assignors[0]
    target = ASSIGNORS[name](members, counts)
    for member_id, partitions in target.items():
        if group.target.get(member_id) != partitions:
            draft.add(target_record(group.group_id, member_id, partitions))
    draft.add(target_epoch_record(group.group_id, group.epoch, wall_ms))


def is_due(shard: Shard, draft: Draft, wall_ms: int) -> bool:
    """Members that come together are assigned together: the next heartbeat after the interval does it. A clock that was set back
    holds nobody up."""
    last_ms = draft.group.target_timestamp_ms
    interval_ms = shard.config.consumer_settings(draft.group.group_id).assignment_interval_ms
    return not last_ms <= wall_ms < last_ms + interval_ms

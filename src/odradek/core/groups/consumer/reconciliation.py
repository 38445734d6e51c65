"""One step of a member towards its target.

    UNREVOKED_PARTITIONS -> (they are given up) -> UNRELEASED_PARTITIONS -> (others have given them up) -> STABLE

A member first gives up what it should not have, and stays in its epoch until it says that it has. Then it comes to the target's
epoch with what it keeps and what is free, and gets the rest as others let go of it.

Invariants
 1. A partition is given to a member only when nobody else owns it.
 2. A member owns what it is to give up until it says that it does not, or is fenced.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.consumer.member import ConsumerMember, MemberState, OwnedPartitions
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode, Refused


class TopicPartitions(Protocol):
    """Of a heartbeat, or of a classic member's subscription."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> list[int]: ...


Owned: TypeAlias = Sequence[TopicPartitions] | None  # what the member says that it owns; None: it does not say


def reconciled(
    group: ConsumerGroup, member: ConsumerMember, owned: Owned, has_new_subscription: bool, image: MetadataImage
) -> ConsumerMember:
    """The member one step further, or as it is."""
    if not has_new_subscription and member.is_reconciled_to(group.target_epoch):
        return member
    topics = {image.topics[name].id for name in group.topics_of(member) if name in image.topics}
    match member.state:
        case MemberState.STABLE if member.epoch == group.target_epoch:
            return without_unsubscribed(member, owned, topics)
        case MemberState.UNREVOKED_PARTITIONS if owns_any(owned, member.revoking):
            return without_unsubscribed(member, owned, topics) if has_new_subscription else member
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise Refused(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The member is in an unknown state: it must give up its partitions and join again.",
                )
    return next_assignment(group, member, owned, topics)


def next_assignment(group: ConsumerGroup, member: ConsumerMember, owned: Owned, topics: set[bytes]) -> ConsumerMember:
    kept: OwnedPartitions = {}
    revoking: OwnedPartitions = {}
    free: OwnedPartitions = {}
    is_waiting = False
    target = group.target_of(member)
    for topic_id in dict.fromkeys((*target, *member.assigned)):
        wanted = target.get(topic_id, frozenset()) if topic_id in topics else frozenset()
        had = member.assigned.get(topic_id, {})
        keep(kept, topic_id, {partition: epoch for partition, epoch in had.items() if partition in wanted})
        keep(revoking, topic_id, {partition: epoch for partition, epoch in had.items() if partition not in wanted})
        new = sorted(wanted - had.keys())
        available = [partition for partition in new if is_free(group, member, topic_id, partition)]
        is_waiting = is_waiting or len(available) < len(new)
        keep(free, topic_id, dict.fromkeys(available, group.target_epoch))
    if revoking and owns_any(owned, revoking):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for topic_id, found in free.items():
        kept[topic_id] = kept.get(topic_id, {}) | found
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return member.moved_to(group.target_epoch, state, kept, {})


def is_free(group: ConsumerGroup, member: ConsumerMember, topic_id: bytes, partition: int) -> bool:
    return group.owners.get((topic_id, partition), member.member_id) == member.member_id


def without_unsubscribed(member: ConsumerMember, owned: Owned, topics: set[bytes]) -> ConsumerMember:
    """It gives up topics that it is no longer subscribed to, before there is a target that says so."""
    gone = {topic_id: found for topic_id, found in member.assigned.items() if topic_id not in topics}
    if not gone:
        return member
    kept = {topic_id: found for topic_id, found in member.assigned.items() if topic_id in topics}
    revoking = dict(member.revoking)
    for topic_id, found in gone.items():
        revoking[topic_id] = revoking.get(topic_id, {}) | found
    if owns_any(owned, revoking):
        return member.moved_to(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return member.moved_to(member.epoch, member.state, kept, member.revoking)


def keep(found: OwnedPartitions, topic_id: bytes, partitions: dict[int, int]) -> None:
    if partitions:
        found[topic_id] = partitions


def owns_any(owned: Owned, partitions: OwnedPartitions) -> bool:
    """It owns some of these, or does not say."""
    if owned is None:
        return True
    return any(partition in partitions.get(topic.topic_id, ()) for topic in owned for partition in topic.partitions)


def owns_only(owned: Owned, partitions: OwnedPartitions) -> bool:
    """It says that it owns some of these, and nothing else."""
    if owned is None:
        return False
    return all(
        topic.topic_id in partitions and all(partition in partitions[topic.topic_id] for partition in topic.partitions)
        for topic in owned
    )

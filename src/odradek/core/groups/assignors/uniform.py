"""The uniform assignor: every member has as many partitions as any other, or one more, and keeps what it can of what it has.

Invariants, where all are subscribed to the same topics
 1. Every partition is given to exactly one member.
 2. The numbers of partitions of two members differ by at most one.
 3. A member loses only what it has above its share.
"""

from odradek.core.groups.assignors.members import AssignedMember, PartitionCounts, Partitions, Target, is_homogeneous
from odradek.core.groups.assignors.mixed import assign_mixed


def assign_uniformly(members: dict[str, AssignedMember], partition_counts: PartitionCounts) -> Target:
    if is_homogeneous(members):
        return assign_alike(members, partition_counts)
    return assign_mixed(members, partition_counts)


def assign_alike(members: dict[str, AssignedMember], partition_counts: PartitionCounts) -> Target:
    """All have the same subscription: a share for each, and what is left over or new fills up who is below it."""
    if not members:
        return {}
    topics = sorted(next(iter(members.values())).topics)
    if not topics:
        return {member_id: {} for member_id in members}
    free = unassigned(topics, partition_counts, members)
    share, longer = divmod(sum(partition_counts[topic_id] for topic_id in topics), len(members))
    target: Target = {}
    room: dict[str, int] = {}
    for index, (member_id, member) in enumerate(members.items()):
        is_longer = longer > 0
        kept, given_up, left = keep(member.assigned, set(topics), share + is_longer)
        if is_longer and left and len(members) - index > longer:  # somebody behind it may have that one partition already
            left -= 1
            is_longer = False
        longer -= is_longer
        target[member_id] = kept
        free += given_up
        if left:
            room[member_id] = left
    rest = iter(free)
    for member_id, count in room.items():
        for _, (topic_id, partition) in zip(range(count), rest):
            target[member_id][topic_id] = target[member_id].get(topic_id, frozenset()) | {partition}
    assert next(rest, None) is None, "a partition without a member"
    return target


def unassigned(
    topics: list[bytes], partition_counts: PartitionCounts, members: dict[str, AssignedMember]
) -> list[tuple[bytes, int]]:
    owned: dict[bytes, set[int]] = {}
    for member in members.values():
        for topic_id, partitions in member.assigned.items():
            owned.setdefault(topic_id, set()).update(partitions)
    return [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(partition_counts[topic_id])
        if partition not in owned.get(topic_id, ())
    ]


def keep(assigned: Partitions, topics: set[bytes], share: int) -> tuple[Partitions, list[tuple[bytes, int]], int]:
    """What a member keeps of what it has, what it gives up, and how much more it may have."""
    kept: Partitions = {}
    given_up: list[tuple[bytes, int]] = []
    for topic_id in sorted(assigned.keys() & topics):
        partitions = sorted(assigned[topic_id])
        if len(partitions) <= share:
            kept[topic_id] = assigned[topic_id]
        else:
            if share:
                kept[topic_id] = frozenset(partitions[:share])
            given_up += [(topic_id, partition) for partition in partitions[share:]]
        share = max(share - len(partitions), 0)
    return kept, given_up, share

"""The range assignor: each topic is cut into runs of neighbouring partitions, one for each of its subscribers.

Members stand in the same order in every topic, static ones first, by their instance ids: topics with equal counts are cut alike,
so that records with the same key in two of them come to the same member.

Invariants
 1. A member that is subscribed to a topic has a run of it, the first ones one partition more where it does not come out even.
"""

from odradek.core.groups.assignors.members import AssignedMember, PartitionCounts, Partitions, Target


def assign_ranges(members: dict[str, AssignedMember], partition_counts: PartitionCounts) -> Target:
    ordered = sorted(members, key=lambda member_id: place_of(member_id, members[member_id]))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in sorted(members[member_id].topics):
            subscribers.setdefault(topic_id, []).append(member_id)
    target: dict[str, Partitions] = {member_id: {} for member_id in members}
    for topic_id, readers in subscribers.items():
        length, longer = divmod(partition_counts[topic_id], len(readers))
        start = 0
        for index, member_id in enumerate(readers):
            end = start + length + (index < longer)
            if start < end:
                target[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return target


def place_of(member_id: str, member: AssignedMember) -> tuple[bool, str]:
    return (member.instance_id is None, member_id if member.instance_id is None else member.instance_id)

"""The uniform assignor for members with different subscriptions.

First everybody keeps what is still in its subscription. Then what is free goes, topic by topic, to the subscriber that has least.
Then topic by topic partitions move from the subscribers that have most to those that have least, until a whole round moves none.
With overlapping subscriptions that comes near to balance and need not reach it, so the rounds are limited.

Invariants
 1. Every partition of a topic is given to exactly one of its subscribers.
 2. The subscribers of a topic that are all subscribed alike differ by at most one partition.
"""

from typing import Final

from odradek.core.groups.assignors.members import AssignedMember, PartitionCounts, Target
from odradek.core.groups.assignors.scales import Scales

ROUNDS_MAX: Final = 16
NOBODY: Final = -1


def assign_mixed(members: dict[str, AssignedMember], partition_counts: PartitionCounts) -> Target:
    return Mixed(members, partition_counts).assign()


class Mixed:
    """One assignment in the making. Members are numbers, in the order in which they were given."""

    __slots__ = ("members", "names", "owners", "sizes", "subscribers", "topics")

    def __init__(self, members: dict[str, AssignedMember], partition_counts: PartitionCounts) -> None:
        self.names = list(members)
        self.members = list(members.values())
        self.sizes = [0] * len(members)  # how many partitions each has
        self.subscribers: dict[bytes, list[int]] = {}
        for number, member in enumerate(self.members):
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(number)
        self.topics = sorted(self.subscribers, key=lambda topic_id: self.place_of(topic_id, partition_counts[topic_id]))
        self.owners = {topic_id: [NOBODY] * partition_counts[topic_id] for topic_id in self.topics}

    def place_of(self, topic_id: bytes, partition_count: int) -> tuple[float, int, int, int]:
        """Topics with many partitions for each subscriber come first, then those with few subscribers; ids are signed in Java."""
        readers = len(self.subscribers[topic_id])
        high, low = topic_id[:8], topic_id[8:]
        return (
            -partition_count / readers,
            readers,
            int.from_bytes(high, "big", signed=True),
            int.from_bytes(low, "big", signed=True),
        )

    def assign(self) -> Target:
        self.keep()
        self.give_out()
        self.balance()
        target: dict[str, dict[bytes, set[int]]] = {name: {} for name in self.names}
        for topic_id, owners in self.owners.items():
            for partition, number in enumerate(owners):
                target[self.names[number]].setdefault(topic_id, set()).add(partition)
        return {
            name: {topic_id: frozenset(partitions) for topic_id, partitions in found.items()} for name, found in target.items()
        }

    def keep(self) -> None:
        for number, member in enumerate(self.members):
            for topic_id in member.assigned.keys() & member.topics:
                self.sizes[number] += len(member.assigned[topic_id])
                for partition in member.assigned[topic_id]:
                    self.owners[topic_id][partition] = number

    def give_out(self) -> None:
        for topic_id in self.topics:
            owners = self.owners[topic_id]
            free = [partition for partition, number in enumerate(owners) if number == NOBODY]
            if free:
                scales = Scales(self.sizes, self.subscribers[topic_id])
                for partition in free:
                    self.give(topic_id, partition, scales.next_lightest())

    def give(self, topic_id: bytes, partition: int, number: int) -> None:
        old = self.owners[topic_id][partition]
        if old != NOBODY:
            self.sizes[old] -= 1
        self.owners[topic_id][partition] = number
        self.sizes[number] += 1

    def balance(self) -> None:
        """Rounds over the topics until none was balanced since the last time it came round."""
        topics = [topic_id for topic_id in self.topics if len(self.subscribers[topic_id]) > 1]
        last_changed: bytes | None = None
        for _ in range(ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_changed:
                    return
                if self.balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def balance_topic(self, topic_id: bytes) -> bool:
        """Moves partitions of the topic from who has most to who has least; whether there was something to move."""
        readers = self.subscribers[topic_id]
        loads = [self.sizes[number] for number in readers]
        if max(loads) - min(loads) <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, number in enumerate(self.owners[topic_id]):
            owned.setdefault(number, []).append(partition)
        scales = Scales(self.sizes, readers)
        has_moved = False
        while not scales.is_balanced:
            giver = scales.next_heaviest()
            while giver is not None and not owned.get(giver):
                scales.exclude_heaviest()
                giver = scales.next_heaviest()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = scales.next_lightest()
            if scales.is_balanced:
                break
            self.give(topic_id, partition, taker)
            has_moved = True
        return has_moved

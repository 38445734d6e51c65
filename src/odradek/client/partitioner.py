"""Which partition a record goes to, as Java's producer decides: by its key, or where its topic's records go at the moment.

Invariants
 1. A key goes to the same partition from here, from Java's client, and from any that hashes as Java's does, for as long as the
    topic has as many partitions.
 2. Records without a key fill one partition's batch after the other, of those that have a leader if there are any.
"""

from random import Random
from typing import Final

from odradek.client.metadata import NO_NODE, TopicInfo

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24
UINT32: Final = 0xFFFF_FFFF
POSITIVE: Final = 0x7FFF_FFFF
KEYS_KNOWN_MAX: Final = 20_000  # whose partition is remembered; then all are forgotten


def murmur2(data: bytes) -> int:
    """Java's `Utils.murmur2`, unsigned."""
    length = len(data)
    value = (SEED ^ length) & UINT32
    whole = length & ~3
    for start in range(0, whole, 4):
        part = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & UINT32
        part = (part ^ part >> SHIFT) * MULTIPLIER & UINT32
        value = (value * MULTIPLIER & UINT32) ^ part
    if length > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & UINT32
    value = (value ^ value >> 13) * MULTIPLIER & UINT32
    return value ^ value >> 15


class Partitioner:
    """Of one topic."""

    def __init__(self, topic: TopicInfo, chance: Random) -> None:
        self.chance = chance
        self.known: dict[bytes, int] = {}
        self.current = 0
        self.topic = topic
        self.learn(topic)

    def learn(self, topic: TopicInfo) -> None:
        """The topic has changed, or where it is led."""
        if len(topic.partitions) != len(self.topic.partitions):
            self.known.clear()
        self.topic = topic
        self.count = len(topic.partitions)
        led = [index for index, info in topic.partitions.items() if info.leader != NO_NODE]
        self.candidates = led or [*topic.partitions]
        if self.current not in self.candidates:
            self.move_on()

    def move_on(self) -> None:
        """The batch of the partition where records without a key go is full: the next ones go to another."""
        if self.candidates:
            others = [index for index in self.candidates if index != self.current]
            self.current = self.chance.choice(others or self.candidates)

    def of_key(self, key: bytes) -> int:
        partition = self.known.get(key)
        if partition is None:
            if len(self.known) >= KEYS_KNOWN_MAX:
                self.known.clear()
            partition = self.known[key] = (murmur2(key) & POSITIVE) % self.count
        return partition

"""The moves that empty a broker: every replica that it has goes to another one.

Invariants
 1. A partition keeps its number of replicas and their order; no broker gets two of them.
 2. A replica goes to the rack that has fewest of the others, and there to the broker with fewest replicas, moves counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec


class Placed(msgspec.Struct, frozen=True):
    """A partition, and who has it; the first of them is the preferred leader."""

    topic: str
    index: int
    replicas: tuple[int, ...]


class NoRoom(Exception):
    """A partition has more copies than there are brokers left."""

    def __init__(self, partition: Placed, brokers: int) -> None:
        super().__init__(f"{partition.topic} has {len(partition.replicas)} copies, and {brokers} other brokers are there")


def moves(partitions: Iterable[Placed], racks: Mapping[int, str | None], leaving: int) -> list[Placed]:
    """`racks` has the brokers that may take replicas. NoRoom when these do not suffice."""
    placed = sorted(partitions, key=lambda each: (each.topic, each.index))
    counts = Counter(replica for each in placed for replica in each.replicas)
    leads = Counter(each.replicas[0] for each in placed)
    found = []
    for each in placed:
        if leaving not in each.replicas:
            continue
        taker = choose(each, racks, leaving, counts, leads)
        counts[taker] += 1
        leads[taker] += each.replicas[0] == leaving
        found.append(Placed(each.topic, each.index, tuple(taker if replica == leaving else replica for replica in each.replicas)))
    return found


def choose(partition: Placed, racks: Mapping[int, str | None], leaving: int, counts: Counter[int], leads: Counter[int]) -> int:
    others = Counter(rack_of(racks, replica) for replica in partition.replicas if replica != leaving)
    takers = [broker for broker in racks if broker != leaving and broker not in partition.replicas]
    if not takers:
        raise NoRoom(partition, len([broker for broker in racks if broker != leaving]))
    is_first = partition.replicas[0] == leaving

    def cost(broker: int) -> tuple[int, int, int, int]:
        return others[rack_of(racks, broker)], counts[broker], leads[broker] if is_first else 0, broker

    return min(takers, key=cost)


def rack_of(racks: Mapping[int, str | None], broker: int) -> str:
    """A broker without a rack is one of its own."""
    return racks.get(broker) or f"broker {broker}"

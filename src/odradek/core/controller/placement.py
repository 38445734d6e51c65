"""Which brokers hold the replicas of new partitions: striped over racks first, then over machines, then over the brokers in them.

Brokers with the same advertised host are on one machine: a node uses one core, so a machine has several. Where every broker has
its own, the result is Kafka's.

Invariants
 1. No broker has two replicas of a partition; the first of them, the leader, is not fenced.
 2. Partitions one after another begin in one rack after another, and in each rack with one broker after another.
 3. In a rack, no machine has two replicas of a partition while another that could have one has none.
 4. Fenced brokers are taken only where the others do not suffice; those that shut down, or whose folders are all cordoned, never.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from odradek.core.metadata.brokers import Broker
from odradek.wire.errors import ErrorCode, Refused

Chance: TypeAlias = Callable[[int], int]  # picks a number below its argument
Some = TypeVar("Some")


def shuffle(items: list[Some], chance: Chance) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = chance(last + 1)
        items[last], items[other] = items[other], items[last]


def machine_of(broker: Broker) -> str:
    """The host that it advertises first; without one, it is alone."""
    return next((endpoint.host for endpoint in broker.listeners.values()), f"broker {broker.id}")


class Stripe:
    """Brokers of one rack, one after another and from one machine to the next; each round begins one further."""

    def __init__(self, brokers: Iterable[Broker], chance: Chance) -> None:
        self.machines = {broker.id: machine_of(broker) for broker in brokers}
        self.brokers = self._interleaved(sorted(self.machines))
        self.offset = chance(len(self.brokers)) if self.brokers else 0
        self.round = 0
        self.taken: set[int] = set()  # places, counted from the offset, that gave a broker in this round
        self.visited: set[str] = set()  # machines, since all had their turn

    def _interleaved(self, brokers: list[int]) -> list[int]:
        """Of every machine one, then of every machine the next."""
        turns: dict[str, int] = {}
        keys = []
        for place, broker in enumerate(brokers):
            turn = turns[self.machines[broker]] = turns.get(self.machines[broker], -1) + 1
            keys.append((turn, place, broker))
        return [broker for *_, broker in sorted(keys)]

    def shuffle(self, chance: Chance) -> None:
        shuffle(self.brokers, chance)
        self.brokers = self._interleaved(self.brokers)
        self.visited.clear()

    def next(self, round_: int) -> int | None:
        """The next broker of a round; None when all have been taken."""
        count = len(self.brokers)
        if self.round != round_:
            self.round = round_
            self.taken.clear()
            self.visited.clear()
            self.offset = (self.offset + 1) % count if count else 0
        if len(self.taken) == count:
            return None
        broker = self._take()
        if broker is None:  # all machines have had their turn: once more
            self.visited.clear()
            broker = self._take()
        return broker

    def _take(self) -> int | None:
        for place in range(len(self.brokers)):
            broker = self.brokers[(place + self.offset) % len(self.brokers)]
            if place not in self.taken and self.machines[broker] not in self.visited:
                self.taken.add(place)
                self.visited.add(self.machines[broker])
                return broker
        return None


class Rack:
    def __init__(self, brokers: list[Broker], chance: Chance) -> None:
        self.fenced = Stripe([broker for broker in brokers if broker.fenced], chance)
        self.unfenced = Stripe([broker for broker in brokers if not broker.fenced], chance)

    def next(self, round_: int) -> int | None:
        broker = self.unfenced.next(round_)
        return broker if broker is not None else self.fenced.next(round_)


class Placement:
    """Places replicas on brokers that take new partitions."""

    def __init__(self, brokers: Iterable[Broker], chance: Chance) -> None:
        usable = [broker for broker in brokers if is_usable(broker)]
        self.chance = chance
        by_rack: dict[str | None, list[Broker]] = {}
        for broker in usable:
            by_rack.setdefault(broker.rack, []).append(broker)
        names = sorted(by_rack, key=lambda rack: (rack is not None, rack or ""))
        self.by_name = [Rack(by_rack[name], chance) for name in names]
        self.racks = list(self.by_name)  # in the order in which they have their turns
        self.broker_count = len(usable)
        self.unfenced_count = sum(not broker.fenced for broker in usable)
        self.offset = chance(len(self.racks)) if self.racks else 0
        self.round = 0

    def check(self, replication_factor: int) -> None:
        if replication_factor <= 0:
            reason = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        if not self.unfenced_count:
            reason = "All brokers are currently fenced, or have all their log directories cordoned."
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        if replication_factor > self.broker_count:
            reason = (
                f"The target replication factor of {replication_factor} cannot be reached because only {self.broker_count} "
                "broker(s) are registered or some brokers have all their log directories cordoned."
            )
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)

    def next(self, replication_factor: int) -> list[int]:
        """The replicas of the next partition, the leader first."""
        self.check(replication_factor)
        if self.round == self.unfenced_count and self.unfenced_count > 1:  # else the same would come again
            shuffle(self.racks, self.chance)
            for rack in self.by_name:
                rack.fenced.shuffle(self.chance)
                rack.unfenced.shuffle(self.chance)
            self.round = 0
        self.offset %= len(self.racks)
        replicas, led_by = self._leader()
        at = self.offset
        while len(replicas) < replication_factor:
            if at == led_by:
                led_by = -1  # this rack has had its turn; in the next round it takes part again
            elif (broker := self.racks[at].next(self.round)) is not None:
                replicas.append(broker)
            at = (at + 1) % len(self.racks)
        self.round += 1
        self.offset += 1
        return replicas

    def _leader(self) -> tuple[list[int], int]:
        """The first replica, and the rack that gave it."""
        at = self.offset
        while (leader := self.racks[at].unfenced.next(self.round)) is None:
            at = (at + 1) % len(self.racks)
        return [leader], at


def is_usable(broker: Broker) -> bool:
    """Whether a broker takes new partitions. One that is fenced may come back; one that is shutting down goes first."""
    is_leaving = broker.in_controlled_shutdown and not broker.fenced
    return not is_leaving and broker.has_uncordoned_log_dirs

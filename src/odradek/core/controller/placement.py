"""Which brokers hold the replicas of new partitions: striped over racks first, then over the brokers in them, as Kafka does it.

Invariants
 1. No broker has two replicas of a partition; the first of them, the leader, is not fenced.
 2. Partitions one after another begin in one rack after another, and in each rack with one broker after another.
 3. Fenced brokers are taken only where the others do not suffice.
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


class Stripe:
    """Brokers of one rack, one after another; each round begins one further."""

    def __init__(self, brokers: Iterable[int], chance: Chance) -> None:
        self.brokers = sorted(brokers)
        self.offset = chance(len(self.brokers)) if self.brokers else 0
        self.index = 0
        self.round = 0

    def next(self, round_: int) -> int | None:
        """The next broker of a round; None when it has been once around."""
        count = len(self.brokers)
        if self.round != round_:
            self.round = round_
            self.index = 0
            self.offset = (self.offset + 1) % count if count else 0
        if self.index >= count:
            return None
        broker = self.brokers[(self.index + self.offset) % count]
        self.index += 1
        return broker


class Rack:
    def __init__(self, brokers: list[Broker], chance: Chance) -> None:
        self.fenced = Stripe([broker.id for broker in brokers if broker.fenced], chance)
        self.unfenced = Stripe([broker.id for broker in brokers if not broker.fenced], chance)

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
        self.racks = [Rack(by_rack[name], chance) for name in names]
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
            for rack in self.racks:
                shuffle(rack.fenced.brokers, self.chance)
                shuffle(rack.unfenced.brokers, self.chance)
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

"""Where partitions are: by broker that leads them, has them in an ISR, or may lead them, and by folder.

An image keeps this beside its topics, so that a broker that goes costs as much as it had, and not a look at every partition. Only
controllers ask for it: it is made when it is first asked for, and kept from then on.

Invariants
 1. It says what the partitions of the image say: `update` is called for each that is created, changed or deleted.
 2. Nothing is kept for brokers and folders that have no partition.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias, TypeVar

from odradek.core.metadata.topics import Partition, Topic, is_reserved

PartitionKey: TypeAlias = tuple[bytes, int]  # id of the topic, number of the partition
Place = TypeVar("Place", int, bytes)
Index: TypeAlias = dict[Place, dict[PartitionKey, None]]  # dicts, because their order is that of the log


class Locations:
    __slots__ = ("directories", "elr", "imbalanced", "isr", "leaders", "reassigning")

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self.leaders: Index[int] = {}  # with NO_LEADER for what has none
        self.isr: Index[int] = {}
        self.elr: Index[int] = {}
        self.directories: Index[bytes] = {}
        self.imbalanced: dict[PartitionKey, None] = {}  # led by another than the preferred leader, or by nobody
        self.reassigning: dict[PartitionKey, None] = {}
        for topic in topics:
            for number, partition in topic.partitions.items():
                self.update((topic.id, number), None, partition)

    def update(self, key: PartitionKey, before: Partition | None, after: Partition | None) -> None:
        old, new = before or NOWHERE, after or NOWHERE
        if old.isr != new.isr:
            move(self.isr, key, old.isr, new.isr)
        if old.elr != new.elr:
            move(self.elr, key, old.elr, new.elr)
        if old.directories != new.directories:
            move(self.directories, key, folders(old), folders(new))
        was_led = () if before is None else (before.leader,)
        is_led = () if after is None else (after.leader,)
        if was_led != is_led:
            move(self.leaders, key, was_led, is_led)
        mark(self.imbalanced, key, after is not None and after.leader != after.preferred_leader)
        mark(self.reassigning, key, new.is_reassigning)


NOWHERE: Final = Partition(replicas=(), isr=(), directories=())


def folders(partition: Partition) -> list[bytes]:
    return [directory for directory in partition.directories if not is_reserved(directory)]


def move(index: Index[Place], key: PartitionKey, old: Iterable[Place], new: Iterable[Place]) -> None:
    for place in set(old) - set(new):
        keys = index[place]
        del keys[key]
        if not keys:
            del index[place]
    for place in new:
        index.setdefault(place, {})[key] = None


def mark(keys: dict[PartitionKey, None], key: PartitionKey, is_in: bool) -> None:
    if is_in:
        keys[key] = None
    else:
        keys.pop(key, None)

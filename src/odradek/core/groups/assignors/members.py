"""What an assignor is given, and what it gives back."""

from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from msgspec import Struct

Partitions: TypeAlias = dict[bytes, frozenset[int]]  # by topic id; no topic without a partition
PartitionCounts: TypeAlias = dict[bytes, int]  # of every topic that somebody is subscribed to
Target: TypeAlias = dict[str, Partitions]  # by member id, an entry for each member

NO_PARTITIONS: Final[Partitions] = {}


class AssignedMember(Struct, frozen=True):
    """A member: what it wants, and what it was given last time."""

    topics: AbstractSet[bytes]  # those of its subscription that exist
    assigned: Partitions = {}
    instance_id: str | None = None


def is_homogeneous(members: dict[str, AssignedMember]) -> bool:
    """All are subscribed to the same topics."""
    found = iter(members.values())
    first = next(found, None)
    return first is None or all(member.topics == first.topics for member in found)

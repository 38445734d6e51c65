"""Assignors of the new group protocol: who of a group's members gets which partitions.

    assignors.ASSIGNORS["uniform"](members, partition_counts) -> target, by member id

The names are Kafka's, and so are the results: where Kafka goes by the order of a hash table, these go by the order in which the
members are given and by ascending topic ids.
"""

from collections.abc import Callable
from typing import Final

from odradek.core.groups.assignors.by_range import assign_ranges
from odradek.core.groups.assignors.members import AssignedMember, PartitionCounts, Target
from odradek.core.groups.assignors.uniform import assign_uniformly

Assignor = Callable[[dict[str, AssignedMember], PartitionCounts], Target]

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}

"""Which protocol a member speaks: the new one (KIP-848) where the cluster has it, unless somebody wants it otherwise.

Invariants
 1. Who names an assignor that only members know, or a pattern that the coordinator cannot match, gets the classic protocol.
"""

from typing import Final, Literal

from odradek.client.cluster import GROUP, Cluster
from odradek.client.errors import InvalidOption
from odradek.client.group.classic import ClassicMember
from odradek.client.group.member import Member, Terms, Wanted
from odradek.client.group.modern import KEY, OWN_IDS_SINCE, ModernMember

Protocol = Literal["auto", "consumer", "classic"]
FEATURE: Final = "group.version"
SERVER_ASSIGNORS: Final = ("uniform",)  # "range" has both kinds


async def choose(cluster: Cluster, protocol: Protocol, terms: Terms, wanted: Wanted) -> type[Member]:
    if protocol == "classic":
        return ClassicMember
    if protocol == "consumer":
        return ModernMember
    if protocol != "auto":
        raise InvalidOption(f"there is no group protocol {protocol!r}; there are auto, consumer and classic")
    if terms.assignors and not set(terms.assignors) <= set(SERVER_ASSIGNORS):
        return ClassicMember

    async def attempt() -> type[Member]:
        node = await cluster.coordinator(GROUP, terms.group)
        connection = await cluster.connection(node, "coordinator")
        version = connection.find_version(KEY)
        if version is None or connection.features.get(FEATURE, 0) < 1:
            return ClassicMember
        return ClassicMember if wanted.pattern is not None and version < OWN_IDS_SINCE else ModernMember

    return await cluster.insist(f"to find the coordinator of group {terms.group}", attempt)

"""What happens to partitions when brokers come and go: who leaves which ISR, and who leads then.

Invariants
 1. A broker that leaves is in no ISR and leads nothing; one that stopped uncleanly is not eligible to lead either.
 2. A broker that comes leads partitions that have no leader, where it may.
"""

from collections.abc import Callable, Iterable

import msgspec

from odradek.core.controller.decision import Versioned
from odradek.core.controller.partition_change import Election, PartitionChange
from odradek.core.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from odradek.core.metadata.locations import PartitionKey
from odradek.core.metadata.topics import NO_LEADER

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class ReplicationRules(msgspec.Struct, frozen=True, kw_only=True):
    """The node's own settings, which count where neither the topic nor the cluster says otherwise."""

    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False


def topic_setting(image: MetadataImage, topic: str, name: str) -> str | None:
    """The value that a topic has, of its own or of the cluster."""
    for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
        value = image.configs.get(resource, {}).get(name)
        if value is not None:
            return value
    return None


def effective_min_insync_replicas(image: MetadataImage, topic: str, number: int, rules: ReplicationRules) -> int:
    """Never more than the partition has replicas, as for its leader: partitions of a topic may have different ones."""
    value = topic_setting(image, topic, MIN_INSYNC_REPLICAS)
    wanted = rules.min_insync_replicas if value is None else int(value)
    return min(wanted, len(image.topics[topic].partitions[number].replicas))


def may_elect_unclean(image: MetadataImage, topic: str, rules: ReplicationRules) -> bool:
    value = topic_setting(image, topic, UNCLEAN_ELECTION)
    return rules.unclean_leader_election_enable if value is None else value.strip().lower() == "true"


def in_isr(image: MetadataImage, broker: int) -> list[PartitionKey]:
    return list(image.locations.isr.get(broker, ()))


def in_elr(image: MetadataImage, broker: int) -> list[PartitionKey]:
    return list(image.locations.elr.get(broker, ()))


def leaderless(image: MetadataImage) -> list[PartitionKey]:
    return list(image.locations.leaders.get(NO_LEADER, ()))


def partition_change(
    image: MetadataImage,
    key: PartitionKey,
    rules: ReplicationRules,
    election: Election | None = None,
    may_lead: Callable[[int], bool] | None = None,
) -> PartitionChange:
    """A change under the settings of its topic. Where no election is asked for, it is unclean if the topic allows that."""
    topic_id, number = key
    topic = image.topics_by_id[topic_id].name

    def is_active(broker: int) -> bool:
        return broker in image.brokers and image.brokers[broker].is_active

    if election is None:
        election = Election.UNCLEAN if may_elect_unclean(image, topic, rules) else Election.ONLINE
    minimum = effective_min_insync_replicas(image, topic, number, rules)
    return PartitionChange(image, topic_id, number, minimum, may_lead or is_active, election)


def changes(
    image: MetadataImage,
    chosen: Iterable[PartitionKey],
    rules: ReplicationRules,
    *,
    leaving: int | None = None,
    coming: int | None = None,
    unclean_stop: int | None = None,
) -> list[Versioned]:
    """The records of partitions that change because a broker leaves, comes, or has lost its tail."""

    def may_lead(broker: int) -> bool:
        if broker in (leaving, unclean_stop):
            return False
        return broker == coming or (broker in image.brokers and image.brokers[broker].is_active)

    records = []
    for key in chosen:
        change = partition_change(image, key, rules, may_lead=may_lead)
        change.isr = [broker for broker in change.isr if broker not in (leaving, unclean_stop)]
        change.unclean_stop = unclean_stop
        record = change.record()
        if record is not None:
            records.append(record)
    return records

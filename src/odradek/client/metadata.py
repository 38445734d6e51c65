"""What is known of a cluster: its brokers, and where the partitions of the topics that somebody asked for are led.

Invariants
 1. Of one topic's id, metadata of a partition are not taken that are older than others before: leader epochs only grow.
 2. What another broker says in passing is kept apart from that. It may mean a topic that was deleted, by its name: metadata that
    say otherwise DOUBTS_MAX times are right.
 3. The id of a topic that was replaced by another of its name is news of a broker that is behind. Only where RETURNS_MAX of
    them in a row name it, it was the other one that was behind.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from odradek.client.errors import known_code
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import MetadataResponse

NO_NODE: Final = -1
NO_EPOCH: Final = -1
NO_ID: Final = bytes(16)
DOUBTS_MAX: Final = 2
RETURNS_MAX: Final = 5
REPLACED_MAX: Final = 1_000  # topics whose ids are remembered, the last ones


class Broker(Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(Struct, frozen=True):
    index: int
    leader: int  # NO_NODE where there is none
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicInfo(Struct, frozen=True):
    name: str
    id: bytes
    partitions: dict[int, PartitionInfo]
    is_internal: bool = False


class Hint(Struct):
    """Of a broker in passing, about a partition."""

    told_epoch: int  # by metadata, before
    doubts: int = 0  # metadata that have said otherwise since


class Metadata:
    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller = NO_NODE
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.names: dict[bytes, str] = {}  # of topics by id
        self.errors: dict[str, ErrorCode] = {}  # of topics that were asked for, and are not there
        self._replaced: dict[bytes, None] = {}  # ids of topics, the last one last
        self._returns: dict[str, int] = {}  # of such an id, in a row, by topic
        self._hints: dict[str, dict[int, Hint]] = {}  # that are believed, by topic and partition

    def leader(self, topic: str, partition: int) -> int | None:
        found = self.topics.get(topic)
        info = found.partitions.get(partition) if found is not None else None
        return info.leader if info is not None and info.leader != NO_NODE else None

    def take(self, response: MetadataResponse) -> list[str]:
        """What a broker says. Gives the topics of which something is new."""
        self.cluster_id, self.controller = response.cluster_id, response.controller_id
        if response.brokers:
            self.brokers = {each.node_id: Broker(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
        changed = []
        for topic in response.topics:
            name = topic.name if topic.name is not None else self.names.get(topic.topic_id)
            if name is None:
                continue
            if topic.error_code:
                self.errors[name] = known_code(topic.error_code)
                if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    self._forget(name)
                continue
            self.errors.pop(name, None)
            if self._take_topic(name, topic):
                changed.append(name)
        return changed

    def _take_topic(self, name: str, topic: MetadataResponse.MetadataResponseTopic) -> bool:
        known = self.topics.get(name)
        is_same = known is not None and known.id == topic.topic_id
        if known is not None and topic.topic_id in self._replaced:
            self._returns[name] = self._returns.get(name, 0) + 1
            if self._returns[name] < RETURNS_MAX:
                return False
        self._returns.pop(name, None)
        partitions = dict(known.partitions) if known is not None and is_same else {}
        hints = self._hints.pop(name, {}) if not is_same else self._hints.get(name, {})
        for each in topic.partitions:
            before = partitions.get(each.partition_index)
            if before is not None and before.leader_epoch > each.leader_epoch and not is_overruled(hints, each):
                continue
            hints.pop(each.partition_index, None)
            partitions[each.partition_index] = PartitionInfo(
                index=each.partition_index,
                leader=each.leader_id,
                leader_epoch=each.leader_epoch,
                replicas=tuple(each.replica_nodes),
                in_sync=tuple(each.isr_nodes),
                offline=tuple(each.offline_replicas),
            )
        found = TopicInfo(name, topic.topic_id, partitions, topic.is_internal)
        if found == known:
            return False
        if known is not None:
            self.names.pop(known.id, None)
            if not is_same:
                self._replace(known.id, found.id)
        self.topics[name] = found
        if found.id != NO_ID:
            self.names[found.id] = name
        return True

    def _replace(self, before: bytes, now: bytes) -> None:
        self._replaced.pop(now, None)
        if NO_ID not in (before, now):
            self._replaced[before] = None
        if len(self._replaced) > REPLACED_MAX:
            del self._replaced[next(iter(self._replaced))]

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> bool:
        """Who leads a partition, as another broker says in passing. False when that is not new."""
        known = self.topics.get(topic)
        info = known.partitions.get(partition) if known is not None else None
        if known is None or info is None or leader == NO_NODE or leader_epoch <= info.leader_epoch:
            return False
        hints = self._hints.setdefault(topic, {})
        hints[partition] = Hint(hints[partition].told_epoch if partition in hints else info.leader_epoch)
        changed = PartitionInfo(partition, leader, leader_epoch, info.replicas, info.in_sync, info.offline)
        self.topics[topic] = TopicInfo(topic, known.id, {**known.partitions, partition: changed}, known.is_internal)
        return True

    def learn_brokers(self, brokers: Iterable[Broker]) -> None:
        for broker in brokers:
            self.brokers[broker.id] = broker

    def keep(self, topics: Iterable[str]) -> None:
        """Forgets all others."""
        wanted = set(topics)
        for name in [*self.topics]:
            if name not in wanted:
                self._forget(name)
        self.errors = {name: error for name, error in self.errors.items() if name in wanted}

    def _forget(self, name: str) -> None:
        self._hints.pop(name, None)
        self._returns.pop(name, None)
        known = self.topics.pop(name, None)
        if known is not None:
            self.names.pop(known.id, None)


def is_overruled(hints: dict[int, Hint], told: MetadataResponse.MetadataResponsePartition) -> bool:
    """Whether what was heard of a partition in passing is wrong, as metadata say that are older by their epoch."""
    hint = hints.get(told.partition_index)
    if hint is None or told.leader_epoch < hint.told_epoch:
        return False
    hint.doubts += 1
    return hint.doubts >= DOUBTS_MAX

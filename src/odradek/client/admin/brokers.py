"""Brokers: who they are, which features they agree on, and the folders that they keep logs in."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, by_topic, failure, outcome
from odradek.client.admin.ways import Anywhere, Brokers
from odradek.client.connection import SOFTWARE, Connection, software_version
from odradek.client.errors import KafkaError, refused
from odradek.client.metadata import NO_NODE
from odradek.client.records import TopicPartition
from odradek.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.wire.operations import Operation, operations


class Member(Struct, frozen=True):
    """A broker. A fenced one is known, and not there now."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


class ClusterDescription(Struct, frozen=True):
    """`controller` is the broker to ask for what a controller decides, which in Apache Kafka may be any."""

    id: str
    controller: int | None
    brokers: dict[int, Member]
    operations: frozenset[Operation] | None = None


class Replica(NamedTuple):
    """A partition on a broker."""

    topic: str
    partition: int
    broker: int


class ReplicaLog(Struct, frozen=True):
    """`offset_lag`: how far it is behind; `is_future`: it is to take the place of the one that is in another folder."""

    size_bytes: int
    offset_lag: int
    is_future: bool = False


class LogDir(Struct, frozen=True):
    """A folder with an error is offline. Bytes are those of the file system, None where the broker does not tell."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    logs: dict[TopicPartition, ReplicaLog]
    is_cordoned: bool = False


class Feature(Struct, frozen=True):
    """`level` is what the cluster has agreed on, None where on nothing; the others are what the broker that was asked knows."""

    name: str
    level: int | None
    level_min: int
    level_max: int


class Features(Struct, frozen=True):
    epoch: int
    features: dict[str, Feature]


class Upgrade(IntEnum):
    """How the level of a feature may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class ClusterMembers(Asking):
    async def describe_cluster(
        self, *, include_fenced: bool = False, include_operations: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        request = DescribeClusterRequest(
            include_fenced_brokers=include_fenced, include_cluster_authorized_operations=include_operations
        )
        found = await self._one("to describe the cluster", request, DescribeClusterResponse, timeout_ms)
        brokers = {
            each.broker_id: Member(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in sorted(found.brokers, key=lambda each: each.broker_id)
        }
        controller = None if found.controller_id == NO_NODE else found.controller_id
        return ClusterDescription(found.cluster_id, controller, brokers, operations(found.cluster_authorized_operations))

    async def unregister_broker(self, broker: int, *, timeout_ms: float | None = None) -> None:
        """Forgets a broker that has stopped for good."""
        request = UnregisterBrokerRequest(broker_id=broker)
        await self._one(f"to unregister broker {broker}", request, UnregisterBrokerResponse, timeout_ms)

    # -- features

    async def describe_features(self, *, timeout_ms: float | None = None) -> Features:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=software_version())
        found = await self._one("to describe the features", request, ApiVersionsResponse, timeout_ms)
        levels = {each.name: each.max_version_level for each in found.finalized_features}
        features = {
            each.name: Feature(each.name, levels.get(each.name), each.min_version, each.max_version)
            for each in sorted(found.supported_features, key=lambda each: each.name)
        }
        return Features(found.finalized_features_epoch, features)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade: Upgrade = Upgrade.UPGRADE,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Level 0 takes a feature away. All levels are changed, or none."""
        kind = UpdateFeaturesRequest
        updates = [
            kind.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade) for name, level in levels.items()
        ]
        request = kind(timeout_ms=self._patience_ms, feature_updates=updates, validate_only=validate_only)

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            answer = await connection.post(request, UpdateFeaturesResponse, self._patience_ms)
            told: dict[str, KafkaError | None] = dict.fromkeys(asked, failure(answer))
            for each in answer.results:  # of older brokers
                if each.error_code:
                    told[each.feature] = refused(each.error_code, each.error_message)
            return told

        await self._each("to update features", levels, Anywhere(), ask, timeout_ms)

    # -- folders

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, dict[str, LogDir]]:
        """The folders of brokers (None: of all that are there), by path, with what is in them, or some partitions of it."""
        kind = DescribeLogDirsRequest.DescribableLogDirTopic
        topics = None
        if partitions is not None:
            topics = [kind(topic=name, partitions=parts) for name, parts in by_topic(partitions).items()]

        async def ask(connection: Connection, asked: list[int]) -> Outcomes[int, dict[str, LogDir]]:
            request = DescribeLogDirsRequest(topics=topics)
            answer = await connection.post(request, DescribeLogDirsResponse, self._patience_ms)
            found = failure(answer) or {each.log_dir: log_dir(each) for each in answer.results}
            return dict.fromkeys(asked, found)

        return await self._each_broker("to describe folders", ask, timeout_ms, brokers)

    async def alter_replica_log_dirs(self, paths: Mapping[Replica, str], *, timeout_ms: float | None = None) -> None:
        """Moves logs to other folders of their brokers. They are copied; `describe_log_dirs` shows how far that is."""
        kind = AlterReplicaLogDirsRequest

        async def ask(connection: Connection, asked: list[Replica]) -> Outcomes[Replica, None]:
            broker = asked[0].broker
            dirs: dict[str, list[TopicPartition]] = {}
            for replica in asked:
                dirs.setdefault(paths[replica], []).append(TopicPartition(replica.topic, replica.partition))
            request = kind(dirs=[alteration(path, held) for path, held in dirs.items()])
            answer = await connection.post(request, AlterReplicaLogDirsResponse, self._patience_ms)
            return {
                Replica(topic.topic_name, part.partition_index, broker): outcome(
                    None, part.error_code, topic=topic.topic_name, partition=part.partition_index
                )
                for topic in answer.results
                for part in topic.partitions
            }

        await self._each("to move logs", paths, Brokers(broker_of), ask, timeout_ms)


def broker_of(key: object) -> int:
    assert isinstance(key, Replica)
    return key.broker


def alteration(path: str, held: list[TopicPartition]) -> AlterReplicaLogDirsRequest.AlterReplicaLogDir:
    kind = AlterReplicaLogDirsRequest
    topics = [kind.AlterReplicaLogDirTopic(name=name, partitions=parts) for name, parts in by_topic(held).items()]
    return kind.AlterReplicaLogDir(path=path, topics=topics)


def log_dir(found: DescribeLogDirsResponse.DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=found.log_dir,
        error=refused(found.error_code, found.log_dir) if found.error_code else None,
        total_bytes=None if found.total_bytes < 0 else found.total_bytes,
        usable_bytes=None if found.usable_bytes < 0 else found.usable_bytes,
        logs={
            TopicPartition(topic.name, part.partition_index): ReplicaLog(part.partition_size, part.offset_lag, part.is_future_key)
            for topic in found.topics
            for part in topic.partitions
        },
        is_cordoned=found.is_cordoned,
    )

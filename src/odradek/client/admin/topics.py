"""Topics: list, describe, create, delete, more partitions, and records that are deleted from the begin of a partition on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, given_id, outcome
from odradek.client.admin.ways import Anywhere, Leaders, look
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.client.metadata import NO_NODE
from odradek.client.records import TopicPartition
from odradek.wire.ids import id_text
from odradek.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from odradek.wire.operations import Operation, operations

BY_DEFAULT: Final = -1  # of the cluster
HIGH_WATERMARK: Final = -1  # delete_records: all that can be deleted
DELETION_BY_ID_SINCE: Final = 6
PARTITIONS_AT_ONCE: Final = 2000


class NewTopic(Struct, frozen=True):
    """`assignments` says which brokers have which partition; numbers of partitions and copies are left out then."""

    name: str
    partitions: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    configs: Mapping[str, str | None] = {}
    assignments: Mapping[int, Sequence[int]] = {}


class CreatedTopic(Struct, frozen=True):
    """`configs` has the values that it has, its own and those of the cluster; empty where the cluster does not tell."""

    name: str
    id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str | None] = {}


class Partition(Struct, frozen=True):
    """`eligible` may lead though they are not in sync: None where the cluster does not tell."""

    index: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()
    eligible: tuple[int, ...] | None = None
    last_eligible: tuple[int, ...] | None = None

    @property
    def is_healthy(self) -> bool:
        """Somebody leads it, and all that should have it are in sync."""
        return self.leader is not None and len(self.in_sync) >= len(self.replicas)


class Topic(Struct, frozen=True):
    name: str
    id: str
    is_internal: bool
    partitions: tuple[Partition, ...]
    operations: frozenset[Operation] | None = None


class Topics(Asking):
    async def list_topics(self, *, include_internal: bool = False, timeout_ms: float | None = None) -> dict[str, Topic]:
        """All that there are, with their partitions."""

        async def attempt() -> dict[str, Topic]:
            found = await look(self.cluster, None)
            topics = [listed(topic) for topic in found.topics if not topic.error_code]
            return {
                each.name: each
                for each in sorted(topics, key=lambda topic: topic.name)
                if include_internal or not each.is_internal
            }

        return await self.cluster.insist("to list the topics", attempt, timeout_ms)

    async def describe_topics(
        self, names: Iterable[str], *, include_operations: bool = False, timeout_ms: float | None = None
    ) -> dict[str, Topic]:
        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Topic]:
            if not include_operations and connection.serves(DescribeTopicPartitionsRequest.schema.key):
                return await self._describe_pages(connection, asked)
            kind = MetadataRequest.MetadataRequestTopic
            request = MetadataRequest(
                topics=[kind(name=name) for name in asked],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=include_operations,
            )
            answer = await connection.post(request, MetadataResponse, self._patience_ms)
            return {
                topic.name or "": refused(topic.error_code, topic=topic.name) if topic.error_code else listed(topic)
                for topic in answer.topics
            }

        return await self._each("to describe topics", names, Anywhere(), ask, timeout_ms)

    async def _describe_pages(self, connection: Connection, asked: list[str]) -> Outcomes[str, Topic]:
        """A page may end in the middle of a topic."""
        kind = DescribeTopicPartitionsRequest
        named = [kind.TopicRequest(name=name) for name in sorted(asked)]
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None
        found: dict[str, Topic | KafkaError] = {}
        while True:
            request = kind(topics=named, response_partition_limit=PARTITIONS_AT_ONCE, cursor=cursor)
            answer = await connection.post(request, DescribeTopicPartitionsResponse, self._patience_ms)
            for topic in answer.topics:
                before = found.get(topic.name or "")
                found[topic.name or ""] = described(topic, before.partitions if isinstance(before, Topic) else ())
            if answer.next_cursor is None:
                return found
            cursor = kind.Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic]:
        """`validate_only`: says whether they could be created, and leaves it at that."""
        wanted = {topic.name: topic for topic in topics}

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[creatable(wanted[name]) for name in asked], timeout_ms=self._patience_ms, validate_only=validate_only
            )
            answer = await connection.post(request, CreateTopicsResponse, self._patience_ms)
            return {each.name: created(each) for each in answer.topics}

        return await self._each("to create topics", wanted, Anywhere(), ask, timeout_ms)

    async def delete_topics(self, names: Iterable[str] = (), *, ids: Iterable[str] = (), timeout_ms: float | None = None) -> None:
        """By their names, or by their ids, for good."""
        by_id = {each: given_id(each) for each in ids}

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            kind = DeleteTopicsRequest
            if connection.version(kind.schema.key) < DELETION_BY_ID_SINCE and not by_id:
                request = kind(topic_names=asked, timeout_ms=self._patience_ms)
            else:
                states = [kind.DeleteTopicState(topic_id=by_id[each]) for each in asked if each in by_id]
                states += [kind.DeleteTopicState(name=each) for each in asked if each not in by_id]
                request = kind(topics=states, timeout_ms=self._patience_ms)
            answer = await connection.post(request, DeleteTopicsResponse, self._patience_ms)
            found: dict[str, KafkaError | None] = {}
            for each in answer.responses:
                known = id_text(each.topic_id)
                key = known if known in by_id else each.name or ""
                found[key] = outcome(None, each.error_code, each.error_message, topic=key)
            return found

        await self._each("to delete topics", [*names, *by_id], Anywhere(), ask, timeout_ms)

    async def add_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """How many partitions topics shall have; `assignments` says which brokers have each new one. Cannot be taken back, and
        keys go to other partitions from then on."""
        kind = CreatePartitionsRequest

        def wanted(name: str) -> CreatePartitionsRequest.CreatePartitionsTopic:
            placed = (assignments or {}).get(name)
            given = None if placed is None else [kind.CreatePartitionsAssignment(broker_ids=[*each]) for each in placed]
            return kind.CreatePartitionsTopic(name=name, count=totals[name], assignments=given)

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = kind(topics=[*map(wanted, asked)], timeout_ms=self._patience_ms, validate_only=validate_only)
            answer = await connection.post(request, CreatePartitionsResponse, self._patience_ms)
            return {each.name: outcome(None, each.error_code, each.error_message, topic=each.name) for each in answer.results}

        await self._each("to add partitions", totals, Anywhere(), ask, timeout_ms)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes what lies before an offset (HIGH_WATERMARK: all); gives where partitions begin now."""
        kind = DeleteRecordsRequest

        async def ask(connection: Connection, asked: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
            topics: dict[str, list[DeleteRecordsRequest.DeleteRecordsPartition]] = {}
            for key in asked:
                part = kind.DeleteRecordsPartition(partition_index=key.partition, offset=offsets[key])
                topics.setdefault(key.topic, []).append(part)
            named = [kind.DeleteRecordsTopic(name=name, partitions=parts) for name, parts in topics.items()]
            answer = await connection.post(
                kind(topics=named, timeout_ms=self._patience_ms), DeleteRecordsResponse, self._patience_ms
            )
            return {
                TopicPartition(topic.name, part.partition_index): outcome(
                    part.low_watermark, part.error_code, topic=topic.name, partition=part.partition_index
                )
                for topic in answer.topics
                for part in topic.partitions
            }

        return await self._each("to delete records", offsets, Leaders(), ask, timeout_ms)


def creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    kind = CreateTopicsRequest
    return kind.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            kind.CreatableReplicaAssignment(partition_index=index, broker_ids=[*brokers])
            for index, brokers in topic.assignments.items()
        ],
        configs=[kind.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def created(each: CreateTopicsResponse.CreatableTopicResult) -> CreatedTopic | KafkaError:
    if each.error_code:
        return refused(each.error_code, each.error_message, topic=each.name)
    configs = {config.name: config.value for config in each.configs or ()}
    return CreatedTopic(each.name, id_text(each.topic_id), each.num_partitions, each.replication_factor, configs)


def listed(topic: MetadataResponse.MetadataResponseTopic) -> Topic:
    partitions = [
        Partition(
            index=part.partition_index,
            leader=None if part.leader_id == NO_NODE else part.leader_id,
            leader_epoch=part.leader_epoch,
            replicas=tuple(part.replica_nodes),
            in_sync=tuple(part.isr_nodes),
            offline=tuple(part.offline_replicas),
        )
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]
    may = operations(topic.topic_authorized_operations)
    return Topic(topic.name or "", id_text(topic.topic_id), topic.is_internal, tuple(partitions), may)


def described(
    topic: DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic, before: tuple[Partition, ...]
) -> Topic | KafkaError:
    """`before`: partitions that earlier pages had."""
    if topic.error_code:
        return refused(topic.error_code, topic=topic.name)
    partitions = [
        Partition(
            index=part.partition_index,
            leader=None if part.leader_id == NO_NODE else part.leader_id,
            leader_epoch=part.leader_epoch,
            replicas=tuple(part.replica_nodes),
            in_sync=tuple(part.isr_nodes),
            offline=tuple(part.offline_replicas),
            eligible=None if part.eligible_leader_replicas is None else tuple(part.eligible_leader_replicas),
            last_eligible=None if part.last_known_elr is None else tuple(part.last_known_elr),
        )
        for part in topic.partitions
    ]
    may = operations(topic.topic_authorized_operations)
    return Topic(topic.name or "", id_text(topic.topic_id), topic.is_internal, (*before, *partitions), may)

"""Where partitions are: other replicas for them, moves that are under way, and elections of their leaders."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, by_topic, failure, outcome
from odradek.client.admin.ways import Anywhere
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, SomeFailed
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class Reassignment(Struct, frozen=True):
    """A move that is under way: `replicas` has both those that come and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Election(IntEnum):
    """PREFERRED: the first of the replicas, if it is in sync. UNCLEAN: any of them, and what only others have is lost."""

    PREFERRED = 0
    UNCLEAN = 1


class Placement(Asking):
    async def reassign_partitions(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        may_change_count: bool = True,
        timeout_ms: float | None = None,
    ) -> None:
        """Begins to move partitions to brokers, the first of which is to lead; None takes a move back that is under way."""
        kind = AlterPartitionReassignmentsRequest

        async def ask(connection: Connection, asked: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
            for key in asked:
                wanted = replicas[key]
                part = kind.ReassignablePartition(partition_index=key.partition, replicas=None if wanted is None else [*wanted])
                topics.setdefault(key.topic, []).append(part)
            request = kind(
                timeout_ms=self._patience_ms,
                allow_replication_factor_change=may_change_count,
                topics=[kind.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
            )
            answer = await connection.post(request, AlterPartitionReassignmentsResponse, self._patience_ms)
            told: dict[TopicPartition, KafkaError | None] = dict.fromkeys(asked, failure(answer))
            for topic in answer.responses:
                for each in topic.partitions:
                    told[TopicPartition(topic.name, each.partition_index)] = outcome(
                        None, each.error_code, each.error_message, topic=topic.name, partition=each.partition_index
                    )
            return told

        await self._each("to move partitions", replicas, Anywhere(), ask, timeout_ms)

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Moves that are under way, of some partitions or of all."""
        kind = ListPartitionReassignmentsRequest
        topics = None
        if partitions is not None:
            topics = [
                kind.ListPartitionReassignmentsTopics(name=name, partition_indexes=parts)
                for name, parts in by_topic(partitions).items()
            ]
        request = kind(timeout_ms=self._patience_ms, topics=topics)
        answer = await self._one("to list moves", request, ListPartitionReassignmentsResponse, timeout_ms)
        return {
            TopicPartition(topic.name, part.partition_index): Reassignment(
                tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    async def elect_leaders(
        self,
        election: Election = Election.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """For each partition (None: of all those where it changes something) whether there is another leader now."""
        kind = ElectLeadersRequest

        async def ask_for(
            connection: Connection, asked: list[TopicPartition] | None
        ) -> dict[TopicPartition, bool | KafkaError] | KafkaError:
            topics = None
            if asked is not None:
                topics = [kind.TopicPartitions(topic=name, partitions=parts) for name, parts in by_topic(asked).items()]
            request = kind(election_type=election, topic_partitions=topics, timeout_ms=self._patience_ms)
            answer = await connection.post(request, ElectLeadersResponse, self._patience_ms)
            return failure(answer) or {
                TopicPartition(topic.topic, part.partition_id): elected(topic.topic, part)
                for topic in answer.replica_election_results
                for part in topic.partition_result
            }

        async def ask(connection: Connection, asked: list[TopicPartition]) -> Outcomes[TopicPartition, bool]:
            found = await ask_for(connection, asked)
            return dict.fromkeys(asked, found) if isinstance(found, KafkaError) else found

        async def ask_all(connection: Connection, asked: list[str]) -> Outcomes[str, dict[TopicPartition, bool | KafkaError]]:
            return dict.fromkeys(asked, await ask_for(connection, None))

        what = "to elect leaders"
        if partitions is not None:
            return await self._each(what, partitions, Anywhere(), ask, timeout_ms)
        found = (await self._each(what, [what], Anywhere(), ask_all, timeout_ms))[what]
        errors = {key: each for key, each in found.items() if isinstance(each, KafkaError)}
        done = {key: each for key, each in found.items() if not isinstance(each, KafkaError)}
        if errors:
            raise SomeFailed(errors, done)
        return done


def elected(topic: str, part: ElectLeadersResponse.PartitionResult) -> bool | KafkaError:
    if part.error_code == ErrorCode.ELECTION_NOT_NEEDED:
        return False
    return outcome(True, part.error_code, part.error_message, topic=topic, partition=part.partition_id)

"""How far groups are: their committed offsets, seen, set and forgotten from outside."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from odradek.client.admin.asking import Asking, Outcomes, by_topic, failure
from odradek.client.admin.ways import Coordinators
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, SomeFailed, refused
from odradek.client.records import Committed, TopicPartition
from odradek.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

MANY_GROUPS_SINCE: Final = 8
BY_NAME_NEWEST: Final = 9  # later versions know topics by their ids alone
NOT_COMMITTED: Final = -1

Offsets = dict[TopicPartition, Committed]
Fetched = OffsetFetchResponse.OffsetFetchResponsePartition | OffsetFetchResponse.OffsetFetchResponsePartitions


class GroupOffsets(Asking):
    async def list_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, Offsets]:
        """What groups have committed: of all partitions, or of those that are named. A partition without a commit is left out,
        and so is everything of a group that is not there. `require_stable` waits for transactions that are about to commit."""
        named = dict(groups) if isinstance(groups, Mapping) else dict.fromkeys(groups)
        wanted = {name: None if places is None else by_topic(places) for name, places in named.items()}

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Offsets]:
            version = connection.version(OffsetFetchRequest.schema.key, BY_NAME_NEWEST)
            if version < MANY_GROUPS_SINCE:
                return {name: await self._fetch_one(connection, name, wanted[name], require_stable) for name in asked}
            return await self._fetch(connection, {name: wanted[name] for name in asked}, require_stable)

        return await self._each("to list offsets of groups", wanted, Coordinators(), ask, timeout_ms)

    async def _fetch(
        self, connection: Connection, wanted: Mapping[str, dict[str, list[int]] | None], require_stable: bool
    ) -> Outcomes[str, Offsets]:
        kind = OffsetFetchRequest
        groups = []
        for name, topics in wanted.items():
            named = None
            if topics is not None:
                named = [kind.OffsetFetchRequestTopics(name=topic, partition_indexes=parts) for topic, parts in topics.items()]
            groups.append(kind.OffsetFetchRequestGroup(group_id=name, topics=named))
        request = kind(groups=groups, require_stable=require_stable)
        answer = await connection.post(request, OffsetFetchResponse, self._patience_ms, BY_NAME_NEWEST)
        return {
            group.group_id: fetched(
                group.group_id, group.error_code, [(topic.name, part) for topic in group.topics for part in topic.partitions]
            )
            for group in answer.groups
        }

    async def _fetch_one(
        self, connection: Connection, name: str, topics: dict[str, list[int]] | None, require_stable: bool
    ) -> Offsets | KafkaError:
        kind = OffsetFetchRequest
        named = None
        if topics is not None:
            named = [kind.OffsetFetchRequestTopic(name=topic, partition_indexes=parts) for topic, parts in topics.items()]
        request = kind(group_id=name, topics=named, require_stable=require_stable)
        answer = await connection.post(request, OffsetFetchResponse, self._patience_ms, BY_NAME_NEWEST)
        return fetched(name, answer.error_code, [(topic.name, part) for topic in answer.topics for part in topic.partitions])

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed | int], *, timeout_ms: float | None = None
    ) -> None:
        """Sets where a group without members goes on; makes the group if there is none."""
        kind = OffsetCommitRequest
        topics: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for place, given in offsets.items():
            committed = Committed(given) if isinstance(given, int) else given
            part = kind.OffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
            topics.setdefault(place.topic, []).append(part)
        request = kind(
            group_id=group,
            topics=[kind.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            answer = await connection.post(request, OffsetCommitResponse, self._patience_ms, BY_NAME_NEWEST)
            told = {
                TopicPartition(topic.name, part.partition_index): part.error_code
                for topic in answer.topics
                for part in topic.partitions
            }
            return dict.fromkeys(asked, together(group, told))

        if topics:
            await self._each(f"to set offsets of {group}", [group], Coordinators(), ask, timeout_ms)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forgets commits of partitions that no member is subscribed to."""
        kind = OffsetDeleteRequest
        topics = [
            kind.OffsetDeleteRequestTopic(
                name=name, partitions=[kind.OffsetDeleteRequestPartition(partition_index=part) for part in parts]
            )
            for name, parts in by_topic(partitions).items()
        ]

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            answer = await connection.post(kind(group_id=group, topics=topics), OffsetDeleteResponse, self._patience_ms)
            told = {
                TopicPartition(topic.name, part.partition_index): part.error_code
                for topic in answer.topics
                for part in topic.partitions
            }
            whole = refused(answer.error_code, group=group) if failure(answer) else None
            return dict.fromkeys(asked, whole or together(group, told))

        if topics:
            await self._each(f"to delete offsets of {group}", [group], Coordinators(), ask, timeout_ms)


def together(group: str, told: Mapping[TopicPartition, int]) -> KafkaError | None:
    """The errors of a group's partitions as one: what all of them have in common, or each with its own."""
    failed = {
        place: refused(code, topic=place.topic, partition=place.partition, group=group) for place, code in told.items() if code
    }
    if not failed:
        return None
    if len(failed) == len(told) and len({error.code for error in failed.values()}) == 1:
        return refused(next(iter(failed.values())).code, group=group)
    return SomeFailed(failed, {place: None for place, code in told.items() if not code})


def fetched(
    group: str,
    code: int,
    parts: Sequence[tuple[str, Fetched]],
) -> Offsets | KafkaError:
    failed = [each for _, each in parts if each.error_code]
    if code or failed:
        return refused(code or failed[0].error_code, group=group)
    return {
        TopicPartition(topic, each.partition_index): Committed(
            each.committed_offset, each.metadata or "", each.committed_leader_epoch
        )
        for topic, each in sorted(parts, key=lambda pair: (pair[0], pair[1].partition_index))
        if each.committed_offset != NOT_COMMITTED
    }

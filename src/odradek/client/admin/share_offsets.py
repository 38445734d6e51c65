"""How far share groups are: where their partitions begin for them, seen, set and forgotten from outside."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, by_topic, failure, outcome
from odradek.client.admin.ways import Coordinators
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, SomeFailed, refused
from odradek.client.records import TopicPartition
from odradek.wire.messages import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)


class ShareOffset(Struct, frozen=True):
    """`start` is the first record that is not done with; `lag` None where the cluster does not tell."""

    start: int
    leader_epoch: int
    lag: int | None


ShareOffsets = dict[TopicPartition, ShareOffset]


class ShareGroupOffsets(Asking):
    async def list_share_group_offsets(
        self, groups: Mapping[str, Iterable[TopicPartition] | None], *, timeout_ms: float | None = None
    ) -> dict[str, ShareOffsets]:
        """Of all partitions that a group has begun with (None), or of those that are named."""
        kind = DescribeShareGroupOffsetsRequest
        wanted = {name: None if places is None else by_topic(places) for name, places in groups.items()}

        def asked_for(name: str) -> DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup:
            topics = wanted[name]
            named = None
            if topics is not None:
                named = [
                    kind.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=parts)
                    for topic, parts in topics.items()
                ]
            return kind.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=named)

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, ShareOffsets]:
            request = kind(groups=[*map(asked_for, asked)])
            answer = await connection.post(request, DescribeShareGroupOffsetsResponse, self._patience_ms)
            return {each.group_id: described(each) for each in answer.groups}

        return await self._each("to list offsets of share groups", wanted, Coordinators(), ask, timeout_ms)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> None:
        """Sets where a share group without members goes on."""
        kind = AlterShareGroupOffsetsRequest
        topics: dict[str, list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]] = {}
        for place, offset in offsets.items():
            part = kind.AlterShareGroupOffsetsRequestPartition(partition_index=place.partition, start_offset=offset)
            topics.setdefault(place.topic, []).append(part)
        named = [kind.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts) for name, parts in topics.items()]

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = kind(group_id=group, topics=named)
            answer = await connection.post(request, AlterShareGroupOffsetsResponse, self._patience_ms)
            errors = {
                TopicPartition(topic.topic_name, part.partition_index): refused(
                    part.error_code, part.error_message, topic=topic.topic_name, partition=part.partition_index
                )
                for topic in answer.responses
                for part in topic.partitions
                if part.error_code
            }
            return dict.fromkeys(asked, failure(answer) or (SomeFailed(errors, {}) if errors else None))

        await self._each(f"to set offsets of {group}", [group], Coordinators(), ask, timeout_ms)

    async def delete_share_group_offsets(self, group: str, topics: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Forgets how far a share group without members is with topics."""
        kind = DeleteShareGroupOffsetsRequest
        named = [kind.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = kind(group_id=group, topics=named)
            answer = await connection.post(request, DeleteShareGroupOffsetsResponse, self._patience_ms)
            errors = {
                each.topic_name: refused(each.error_code, each.error_message, topic=each.topic_name)
                for each in answer.responses
                if each.error_code
            }
            return dict.fromkeys(asked, failure(answer) or (SomeFailed(errors, {}) if errors else None))

        await self._each(f"to delete offsets of {group}", [group], Coordinators(), ask, timeout_ms)


def described(group: DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets | KafkaError:
    for topic in group.topics:
        for part in topic.partitions:
            if part.error_code:
                return refused(part.error_code, part.error_message, topic=topic.topic_name, partition=part.partition_index)
    found = {
        TopicPartition(topic.topic_name, part.partition_index): ShareOffset(
            part.start_offset, part.leader_epoch, None if part.lag < 0 else part.lag
        )
        for topic in group.topics
        for part in topic.partitions
        if part.start_offset >= 0
    }
    return outcome(found, group.error_code, group.error_message, group=group.group_id)

"""Questions about offsets, to the leaders of partitions: which belongs to a time, and where the log of an epoch ends.

Invariants
 1. One question is one request to one broker; what it says is told partition by partition, error codes too.
 2. `offsets_of_times` insists until every leader has answered, or time runs out.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError, refused
from odradek.client.metadata import NO_EPOCH, NO_NODE
from odradek.client.records import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

CONSUMER: Final = -1  # instead of a replica's id


class Found(NamedTuple):
    """An offset, NO_OFFSET when there is none: of a time, of the first record at or after it; of an epoch, where it ended."""

    code: int
    offset: int
    leader_epoch: int
    timestamp_ms: int = NO_TIMESTAMP


class Question(NamedTuple):
    place: TopicPartition
    leader_epoch: int  # that it is known to have
    about: int  # a time, or an epoch


async def times(cluster: Cluster, node: int, questions: Iterable[Question], *, is_committed: bool) -> dict[TopicPartition, Found]:
    kind = ListOffsetsRequest
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (topic, index), leader_epoch, timestamp in questions:
        partition = kind.ListOffsetsPartition(partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp)
        topics.setdefault(topic, kind.ListOffsetsTopic(name=topic)).partitions.append(partition)
    request = kind(
        replica_id=CONSUMER,
        isolation_level=int(is_committed),
        topics=[*topics.values()],
        timeout_ms=cluster.timing.request_timeout_ms,
    )
    answer = await cluster.ask(node, request, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, each.partition_index): Found(each.error_code, each.offset, each.leader_epoch, each.timestamp)
        for topic in answer.topics
        for each in topic.partitions
    }


async def ends_of_epochs(cluster: Cluster, node: int, questions: Iterable[Question]) -> dict[TopicPartition, Found]:
    kind = OffsetForLeaderEpochRequest
    topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for (topic, index), leader_epoch, epoch in questions:
        partition = kind.OffsetForLeaderPartition(partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch)
        topics.setdefault(topic, kind.OffsetForLeaderTopic(topic=topic)).partitions.append(partition)
    request = kind(replica_id=CONSUMER, topics=[*topics.values()])
    answer = await cluster.ask(node, request, OffsetForLeaderEpochResponse)
    return {
        TopicPartition(topic.topic, each.partition): Found(each.error_code, each.end_offset, each.leader_epoch)
        for topic in answer.topics
        for each in topic.partitions
    }


async def offsets_of_times(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, is_committed: bool, timeout_ms: float | None = None
) -> dict[TopicPartition, Found]:
    """The offsets of times, LATEST or EARLIEST, of all partitions."""
    found: dict[TopicPartition, Found] = {}
    for topic in dict.fromkeys(place.topic for place in wanted):
        await cluster.topic(topic, timeout_ms)

    async def attempt() -> None:
        by_leader: dict[int, list[Question]] = {}
        for place, timestamp in wanted.items():
            if place in found:
                continue
            known = cluster.metadata.topics.get(place.topic)
            info = known.partitions.get(place.partition) if known is not None else None
            if info is None or info.leader == NO_NODE:
                await cluster.refresh()
                code = ErrorCode.LEADER_NOT_AVAILABLE if info is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise refused(code, topic=place.topic, partition=place.partition)
            by_leader.setdefault(info.leader, []).append(Question(place, info.leader_epoch, timestamp))
        asking = [times(cluster, node, questions, is_committed=is_committed) for node, questions in by_leader.items()]
        failed: KafkaError | None = None
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, KafkaError):
                failed = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                for place, each in answer.items():
                    if each.code:
                        failed = refused(each.code, topic=place.topic, partition=place.partition)
                    else:
                        found[place] = each
        if failed is not None:
            if failed.is_retriable:
                await cluster.refresh()
            raise failed

    await cluster.insist("to look up offsets", attempt, timeout_ms)
    return found


def unanswered(code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> Found:
    return Found(code, NO_OFFSET, NO_EPOCH)

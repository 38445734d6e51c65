"""Offsets of a group: committed by its member, or by anybody while it has none, and looked at.

Invariants
 1. What is tried again is what is not known to be done; a partition that was acknowledged is not sent twice by one call.
 2. Everything speaks for the member as it is when it is sent: a member epoch that became old meanwhile is tried again.
 3. Topics are spoken of by their ids where the broker wants that and all ids are known, by their names otherwise.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.cluster import GROUP, LOST_COORDINATOR, Cluster
from odradek.client.connection import Connection
from odradek.client.errors import Refused, Unreachable, refused
from odradek.client.records import NO_OFFSET, Committed, GroupMetadata, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse

LANE: Final = "coordinator"
COMMIT_IDS_SINCE: Final = 10  # versions
COMMIT_INSTANCES_SINCE: Final = 7
FETCH_STABLE_SINCE: Final = 7
FETCH_GROUPS_SINCE: Final = 8
FETCH_IDS_SINCE: Final = 10
TRIED_AGAIN: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH})  # with the epoch that a heartbeat brings

Answer = TypeVar("Answer", bound=Message)


class Offsets:
    def __init__(self, cluster: Cluster, group: str, who: Callable[[], GroupMetadata], *, is_stable: bool) -> None:
        """`is_stable`: what a transaction is about to commit is waited for."""
        self.cluster = cluster
        self.group = group
        self.who = who
        self.is_stable = is_stable

    # -- committing

    async def commit(
        self, offsets: Mapping[TopicPartition, Committed], check: Callable[[], None], timeout_ms: float | None = None
    ) -> None:
        """Until all are committed, or one is refused for good."""
        left = dict(offsets)
        if left:
            what = f"to commit offsets of group {self.group}"
            await self.cluster.insist(what, lambda: self.try_to_commit(left, check), timeout_ms)

    async def try_to_commit(self, left: dict[TopicPartition, Committed], check: Callable[[], None]) -> None:
        """Once. Takes away what was committed; raises the first that was refused. `check` raises when it is not to be sent."""
        connection = await self._connection()
        check()
        version = connection.version(OffsetCommitRequest.schema.key)
        ids = self._ids(left) if version >= COMMIT_IDS_SINCE else None
        newest = None if ids is not None else COMMIT_IDS_SINCE - 1
        request = self._commit_request(left, ids, has_instance=version >= COMMIT_INSTANCES_SINCE)
        answer = await self._post(connection, request, OffsetCommitResponse, newest)
        failed: Refused | None = None
        for topic in answer.topics:
            name = topic.name or self.cluster.metadata.names.get(topic.topic_id, "")
            for told in topic.partitions:
                if not told.error_code:
                    left.pop(TopicPartition(name, told.partition_index), None)
                elif failed is None:
                    failed = self._refused(told.error_code, TopicPartition(name, told.partition_index))
        if failed is not None:
            raise failed

    def _commit_request(
        self, offsets: Mapping[TopicPartition, Committed], ids: dict[str, bytes] | None, *, has_instance: bool
    ) -> OffsetCommitRequest:
        kind, who = OffsetCommitRequest, self.who()
        topics = [
            kind.OffsetCommitRequestTopic(
                name=topic if ids is None else "",
                topic_id=ids[topic] if ids is not None else bytes(16),
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=place.partition,
                        committed_offset=offsets[place].offset,
                        committed_leader_epoch=offsets[place].leader_epoch,
                        committed_metadata=offsets[place].metadata,
                    )
                    for place in places
                ],
            )
            for topic, places in by_topic(offsets).items()
        ]
        return kind(
            group_id=self.group,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id if has_instance else None,
            topics=topics,
        )

    # -- looking

    async def committed(
        self, places: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, Committed]:
        """Of those of which something is committed."""
        if not places:
            return {}

        async def attempt() -> dict[TopicPartition, Committed]:
            connection = await self._connection()
            version = connection.version(OffsetFetchRequest.schema.key)
            ids = self._ids(places) if version >= FETCH_IDS_SINCE else None
            if ids is None:
                version = min(version, FETCH_IDS_SINCE - 1)
            request = self._fetch_request(places, version, ids)
            return self._take(await self._post(connection, request, OffsetFetchResponse, version), version)

        return await self.cluster.insist(f"to fetch offsets of group {self.group}", attempt, timeout_ms)

    def _fetch_request(self, places: Iterable[TopicPartition], version: int, ids: dict[str, bytes] | None) -> OffsetFetchRequest:
        kind, who = OffsetFetchRequest, self.who()
        wanted = {topic: [place.partition for place in found] for topic, found in by_topic(places).items()}
        is_stable = self.is_stable and version >= FETCH_STABLE_SINCE
        if version < FETCH_GROUPS_SINCE:
            topics = [kind.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
            return kind(group_id=self.group, topics=topics, require_stable=is_stable)
        of_group = kind.OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=who.member_id or None,
            member_epoch=who.generation,
            topics=[
                kind.OffsetFetchRequestTopics(
                    name=name if ids is None else "",
                    topic_id=ids[name] if ids is not None else bytes(16),
                    partition_indexes=indexes,
                )
                for name, indexes in wanted.items()
            ],
        )
        return kind(groups=[of_group], require_stable=is_stable)

    def _take(self, answer: OffsetFetchResponse, version: int) -> dict[TopicPartition, Committed]:
        found: dict[TopicPartition, Committed] = {}
        told = answer.groups[0] if version >= FETCH_GROUPS_SINCE else answer
        if told.error_code:
            raise self._refused(told.error_code)
        for topic in told.topics:
            name = topic.name or self.cluster.metadata.names.get(getattr(topic, "topic_id", b""), "")
            if not name:  # it is another one by now, or was not known for a moment: what is committed is asked for again
                raise self._refused(ErrorCode.UNKNOWN_TOPIC_ID)
            for each in topic.partitions:
                place = TopicPartition(name, each.partition_index)
                if each.error_code:
                    raise self._refused(each.error_code, place)
                if each.committed_offset != NO_OFFSET:
                    found[place] = Committed(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
        return found

    # -- both

    async def _connection(self) -> Connection:
        node = await self.cluster.coordinator(GROUP, self.group)
        try:
            return self.cluster.connected(node, LANE) or await self.cluster.connection(node, LANE)
        except Unreachable:
            self.cluster.forget_coordinator(GROUP, self.group)
            raise

    async def _post(self, connection: Connection, request: Message, response: type[Answer], newest: int | None) -> Answer:
        try:
            return await connection.post(request, response, self.cluster.timing.request_timeout_ms, newest)
        except Unreachable:
            self.cluster.forget_coordinator(GROUP, self.group)
            raise

    def _ids(self, places: Iterable[TopicPartition]) -> dict[str, bytes] | None:
        """By topic; None where one is not known."""
        topics = self.cluster.metadata.topics
        names = dict.fromkeys(place.topic for place in places)
        if any(name not in topics or not any(topics[name].id) for name in names):
            return None
        return {name: topics[name].id for name in names}

    def _refused(self, code: int, place: TopicPartition | None = None) -> Refused:
        topic, partition = place if place is not None else (None, None)
        error = refused(code, topic=topic, partition=partition, group=self.group)
        if error.code in LOST_COORDINATOR:
            self.cluster.forget_coordinator(GROUP, self.group)
        if error.code in TRIED_AGAIN:
            error.is_retriable = True
        return error


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place)
    return found

"""Which offsets a consumer commits in whose name."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster, Timing
from odradek.client.commits import Commits
from odradek.client.errors import Refused
from odradek.client.fetcher import Fetcher, Taste
from odradek.client.handing import Handing
from odradek.client.offsets import Offsets
from odradek.client.records import NO_OFFSET, Committed, GroupMetadata, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchResponse

PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ID, ANOTHER = bytes(15) + b"\x01", bytes(15) + b"\x02"


class Coordinator:
    """Of one group: it is found when somebody says so, and takes every commit."""

    def __init__(self) -> None:
        self.is_found = asyncio.Event()
        self.commits: list[tuple[int, TopicPartition, int]] = []  # generation, partition, offset
        self.metadata = SimpleNamespace(topics={}, names={})
        self.timing = Timing(request_timeout_ms=1_000)
        self.loop = asyncio.get_running_loop()

    async def coordinator(self, kind: int, name: str) -> int:
        await self.is_found.wait()
        return 0

    def connected(self, node: int, lane: str) -> Any:
        return self

    def version(self, key: int) -> int:
        return 9

    async def post(self, request: OffsetCommitRequest, *how: Any) -> OffsetCommitResponse:
        (topic,) = request.topics
        (told,) = topic.partitions
        place = TopicPartition(topic.name, told.partition_index)
        self.commits.append((request.generation_id_or_member_epoch, place, told.committed_offset))
        kind = OffsetCommitResponse
        partition = kind.OffsetCommitResponsePartition(partition_index=told.partition_index)
        return kind(topics=[kind.OffsetCommitResponseTopic(name=topic.name, partitions=[partition])])

    async def insist(self, what: str, attempt: Callable[[], Any], timeout_ms: float | None) -> Any:
        return await attempt()


class Scene:
    """A member that has a partition, in generation 1."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.generation = 1
        self.fetcher = Fetcher(Taste())
        self.fetcher.begin(PLACE, 0)
        cluster = cast("Cluster", self.coordinator)
        offsets = Offsets(cluster, "g", lambda: GroupMetadata("g", self.generation, "m"), is_stable=True)
        self.commits = Commits(offsets, self.fetcher, Handing(self.fetcher))

    async def commit(self, place: TopicPartition = PLACE, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Something happens before the coordinator is found."""
        committing = asyncio.create_task(self.commits.commit({place: Committed(5)}))
        await asyncio.sleep(0)
        meanwhile()
        self.coordinator.is_found.set()
        await committing

    def begin_anew(self, *places: TopicPartition) -> None:
        """In the next generation, with these."""
        self.fetcher.forget(PLACE)
        self.generation += 1
        for place in places:
            self.fetcher.begin(place, 0)


@pytest.mark.parametrize("places", [(), (OTHER,), (PLACE,)])
def test_what_was_given_up_meanwhile_is_not_committed_in_the_name_of_a_later_generation(places: tuple[TopicPartition]) -> None:
    async def story() -> None:
        scene = Scene()
        with pytest.raises(Refused, match="ILLEGAL_GENERATION"):
            await scene.commit(meanwhile=lambda: scene.begin_anew(*places))
        assert scene.coordinator.commits == []

    asyncio.run(story())


def test_who_is_no_member_at_present_commits_nothing() -> None:
    async def story() -> None:
        scene = Scene()
        scene.commits.is_member = lambda: False
        with pytest.raises(Refused) as caught:
            await scene.commit()
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert scene.coordinator.commits == []

    asyncio.run(story())


def test_a_member_commits_what_it_has_kept_and_what_it_never_had_in_the_generation_that_there_is() -> None:
    async def story() -> None:
        scene = Scene()

        def go_on() -> None:
            scene.generation += 1

        await scene.commit(meanwhile=go_on)
        await scene.commit(OTHER)
        assert scene.coordinator.commits == [(2, PLACE, 5), (2, OTHER, 5)]

    asyncio.run(story())


@pytest.mark.parametrize(("meanwhile", "offset"), [(None, 7), (ANOTHER, NO_OFFSET)])
def test_what_is_committed_is_found_also_when_its_topic_is_another_or_none_for_a_moment(
    meanwhile: bytes | None, offset: int
) -> None:
    """A broker that has just started may not know it; one that was made anew while somebody asks has nothing committed."""

    class Group(Coordinator):
        def version(self, key: int) -> int:
            return 10

        async def post(self, request: Any, *how: Any) -> Any:
            self.metadata = metadata_of(meanwhile)
            kind, (group,) = OffsetFetchResponse, request.groups
            (topic,) = group.topics
            found = 7 if topic.name or topic.topic_id == ID else NO_OFFSET
            partition = kind.OffsetFetchResponsePartitions(partition_index=0, committed_offset=found)
            topics = [kind.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=[partition])]
            return kind(groups=[kind.OffsetFetchResponseGroup(group_id="g", topics=topics)])

        async def insist(self, what: str, attempt: Callable[[], Any], timeout_ms: float | None) -> Any:
            try:
                return await attempt()
            except Refused as error:
                if not error.is_retriable:
                    raise
                return await attempt()

    async def story() -> None:
        coordinator = Group()
        coordinator.is_found.set()
        coordinator.metadata = metadata_of(ID)
        offsets = Offsets(cast("Cluster", coordinator), "g", lambda: GroupMetadata("g"), is_stable=True)
        found = await offsets.committed([PLACE])
        assert {place: each.offset for place, each in found.items()} == ({PLACE: offset} if offset >= 0 else {})

    asyncio.run(story())


def metadata_of(topic_id: bytes | None) -> Any:
    """Of a cluster in which the topic has this id."""
    topics = {} if topic_id is None else {PLACE.topic: SimpleNamespace(id=topic_id)}
    return SimpleNamespace(topics=topics, names={each.id: name for name, each in topics.items()})


def test_what_is_done_with_of_a_topic_that_was_made_anew_is_committed_also_where_the_one_before_was_as_far() -> None:
    async def story() -> None:
        scene = Scene()
        reading = scene.fetcher.readings[PLACE]
        reading.lead(0, 0, ID)
        scene.fetcher.seek(reading, 5)
        await scene.commit()
        assert scene.commits.unsent() == {}
        assert reading.lead(0, 0, ANOTHER)
        assert [each.offset for each in scene.commits.unsent().values()] == [5]
        await scene.commit()
        assert scene.commits.unsent() == {}

    asyncio.run(story())


def test_what_was_read_of_a_topic_is_not_committed_for_one_that_was_made_anew_meanwhile() -> None:
    async def story() -> None:
        scene = Scene()
        reading = scene.fetcher.readings[PLACE]
        reading.lead(0, 0, ID)
        with pytest.raises(Refused, match="made anew"):
            await scene.commit(meanwhile=lambda: reading.lead(0, 0, ANOTHER))
        assert scene.coordinator.commits == []

    asyncio.run(story())


def test_what_was_assigned_of_a_topic_is_not_committed_while_another_or_none_has_its_name() -> None:
    """Another member may have been given the new one, and may have committed more of it."""

    async def story() -> None:
        scene = Scene()
        scene.fetcher.forget(PLACE)
        reading = scene.fetcher.hold(PLACE, ID)
        scene.fetcher.seek(reading, 5)
        for topic_id, committable in ((ID, {PLACE}), (ANOTHER, set()), (None, {PLACE})):
            scene.coordinator.metadata = metadata_of(topic_id)
            assert set(scene.commits.unsent()) == committable
            if topic_id == ID:
                continue
            await scene.commits.commit_last([PLACE])
            with pytest.raises(Refused) as caught:
                await scene.commit()
            assert caught.value.is_retriable == (topic_id is None), "a broker that has just started may not know it"
        assert scene.coordinator.commits == []
        scene.coordinator.metadata = metadata_of(ID)
        await scene.commit()
        assert scene.coordinator.commits == [(1, PLACE, 5)]

    asyncio.run(story())

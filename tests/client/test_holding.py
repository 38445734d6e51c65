"""How partitions come and go, and what the program hears of it."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from odradek.client.errors import Refused
from odradek.client.fetcher import Fetcher, Taste
from odradek.client.fetching import Fetching
from odradek.client.handing import Handing
from odradek.client.holding import Callback, Holding
from odradek.client.metadata import NO_NODE, RETURNS_MAX, Metadata
from odradek.client.records import TopicPartition
from odradek.wire.messages import MetadataResponse

PLACE = TopicPartition("t", 0)
ID, OTHER_ID, ANEW_ID = bytes(15) + b"\x01", bytes(15) + b"\x02", bytes(15) + b"\x03"
LEADER = 7
TURNS = 10  # of the loop


class Program:
    """It hears of partitions, and takes its time about the first that it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.hears, self.is_done = asyncio.Event(), asyncio.Event()
        fetcher = Fetcher(Taste())
        loop, cluster = asyncio.get_running_loop(), SimpleNamespace(metadata=Metadata())
        fetching = SimpleNamespace(loop=loop, cluster=cluster, go_on=lambda: None, on_news=lambda: None)
        self.holding = Holding(
            fetcher,
            Handing(fetcher),
            cast("Fetching", fetching),
            None,
            commits_itself=False,
            on_assigned=self._hears("assigned"),
            on_revoked=self._hears("revoked"),
            on_lost=self._hears("lost"),
        )

    def _hears(self, what: str) -> Callback:
        async def hear(places: list[TopicPartition]) -> None:
            assert places == [PLACE]
            self.heard.append(what)
            self.hears.set()
            await self.is_done.wait()

        return hear

    async def is_interrupted(self, work: Awaitable[None], times: int) -> None:
        """While the program hears of it."""
        task = asyncio.ensure_future(work)
        await self.hears.wait()
        for _ in range(times):
            task.cancel()
            await self._turns()
        self.is_done.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def _turns(self) -> None:
        """Enough of them for everybody to have heard of what happened."""
        for _ in range(TURNS):
            await asyncio.sleep(0)


def run(story: Callable[[Program], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story(Program())

    asyncio.run(whole())


@pytest.mark.parametrize("times", [1, 2])
def test_what_the_program_heard_that_it_has_given_up_it_does_not_lose_too(times: int) -> None:
    async def story(program: Program) -> None:
        program.holding.fetcher.begin(PLACE, 0)
        await program.is_interrupted(program.holding.give_up([PLACE]), times)
        await program.holding.lose()
        assert program.heard == ["revoked"]
        assert program.holding.places == []

    run(story)


@pytest.mark.parametrize("times", [1, 2])
def test_what_the_program_heard_that_it_has_it_hears_that_it_loses(times: int) -> None:
    async def story(program: Program) -> None:
        await program.is_interrupted(program.holding.take([PLACE]), times)
        await program.holding.lose()
        assert program.heard == ["assigned", "lost"]

    run(story)


def test_a_partition_is_held_of_the_topic_that_it_was_assigned_of_and_of_no_other() -> None:
    async def story(program: Program) -> None:
        program.is_done.set()
        fetcher, metadata = program.holding.fetcher, program.holding.fetching.cluster.metadata
        metadata.take(led_topic(OTHER_ID))
        with pytest.raises(Refused, match="UNKNOWN_TOPIC_ID"):  # what its group has committed would be another topic's
            await program.holding.take([PLACE], {PLACE.topic: ID})
        assert not program.holding.places
        metadata.take(led_topic(ID))
        await program.holding.take([PLACE], {PLACE.topic: ID})
        assert program.holding.ids == {PLACE: ID}
        reading = fetcher.readings[PLACE]
        fetcher.seek(reading, 5)
        for topic_id, leader in ((ANEW_ID, NO_NODE), (ID, LEADER)):  # a broker that is behind may tell the old one again
            for _ in range(RETURNS_MAX):
                metadata.take(led_topic(topic_id))
            fetcher.learn(metadata)
            assert (reading.leader, reading.offset, reading.topic_id) == (leader, 5, ID)

    run(story)


def led_topic(topic_id: bytes) -> MetadataResponse:
    kind = MetadataResponse
    partition = kind.MetadataResponsePartition(partition_index=PLACE.partition, leader_id=LEADER)
    return kind(topics=[kind.MetadataResponseTopic(name=PLACE.topic, topic_id=topic_id, partitions=[partition])])

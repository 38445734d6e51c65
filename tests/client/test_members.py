"""A member of a classic group, and its coordinator, which says what the story says."""

import asyncio
from collections.abc import Iterable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster, Timing
from odradek.client.errors import KafkaError
from odradek.client.group.classic import ClassicMember
from odradek.client.group.member import Terms, Wanted
from odradek.client.group.subscription import encode_assignment
from odradek.client.holding import Holding
from odradek.client.metadata import Metadata
from odradek.client.records import TopicPartition
from odradek.wire.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse

ROTTEN = b"\0"


class Coordinator:
    """Of a group of one member, which leads."""

    def __init__(self, wanted: bytes | None, share: bytes, generations: Iterable[int] = (1,)) -> None:
        """What the member is told that it wants, and gets, in one generation after the other."""
        self.wanted, self.share, self.generations = wanted, share, iter(generations)
        self.loop = asyncio.get_running_loop()
        self.timing = Timing()
        self.machine = SimpleNamespace(random=Random(0))
        self.metadata = Metadata()
        self.on_metadata: list[Any] = []

    async def ask_coordinator(self, kind: int, name: str, request: Any, response: type[Any], **how: Any) -> Any:
        if isinstance(request, JoinGroupRequest):
            (protocol,) = request.protocols
            metadata = protocol.metadata if self.wanted is None else self.wanted
            members = [JoinGroupResponse.JoinGroupResponseMember(member_id="m", metadata=metadata)]
            generation = next(self.generations)
            return response(generation_id=generation, protocol_name=protocol.name, leader="m", member_id="m", members=members)
        assert isinstance(request, SyncGroupRequest)
        assert response is SyncGroupResponse
        return response(assignment=self.share)

    async def refresh(self) -> None:
        """There is nothing new."""

    def want(self, topics: Any) -> None:
        """There are none."""


@pytest.mark.parametrize(("wanted", "share"), [(ROTTEN, b""), (None, ROTTEN)])
def test_what_another_member_says_that_cannot_be_read_ends_a_member_with_an_error_that_the_program_hears(
    wanted: bytes | None, share: bytes
) -> None:
    async def story() -> None:
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        ended: list[KafkaError] = []

        def stop(error: KafkaError) -> None:
            ended.append(error)
            heard.set_result(error)

        def hear(task: "asyncio.Task[None]") -> None:
            if not heard.done() and not task.cancelled() and (error := task.exception()) is not None:
                heard.set_result(error)

        holding = cast("Holding", SimpleNamespace(places=[], stop=stop, hear=hear))
        coordinator = cast("Cluster", Coordinator(wanted, share))
        member = ClassicMember(coordinator, holding, Terms(group="g"), Wanted(("t",)))
        member.start()
        error = await asyncio.wait_for(heard, 10)
        assert isinstance(error, KafkaError)
        assert ended == [error], "every later step raises it"
        assert "cannot be read" in str(error)
        await member.stop()

    asyncio.run(story())


class Held:
    """What a member has, and what becomes of it."""

    def __init__(self) -> None:
        self.places: list[TopicPartition] = []
        self.told: list[str] = []
        self.changed = asyncio.Event()

    async def take(self, places: list[TopicPartition]) -> None:
        self._tell("kept" if self.places else "taken", places)

    async def lose(self) -> None:
        self._tell("lost", [])

    def _tell(self, what: str, places: list[TopicPartition]) -> None:
        self.places = places
        self.told.append(what)
        self.changed.set()

    async def wait(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.told) < count:
                self.changed.clear()
                await self.changed.wait()

    def away_s(self) -> float:
        return 0.0

    def hear(self, task: "asyncio.Task[None]") -> None:
        assert task.cancelled()


@pytest.mark.parametrize(
    ("generations", "told"),
    [([4, 5], ["taken", "kept"]), ([4, 6, 7], ["taken", "lost", "taken"])],
    ids=["next generation", "one missed"],
)
def test_a_member_that_missed_a_generation_has_lost_what_others_may_have_been_given_in_it(
    generations: list[int], told: list[str]
) -> None:
    async def story() -> None:
        held = Held()
        coordinator = Coordinator(None, encode_assignment([TopicPartition("t", 0)]), generations)
        wanted = Wanted(("t",))
        member = ClassicMember(cast("Cluster", coordinator), cast("Holding", held), Terms(group="g"), wanted)
        member.start()
        await held.wait(1)
        member.change(wanted)
        await held.wait(len(told))
        assert held.told == told
        assert member.generation == generations[-1]
        await member.stop()

    asyncio.run(story())

"""A member of a classic group, and its coordinator, which says what the story says."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster, Timing
from odradek.client.errors import KafkaError
from odradek.client.group.classic import ClassicMember
from odradek.client.group.member import Terms, Wanted
from odradek.client.holding import Holding
from odradek.client.metadata import Metadata
from odradek.wire.messages import JoinGroupRequest, JoinGroupResponse, SyncGroupRequest, SyncGroupResponse

ROTTEN = b"\0"


class Coordinator:
    """Of a group of one member, which leads."""

    def __init__(self, wanted: bytes | None, share: bytes) -> None:
        """What the member is told that it wants, and gets."""
        self.wanted, self.share = wanted, share
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
            return response(generation_id=1, protocol_name=protocol.name, leader="m", member_id="m", members=members)
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

"""The way to the active controller, when controllers fall silent or change."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from odradek.core.raft.effects import LeaderIs
from odradek.node.controller_link import ControllerLink
from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.wire.errors import Refused
from odradek.wire.frames import encode_response
from odradek.wire.messages import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.node.inside import until
from tests.node.test_peers import Reader, Writer, other_side, request

LONG_MS = 600_000


class KnownLeader:
    """The quorum as far as the link asks."""

    def __init__(self) -> None:
        self.leader = LeaderIs(-1, -1)
        self.changed = asyncio.Event()

    def lead(self, leader_id: int, port: int) -> None:
        self.leader = LeaderIs(leader_id, leader_id, (("CONTROLLER", "127.0.0.1", port),))
        self.changed.set()

    def lose(self) -> None:
        """Nobody is known to lead."""
        self.leader = LeaderIs(-1, -1)
        self.changed.set()

    async def leader_changed(self, timeout_ms: float) -> None:
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self.changed.wait()


def link_to(quorum: KnownLeader) -> ControllerLink:
    return ControllerLink(cast("Node", SimpleNamespace(node_id=9, machine=Machine(), quorum=quorum)))


async def answer(reader: Reader, writer: Writer) -> None:
    _, version, correlation_id = await request(reader)
    writer.writelines(encode_response(BrokerHeartbeatResponse(is_fenced=False), version, correlation_id))  # type: ignore[arg-type]


def test_a_controller_that_is_silent_is_not_waited_for_when_another_leads() -> None:
    async def story() -> None:
        asked = asyncio.Event()

        async def keep_silent(reader: Reader, _: Writer) -> None:
            await request(reader)
            asked.set()

        async with other_side(keep_silent) as silent, other_side(answer) as speaking:
            quorum = KnownLeader()
            link = link_to(quorum)
            quorum.lead(1, silent)
            asking = asyncio.create_task(link.ask(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, LONG_MS))
            await asked.wait()
            quorum.lose()
            for _ in range(20):  # turns of the loop, in which it is not given up
                await asyncio.sleep(0)
            assert link.channels["own"].is_connected
            quorum.lead(2, speaking)
            await until(asking.done)
            assert not asking.result().is_fenced
            link.close()

    asyncio.run(story())


def test_nobody_is_waited_for_longer_than_the_caller_has_time() -> None:
    async def story() -> None:
        async def keep_silent(reader: Reader, _: Writer) -> None:
            await request(reader)

        async with other_side(keep_silent) as silent:
            quorum = KnownLeader()
            link = link_to(quorum)
            quorum.lead(1, silent)
            with pytest.raises(Refused, match="in time"):
                await link.ask(BrokerHeartbeatRequest(), BrokerHeartbeatResponse, 100)
            link.close()

    asyncio.run(story())

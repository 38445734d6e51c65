"""Where a partition ends, as its leader tells it."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest

from odradek.api import list_offsets
from odradek.client.admin import Admin, Offset
from odradek.client.consumer import Consumer
from odradek.client.records import TopicPartition
from odradek.core.partition.broker_session import NEVER_MS
from odradek.node.node import Node
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from tests.node.inside import NOW_MS, Client, connected, new_node, port_of, running, until

CONSUMER, FOLLOWER = -1, 2
LATEST, EARLIEST, GREATEST_TIMESTAMP, LATEST_TIERED = -1, -2, -3, -5
PLACE = TopicPartition("orders", 0)
NONE = ErrorCode.NONE


async def told(
    client: Client, timestamp: int, *, replica: int = CONSUMER, isolation: int = 0, version: int = 9
) -> tuple[ErrorCode, int]:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[partition])
    request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=[topic])
    found = (await client.ask(request, version, ListOffsetsResponse)).topics[0].partitions[0]
    return ErrorCode(found.error_code), found.offset


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_new_leader_tells_no_end_before_it_knows_what_was_committed_in_the_epochs_before(
    tmp_path: Path, isolation: int
) -> None:
    """Its predecessor may have told a later one (KIP-207)."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", *[b"x"] * 10) == NONE
            leader = node.partitions.by_name["orders"][0].leader
            leader.epoch_start, leader.high_watermark = 12, 10  # as if two more were there that a follower may lack
            later_ms = NOW_MS + 1
            for timestamp in (LATEST, later_ms):
                assert await told(client, timestamp, isolation=isolation) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
                assert await told(client, timestamp, isolation=isolation, version=5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
                assert await told(client, timestamp, isolation=isolation, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            assert await told(client, EARLIEST, isolation=isolation) == (NONE, 0)
            assert await told(client, NOW_MS, isolation=isolation) == (NONE, 0)
            assert await told(client, GREATEST_TIMESTAMP, isolation=isolation) == (NONE, 0)
            assert await told(client, LATEST_TIERED, isolation=isolation) == (NONE, -1)
            assert await told(client, LATEST, replica=FOLLOWER) == (NONE, 10)
            leader.epoch_start = 10
            assert await told(client, LATEST, isolation=isolation) == (NONE, 10)
            assert await told(client, later_ms, isolation=isolation) == (NONE, -1)

    asyncio.run(run())


def test_a_leader_of_the_past_tells_consumers_no_end(tmp_path: Path) -> None:
    """Who leads now may have told a later one: to a reader that has been there, records would be lost."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", *[b"x"] * 10) == NONE
            session = node.partitions.session
            until_ms, session.certain_until_ms = session.certain_until_ms, NEVER_MS
            for timestamp in (LATEST, NOW_MS + 1):
                assert await told(client, timestamp) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert await told(client, EARLIEST) == (NONE, 0)
            assert await told(client, NOW_MS) == (NONE, 0)  # it was committed
            assert await told(client, LATEST, replica=FOLLOWER) == (NONE, 10)
            session.certain_until_ms = until_ms
            assert await told(client, LATEST) == (NONE, 10)

    asyncio.run(run())


def test_clients_wait_for_the_end_until_the_new_leader_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[int] = []
    known = list_offsets.not_available

    def not_available(version: int) -> Refused:
        refusals.append(version)
        return known(version)

    monkeypatch.setattr(list_offsets, "not_available", not_available)

    async def found(node: Node, client: Client, looking: Awaitable[object]) -> object:
        leader = node.partitions.by_name["orders"][0].leader
        leader.epoch_start = leader.high_watermark + 1
        refusals.clear()
        task = asyncio.ensure_future(looking)
        await until(lambda: len(refusals) > 1)
        assert await client.produce("orders", b"x") == NONE
        return await task

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            bootstrap = f"127.0.0.1:{port_of(node)}"
            async with Admin(bootstrap) as admin, Consumer(bootstrap=bootstrap, auto_offset_reset="latest") as consumer:
                ends = await found(node, client, admin.list_offsets({PLACE: Offset.LATEST}))
                assert isinstance(ends, dict)
                assert ends[PLACE].offset == 1
                assert await found(node, client, consumer.end_offsets(PLACE)) == {PLACE: 2}

                async def position() -> int:
                    await consumer.assign([PLACE])
                    return await consumer.position(PLACE)

                assert await found(node, client, position()) == 3

    asyncio.run(run())

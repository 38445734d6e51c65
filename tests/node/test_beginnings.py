"""Of batches that are under way together, the second is not taken for a producer's first when the first was refused."""

import asyncio
from pathlib import Path

import pytest

from odradek.core.partition.broker_session import NEVER_MS
from odradek.wire.errors import ErrorCode
from tests.node.inside import connected, new_node, running


@pytest.mark.parametrize("flush_messages", ["1", "1000000"], ids=["synced", "at once"])
def test_a_batch_that_came_before_its_topic_is_waited_for(tmp_path: Path, flush_messages: str) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client, connected(node) as other:
            assert await client.produce("orders", b"a", sequence=0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await other.create("orders", flush_messages=flush_messages)
            assert await client.produce("orders", b"b", sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await client.produce("orders", b"a", sequence=0) == ErrorCode.NONE
            assert await client.produce("orders", b"b", sequence=1) == ErrorCode.NONE
            assert await client.fetch("orders") == [b"a", b"b"]

    asyncio.run(run())


def test_a_batch_that_a_leader_without_a_certain_session_refused_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            session = node.partitions.session
            until_ms, session.certain_until_ms = session.certain_until_ms, NEVER_MS
            assert await client.produce("orders", b"a", sequence=0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            session.certain_until_ms = until_ms
            assert await client.produce("orders", b"b", sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert await client.produce("orders", b"a", sequence=0) == ErrorCode.NONE

    asyncio.run(run())


def test_a_producer_that_the_log_has_forgotten_goes_on_as_with_kafka(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", b"a", sequence=5) == ErrorCode.NONE

    asyncio.run(run())

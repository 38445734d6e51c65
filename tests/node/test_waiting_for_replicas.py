"""What is waited for by a leader, of replicas that had everything a moment ago and are in no ISR, and until there are enough."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from odradek.core.metadata.delta import Delta
from odradek.core.metadata.image import TOPIC_RESOURCE
from odradek.node.node import Node
from odradek.node.partition import Partition
from odradek.wire.errors import ErrorCode
from tests.core.partition.leading import LAG_MS, broker, fetch, state
from tests.node.inside import connected, new_node, produce_request, running

OTHER = 2


@asynccontextmanager
async def waiting(folder: Path) -> AsyncIterator[tuple[Node, Partition]]:
    """A batch is appended that the other replica has not fetched: it has caught up, and was not taken into the ISR."""
    async with running(new_node(folder)) as node, connected(node) as client:
        await client.create("orders")
        partition = node.partitions.by_name["orders"][0]
        leader, now_ms = partition.leader, node.partitions.monotonic_ms()
        node.image.brokers[OTHER] = broker(OTHER)
        leader.lead(state((1,), replicas=(1, OTHER), epoch=leader.epoch, partition_epoch=10), 0, 1, now_ms)
        fetch(leader, OTHER, 0, now_ms)
        change = leader.take_unsent()
        assert change is not None
        leader.refused(change, ErrorCode.INELIGIBLE_REPLICA)
        client.send(produce_request("orders", b"x", acks=1), 9)
        assert await client.produced() == ErrorCode.NONE
        assert (partition.log_end, partition.high_watermark) == (1, 0)
        yield node, partition


def test_who_is_fenced_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with waiting(tmp_path) as (node, partition):
            node.image.brokers[OTHER] = broker(OTHER, fenced=True)
            await node.partitions.follow(Delta(brokers={OTHER: None}))
            assert partition.high_watermark == 1

    asyncio.run(run())


def test_who_has_not_fetched_for_too_long_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        async with waiting(tmp_path) as (node, partition):
            late_ms = node.partitions.monotonic_ms() + LAG_MS + 1
            node.partitions.monotonic_ms = lambda: late_ms
            node.partitions.tick()
            assert partition.high_watermark == 1

    asyncio.run(run())


def test_an_isr_that_came_with_a_larger_minimum_is_judged_by_that(tmp_path: Path) -> None:
    """Who has left it then is eligible to lead, and has nothing of what only this node has."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            partition, topic = node.partitions.by_name["orders"][0], node.image.topics["orders"]
            leader, now_ms = partition.leader, node.partitions.monotonic_ms()
            node.image.brokers[OTHER] = broker(OTHER, fenced=True)
            both = state((1, OTHER), replicas=(1, OTHER), epoch=leader.epoch, partition_epoch=10)
            leader.lead(both, 0, 1, now_ms)
            client.send(produce_request("orders", b"x", acks=1), 9)
            assert await client.produced() == ErrorCode.NONE
            assert (partition.log_end, partition.high_watermark) == (1, 0)
            topic.partitions[0] = msgspec.structs.replace(both, isr=(1,), partition_epoch=11)
            node.image.configs[TOPIC_RESOURCE, "orders"] = {"min.insync.replicas": "2"}
            change = Delta(partitions={(topic.id, 0): None}, configs={(TOPIC_RESOURCE, "orders"): None})
            await node._follow(change)
            assert (leader.isr, leader.min_insync, partition.high_watermark) == ((1,), 2, 0)
            node.image.configs[TOPIC_RESOURCE, "orders"] = {"min.insync.replicas": "1"}
            await node._follow(Delta(configs=change.configs))
            assert partition.high_watermark == 1

    asyncio.run(run())

"""What a coordinator writes to __consumer_offsets."""

import asyncio
from pathlib import Path

import pytest

from odradek.node.groups import CONSUMER_OFFSETS
from odradek.node.node import Node
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tests.node.inside import Client, connected, new_node, running, until

COMMIT = OffsetCommitRequest(
    group_id="g",
    generation_id_or_member_epoch=-1,
    topics=[
        OffsetCommitRequest.OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        )
    ],
)
FETCH = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])


async def commit(node: Node, client: Client) -> None:
    await client.create("t")
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    await until(lambda: bool(node.groups.loaded()))
    answer = await client.ask(COMMIT, 8, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def committed(client: Client) -> int:
    answer = await client.ask(FETCH, 8, OffsetFetchResponse)
    return answer.groups[0].topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_topic_compression_codec_is_that_of_its_batches(tmp_path: Path, codec: Codec) -> None:
    async def story() -> None:
        async with (
            running(new_node(tmp_path, offsets_topic_compression_codec=str(int(codec)))) as node,
            connected(node) as client,
        ):
            await commit(node, client)
            log = node.partitions.by_name[CONSUMER_OFFSETS][0].log
            assert {header.codec for _, _, header in log.batches(0)} == {codec}
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await until(lambda: bool(node.groups.loaded()))
            assert await committed(client) == 5

    asyncio.run(story())

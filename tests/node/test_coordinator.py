"""A coordinator that has just taken over: what it has loaded may not be committed."""

import asyncio
from pathlib import Path

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import OffsetFetchRequest, OffsetFetchResponse
from tests.node.inside import Client, connected, new_node, running
from tests.node.test_disk_full import committed, prepare


async def error(client: Client, group: str) -> int:
    return (await client.ask(OffsetFetchRequest(group_id=group, topics=None), 7, OffsetFetchResponse)).error_code


def test_offsets_are_told_when_all_that_was_loaded_is_committed(tmp_path: Path) -> None:
    """Or an offset that somebody was told is committed would be seen to go back."""

    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            (shard,) = node.groups.shards.values()
            shard.loaded_offset = shard.partition.log_end + 1
            assert await error(client, "readers") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            shard.loaded_offset = shard.partition.log_end
            assert await committed(client, "readers") == [1]

    asyncio.run(story())

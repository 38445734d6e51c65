"""Partitions follow the metadata, whatever it has become by the time they do."""

import asyncio
from pathlib import Path

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse
from tests.node.inside import connected, new_node, running


def test_a_topic_that_was_deleted_before_its_logs_were_made(tmp_path: Path) -> None:
    """Both changes are in one sync of the metadata log: the first is followed when the second is known already."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as one, connected(node) as other:
            for number in range(20):
                name = f"short-lived-{number}"
                wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=3, replication_factor=1)
                one.send(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
                other.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
                created = await one.receive(CreateTopicsResponse, 7)
                assert not created.topics[0].error_code
                deleted = await other.receive(DeleteTopicsResponse, 5)
                assert deleted.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert not node.stopped.done()
            assert await one.create("long-lived") == ErrorCode.NONE
            assert await one.produce("long-lived", b"here") == ErrorCode.NONE
            (folder,) = node.partitions.folders
            left = {name.topic for name in folder.logs} - {topic.name for topic in node.image.topics.values()}
            assert not left

    asyncio.run(run())

"""Partitions follow the metadata, whatever it has become by the time they do."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from odradek.log.checkpoint import PARTITION_METADATA, write_partition_metadata
from odradek.log.disk import RealDisk
from odradek.node.errors import StartFailed
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse
from tests.node.disks import Gate, SlowDisk
from tests.node.inside import connected, new_node, running, until


class SlowlyReadDisk(SlowDisk):
    def read(self, path: str) -> bytes:
        self.gate.pass_through("read", path)
        return super().read(path)


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


def test_a_log_of_another_topic_with_the_same_name_is_set_aside_at_the_start(tmp_path: Path) -> None:
    """The topic was deleted and made anew while the node was away: what it has is none of the new one's."""

    async def first() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", b"old") == ErrorCode.NONE

    async def second() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            (folder,) = node.partitions.folders
            (stray,) = folder.strays
            assert stray.startswith("orders-0.")
            assert stray.endswith("-stray")
            assert (tmp_path / "data" / stray / "00000000000000000000.log").stat().st_size > 0
            assert node.partitions.by_name["orders"][0].log_end == 0
            assert await client.produce("orders", b"new") == ErrorCode.NONE

    asyncio.run(first())
    write_partition_metadata(RealDisk(), str(tmp_path / "data" / "orders-0" / PARTITION_METADATA), UUID(int=7))
    asyncio.run(second())


def test_a_topic_that_is_deleted_while_a_start_looks_for_strays_leaves_no_log(tmp_path: Path) -> None:
    """Its log was looked at and kept just before. The next topic with the name is not to begin with its records."""

    async def first() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            await client.create("payments")
            assert await client.produce("orders", b"old") == ErrorCode.NONE

    async def second() -> None:
        gate = Gate(lambda _, path: path.endswith(f"payments-0/{PARTITION_METADATA}"))
        gate.close()
        node = new_node(tmp_path, lambda: SlowlyReadDisk(gate))

        async def delete() -> None:
            try:
                await until(lambda: gate.waiting == 1)
                request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000)
                deleted = await node.controller.submit(lambda controller: controller.delete_topics(request))
                assert not deleted.responses[0].error_code
                await until(lambda: "orders" not in node.image.topics)
            finally:
                gate.open()

        deleting = asyncio.create_task(delete())
        async with running(node), connected(node) as client:
            await deleting
            (folder,) = node.partitions.folders
            assert {name.topic for name in folder.logs} == {"payments"}
            assert not (tmp_path / "data" / "orders-0").exists()
            assert await client.create("orders") == ErrorCode.NONE
            assert await client.produce("orders", b"new") == ErrorCode.NONE
            assert await client.fetch("orders") == [b"new"]

    asyncio.run(first())
    asyncio.run(second())


def test_a_log_whose_topic_cannot_be_read_is_named_and_not_touched(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")

    async def second() -> None:
        with pytest.raises(StartFailed, match=r"orders-0/partition\.metadata.*write its id there"):
            await new_node(tmp_path).start()

    asyncio.run(first())
    file = tmp_path / "data" / "orders-0" / PARTITION_METADATA
    file.write_bytes(b"?")
    asyncio.run(second())
    assert file.read_bytes() == b"?"

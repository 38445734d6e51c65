"""Topics that are deleted while their segments are being flushed: the node goes on."""

import asyncio
from pathlib import Path

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tests.clients.server import serving
from tests.node.disks import Gate, SlowDisk
from tests.node.inside import connected, new_node, produce_request, running, until
from tests.node.socket_client import SocketClient

TOPICS = 25
SEGMENTS = 6


def test_a_topic_is_deleted_while_its_segments_are_flushed(tmp_path: Path) -> None:
    kind = CreateTopicsRequest
    configs = [
        kind.CreatableTopicConfig(name="segment.bytes", value="1048576"),
        kind.CreatableTopicConfig(name="file.delete.delay.ms", value="0"),
    ]
    with serving(tmp_path) as server, SocketClient(server.port) as client:
        for number in range(TOPICS):
            wanted = kind.CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, configs=configs)
            assert not client.ask(kind(topics=[wanted]), 7, CreateTopicsResponse).topics[0].error_code
            for _ in range(SEGMENTS):
                produced = client.ask(produce_request(f"t{number}", bytes(900_000)), 9, ProduceResponse)
                assert not produced.responses[0].partition_responses[0].error_code
            deleted = client.ask(DeleteTopicsRequest(topic_names=[f"t{number}"], timeout_ms=10_000), 5, DeleteTopicsResponse)
            assert not deleted.responses[0].error_code
        assert client.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
        assert "has failed" not in server.output()


def test_a_flush_that_has_waited_for_another_until_its_topic_was_deleted_fails_no_disk(tmp_path: Path) -> None:
    async def run() -> None:
        gate = Gate(lambda operation, path: operation == "sync" and "/t-0/" in path and path.endswith(".log"))
        async with running(new_node(tmp_path, lambda: SlowDisk(gate))) as node, connected(node) as client:
            assert await client.create("t", 1, internal_segment_bytes="2000", file_delete_delay_ms="0") == ErrorCode.NONE
            work, log = node.partitions.work, node.partitions.by_name["t"][0].log
            gate.close()
            try:
                for _ in range(SEGMENTS):
                    assert await client.produce("t", bytes(1500)) == ErrorCode.NONE
                await until(lambda: gate.waiting == 1)
                waiting = asyncio.create_task(work.flush(log))
                for segment in log.segments:
                    segment.release()
                request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
                assert not (await client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code
                await until(lambda: not (tmp_path / "data" / "t-0").exists())
            finally:
                gate.open()
            await waiting
            assert log.disk.failure is None
            assert node.partitions.folders

    asyncio.run(run())

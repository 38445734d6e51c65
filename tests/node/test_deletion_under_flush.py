"""Topics that are deleted while their segments are being flushed, or looked into: the node goes on."""

import asyncio
from pathlib import Path

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tests.clients.server import serving
from tests.node.disks import Gate, SlowDisk
from tests.node.inside import NOW_MS, connected, new_node, produce_request, running, until
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


def test_a_look_up_by_time_ends_when_its_topic_is_deleted_and_looks_into_no_other_of_that_name(tmp_path: Path) -> None:
    async def fill() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            assert await client.create("t", 1, internal_segment_bytes="2000", file_delete_delay_ms="0") == ErrorCode.NONE
            for _ in range(SEGMENTS):
                assert await client.produce("t", bytes(1500)) == ErrorCode.NONE

    async def look() -> None:
        gate = Gate(lambda operation, _: operation == "warm")
        disk = SlowDisk(gate)
        async with (
            running(new_node(tmp_path, lambda: disk)) as node,
            connected(node) as reader,
            connected(node) as client,
        ):
            log = node.partitions.by_name["t"][0].log
            disk.cold |= {f"{log.folder}/{base:020}.log" for base in log.bases}
            gate.close()
            try:
                reader.send(by_time("t", NOW_MS * 2), 7)
                await until(lambda: gate.waiting == 1)
                request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
                assert not (await client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code
                await until(lambda: not (tmp_path / "data" / "t-0").exists())
                assert await client.create("t") == ErrorCode.NONE
                new = node.partitions.by_name["t"][0].log
            finally:
                gate.open()
            answer = await reader.receive(ListOffsetsResponse, 7)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert disk.failure is None
            assert {name.partition(".")[0] for name, _ in disk.names(new.folder)} == {"0" * 20, "partition"}
            assert await client.produce("t", b"new") == ErrorCode.NONE

    asyncio.run(fill())
    asyncio.run(look())


def by_time(topic: str, timestamp: int) -> ListOffsetsRequest:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])])

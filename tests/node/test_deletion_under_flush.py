"""Topics that are deleted while their segments are being flushed: the node goes on."""

from pathlib import Path

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
from tests.node.inside import produce_request
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

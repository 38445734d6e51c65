"""What goes on beside the clients, seen by one: retention, compaction, checkpoints, and settings that take effect at once."""

import time
from collections.abc import Callable, Iterator

import pytest

from odradek.wire.batch import headers
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build, records
from tests.clients.server import Node
from tests.node.socket_client import SocketClient

WAIT_SECONDS_MAX = 60
TOPIC_RESOURCE, SET, DELETE = 2, 0, 1
EARLIEST, LATEST = -2, -1

SETTINGS = {
    "log_retention_check_interval_ms": "100",
    "log_cleaner_backoff_ms": "100",
    "log_cleaner_enable": "true",
    "replica_high_watermark_checkpoint_interval_ms": "100",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"), **SETTINGS)
    with made.running():
        yield made
    assert "Traceback" not in made.output()


@pytest.fixture
def client(node: Node) -> Iterator[SocketClient]:
    with SocketClient(node.port) as made:
        yield made


def create(client: SocketClient, name: str, **configs: str) -> None:
    entries = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=entries)
    answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0, answer


def produce(client: SocketClient, topic: str, key: bytes, value: bytes) -> ErrorCode:
    batch = build([Record(0, int(time.time() * 1000), key, value)])
    part = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def offset(client: SocketClient, topic: str, timestamp: int) -> int:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
    return client.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5, ListOffsetsResponse).topics[0].partitions[0].offset


def alter(client: SocketClient, topic: str, key: str, value: str | None) -> None:
    operation = DELETE if value is None else SET
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change]
    )
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


def values(client: SocketClient, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """All that a reader finds from the begin on."""
    found: list[tuple[bytes | None, bytes | None]] = []
    at, end = offset(client, topic, EARLIEST), offset(client, topic, LATEST)
    while at < end:
        wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=at, partition_max_bytes=1_000_000)
        request = FetchRequest(
            max_bytes=1_000_000,
            min_bytes=1,
            max_wait_ms=1000,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        )
        data = client.ask(request, 12, FetchResponse).responses[0].partitions[0].records
        assert data is not None
        whole = bytes(data)
        for position, header in headers(whole):
            found += [(record.key, record.value) for record in records(whole, position, header) if record.offset >= at]
            at = header.next_offset
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_old_segments_go_when_retention_is_shortened(client: SocketClient) -> None:
    create(client, "short", internal_segment_bytes="2000", file_delete_delay_ms="0")
    for _ in range(100):
        assert produce(client, "short", b"k", bytes(100)) is ErrorCode.NONE
    assert offset(client, "short", EARLIEST) == 0
    alter(client, "short", "retention.bytes", "3000")
    wait_until(lambda: offset(client, "short", EARLIEST) > 50)
    assert offset(client, "short", LATEST) == 100


def test_a_compacted_topic_keeps_the_last_value_of_each_key(client: SocketClient) -> None:
    create(client, "compact", cleanup_policy="compact", internal_segment_bytes="3000", min_cleanable_dirty_ratio="0.01")
    for number in range(300):
        assert produce(client, "compact", b"key %d" % (number % 3), b"value %d" % number + bytes(100)) is ErrorCode.NONE
    wait_until(lambda: len(values(client, "compact")) < 100)
    last = dict(values(client, "compact"))
    assert {key: value[:9] for key, value in last.items() if value is not None} == {
        b"key 0": b"value 297",
        b"key 1": b"value 298",
        b"key 2": b"value 299",
    }


def test_settings_of_a_topic_take_effect_with_the_next_batch(client: SocketClient) -> None:
    create(client, "settings")
    assert produce(client, "settings", b"k", bytes(500)) is ErrorCode.NONE
    alter(client, "settings", "max.message.bytes", "200")
    assert produce(client, "settings", b"k", bytes(500)) is ErrorCode.MESSAGE_TOO_LARGE
    alter(client, "settings", "max.message.bytes", None)
    assert produce(client, "settings", b"k", bytes(500)) is ErrorCode.NONE
    alter(client, "settings", "flush.messages", "1")
    assert produce(client, "settings", b"k", bytes(500)) is ErrorCode.NONE


def test_more_partitions_can_be_written_as_soon_as_they_are_answered(client: SocketClient) -> None:
    create(client, "growing")
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="growing", count=20, assignments=None)
    answer = client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3, CreatePartitionsResponse)
    assert answer.results[0].error_code == 0
    batch = build([Record(0, int(time.time() * 1000), b"k", b"v")])
    parts = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in range(20)]
    topics = [ProduceRequest.TopicProduceData(name="growing", partition_data=parts)]
    produced = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
    assert [part.error_code for part in produced.responses[0].partition_responses] == [0] * 20


def test_a_deleted_topic_is_gone_at_once_and_its_files_soon(node: Node, client: SocketClient) -> None:
    create(client, "going", file_delete_delay_ms="0")
    assert produce(client, "going", b"k", b"v") is ErrorCode.NONE
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="going")], timeout_ms=10_000)
    assert client.ask(request, 6, DeleteTopicsResponse).responses[0].error_code == 0
    assert produce(client, "going", b"k", b"v") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not (node.data / "going-0").exists()
    wait_until(lambda: not list(node.data.glob("going-0.*-delete")))
    create(client, "going")
    assert offset(client, "going", LATEST) == 0


def test_high_watermarks_are_noted_while_the_node_runs(node: Node, client: SocketClient) -> None:
    create(client, "noted")
    for _ in range(7):
        produce(client, "noted", b"k", b"v")
    checkpoint = node.data / "replication-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and "noted 0 7" in checkpoint.read_text())

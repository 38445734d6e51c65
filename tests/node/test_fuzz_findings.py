"""What the fuzzer found, case by case."""

import struct
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from odradek.api.context import Context
from odradek.api.refusal import refusal
from odradek.wire.apis import APIS
from odradek.wire.batch import ATTRIBUTES_POSITION, HEADER_SIZE
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import (
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    UpdateFeaturesRequest,
)
from odradek.wire.records import Record, build
from tests.clients.server import Node
from tests.kafka.broker import Broker
from tests.node.socket_client import SocketClient

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    node = Node(tmp_path_factory.mktemp("server"))
    with node.running():
        yield node
    assert "Traceback" not in node.output()


@pytest.fixture
def client(server: Broker) -> Iterator[SocketClient]:
    with SocketClient(server.port) as made:
        yield made


def produce(client: SocketClient, topic: str, batch: bytearray) -> None:
    wanted = MetadataRequest.MetadataRequestTopic(name=topic)
    client.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=True), 9, MetadataResponse)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = client.ask(request, 9, ProduceResponse)
    assert not answer.responses[0].partition_responses[0].error_code


def offset_for(
    client: SocketClient, topic: str, timestamp: int, version: int
) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), version, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", APIS[2].served)
def test_offsets_are_listed_in_every_version(client: SocketClient, version: int) -> None:
    """Versions before 4 have no epoch, and an answer with one could not be sent."""
    produce(client, "times", build([Record(0, NOW_MS, b"k", b"v")]))
    for timestamp in (-1, -2, NOW_MS):
        found = offset_for(client, "times", timestamp, version)
        assert not found.error_code
        assert found.leader_epoch == (0 if version >= 4 else -1)


def test_a_batch_that_nobody_can_decompress_is_a_corrupt_message_for_those_who_look_for_a_time(client: SocketClient) -> None:
    """Produce looks at headers alone, so it is in the log."""
    batch = build([Record(0, NOW_MS, b"k", b"v" * 100)], codec=Codec.LZ4)
    batch[HEADER_SIZE + 10] ^= 0xFF
    struct.pack_into(">I", batch, 17, crc32c(batch[ATTRIBUTES_POSITION:]))
    produce(client, "broken", batch)
    assert ErrorCode(offset_for(client, "broken", NOW_MS, 7).error_code) is ErrorCode.CORRUPT_MESSAGE
    assert ErrorCode(offset_for(client, "broken", -3, 7).error_code) is ErrorCode.CORRUPT_MESSAGE
    assert offset_for(client, "broken", -1, 7).offset == 1


def test_an_election_of_an_unknown_kind_is_refused(client: SocketClient) -> None:
    wanted = ElectLeadersRequest.TopicPartitions(topic="things", partitions=[0])
    answer = client.ask(ElectLeadersRequest(election_type=-1, topic_partitions=[wanted]), 1, ElectLeadersResponse)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST


REFUSABLE: list[Message] = [
    CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")]),
    DeleteTopicsRequest(topic_names=["t"]),
    DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]),
    CreatePartitionsRequest(topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t")]),
    ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]),
    AlterConfigsRequest(resources=[AlterConfigsRequest.AlterConfigsResource(resource_name="t")]),
    IncrementalAlterConfigsRequest(resources=[IncrementalAlterConfigsRequest.AlterConfigsResource(resource_name="t")]),
    UpdateFeaturesRequest(),
]


@pytest.mark.parametrize("request_", REFUSABLE, ids=lambda request: type(request).__name__)
def test_what_the_controller_refuses_as_a_whole_is_answered_in_every_version(request_: Message) -> None:
    for version in APIS[request_.schema.key].served:
        answer = refusal(request_, Refused(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"), version)
        assert "error_code=<ErrorCode.KAFKA_STORAGE_ERROR" in repr(answer)
        assert answer.to_bytes(version)


class Listening:
    """A connection that only remembers why it was closed."""

    closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


def test_an_answer_that_cannot_be_sent_closes_its_connection() -> None:
    connection = Listening()
    ctx = Context(None, connection, 1, 7, None)  # type: ignore[arg-type]
    answer = ListOffsetsResponse.ListOffsetsPartitionResponse(leader_epoch=5)
    ctx.answer(ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[answer])]))
    assert "internal error" in connection.closed
    assert "leader_epoch" in connection.closed

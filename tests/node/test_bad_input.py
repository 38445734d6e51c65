"""Whatever a client sends: the right error code, or its connection closed and one line that says why. The next client is served.

Every case of "bad input" in what must never go wrong, over a real socket to a node in a process of its own.
"""

import struct
from collections.abc import Callable, Iterator

import pytest

from odradek.wire.apis import APIS
from odradek.wire.batch import ATTRIBUTES_POSITION, set_offset_and_epoch
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import encode_request
from odradek.wire.message import Message
from odradek.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.clients.server import IS_KAFKA, serving
from tests.kafka.broker import Broker
from tests.node.socket_client import Closed, SocketClient

REQUEST_BYTES_MAX = 2_000_000
TOPIC = "things"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("server"), socket_request_max_bytes=str(REQUEST_BYTES_MAX)) as running:
        with SocketClient(running.port) as client:
            wanted = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse)
            assert answer.topics[0].error_code == 0
        yield running


@pytest.fixture
def client(server: Broker) -> Iterator[SocketClient]:
    """A client that misbehaves. Afterwards the next one must be served, and nothing must have gone wrong inside."""
    with SocketClient(server.port) as made:
        yield made
    with SocketClient(server.port) as other:
        assert other.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    assert "Traceback" not in server.output()


def frame(request: Message, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "socket"))[4:]  # type: ignore[arg-type]


# -- frames


def refused(server: Broker, client: SocketClient, said: str, misbehave: Callable[[], None]) -> None:
    """The connection is closed, and one line says why."""
    before = server.output().count(said)
    try:
        misbehave()
        assert client.is_closed()
    except Closed:
        pass
    lines = [line for line in server.output().splitlines() if said in line]
    if IS_KAFKA:  # its log is not ours to judge
        return
    assert len(lines) == before + 1, server.output()[-2000:]
    assert "closed" in lines[-1]


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 1, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_a_frame_of_an_impossible_size(server: Broker, client: SocketClient, size: int) -> None:
    refused(server, client, f"a request of {size} bytes", lambda: client.send(struct.pack(">i", size) + b"xyz"))


def test_http_on_the_port(server: Broker, client: SocketClient) -> None:
    refused(server, client, "looks like HTTP", lambda: client.send(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"))


def test_tls_on_the_port(server: Broker, client: SocketClient) -> None:
    refused(server, client, "looks like TLS", lambda: client.send(bytes.fromhex("16030100c8010000c40303") + bytes(32)))


@pytest.mark.parametrize("key", [-1, 999, 32767])
def test_an_unknown_api(server: Broker, client: SocketClient, key: int) -> None:
    data = struct.pack(">hhih", key, 0, 1, -1)
    refused(server, client, f"API {key} in version 0", lambda: client.send_frame(data))


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (3, 99), (1, 3), (3, -1), (52, 0)])
def test_a_version_that_is_not_served(server: Broker, client: SocketClient, key: int, version: int) -> None:
    data = struct.pack(">hhih", key, version, 1, -1)
    refused(server, client, f"API {key} in version {version}", lambda: client.send_frame(data))


@pytest.mark.parametrize("version", [5, 99, -1])
def test_api_versions_in_an_unknown_version_is_answered_in_version_0(client: SocketClient, version: int) -> None:
    client.send_frame(struct.pack(">hhihb", 18, version, 7, -1, 0))
    answer = client.frame()
    assert answer[:4] == struct.pack(">i", 7)
    response = ApiVersionsResponse.decode(answer[4:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
    assert client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, ApiVersionsResponse).api_keys


def test_a_client_that_gives_itself_an_impossible_name(client: SocketClient) -> None:
    request = ApiVersionsRequest(client_software_name="no spaces", client_software_version="1")
    assert client.ask(request, 3, ApiVersionsResponse).error_code == ErrorCode.INVALID_REQUEST


def test_bytes_behind_a_request_are_ignored_as_kafka_ignores_them(client: SocketClient) -> None:
    """librdkafka sends such requests."""
    client.send_frame(frame(MetadataRequest(topics=[]), 12) + b"\x01\x00\x00")
    client.correlation_id = 1
    assert client.answer(MetadataResponse, 12).brokers


def test_a_count_larger_than_the_frame(server: Broker, client: SocketClient) -> None:
    whole = frame(MetadataRequest(topics=[]), 1)
    refused(server, client, "MetadataRequest.topics", lambda: client.send_frame(whole[:-4] + struct.pack(">i", 2**31 - 1)))


def test_a_frame_that_ends_in_the_middle_of_a_field(server: Broker, client: SocketClient) -> None:
    topic = MetadataRequest.MetadataRequestTopic(name="a-long-name")
    whole = frame(MetadataRequest(topics=[topic]), 1)
    refused(server, client, "MetadataRequest.topics.name", lambda: client.send_frame(whole[:-5]))


def test_null_where_none_may_be(server: Broker, client: SocketClient) -> None:
    whole = frame(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="")]), 1)
    refused(server, client, "MetadataRequest.topics.name", lambda: client.send_frame(whole[:-2] + b"\xff\xff"))


def test_an_over_long_varint(server: Broker, client: SocketClient) -> None:
    whole = frame(MetadataRequest(topics=[]), 12)
    at = 4 + 4 + 2 + 6 + 1
    refused(server, client, "MetadataRequest.topics", lambda: client.send_frame(whole[:at] + b"\xff" * 10 + whole[at:]))


def test_tagged_fields_that_make_no_sense(server: Broker, client: SocketClient) -> None:
    whole = frame(MetadataRequest(topics=[]), 12)
    refused(server, client, "MetadataRequest", lambda: client.send_frame(whole[:-1] + b"\x02\x05\x00\x05\x00"))


def test_a_header_with_a_negative_client_id(server: Broker, client: SocketClient) -> None:
    refused(server, client, "client_id", lambda: client.send_frame(struct.pack(">hhih", 3, 1, 1, -2) + bytes(4)))


def test_a_frame_that_comes_byte_by_byte(client: SocketClient) -> None:
    data = b"".join(encode_request(MetadataRequest(topics=[]), 12, 1, "slow"))  # type: ignore[arg-type]
    for number in range(len(data)):
        client.send(data[number : number + 1])
    client.correlation_id = 1
    assert client.answer(MetadataResponse, 12).brokers


def test_a_partial_frame_and_then_silence(server: Broker) -> None:
    silent = SocketClient(server.port)
    silent.send(struct.pack(">i", 1_000_000) + b"x" * 100_000)
    with SocketClient(server.port) as other:
        assert other.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    silent.socket.close()


def test_many_requests_in_one_piece_are_answered_in_their_order(client: SocketClient) -> None:
    data = b"".join(
        b"".join(encode_request(MetadataRequest(topics=[]), version, number, "many"))  # type: ignore[arg-type]
        for number, version in enumerate([1, 12, 5, 9] * 500)
    )
    client.send(data)
    for number in range(2000):
        assert client.frame()[:4] == struct.pack(">i", number)


def test_every_api_that_is_advertised_is_served_and_no_other(server: Broker, client: SocketClient) -> None:
    answer = client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, ApiVersionsResponse)
    advertised = {entry.api_key: range(entry.min_version, entry.max_version + 1) for entry in answer.api_keys}
    assert all(versions == APIS[key].advertised for key, versions in advertised.items())
    for key in set(APIS) - set(advertised):
        with SocketClient(server.port) as other:
            other.send_frame(struct.pack(">hhihb", key, APIS[key].versions[0], 1, -1, 0))
            assert other.is_closed(), APIS[key].name


# -- batches


def batch(**changes: int) -> bytearray:
    made = build([Record(0, 1_700_000_000_000, b"k", b"v"), Record(1, 1_700_000_000_000, b"k", b"w")], **changes)  # type: ignore[arg-type]
    set_offset_and_epoch(made, 0, 0, -1)
    return made


def changed(position: int, layout: str, *values: int) -> bytearray:
    """A batch with other bytes at a position, and a CRC that fits."""
    from crc32c import crc32c

    made = batch()
    struct.pack_into(layout, made, position, *values)
    struct.pack_into(">I", made, 17, crc32c(made[ATTRIBUTES_POSITION:]))
    return made


def produce(client: SocketClient, records: bytes | bytearray | None, version: int = 9, topic: str = TOPIC, acks: int = -1) -> int:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    answer = client.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics), version, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def flipped() -> bytearray:
    made = batch()
    made[-1] ^= 1
    return made


BATCHES: dict[str, tuple[Callable[[], bytes | bytearray | None], ErrorCode]] = {
    "a CRC that does not fit": (flipped, ErrorCode.CORRUPT_MESSAGE),
    "a batch that is cut off": (lambda: batch()[:-3], ErrorCode.INVALID_RECORD),
    "a header that is cut off": (lambda: batch()[:30], ErrorCode.INVALID_RECORD),
    "a length that is too small": (lambda: changed(8, ">i", 10), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (lambda: changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "a count unlike the offsets": (lambda: changed(57, ">i", 7), ErrorCode.INVALID_RECORD),
    "no records": (lambda: changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "a negative last offset": (lambda: changed(23, ">i", -1), ErrorCode.INVALID_RECORD),
    "the control bit": (lambda: changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "the transactional bit without a transaction": (
        lambda: changed(21, ">h", 0x10),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "the bit of the append time": (lambda: changed(21, ">h", 0x08), ErrorCode.NONE),  # which is taken away again
    "an unknown codec": (  # Kafka does not say what is wrong
        lambda: changed(21, ">h", 0x05),
        ErrorCode.UNKNOWN_SERVER_ERROR if IS_KAFKA else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "a producer id without a sequence": (lambda: changed(43, ">qhi", 5, 0, -1), ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch() + batch(), ErrorCode.INVALID_RECORD),
    "nothing": (lambda: b"", ErrorCode.INVALID_RECORD),
    "a gap in the sequence": (lambda: batch(producer_id=77, producer_epoch=0, base_sequence=9), ErrorCode.NONE),
    "a time in the far future": (lambda: build([Record(0, 2**62, b"k", b"v")]), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("case", BATCHES)
def test_a_batch_with(client: SocketClient, case: str) -> None:
    make, error = BATCHES[case]
    assert ErrorCode(produce(client, make())) == error
    assert produce(client, batch()) == ErrorCode.NONE


def test_no_records_at_all(client: SocketClient) -> None:
    """Kafka leaves such a request without an answer."""
    if not IS_KAFKA:
        assert ErrorCode(produce(client, None)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_an_old_format(client: SocketClient, magic: int) -> None:
    assert ErrorCode(produce(client, changed(16, ">b", magic))) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_there_are_not(client: SocketClient, acks: int) -> None:
    assert ErrorCode(produce(client, batch(), acks=acks)) == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_sequence_that_wraps(client: SocketClient) -> None:
    last = 2**31 - 1
    assert produce(client, batch(producer_id=78, producer_epoch=0, base_sequence=last - 1)) == ErrorCode.NONE
    assert produce(client, batch(producer_id=78, producer_epoch=0, base_sequence=0)) == ErrorCode.NONE
    gap = batch(producer_id=78, producer_epoch=0, base_sequence=9)
    assert ErrorCode(produce(client, gap)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_batch_without_acks_closes_the_connection(server: Broker, client: SocketClient) -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=flipped())
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=topics)
    refused(server, client, f"{TOPIC}-0 with acks=0: CORRUPT_MESSAGE", lambda: client.send_frame(frame(request, 9)))


def test_a_client_may_not_write_to_the_brokers_own_topics(client: SocketClient) -> None:
    assert ErrorCode(produce(client, batch(), topic="__consumer_offsets")) in (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )

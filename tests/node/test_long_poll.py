"""Fetches that wait: until enough has come, until their time is over, until the topic is gone; and what is asked behind them."""

import struct
import time
from collections.abc import Iterator
from itertools import count

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.clients.server import serving
from tests.kafka.broker import Broker
from tests.node.socket_client import SocketClient

VERSION = 12
LONG_MS = 60_000
names = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert "Traceback" not in running.output()


@pytest.fixture
def reader(server: Broker) -> Iterator[SocketClient]:
    with SocketClient(server.port) as made:
        yield made


@pytest.fixture
def writer(server: Broker) -> Iterator[SocketClient]:
    with SocketClient(server.port) as made:
        yield made


def new_topic(client: SocketClient, partitions: int = 2) -> str:
    name = f"topic-{next(names)}"
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    while produce(client, name, 0) is not ErrorCode.NONE:  # until it is led
        continue
    return name


def produce(client: SocketClient, topic: str, index: int, size: int = 10) -> ErrorCode:
    batch = build([Record(0, int(time.time() * 1000), None, bytes(size))])
    part = ProduceRequest.PartitionProduceData(index=index, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def fetch(topic: str, offsets: list[int], wait_ms: int = LONG_MS, bytes_min: int = 1, **more: int) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
        for index, offset in enumerate(offsets)
    ]
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=wanted)]
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=10_000_000, session_epoch=-1, topics=topics)
    for name, value in more.items():
        setattr(request, name, value)
    return request


def sizes(answer: FetchResponse) -> list[int]:
    return [len(part.records or b"") for topic in answer.responses for part in topic.partitions]


def test_a_fetch_waits_for_a_record(reader: SocketClient, writer: SocketClient) -> None:
    topic = new_topic(writer)
    reader.send_request(fetch(topic, [1, 0]), VERSION)
    assert produce(writer, topic, 1) is ErrorCode.NONE
    empty, full = sizes(reader.answer(FetchResponse, VERSION))
    assert empty == 0
    assert full > 60


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(reader: SocketClient, writer: SocketClient, isolation: int) -> None:
    topic = new_topic(writer)
    reader.send_request(fetch(topic, [1, 0], bytes_min=1000, isolation_level=isolation), VERSION)
    for index in (0, 1, 0, 1):
        assert produce(writer, topic, index, 200) is ErrorCode.NONE
    assert sum(sizes(reader.answer(FetchResponse, VERSION))) >= 1000


def test_a_fetch_is_answered_with_nothing_when_its_time_is_over(reader: SocketClient, writer: SocketClient) -> None:
    topic = new_topic(writer)
    answer = reader.ask(fetch(topic, [1, 0], wait_ms=50), VERSION, FetchResponse)
    assert sizes(answer) == [0, 0]
    assert [part.error_code for part in answer.responses[0].partitions] == [0, 0]


def test_a_fetch_learns_that_its_topic_is_deleted(reader: SocketClient, writer: SocketClient) -> None:
    topic = new_topic(writer)
    reader.send_request(fetch(topic, [1, 0]), VERSION)
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=topic)], timeout_ms=10_000)
    assert writer.ask(request, 6, DeleteTopicsResponse).responses[0].error_code == 0
    answer = reader.answer(FetchResponse, VERSION)
    expected = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert {ErrorCode(part.error_code) for part in answer.responses[0].partitions} & expected


def test_what_is_asked_behind_a_waiting_fetch_is_answered_behind_it(reader: SocketClient, writer: SocketClient) -> None:
    topic = new_topic(writer)
    first = reader.send_request(fetch(topic, [1, 0]), VERSION)
    others = [reader.send_request(MetadataRequest(topics=[]), 12) for _ in range(5)]
    assert produce(writer, topic, 0) is ErrorCode.NONE
    for correlation_id in (first, *others):
        assert reader.frame()[:4] == struct.pack(">i", correlation_id)


def test_others_are_served_while_a_thousand_fetches_wait(server: Broker, writer: SocketClient) -> None:
    topic = new_topic(writer)
    waiting = [SocketClient(server.port) for _ in range(1000)]
    for client in waiting:
        client.send_request(fetch(topic, [1, 0]), VERSION)
    assert writer.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    assert produce(writer, topic, 1) is ErrorCode.NONE
    for client in waiting:
        assert sum(sizes(client.answer(FetchResponse, VERSION))) > 60
        client.socket.close()


def test_a_reader_that_goes_leaves_nothing_behind(server: Broker, writer: SocketClient) -> None:
    topic = new_topic(writer)
    for _ in range(10):
        with SocketClient(server.port) as client:
            client.send_request(fetch(topic, [1, 0]), VERSION)
    assert produce(writer, topic, 0) is ErrorCode.NONE
    assert writer.ask(MetadataRequest(topics=[]), 12, MetadataResponse).brokers


def test_nobody_waits_for_more_than_an_answer_may_hold(reader: SocketClient, writer: SocketClient) -> None:
    topic = new_topic(writer)
    reader.send_request(fetch(topic, [1, 0], bytes_min=1_000_000, max_bytes=1000), VERSION)
    for index in (0, 1, 0, 1):
        assert produce(writer, topic, index, 500) is ErrorCode.NONE
    assert sum(sizes(reader.answer(FetchResponse, VERSION))) > 500
    again = reader.ask(fetch(topic, [1, 0], bytes_min=1_000_000, max_bytes=1000), VERSION, FetchResponse)
    assert sum(sizes(again)) > 500

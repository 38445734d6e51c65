"""A reader with a fetch session, against a reader's own account of what there is: of many partitions it is told what changed."""

import random
from collections.abc import Iterator

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.clients.server import serving
from tests.kafka.broker import Broker
from tests.node.socket_client import SocketClient

PARTITIONS = 8
VERSION = 12
LONG_MS = 60_000
STEPS = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert "Traceback" not in running.output()


class Writer:
    """Knows what it wrote and what it deleted."""

    def __init__(self, client: SocketClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.ends = [0] * PARTITIONS
        self.starts = [0] * PARTITIONS
        wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1)
        assert (
            client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse).topics[0].error_code == 0
        )

    def produce(self, index: int, count: int = 1) -> None:
        batch = build([Record(offset, 0, None, bytes(100)) for offset in range(count)])
        part = ProduceRequest.PartitionProduceData(index=index, records=batch)
        topics = [ProduceRequest.TopicProduceData(name=self.topic, partition_data=[part])]
        answer = self.client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        self.ends[index] += count

    def delete(self, index: int, offset: int) -> None:
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
        topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=self.topic, partitions=[part])]
        answer = self.client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2, DeleteRecordsResponse)
        assert answer.topics[0].partitions[0].error_code == 0
        self.starts[index] = offset


class SessionReader:
    """Names a partition when its offset has moved, and not otherwise."""

    def __init__(self, client: SocketClient, topic: str, isolation: int, bytes_max: int) -> None:
        self.client = client
        self.topic = topic
        self.isolation = isolation
        self.bytes_max = bytes_max
        self.offsets = [0] * PARTITIONS
        self.high_watermarks = [-1] * PARTITIONS
        self.starts = [-1] * PARTITIONS
        self.moved = set(range(PARTITIONS))
        self.session = self.epoch = 0

    def send(self, wait_ms: int) -> None:
        wanted = [
            FetchRequest.FetchPartition(partition=index, fetch_offset=self.offsets[index], partition_max_bytes=1_000_000)
            for index in sorted(self.moved)
        ]
        topics = [FetchRequest.FetchTopic(topic=self.topic, partitions=wanted)] if wanted else []
        self.moved.clear()
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.bytes_max,
            isolation_level=self.isolation,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=topics,
        )
        self.client.send_request(request, VERSION)

    def take(self) -> list[int]:
        """The partitions that the answer has."""
        answer = self.client.answer(FetchResponse, VERSION)
        assert answer.error_code == 0
        self.session = answer.session_id
        self.epoch += 1
        told = []
        for part in (part for topic in answer.responses for part in topic.partitions):
            index = part.partition_index
            told.append(index)
            assert part.error_code == 0
            self.high_watermarks[index], self.starts[index] = part.high_watermark, part.log_start_offset
            if count := records_in(bytes(part.records or b"")):
                self.offsets[index] += count
                self.moved.add(index)
        return told

    def catch_up(self) -> None:
        while self.moved or self.epoch == 0:
            self.send(0)
            self.take()


def records_in(batches: bytes) -> int:
    count = 0
    while batches:
        count += int.from_bytes(batches[57:61])
        batches = batches[12 + int.from_bytes(batches[8:12]) :]
    return count


@pytest.mark.parametrize(("isolation", "bytes_max"), [(0, 1_000_000), (1, 1_000_000), (0, 300)])
def test_a_session_is_told_everything_whatever_happens_in_between(server: Broker, isolation: int, bytes_max: int) -> None:
    chance = random.Random(isolation + bytes_max)
    with SocketClient(server.port) as writing, SocketClient(server.port) as reading:
        writer = Writer(writing, f"all-{isolation}-{bytes_max}")
        reader = SessionReader(reading, writer.topic, isolation, bytes_max)
        for _ in range(STEPS):
            is_waiting = chance.random() < 0.5
            if is_waiting:
                reader.catch_up()
                reader.send(LONG_MS)
            for _ in range(chance.randrange(1, 4)):
                writer.produce(chance.randrange(PARTITIONS), chance.randrange(1, 5))
            index = chance.randrange(PARTITIONS)
            if not is_waiting and reader.offsets[index] > writer.starts[index]:
                writer.delete(index, reader.offsets[index])
            if is_waiting:
                assert reader.take()
        while reader.offsets != writer.ends:
            reader.send(LONG_MS)  # which is answered because there is more
            assert reader.take()
        reader.catch_up()
        assert reader.high_watermarks == writer.ends
        assert reader.starts == writer.starts


def test_an_answer_has_only_the_partitions_that_changed(server: Broker) -> None:
    with SocketClient(server.port) as writing, SocketClient(server.port) as reading:
        writer = Writer(writing, "changed")
        reader = SessionReader(reading, writer.topic, 0, 1_000_000)
        reader.send(0)
        assert sorted(reader.take()) == list(range(PARTITIONS))
        reader.send(LONG_MS)
        writer.produce(3)
        assert reader.take() == [3]
        reader.send(LONG_MS)
        writer.produce(5)
        assert sorted(reader.take()) == [5]


def test_a_session_whose_topic_is_deleted_is_told_so_again_and_again(server: Broker) -> None:
    with SocketClient(server.port) as writing, SocketClient(server.port) as reading:
        writer = Writer(writing, "deleted")
        reader = SessionReader(reading, writer.topic, 0, 1_000_000)
        reader.send(0)
        reader.take()
        reader.send(LONG_MS)
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="deleted")], timeout_ms=10_000)
        assert writing.ask(request, 6, DeleteTopicsResponse).responses[0].error_code == 0
        for _ in range(3):
            answer = reading.answer(FetchResponse, VERSION)
            codes = {ErrorCode(part.error_code) for topic in answer.responses for part in topic.partitions}
            assert codes <= {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            reader.epoch += 1
            reader.session = answer.session_id
            reader.send(0)
        answer = reading.answer(FetchResponse, VERSION)
        assert len(answer.responses[0].partitions) == PARTITIONS

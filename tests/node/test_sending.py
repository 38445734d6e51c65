"""Whatever is asked for, and whoever goes away in the middle of it: each answer is whole, and nobody gets another's bytes."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from odradek.wire.batch import check
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.clients.server import Node
from tests.log.model import whole_batches
from tests.node.socket_client import SocketClient

CONSUMERS = 6
CONNECTIONS = 25  # of each
BATCHES = 60
BYTES_MAX = (10_000, 60_000, 300_000, 2_000_000, 8_000_000)  # from one call to several, on the loop and on threads


def filled(client: SocketClient) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(name="much", num_partitions=1, replication_factor=1)
    client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse)
    for number in range(BATCHES):
        batch = build([Record(0, 0, None, bytes([number]) * (50_000 + 7_000 * (number % 40)))])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topics = [ProduceRequest.TopicProduceData(name="much", partition_data=[data])]
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0


def request(offset: int, bytes_max: int) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    topics = [FetchRequest.FetchTopic(topic="much", partitions=[wanted])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=bytes_max, topics=topics)


def offsets_in(answer: FetchResponse) -> list[int]:
    """Of the whole batches, each of them sound."""
    data = bytes(answer.responses[0].partitions[0].records or b"")
    found = []
    for position, header in whole_batches(data):
        check(data, position, header)
        found.append(header.base_offset)
    return found


def consume(port: int, seed: int) -> int:
    """Reads, at random places, and goes away in the middle of some answers. Gives how many answers were right."""
    chance, answers = random.Random(seed), 0
    for _ in range(CONNECTIONS):
        with SocketClient(port) as client:
            for _ in range(chance.randrange(1, 4)):
                offset = chance.randrange(BATCHES)
                client.send_request(request(offset, chance.choice(BYTES_MAX)), 12)
                if chance.random() < 0.2:
                    client.receive(chance.randrange(50_000))
                    break
                found = offsets_in(client.answer(FetchResponse, 12))
                assert found == list(range(offset, offset + len(found)))
                assert found
                answers += 1
    return answers


def test_answers_are_whole_while_readers_come_and_go(tmp_path: Path) -> None:
    server = Node(tmp_path)
    with server.running():
        with SocketClient(server.port) as client:
            filled(client)
        with ThreadPoolExecutor(CONSUMERS) as threads:
            answers = list(threads.map(lambda seed: consume(server.port, seed), range(CONSUMERS)))
        assert min(answers) > CONNECTIONS // 2
    assert "Traceback" not in server.output()

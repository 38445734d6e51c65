"""A node beside Apache Kafka 4.3.1: the same work from the same load program, in short turns, so that both have the same machine.

python bench/broker.py [--only NAME] [--rounds 5] [--seconds 2] [--folder PATH] [--ours]

The load program sends prepared bytes and counts bytes back, so that it costs little beside the broker. CPU is the broker's. A
ratio is ours to Kafka's, of the medians of the rounds. --ours measures our node alone.
"""

import argparse
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.servers import Client, Kafka, Odradek, Server, touch_memory
from odradek.wire.frames import encode_request
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

PRODUCE_VERSION = 9
FETCH_VERSION = 12
RECORD_BYTES = 100
PAGES_BYTES_PER_SECOND = 3_000_000_000  # more than the page cache takes up while a broker writes
MB = 1_000_000


class Figure(NamedTuple):
    name: str
    value: float
    unit: str
    cpu: float | None = None
    cpu_unit: str = ""
    more_is_better: bool = True


def produce_frame(topic: str, partition: int, batch_bytes: int) -> bytes:
    value = bytes(range(256))[:RECORD_BYTES]
    count = max(batch_bytes // (RECORD_BYTES + 8), 1)
    now_ms = int(time.time() * 1000)
    batch = build([Record(number, now_ms, None, value) for number in range(count)])
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    return b"".join(encode_request(request, PRODUCE_VERSION, 1, "bench"))  # type: ignore[arg-type]


def fetch_frame(topic: str, offset: int, bytes_max: int) -> bytes:
    wanted = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=bytes_max, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])]
    )
    return b"".join(encode_request(request, FETCH_VERSION, 1, "bench"))  # type: ignore[arg-type]


def create(port: int, topics: dict[str, int], configs: dict[str, str] | None = None) -> None:
    entries = [CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    wanted = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=entries)
        for name, count in topics.items()
    ]
    with Client(port) as client:
        answer = client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert all(topic.error_code == 0 for topic in answer.topics), answer
        while not is_led(client, topics):
            time.sleep(0.005)


def is_led(client: Client, topics: dict[str, int]) -> bool:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    answer = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return all(not topic.error_code and all(p.leader_id == 1 for p in topic.partitions) for topic in answer.topics)


def produced(port: int, frame: bytes) -> int:
    """Sends one frame until it is taken; gives the size of the answer."""
    with Client(port) as client:
        while True:
            client.socket.sendall(frame)
            answer = client.frame()
            response = ProduceResponse.decode_head(answer, PRODUCE_VERSION, 5)[0]
            error = response.responses[0].partition_responses[0].error_code
            if error == 0:
                return len(answer) + 4
            assert error in (3, 6), response
            time.sleep(0.05)


def pump(port: int, frame: bytes, answer_bytes: int, seconds: float, in_flight: int, connections: int) -> tuple[int, float]:
    """Keeps so many requests under way on each connection; gives how many were answered in which time."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    poll = select.epoll()
    left: dict[int, bytearray | memoryview] = {}
    received = dict.fromkeys([each.fileno() for each in sockets], 0)
    is_sending = dict.fromkeys(received, True)
    by_number = {each.fileno(): each for each in sockets}
    many = frame * 64
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
        left[each.fileno()] = memoryview(frame * in_flight)
        poll.register(each.fileno(), select.EPOLLIN | select.EPOLLOUT)
    done, begin = 0, time.perf_counter()
    sink = bytearray(1 << 20)
    while (now := time.perf_counter()) - begin < seconds:
        for number, event in poll.poll(1):
            each = by_number[number]
            if event & select.EPOLLIN:
                count = each.recv_into(sink)
                assert count, "the server closed the connection"
                received[number] += count
                answered, received[number] = divmod(received[number], answer_bytes)
                done += answered
                if answered:
                    more = many[: answered * len(frame)] if answered <= 64 else frame * answered
                    left[number] = memoryview(more if not left[number] else bytes(left[number]) + more)
            if left[number]:
                with suppress(BlockingIOError):
                    left[number] = left[number][each.send(left[number]) :]
            if bool(left[number]) != is_sending[number]:
                is_sending[number] = not is_sending[number]
                poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if is_sending[number] else 0))
    elapsed = now - begin
    for each in sockets:
        each.close()
    poll.close()
    return done, elapsed


def delete(port: int, topics: list[str]) -> None:
    with Client(port) as client:
        answer = client.ask(DeleteTopicsRequest(topic_names=topics, timeout_ms=60_000), 5, DeleteTopicsResponse)
        assert isinstance(answer, DeleteTopicsResponse)
        assert all(topic.error_code == 0 for topic in answer.responses), answer


def produce(server: Server, batch_bytes: int, in_flight: int, seconds: float) -> Figure:
    topic = f"produce-{batch_bytes}"
    create(server.port, {topic: 1}, {"max.message.bytes": "4000000", "file.delete.delay.ms": "0"})
    frame = produce_frame(topic, 0, batch_bytes)
    size = produced(server.port, frame)
    pump(server.port, frame, size, seconds / 2, in_flight, 1)
    touch_memory(int(seconds * PAGES_BYTES_PER_SECOND))
    cpu = server.cpu_seconds()
    done, elapsed = pump(server.port, frame, size, seconds, in_flight, 1)
    cpu = server.cpu_seconds() - cpu
    delete(server.port, [topic])
    if batch_bytes == 1:
        return Figure("produce, 1 record of 100 B", done / elapsed, "requests/s", cpu / done * 1e6, "us CPU each")
    name = f"produce, batches of {batch_bytes // 1000} kB"
    return Figure(name, done * len(frame) / elapsed / MB, "MB/s", cpu / (done * len(frame)) * 1e9, "CPU-s/GB")


def fetch(server: Server, bytes_max: int, consumers: int, seconds: float) -> Figure:
    """Each consumer asks for the next answer when it has the last."""
    topic = "fetch"
    with Client(server.port) as client:
        if not is_known(client, topic):
            create(server.port, {topic: 1})
            frame = produce_frame(topic, 0, 16_000)
            size = produced(server.port, frame)
            pump(server.port, frame, size, 4, 8, 1)
        frame = fetch_frame(topic, 0, bytes_max)
        client.socket.sendall(frame)
        size = 4 + len(client.frame())
        assert size > bytes_max * 0.9, f"an answer of {size} bytes"
    pump(server.port, frame, size, seconds / 3, 1, consumers)
    cpu = server.cpu_seconds()
    done, elapsed = pump(server.port, frame, size, seconds, 1, consumers)
    cpu = server.cpu_seconds() - cpu
    name = f"fetch, answers of {bytes_max // 1000} kB, {consumers} consumer{'s' * (consumers > 1)}"
    return Figure(name, done * size / elapsed / MB, "MB/s", cpu / (done * size) * 1e9, "CPU-s/GB")


def is_known(client: Client, topic: str) -> bool:
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    answer = client.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    return answer.topics[0].error_code == 0


def latency(server: Server, seconds: float) -> list[Figure]:
    """1,000 records a second, one a request; how long until the producer and a waiting consumer know of each."""
    topic = "latency"
    create(server.port, {topic: 1})
    frame = produce_frame(topic, 0, 1)
    produced(server.port, frame)
    producer, consumer = Client(server.port), Client(server.port)
    poll = select.epoll()
    for each in (producer, consumer):
        poll.register(each.socket.fileno(), select.EPOLLIN)
    sent: list[float] = []
    acknowledged: list[float] = []
    seen: list[float] = []
    position = 1
    consumer.socket.sendall(fetch_frame(topic, position, 1_000_000))
    begin = time.perf_counter()
    total = int(seconds * 1000)
    while len(seen) < total:
        now = time.perf_counter()
        while len(sent) < total and now >= begin + len(sent) / 1000:
            producer.socket.sendall(frame)
            sent.append(begin + len(sent) / 1000)  # when it was due: a late sender hides nothing
        wait = max(begin + len(sent) / 1000 - time.perf_counter(), 0) if len(sent) < total else 1
        for number, _ in poll.poll(wait):
            if number == producer.socket.fileno():
                producer.frame()
                acknowledged.append(time.perf_counter())
            else:
                response = FetchResponse.decode_head(consumer.frame(), FETCH_VERSION, 5)[0]
                answer = response.responses[0].partitions[0]
                count = answer.high_watermark - position
                seen += [time.perf_counter()] * count
                position += count
                consumer.socket.sendall(fetch_frame(topic, position, 1_000_000))
    skip = total // 5
    figures = []
    for name, times in (("acknowledgement", acknowledged), ("consumer", seen)):
        delays = sorted((after - before) * 1000 for before, after in zip(sent[skip:], times[skip:]))
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            value = delays[int(len(delays) * share)]
            figures.append(Figure(f"1,000 records/s to the {name}, {label}", value, "ms", more_is_better=False))
    producer.socket.close()
    consumer.socket.close()
    poll.close()
    delete(server.port, [topic])
    return figures


def partitions(server: Server) -> list[Figure]:
    """1,000 of them, from the request until each has taken a record."""
    topics = {f"many-{number}": 100 for number in range(10)}
    begin = time.perf_counter()
    create(server.port, topics)
    batch = build([Record(0, int(time.time() * 1000), None, b"x")])
    with Client(server.port) as client:
        missing = {topic: set(range(count)) for topic, count in topics.items()}
        while any(missing.values()):
            wanted = [
                ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch) for index in indexes],
                )
                for topic, indexes in missing.items()
                if indexes
            ]
            request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=wanted)
            answer = client.ask(request, PRODUCE_VERSION, ProduceResponse)
            assert isinstance(answer, ProduceResponse)
            for topic in answer.responses:
                missing[topic.name] -= {part.index for part in topic.partition_responses if not part.error_code}
    created = time.perf_counter() - begin
    time.sleep(2)
    cpu, begin = server.cpu_seconds(), time.perf_counter()
    time.sleep(5)
    idle = (server.cpu_seconds() - cpu) / (time.perf_counter() - begin) * 100
    delete(server.port, list(topics))
    return [
        Figure("1,000 partitions created and written to", created, "s", more_is_better=False),
        Figure("idle with 1,000 partitions", idle, "% of a core", more_is_better=False),
    ]


Work = Callable[[Server, float], Figure | list[Figure]]

WORKS: dict[str, Work] = {
    "produce-1": lambda server, seconds: produce(server, 1, 32, seconds),
    "produce-16k": lambda server, seconds: produce(server, 16_000, 8, seconds),
    "produce-1m": lambda server, seconds: produce(server, 1_000_000, 2, seconds),
    "fetch-64k": lambda server, seconds: fetch(server, 64_000, 1, seconds),
    "fetch-64k-4": lambda server, seconds: fetch(server, 64_000, 4, seconds),
    "fetch-8m": lambda server, seconds: fetch(server, 8_000_000, 1, seconds),
    "fetch-8m-4": lambda server, seconds: fetch(server, 8_000_000, 4, seconds),
    "latency": latency,
    "partitions": lambda server, _: partitions(server),
}


Rounds = dict[str, list[Figure]]  # by server


def start(servers: list[Server]) -> list[Rounds]:
    begun: Rounds = {}
    memory: Rounds = {}
    for server in servers:
        begun[server.name] = [Figure("start to the first answer", server.start(), "s", more_is_better=False)]
        time.sleep(1)
        memory[server.name] = [Figure("memory, idle", server.memory_bytes() / MB, "MB", more_is_better=False)]
    return [begun, memory]


def measure(servers: list[Server], work: Work, rounds: int, seconds: float) -> list[Rounds]:
    """The figures of one kind of work; the servers take turns. The first round warms up when there are several."""
    rows: list[Rounds] = []
    for number in range(rounds):
        for server in servers:
            found = work(server, seconds)
            for row, figure in enumerate(found if isinstance(found, list) else [found]):
                if row == len(rows):
                    rows.append({each.name: [] for each in servers})
                if number or rounds == 1:
                    rows[row][server.name].append(figure)
    return rows


def show(row: Rounds) -> None:
    ours, kafka = row["odradek"], row.get("kafka")
    figure = ours[0]
    mine = statistics.median(each.value for each in ours)
    line = f"{figure.name:46} {mine:10.3g} {figure.unit}"
    if figure.cpu is not None:
        line += f" {statistics.median(each.cpu or 0 for each in ours):8.3g} {figure.cpu_unit}"
    if kafka:
        theirs = statistics.median(each.value for each in kafka)
        line += f"  | kafka {theirs:10.3g}  ratio {mine / theirs if theirs else 0:.2f}"
        if figure.cpu is not None:
            line += f", CPU {statistics.median(each.cpu or 0 for each in kafka):.3g}"
    print(line, flush=True)


def main(works: dict[str, Work]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", choices=[*works, "none"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--ours", action="store_true")
    given = parser.parse_args()
    kinds: list[type[Server]] = [Odradek] if given.ours else [Odradek, Kafka]
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        servers = [kind(Path(folder) / kind.name) for kind in kinds]
        try:
            for row in start(servers):
                show(row)
            for name in given.only or works:
                if name != "none":
                    for row in measure(servers, works[name], given.rounds, given.seconds):
                        show(row)
        finally:
            for server in servers:
                server.stop()


if __name__ == "__main__":
    main(WORKS)

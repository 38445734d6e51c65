"""Transactions beside Apache Kafka 4.3.1: how many a second, and how long a commit takes, of 1 and of 100 records.

python bench/transactions.py [--only NAME] [--rounds 5] [--seconds 2] [--folder PATH] [--ours]

Producers speak the second version of the protocol (KIP-890), as Kafka's own do: a Produce, which adds its partition to the
transaction by itself, and an EndTxn, after which the next one begins. Each has its own partition and connection, and one request
under way. Where the last transaction has not ended yet, the broker lets a producer wait or says so, and the producer asks again.
What a program waits for is measured with Kafka's own producer, whose commitTransaction sends what is left, then ends it.
CPU is the broker's. The servers take turns; a ratio is ours to Kafka's, of the medians of the rounds.
"""

import itertools
import select
import struct
import time

from crc32c import crc32c

from bench.broker import RECORD_BYTES, Figure, Work, create, delete, main
from bench.servers import Client, Server
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response, encode_request
from odradek.wire.messages import (
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from odradek.wire.records import Record, build
from tests.kafka.oracle import Oracle

PRODUCE_VERSION, END_VERSION, INIT_VERSION = 12, 5, 5
TRANSACTION = 1  # what FindCoordinator asks for
READ_COMMITTED = 1
LATEST = -1
MARKERS = 1  # a marker is an offset too
CRC = struct.Struct(">I")
CRC_AT, CRC_FROM = 17, 21
IDENTITY = struct.Struct(">qhi")  # producer, epoch, sequence
IDENTITY_AT = 43
NOT_YET = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NOT_YET_SECONDS = 0.001
WAIT_SECONDS_MAX = 60.0
PRODUCERS = 8
PAUSE_SECONDS = 0.08  # so that both servers keep up
PACE_SECONDS = 0.01  # of one producer, for the same
WARM_TRANSACTIONS = 100


class Producer:
    """One transactional id."""

    def __init__(self, port: int, topic: str, partition: int, records: int) -> None:
        self.client = Client(port)
        self.topic, self.partition = topic, partition
        self.transactional_id = f"{topic}-{partition}"
        now_ms = int(time.time() * 1000)
        entries = [Record(number, now_ms, None, bytes(RECORD_BYTES)) for number in range(records)]
        self.batch = build(entries, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        self.producer_id, self.epoch = self._init()
        self.has_produced = False
        self.due_s = 0.0  # when its transaction was to begin
        self.sent_s = 0.0
        self.commits_s: list[float] = []
        self.whole_s: list[float] = []  # from when it was due

    def _init(self) -> tuple[int, int]:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            assert time.monotonic() < deadline, "no coordinator"
            find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
            found = self.client.ask(find, 4, FindCoordinatorResponse)
            assert isinstance(found, FindCoordinatorResponse)
            wanted = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
            answer = self.client.ask(wanted, INIT_VERSION, InitProducerIdResponse)
            assert isinstance(answer, InitProducerIdResponse)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            time.sleep(0.05)

    def clear(self) -> None:
        self.commits_s.clear()
        self.whole_s.clear()

    def begin(self, due_s: float) -> None:
        self.due_s = due_s
        self.send()

    def send(self) -> None:
        """The next request."""
        request: ProduceRequest | EndTxnRequest
        if self.has_produced:
            request, version = self._end(), END_VERSION
        else:
            request, version = self._produce(), PRODUCE_VERSION
        self.sent_s = time.perf_counter()
        self.client.socket.sendall(b"".join(encode_request(request, version, 1, "bench")))  # type: ignore[arg-type]

    def _produce(self) -> ProduceRequest:
        IDENTITY.pack_into(self.batch, IDENTITY_AT, self.producer_id, self.epoch, 0)
        CRC.pack_into(self.batch, CRC_AT, crc32c(memoryview(self.batch)[CRC_FROM:]))
        data = ProduceRequest.PartitionProduceData(index=self.partition, records=self.batch)
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])
        return ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic])

    def _end(self) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )

    def receive(self) -> bool:
        """Whether the transaction has ended with this answer; what is refused for now is asked again."""
        frame = self.client.frame()
        if not self.has_produced:
            _, produced = decode_response(ProduceResponse, frame, PRODUCE_VERSION)
            error = produced.responses[0].partition_responses[0].error_code
            self.has_produced = not error
        else:
            _, end = decode_response(EndTxnResponse, frame, END_VERSION)
            error = end.error_code
            if not error:
                now = time.perf_counter()
                self.commits_s.append(now - self.sent_s)
                self.whole_s.append(now - self.due_s)
                self.producer_id, self.epoch, self.has_produced = end.producer_id, end.producer_epoch, False
                return True
        if error:
            assert error in NOT_YET, ErrorCode(error)
            time.sleep(NOT_YET_SECONDS)
        return False


def drive(producers: list[Producer], seconds: float, pause_s: float = 0.0) -> float:
    """Lets all of them go on for so long, each with one transaction after the other or one in so many seconds; gives the seconds
    that it took until the last had ended."""
    poll = select.epoll()
    by_number = {each.client.socket.fileno(): each for each in producers}
    begin = time.perf_counter()
    due_s = {number: begin + pause_s * place / len(producers) for place, number in enumerate(by_number)}  # of those that pause
    for number, each in by_number.items():
        poll.register(number, select.EPOLLIN)
        each.clear()
    busy: set[int] = set()
    while busy or due_s:
        now = time.perf_counter()
        for number in [number for number, at_s in due_s.items() if at_s <= now]:
            by_number[number].begin(due_s.pop(number))
            busy.add(number)
        for number, _ in poll.poll(min((at_s - now for at_s in due_s.values()), default=1)):
            each = by_number[number]
            if not each.receive():
                each.send()
                continue
            busy.discard(number)
            if time.perf_counter() - begin < seconds:
                due_s[number] = max(each.due_s + pause_s, 0 if pause_s else time.perf_counter())
    poll.close()
    return time.perf_counter() - begin


def check(port: int, topic: str, producers: list[Producer], offsets: int) -> None:
    """All of it is committed, in the end: nobody is fast with what is not done."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    total = 0
    with Client(port) as client:
        while total != offsets:
            assert time.monotonic() < deadline, f"{total} offsets of {offsets} are committed"
            partitions = [
                ListOffsetsRequest.ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST) for each in producers
            ]
            wanted = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=partitions)
            request = ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[wanted])
            answer = client.ask(request, 6, ListOffsetsResponse)
            assert isinstance(answer, ListOffsetsResponse)
            total = sum(each.offset for each in answer.topics[0].partitions)


def transactions(server: Server, records: int, count: int, seconds: float, pause_s: float = 0.0) -> list[Figure]:
    """As many as so many producers can have, or with a pause a fixed number of them: then how long each took."""
    topic = f"transactions-{records}-{count}"
    create(server.port, {topic: count})
    producers = [Producer(server.port, topic, index, records) for index in range(count)]
    drive(producers, seconds / 2, pause_s)
    ended = sum(len(each.commits_s) for each in producers)
    cpu = server.cpu_seconds()
    elapsed = drive(producers, seconds, pause_s)
    cpu = server.cpu_seconds() - cpu
    commits_s = [each for producer in producers for each in producer.commits_s]
    whole_s = [each for producer in producers for each in producer.whole_s]
    check(server.port, topic, producers, (ended + len(commits_s)) * (records + MARKERS))
    for each in producers:
        each.client.socket.close()
    delete(server.port, [topic])
    what = f"{records} record{'s' * (records > 1)}"
    if pause_s:
        name = f"{count / pause_s:.0f} transactions/s of {what}"
        return [*delays(f"{name}, commit", commits_s), *delays(f"{name}, whole", whole_s)]
    name = f"transactions of {what}, {count} producer{'s' * (count > 1)}"
    return [
        Figure(name, len(commits_s) / elapsed, "/s", cpu / len(commits_s) * 1e6, "us CPU each"),
        *delays(f"{name}, commit", commits_s),
    ]


class JavaProducers:
    """Kafka's own, all in one process that goes on: it is warm after a round."""

    def __init__(self) -> None:
        self.oracle: Oracle | None = None
        self.numbers = itertools.count()

    def transactions(self, server: Server, records: int, seconds: float) -> list[Figure]:
        oracle = self.oracle = self.oracle or Oracle()
        number, topic = next(self.numbers), f"java-{records}"
        create(server.port, {topic: 1})
        settings = {"transactional.id": f"{topic}-{number}"}
        oracle.call("Transactions.open", number=number, bootstrap=f"127.0.0.1:{server.port}", settings=settings)
        found_ns: list[list[int]] = []
        for count in (WARM_TRANSACTIONS, int(seconds / PACE_SECONDS)):
            found_ns = oracle.call(
                "Transactions.pace",
                number=number,
                topic=topic,
                count=count,
                records=records,
                bytes=RECORD_BYTES,
                pause_ns=int(PACE_SECONDS * 1e9),
            )
        oracle.call("Transactions.close", number=number)
        delete(server.port, [topic])
        name = f"{1 / PACE_SECONDS:.0f} transactions/s of {records} record{'s' * (records > 1)}, Java client"
        commits_s, whole_s = ([each / 1e9 for each in column] for column in found_ns)
        return [*delays(f"{name}, commit", commits_s), *delays(f"{name}, whole", whole_s)]

    def close(self) -> None:
        if self.oracle is not None:
            self.oracle.close()


def delays(name: str, found_s: list[float]) -> list[Figure]:
    found_s.sort()
    shares = (("p50", 0.5), ("p99", 0.99))
    return [
        Figure(f"{name}, {label}", found_s[int(len(found_s) * share)] * 1000, "ms", more_is_better=False)
        for label, share in shares
    ]


JAVA = JavaProducers()
WORKS: dict[str, Work] = {
    "1": lambda server, seconds: transactions(server, 1, 1, seconds),
    "100": lambda server, seconds: transactions(server, 100, 1, seconds),
    "1-many": lambda server, seconds: transactions(server, 1, PRODUCERS, seconds),
    "100-many": lambda server, seconds: transactions(server, 100, PRODUCERS, seconds),
    "1-paced": lambda server, seconds: transactions(server, 1, PRODUCERS, seconds, PAUSE_SECONDS),
    "100-paced": lambda server, seconds: transactions(server, 100, PRODUCERS, seconds, PAUSE_SECONDS),
    "1-java": lambda server, seconds: JAVA.transactions(server, 1, seconds),
    "100-java": lambda server, seconds: JAVA.transactions(server, 100, seconds),
}


if __name__ == "__main__":
    try:
        main(WORKS)
    finally:
        JAVA.close()

"""Transactions, step by step, at Apache Kafka and at Odradek: the same requests in the same order get the same answers.

A program is a random walk over what a producer may do with one transactional id, rightly or wrongly: with the epoch that it was
told last, or with an older one as a zombie has it; in the manner of version 1 and of version 2, and mixed. Producer ids differ,
and are compared by the order in which they were told. What is to be tried again is, on both sides, until it is settled.

In one thing they differ, and it is left out: Kafka aborts an open transaction also for a zombie that wants to go on, and fences
its healthy producer; Odradek refuses the zombie.
"""

import random
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from odradek.wire.batch import headers
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from odradek.wire.records import Record, build, records
from tests.clients.server import Node
from tests.kafka.broker import Broker
from tests.node.socket_client import SocketClient

TIME_MS: Final = 1_700_000_000_000
SETTLED_SECONDS_MAX: Final = 20
PROGRAMS: Final = 24
STEPS: Final = 14
PARTITIONS: Final = 2
V1, V2 = 3, 5  # versions of EndTxn
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Step(NamedTuple):
    name: str
    who: int  # how many tellings ago: 0 is the last producer id and epoch that were told
    partition: int
    is_second_version: bool
    is_commit: bool


def program(seed: int) -> list[Step]:
    chance = random.Random(seed)
    names = ["init", "go on", "produce", "produce", "produce", "add", "add offsets", "commit offsets", "end", "end", "describe"]
    is_second = chance.random() < 0.5
    return [
        Step("init", 0, 0, is_second, True),
        *(
            Step(
                chance.choice(names),
                chance.choice((0, 0, 0, 0, 1, 2)),
                chance.randrange(PARTITIONS),
                is_second if chance.random() < 0.85 else not is_second,
                chance.random() < 0.6,
            )
            for _ in range(STEPS)
        ),
        Step("describe", 0, 0, is_second, True),
    ]


class Side:
    """One of the two servers, and what its producer was told."""

    def __init__(self, server: Broker, name: str) -> None:
        self.client = SocketClient(server.port)
        self.name = name
        self.told: list[tuple[int, int]] = []
        self.ids: list[int] = []
        self.sequences: dict[tuple[tuple[int, int], int], int] = {}
        self.count = 0
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        self.client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, CreateTopicsResponse)
        end = time.monotonic() + SETTLED_SECONDS_MAX
        while any(self.read(index)[0] for index in range(PARTITIONS)):  # it is led
            assert time.monotonic() < end
        for key_type in (0, 1):
            self.until_settled(
                lambda kind=key_type: self.client.ask(
                    FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4, FindCoordinatorResponse
                ).coordinators[0]
            )

    def until_settled(self, ask: Any) -> Any:
        """An answer that is not to be tried again."""
        end = time.monotonic() + SETTLED_SECONDS_MAX
        while True:
            answer = ask()
            if ErrorCode(answer.error_code) not in AGAIN or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def known(self, producer_id: int) -> int:
        """The number of a producer id, in the order in which they were told; those that mean nothing as they are."""
        if producer_id < 0:
            return producer_id
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def tell(self, producer_id: int, epoch: int) -> None:
        if producer_id >= 0 and (not self.told or self.told[-1] != (producer_id, epoch)):
            self.told.append((producer_id, epoch))

    def producer(self, who: int) -> tuple[int, int]:
        return self.told[max(len(self.told) - 1 - who, 0)]

    def is_zombie_in_an_open_transaction(self, step: Step) -> bool:
        is_old = step.name == "go on" and bool(self.told) and self.producer(step.who) != self.producer(0)
        return is_old and self.describe()[1] == "Ongoing"

    # -- steps

    def take(self, step: Step) -> Any:
        if not self.told and step.name != "init":
            return None
        match step.name:
            case "init":
                return self.init(-1, -1)
            case "go on":
                return self.init(*self.producer(step.who))
            case "produce":
                return self.produce(step)
            case "add":
                return self.add(step)
            case "add offsets":
                return self.add_offsets(step)
            case "commit offsets":
                return self.commit_offsets(step)
            case "end":
                return self.end(step)
            case _:
                return self.describe()

    def init(self, producer_id: int, epoch: int) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch
        )
        answer = self.until_settled(lambda: self.client.ask(request, 4, InitProducerIdResponse))
        self.tell(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code).name, self.known(answer.producer_id), answer.producer_epoch

    def produce(self, step: Step) -> Any:
        producer = self.producer(step.who)
        key = (producer, step.partition)
        sequence = self.sequences.get(key, 0)
        self.count += 1
        data = build(
            [Record(0, TIME_MS, None, b"%d" % self.count)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            transactional=True,
        )
        partition = ProduceRequest.PartitionProduceData(index=step.partition, records=memoryview(bytes(data)))
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[ProduceRequest.TopicProduceData(name=self.name, partition_data=[partition])],
        )
        version = 12 if step.is_second_version else 11
        answer = self.until_settled(
            lambda: self.client.ask(request, version, ProduceResponse).responses[0].partition_responses[0]
        )
        if not answer.error_code:
            self.sequences[key] = sequence + 1
        return ErrorCode(answer.error_code).name, answer.base_offset

    def add(self, step: Step) -> Any:
        producer_id, epoch = self.producer(step.who)
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self.name, partitions=[step.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[topic],
        )

        def ask() -> Any:
            answer = self.client.ask(request, 3, AddPartitionsToTxnResponse)
            answer.error_code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return answer

        return ErrorCode(self.until_settled(ask).error_code).name

    def add_offsets(self, step: Step) -> Any:
        producer_id, epoch = self.producer(step.who)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, group_id=self.name
        )
        return ErrorCode(self.until_settled(lambda: self.client.ask(request, 3, AddOffsetsToTxnResponse)).error_code).name

    def commit_offsets(self, step: Step) -> Any:
        producer_id, epoch = self.producer(step.who)
        self.count += 1
        kind = TxnOffsetCommitRequest
        partition = kind.TxnOffsetCommitRequestPartition(partition_index=step.partition, committed_offset=self.count)
        request = kind(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[kind.TxnOffsetCommitRequestTopic(name=self.name, partitions=[partition])],
        )
        version = 5 if step.is_second_version else 3
        answer = self.until_settled(lambda: self.client.ask(request, version, TxnOffsetCommitResponse).topics[0].partitions[0])
        return ErrorCode(answer.error_code).name

    def end(self, step: Step) -> Any:
        producer_id, epoch = self.producer(step.who)
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=step.is_commit
        )
        version = V2 if step.is_second_version else V1
        answer = self.until_settled(lambda: self.client.ask(request, version, EndTxnResponse))
        if version == V2:
            self.tell(answer.producer_id, answer.producer_epoch)
        self.describe()  # when its markers are written
        return ErrorCode(answer.error_code).name, self.known(answer.producer_id), answer.producer_epoch

    def describe(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        end = time.monotonic() + SETTLED_SECONDS_MAX
        while True:
            found = self.client.ask(request, 0, DescribeTransactionsResponse).transaction_states[0]
            if not found.transaction_state.startswith("Prepare") or time.monotonic() > end:
                break
            time.sleep(0.02)
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics)
        return found.error_code, found.transaction_state, self.known(found.producer_id), found.producer_epoch, topics

    # -- what is left in the end

    def offsets(self) -> Any:
        kind = OffsetFetchRequest
        topic = kind.OffsetFetchRequestTopics(name=self.name, partition_indexes=list(range(PARTITIONS)))
        request = kind(groups=[kind.OffsetFetchRequestGroup(group_id=self.name, topics=[topic])], require_stable=True)
        answer = self.client.ask(request, 8, OffsetFetchResponse).groups[0]
        return [(each.error_code, each.committed_offset) for found in answer.topics for each in found.partitions]

    def ends(self, isolation: int) -> Any:
        kind = ListOffsetsRequest
        partitions = [kind.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        request = kind(
            replica_id=-1, isolation_level=isolation, topics=[kind.ListOffsetsTopic(name=self.name, partitions=partitions)]
        )
        answer = self.client.ask(request, 7, ListOffsetsResponse)
        return [each.offset for each in sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)]

    def read(self, index: int) -> Any:
        """All records of a partition as a reader of what is committed gets them, and the transactions that it must pass over."""
        kind, offset = FetchRequest, 0
        batches: list[Any] = []
        aborted: set[tuple[int, int]] = set()
        while True:
            partition = kind.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = kind.FetchTopic(topic=self.name, partitions=[partition])
            request = kind(replica_id=-1, isolation_level=1, max_wait_ms=0, max_bytes=1 << 20, topics=[topic])
            found = self.client.ask(request, 11, FetchResponse).responses[0].partitions[0]
            aborted |= {(self.known(each.producer_id), each.first_offset) for each in found.aborted_transactions or []}
            data = bytes(found.records or b"")
            if not data:
                return found.error_code, batches, sorted(aborted)
            for at, header in headers(data):
                who = (self.known(header.producer_id), header.producer_epoch, header.is_control)
                batches += [(record.offset, who, record.key, record.value) for record in records(data, at, header)]
                offset = header.next_offset

    def left(self) -> Any:
        return self.offsets(), self.ends(0), self.ends(1), [self.read(index) for index in range(PARTITIONS)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    kafka = Broker(tmp_path_factory.mktemp("kafka"))
    odradek = Node(tmp_path_factory.mktemp("odradek"))
    with kafka.running(), odradek.running():
        yield kafka, odradek


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_the_same_requests_get_the_same_answers(servers: tuple[Broker, Broker], seed: int) -> None:
    kafka, odradek = (Side(server, f"program-{seed}") for server in servers)
    for number, step in enumerate(program(seed)):
        if odradek.is_zombie_in_an_open_transaction(step):
            continue
        expected, found = kafka.take(step), odradek.take(step)
        assert found == expected, f"step {number}: {step}"
    assert odradek.left() == kafka.left()
    for side in (kafka, odradek):
        side.client.socket.close()

"""The rules of replicas as seen on the wire: what an acknowledgement means, who is refused, who is told that logs part."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.clients.test_cluster_requests import create
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout
from tests.node.inside import produce_request, values_in

REPLICAS = [1, 2, 3]
LONG_MS = "600000"  # longer than any test waits: who is paused stays in sync, and keeps what it leads
SHORT_MS = "2000"
LATEST = -1
PRODUCE, FETCH, LIST_OFFSETS, LEADER_EPOCH, OFFSET_FETCH = 9, 17, 8, 4, 7  # versions


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    patient = {"broker_session_timeout_ms": LONG_MS, "replica_lag_time_max_ms": LONG_MS, "auto_leader_rebalance_enable": "false"}
    with running(tmp_path_factory.mktemp("cluster"), Layout(), **patient) as started:
        yield started


@contextmanager
def paused(cluster: Cluster, *numbers: int) -> Iterator[None]:
    cluster.pause(*numbers)
    try:
        yield
    finally:
        cluster.go_on(*numbers)


def produced(cluster: Cluster, number: int, request: ProduceRequest) -> ProduceResponse.PartitionProduceResponse:
    with cluster.connected(number) as node:
        return node.ask(request, PRODUCE, ProduceResponse).responses[0].partition_responses[0]


def fetch_request(topic_id: bytes, offset: int, *, replica: int = -1, epoch: int = -1, last: int = -1) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch, last_fetched_epoch=last
    )
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    state = FetchRequest.ReplicaState(replica_id=replica)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], replica_state=state)


def fetched(cluster: Cluster, number: int, request: FetchRequest) -> FetchResponse.PartitionData:
    with cluster.connected(number) as node:
        return node.ask(request, FETCH, FetchResponse).responses[0].partitions[0]


def values(answer: FetchResponse.PartitionData) -> list[bytes]:
    return values_in(bytes(answer.records or b""))


def test_what_a_replica_in_sync_lacks_is_neither_acknowledged_nor_seen(cluster: Cluster) -> None:
    topic_id = create(cluster, "seen", REPLICAS)
    assert not produced(cluster, 1, produce_request("seen", b"all have it")).error_code
    with paused(cluster, 3):
        refused = produced(cluster, 1, produce_request("seen", b"one lacks it"))
        assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert not produced(cluster, 1, produce_request("seen", b"the leader has it", acks=1)).error_code
        answer = fetched(cluster, 1, fetch_request(topic_id, 0))
        assert values(answer) == [b"all have it"]
        assert answer.high_watermark == 1
    until(lambda: len(values(fetched(cluster, 1, fetch_request(topic_id, 0)))) == 3, "all are seen")


def epochs_asked(topic: str, topic_id: bytes, epoch: int) -> list[tuple[Message, int, type[Message]]]:
    listed = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=LATEST)
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    return [
        (fetch_request(topic_id, 0, epoch=epoch), FETCH, FetchResponse),
        (fetch_request(topic_id, 0, epoch=epoch, replica=1), FETCH, FetchResponse),
        (
            ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[listed])]),
            LIST_OFFSETS,
            ListOffsetsResponse,
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
            ),
            LEADER_EPOCH,
            OffsetForLeaderEpochResponse,
        ),
    ]


def code_of(answer: Message) -> int:
    match answer:
        case FetchResponse():
            return answer.responses[0].partitions[0].error_code
        case ListOffsetsResponse() | OffsetForLeaderEpochResponse():
            return answer.topics[0].partitions[0].error_code
    raise AssertionError(answer)


def new_epoch(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Has another node lead, and gives it with its epoch."""
    cluster.kill(1)
    cluster.heal()
    cluster.all_in_sync(topic)
    (partition,) = cluster.partitions(2, topic)
    return partition.leader_id, partition.leader_epoch


def test_who_knows_another_leader_epoch_is_refused(cluster: Cluster) -> None:
    topic_id = create(cluster, "epochs", REPLICAS)
    leader, current = new_epoch(cluster, "epochs")
    wanted = {
        current - 1: ErrorCode.FENCED_LEADER_EPOCH,
        current: ErrorCode.NONE,
        current + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    with cluster.connected(leader) as node:
        for epoch, code in wanted.items():
            codes = [code_of(node.ask(*asked)) for asked in epochs_asked("epochs", topic_id, epoch)]
            assert codes == [code] * 4, epoch


@pytest.mark.parametrize("replica", [-1, 3])
def test_a_reader_whose_log_parts_from_the_leaders_is_told_where(cluster: Cluster, replica: int) -> None:
    topic = f"parted-{replica + 1}"
    topic_id = create(cluster, topic, REPLICAS)
    assert not produced(cluster, 1, produce_request(topic, b"of the first epoch")).error_code
    leader, epoch = new_epoch(cluster, topic)
    for value in (b"of the next", b"of the next too"):
        assert not produced(cluster, leader, produce_request(topic, value)).error_code
    answer = fetched(cluster, leader, fetch_request(topic_id, 2, replica=replica, epoch=epoch, last=0))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert not answer.records
    answer = fetched(cluster, leader, fetch_request(topic_id, 1, replica=replica, epoch=epoch, last=0))
    assert values(answer) == [b"of the next", b"of the next too"]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    soon = {"broker_session_timeout_ms": SHORT_MS, "broker_heartbeat_interval_ms": "500"}
    with running(tmp_path_factory.mktemp("impatient"), Layout(3, 0, 3), **soon) as started:
        yield started


def test_a_woken_coordinator_does_not_tell_what_was_committed_before_it_slept(impatient: Cluster) -> None:
    sleeper = impatient.coordinator("readers")
    with impatient.connected(sleeper) as client:
        with paused(impatient, sleeper):
            client.send_request(OffsetFetchRequest(group_id="readers", topics=None), OFFSET_FETCH)
            until(lambda: impatient.coordinator("readers") != sleeper, "another coordinator")
        assert client.answer(OffsetFetchResponse, OFFSET_FETCH).error_code == ErrorCode.NOT_COORDINATOR


def test_a_woken_leader_acknowledges_nothing(impatient: Cluster) -> None:
    """Not even what has waited for it in a connection, which it reads before it hears of anything else."""
    create(impatient, "woken", REPLICAS)
    sleeper = impatient.leader("woken")  # the first replica, unless it has just slept
    with impatient.connected(sleeper) as client:
        assert (
            not client.ask(produce_request("woken", b"before"), PRODUCE, ProduceResponse)
            .responses[0]
            .partition_responses[0]
            .error_code
        )
        with paused(impatient, sleeper):
            client.send_request(produce_request("woken", b"while it sleeps", acks=1), PRODUCE)
            until(lambda: impatient.leader("woken") != sleeper, "another leader")
        answer = client.answer(ProduceResponse, PRODUCE)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

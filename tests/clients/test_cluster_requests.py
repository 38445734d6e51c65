"""What nodes of a cluster answer to single requests: who leads, who should be read from, what replicas have forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from confluent_kafka import TopicPartition

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FetchRequest,
    FetchResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tests.clients.confluent import consuming, fill, rows
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster, running
from tests.node.inside import produce_request, values_in

FOLLOWERS = (2, 3)
LONG_MS = 60_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(
        tmp_path_factory.mktemp("cluster"),
        auto_leader_rebalance_enable="false",
        broker_rack="rack-{node}",
        replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector",
    ) as started:
        yield started


def create(cluster: Cluster, topic: str, replicas: list[int]) -> bytes:
    """The id of a topic of one partition, which all nodes know."""
    kind = CreateTopicsRequest
    assignment = kind.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    wanted = kind.CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assignment])
    with cluster.connected(1) as node:
        answer = node.ask(kind(topics=[wanted], timeout_ms=LONG_MS), 7, CreateTopicsResponse)
    (created,) = answer.topics
    assert not created.error_code, created.error_message
    for number in cluster.brokers:
        until(partial(is_known, cluster, number, topic), f"node {number} knows {topic}")
    return created.topic_id


def is_known(cluster: Cluster, number: int, topic: str) -> bool:
    with cluster.connected(number) as node:
        wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
        return not node.ask(wanted, 12, MetadataResponse).topics[0].error_code


@contextmanager
def paused(cluster: Cluster, number: int) -> Iterator[None]:
    cluster.pause(number)
    try:
        yield
    finally:
        cluster.go_on(number)


def fetch_request(topic_id: bytes, offset: int, rack: str = "", *, max_wait_ms: int = 0, epoch: int = -1) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, rack_id=rack, topics=[topic])


def fetched(cluster: Cluster, number: int, request: FetchRequest) -> tuple[FetchResponse.PartitionData, FetchResponse]:
    with cluster.connected(number) as node:
        answer = node.ask(request, 17, FetchResponse)
    return answer.responses[0].partitions[0], answer


def test_who_produces_to_a_follower_is_told_the_leader(cluster: Cluster, name: str) -> None:
    topic_id = create(cluster, name, [1, 2, 3])
    for follower in FOLLOWERS:
        request = produce_request(name, b"x")
        request.topic_data[0].topic_id = topic_id
        with cluster.connected(follower) as node:
            answer = node.ask(request, 13, ProduceResponse)
        told = answer.responses[0].partition_responses[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (1, 0)
        (endpoint,) = answer.node_endpoints
        leader = (1, "127.0.0.1", cluster.places.client_port(1), "rack-1")
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == leader


def test_who_fetches_with_an_old_epoch_is_told_the_leader(cluster: Cluster, name: str) -> None:
    topic_id = create(cluster, name, [1, 2, 3])
    fill(cluster.bootstrap, name, 1)
    cluster.stop(1)
    cluster.heal()
    partition, answer = fetched(cluster, 2, fetch_request(topic_id, 0, epoch=0))
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert partition.current_leader.leader_id in (2, 3)
    assert partition.current_leader.leader_epoch > 0
    assert [each.node_id for each in answer.node_endpoints] == [partition.current_leader.leader_id]


def delete_request(topic: str, offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])
    return DeleteRecordsRequest(topics=[wanted], timeout_ms=timeout_ms)


def test_the_deletion_of_records_waits_for_all_replicas(cluster: Cluster, name: str) -> None:
    create(cluster, name, [1, 2, 3])
    fill(cluster.bootstrap, name, 10)
    with cluster.connected(1) as leader:
        with paused(cluster, 3):
            answer = leader.ask(delete_request(name, 4, 100), 2, DeleteRecordsResponse)
            told = answer.topics[0].partitions[0]
            assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert told.low_watermark < 4
            leader.send_request(delete_request(name, 6, LONG_MS), 2)
        told = leader.answer(DeleteRecordsResponse, 2).topics[0].partitions[0]
        assert (told.error_code, told.low_watermark) == (ErrorCode.NONE, 6)


def test_a_consumer_is_sent_to_the_replica_of_its_rack(cluster: Cluster, name: str) -> None:
    topic_id = create(cluster, name, [1, 2, 3])
    fill(cluster.bootstrap, name, 10)
    until(lambda: nearest(cluster, topic_id, "rack-2") == 2, "the follower of the rack has it all")
    partition, _ = fetched(cluster, 1, fetch_request(topic_id, 0, "rack-2"))
    assert not partition.records
    assert partition.high_watermark == 10
    for rack in ("rack-1", "rack-9", ""):
        partition, _ = fetched(cluster, 1, fetch_request(topic_id, 0, rack))
        assert (partition.preferred_read_replica, len(values_in(bytes(partition.records or b"")))) == (-1, 10)


def nearest(cluster: Cluster, topic_id: bytes, rack: str) -> int:
    return fetched(cluster, 1, fetch_request(topic_id, 0, rack))[0].preferred_read_replica


def test_a_follower_serves_consumers_and_wakes_them(cluster: Cluster, name: str) -> None:
    topic_id = create(cluster, name, [1, 2, 3])
    fill(cluster.bootstrap, name, 3)
    until(lambda: fetched(cluster, 2, fetch_request(topic_id, 0))[0].high_watermark == 3, "the follower knows what is committed")
    partition, _ = fetched(cluster, 2, fetch_request(topic_id, 0))
    assert len(values_in(bytes(partition.records or b""))) == 3
    with cluster.connected(2) as follower:
        follower.send_request(fetch_request(topic_id, 3, max_wait_ms=LONG_MS), 17)
        fill(cluster.bootstrap, name, 1)
        partition = follower.answer(FetchResponse, 17).responses[0].partitions[0]
    assert (partition.high_watermark, values_in(bytes(partition.records or b""))) == (4, [b"0"])
    with cluster.connected(2) as follower:  # as before there were racks
        request = fetch_request(topic_id, 0)
        request.topics[0].topic = name
        told = follower.ask(request, 10, FetchResponse).responses[0].partitions[0]
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_denies_nothing(cluster: Cluster, name: str) -> None:
    """It may be behind: a reader that went back for it would read everything again."""
    topic_id = create(cluster, name, [1, 2, 3])
    fill(cluster.bootstrap, name, 3)
    until(lambda: fetched(cluster, 2, fetch_request(topic_id, 0))[0].high_watermark == 3, "the follower knows what is committed")
    beyond = fetch_request(topic_id, 9)
    assert fetched(cluster, 1, beyond)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(cluster, 2, beyond)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    beyond.topics[0].partitions[0].last_fetched_epoch = 0
    assert fetched(cluster, 1, beyond)[0].diverging_epoch.end_offset == 3
    told = fetched(cluster, 2, beyond)[0]
    assert (told.error_code, told.diverging_epoch.end_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_real_consumer_reads_from_the_replica_of_its_rack(cluster: Cluster, name: str) -> None:
    topic_id = create(cluster, name, [1, 2, 3])
    sent = fill(cluster.bootstrap, name, 100)
    until(lambda: nearest(cluster, topic_id, "rack-3") == 3, "the follower of the rack has it all")
    with consuming(cluster.bootstrap, name, client_rack="rack-3", client_id="near") as consumer:
        consumer.assign([TopicPartition(name, 0, 0)])
        assert [row.value for row in rows(consumer, 100)] == [row.value for row in sent]
        fill(cluster.bootstrap, name, 1)
        assert [row.value for row in rows(consumer, 1)] == [b"0"]


def test_a_follower_takes_the_settings_of_a_topic_that_were_changed(cluster: Cluster, name: str) -> None:
    create(cluster, name, [1, 2, 3])
    alter(cluster, name, "segment.bytes", "1048576")
    for number in cluster.brokers:
        until(partial(has_setting, cluster, number, name, "segment.bytes", "1048576"), f"node {number} knows the setting")
    with cluster.connected(1) as leader:
        for _ in range(8):
            answer = leader.ask(produce_request(name, bytes(900_000)), 9, ProduceResponse)
            assert not answer.responses[0].partition_responses[0].error_code
    copies = [cluster.log_dirs(number)[0] / f"{name}-0" for number in cluster.brokers]
    until(lambda: all(len(list(copy.glob("*.log"))) > 2 for copy in copies), "segments of all copies")


def alter(cluster: Cluster, topic: str, key: str, value: str) -> None:
    kind = IncrementalAlterConfigsRequest
    wanted = kind.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[kind.AlterableConfig(name=key, value=value)]
    )
    with cluster.connected(1) as node:
        answer = node.ask(kind(resources=[wanted]), 1, IncrementalAlterConfigsResponse)
    assert not answer.responses[0].error_code


def has_setting(cluster: Cluster, number: int, topic: str, key: str, value: str) -> bool:
    kind = DescribeConfigsRequest
    with cluster.connected(number) as node:
        wanted = kind(resources=[kind.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=[key])])
        (found,) = node.ask(wanted, 4, DescribeConfigsResponse).results
    return [each.value for each in found.configs] == [value]

"""Settings that turn something off: a node that has them answers as Apache Kafka does with them."""

from collections.abc import Iterator

import pytest

from odradek.api import consumer_group_heartbeat, delete_topics
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.clients.server import Node
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

OFF = {"delete_topic_enable": "false", "group_coordinator_rebalance_protocols": "classic"}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Kafka, and of a node."""
    kafka, odradek = Broker(tmp_path_factory.mktemp("kafka"), **OFF), Node(tmp_path_factory.mktemp("odradek"), **OFF)
    with kafka.running(), odradek.running():
        yield kafka.port, odradek.port


@pytest.mark.parametrize("version", APIS[delete_topics.KEY].served)
def test_topics_are_not_deleted_where_that_is_turned_off(ports: tuple[int, int], version: int) -> None:
    name = f"t{version}"
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    states = [DeleteTopicsRequest.DeleteTopicState(name=name), DeleteTopicsRequest.DeleteTopicState(name="none")]
    by_name = DeleteTopicsRequest(topic_names=[name, "none"], timeout_ms=10_000)
    request = DeleteTopicsRequest(topics=states, timeout_ms=10_000) if version >= 6 else by_name
    outcomes = []
    for port in ports:
        create = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert ask(port, create, 7, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE
        answer = ask(port, request, version, DeleteTopicsResponse)
        outcomes.append(sorted((each.name, each.topic_id, each.error_code) for each in answer.responses if each.name))
        again = ask(port, create, 7, CreateTopicsResponse)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[1]) == 2


@pytest.mark.parametrize("version", APIS[consumer_group_heartbeat.KEY].served)
def test_a_group_protocol_that_is_not_offered_is_not_served(ports: tuple[int, int], version: int) -> None:
    join = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    describe = ConsumerGroupDescribeRequest(group_ids=["g"])
    joined = [ask(port, join, version, ConsumerGroupHeartbeatResponse).error_code for port in ports]
    described = [ask(port, describe, version, ConsumerGroupDescribeResponse).groups[0].error_code for port in ports]
    assert joined == described == [ErrorCode.UNSUPPORTED_VERSION] * 2

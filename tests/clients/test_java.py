"""Kafka's own Java clients: producer, classic consumers, and the calls of its administration client, one after the other."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.confluent import create, fill
from tests.clients.waiting import until
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ASSIGNORS = ["Range", "RoundRobin", "Sticky", "CooperativeSticky"]
QUICK = {"group.protocol": "classic", "heartbeat.interval.ms": "300", "session.timeout.ms": "6000"}

# What Apache Kafka says; {topic} is the topic of the scenario.
SAID: dict[str, dict[str, str]] = {
    "topics": {
        "create": "2 1 1000 true",
        "create again": "TopicExistsException",
        "create only in thought": "null",
        "create by assignment": "null",
        "create with a bad configuration": "InvalidConfigurationException",
        "create with a bad name": "InvalidTopicException",
        "create with too many replicas": "InvalidReplicationFactorException",
        "list": "[{topic}-other, {topic}-other-3]",
        "describe by id": "{topic}-other",
        "describe by an unknown id": "UnknownTopicIdException",
        "describe": "[0:1, 1:1]",
        "describe none": "UnknownTopicOrPartitionException",
        "grow": "null",
        "shrink": "InvalidPartitionsException",
        "delete by id": "null",
        "delete by name": "null",
        "delete none": "UnknownTopicOrPartitionException",
        "delete by an unknown id": "UnknownTopicIdException",
        "earliest": "0",
        "latest": "10",
        "earliest local": "0",
        "latest tiered": "-1",
        "by time": "0",
        "latest by time": "0",
        "delete records": "null",
        "delete too many records": "OffsetOutOfRangeException",
        "begins at": "4",
        "producers": "0",
        "elect": "Optional[ElectionNotNeededException]",
        "elect all": "{}",
        "reassignments": "{}",
    },
    "configs": {
        "default": "604800000 DEFAULT_CONFIG 0 true",
        "set": "77 DYNAMIC_TOPIC_CONFIG 1 true",
        "append": "delete,compact DYNAMIC_TOPIC_CONFIG 2 true",
        "subtract": "compact DYNAMIC_TOPIC_CONFIG 2 true",
        "delete": "604800000 DEFAULT_CONFIG 0 true",
        "bad value": "InvalidConfigurationException",
        "bad key": "InvalidConfigurationException",
        "of no topic": "UnknownTopicOrPartitionException",
        "of all brokers": "88 DYNAMIC_DEFAULT_BROKER_CONFIG 1 true",
        "of a broker": "99 DYNAMIC_BROKER_CONFIG 3 true",
        "inherited": "99 DYNAMIC_BROKER_CONFIG 3 true",
        "read only": "InvalidRequestException",
        "of a group": "50000 DYNAMIC_GROUP_CONFIG 2 true",
        "bad value of a group": "InvalidConfigurationException",
        "resources": "[ConfigResource(type=GROUP, name='{topic}')]",
    },
    "groups": {
        "describe": "Stable Classic range 1 [reader Optional[static] [0, 1]]",
        "describe as classic": "consumer",
        "list": "[Classic Stable consumer]",
        "list empty ones": "[]",
        "delete a busy one": "GroupNotEmptyException",
        "alter offsets of a busy one": "UnknownMemberIdException",
        "delete offsets of a subscribed topic": "GroupSubscribedToTopicException",
        "remove a member": "null",
        "remove a member again": "UnknownMemberIdException",
        "list empty ones later": "[Classic Empty consumer]",
        "offsets": "3",
        "alter offsets": "7 moved",
        "delete offsets": "{}",
        "delete": "null",
        "delete again": "GroupIdNotFoundException",
        "describe none": "GroupIdNotFoundException",
        "offsets of none": "{}",
    },
    "cluster": {
        "nodes": "[1 false]",
        "controller": "1",
        "operations": "[CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE]",
        "log dirs": "[null true true]",
        "replica log dir": "0",
        "quorum": "1 1 [] [1]",
        "features": "{group.version=1, kraft.version=1, metadata.version=30}",
        "a feature that is too new": "InvalidUpdateVersionException",
        "a feature as it is": "null",
    },
}


@pytest.fixture
def java(oracle: Oracle) -> Iterator[Oracle]:
    yield oracle
    oracle.call("ConsumerGroups.close", timeout=30_000)


def produced(count: int) -> list[list[Any]]:
    return [[1_600_000_000_000 + number, f"{number % 5:02x}", f"{number:08x}" * (number % 30)] for number in range(count)]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_back_through_every_codec(oracle: Oracle, server: Broker, name: str, codec: str) -> None:
    create(server.bootstrap, name)
    at = {"bootstrap": server.bootstrap, "topic": name, "partition": 0}
    rows = produced(500)
    settings = {"compression.type": codec, "linger.ms": "20", "batch.size": "4000", "acks": "all"}
    assert oracle.call("Clients.produce", **at, rows=rows, settings=settings) == list(range(500))
    found = oracle.call("Clients.consume", **at, settings={"max.partition.fetch.bytes": "1000", "fetch.max.bytes": "3000"})
    assert found == [[offset, *row] for offset, row in enumerate(rows)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_the_order_is_kept_with_five_requests_in_flight(oracle: Oracle, server: Broker, name: str, acks: str) -> None:
    create(server.bootstrap, name)
    at = {"bootstrap": server.bootstrap, "topic": name, "partition": 0}
    rows = produced(2000)
    settings = {
        "acks": acks,
        "enable.idempotence": "true" if acks == "all" else "false",
        "batch.size": "200",
        "linger.ms": "0",
        "max.in.flight.requests.per.connection": "5",
    }
    offsets = oracle.call("Clients.produce", **at, rows=rows, settings=settings)
    assert offsets == ([-1] * 2000 if acks == "0" else list(range(2000)))

    def found() -> list[list[Any]]:
        return [row[1:] for row in oracle.call("Clients.consume", **at, settings={"isolation.level": "read_committed"})]

    until(lambda: len(found()) == 2000, "what nobody acknowledged")
    assert found() == rows


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_classic_consumers_share_the_partitions_and_take_over(java: Oracle, server: Broker, name: str, assignor: str) -> None:
    create(server.bootstrap, name, 6)
    member = {**QUICK, "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}Assignor"}
    at = {"bootstrap": server.bootstrap, "topic": name, "group": name}
    found = java.call("ConsumerGroups.gather", **at, members=[member] * 3, partitions=6, leaving=1)
    assert [len(owned) for owned in found["before"]] == [2, 2, 2]
    assert [len(owned) for owned in found["after"]] == [3, 3]
    group = java.call("ConsumerGroups.views", bootstrap=server.bootstrap, groups=[name])[name]
    assert (group["type"], group["state"], len(group["members"])) == ("Classic", "Stable", 2)
    assert sorted(row[6] for row in group["members"]) == sorted(found["after"])


@pytest.mark.parametrize("part", SAID)
def test_an_administrator_goes_through_every_call(oracle: Oracle, server: Broker, name: str, part: str) -> None:
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, 10)
    said = oracle.call(f"Administration.{part}", bootstrap=server.bootstrap, topic=name)
    expected = {call: answer.replace("{topic}", name) for call, answer in SAID[part].items()}
    if (latest := said.get("latest by time")) is not None:  # what is sent at once may be of several milliseconds
        expected["latest by time"] = str(int(latest) % 10)
    assert said == expected

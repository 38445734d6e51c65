"""Configurations are altered, described and listed as by Apache Kafka: both get the same requests and give the same answers."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from odradek.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.clients.server import Node
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SETTLE_SECONDS_MAX = 30
LONG, MORE = (",".join(f"{at}:{broker}" for at in range(4000)) for broker in (1, 2))  # together too long


class Both(NamedTuple):
    kafka: int  # its port
    odradek: int


def change(*changes: tuple[str, int, str | None]) -> list[IncrementalAlterConfigsRequest.AlterableConfig]:
    return [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]


def resource(type_: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=type_, resource_name=name, configs=change(*changes))


STEPS = [
    [resource(TOPIC, "a", ("retention.ms", SET, "5"))],
    [resource(TOPIC, "a", ("retention.ms", SET, "x"))],
    [resource(TOPIC, "a", ("retention.ms", SET, None))],
    [resource(TOPIC, "a", ("retention.ms", DELETE, None))],
    [resource(TOPIC, "a", ("retention.ms", DELETE, None))],
    [resource(TOPIC, "a", ("unknown", DELETE, None))],
    [resource(TOPIC, "a", ("unknown", SET, "1"))],
    [resource(TOPIC, "none", ("retention.ms", SET, "5"))],
    [resource(TOPIC, "none", ("retention.ms", SET, "x"))],
    [resource(TOPIC, "", ("retention.ms", SET, "5"))],
    [resource(TOPIC, "a b", ("retention.ms", SET, "5"))],
    [resource(TOPIC, "a")],
    [resource(TOPIC, "none")],
    [resource(TOPIC, "a", ("cleanup.policy", APPEND, "compact"))],
    [resource(TOPIC, "a", ("cleanup.policy", APPEND, "compact"))],
    [resource(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete"))],
    [resource(TOPIC, "a", ("cleanup.policy", SUBTRACT, "nothing"))],
    [resource(TOPIC, "a", ("cleanup.policy", APPEND, ""))],
    [resource(TOPIC, "a", ("cleanup.policy", APPEND, "other"))],
    [resource(TOPIC, "a", ("retention.ms", APPEND, "5"))],
    [resource(TOPIC, "a", ("unknown", SUBTRACT, "5"))],
    [resource(TOPIC, "b", ("leader.replication.throttled.replicas", APPEND, "0:1,1:1"))],
    [resource(TOPIC, "b", ("leader.replication.throttled.replicas", APPEND, "2:1,0:1,"))],
    [resource(TOPIC, "b", ("leader.replication.throttled.replicas", SUBTRACT, "1:1"))],
    [resource(TOPIC, "b", ("leader.replication.throttled.replicas", SET, LONG))],
    [resource(TOPIC, "b", ("leader.replication.throttled.replicas", APPEND, MORE))],
    [resource(TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))],
    [resource(TOPIC, "a", ("retention.ms", SET, "1")), resource(TOPIC, "a", ("retention.bytes", SET, "2"))],
    [resource(TOPIC, "a", ("retention.bytes", SET, "1")), resource(TOPIC, "none", ("retention.bytes", SET, "2"))],
    [resource(TOPIC, "b", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "9"))],
    [resource(TOPIC, "b", ("remote.storage.enable", SET, "true"))],
    [resource(TOPIC, "b", ("min.insync.replicas", SET, "2"))],
    [resource(BROKER, "", ("min.insync.replicas", SET, "2"))],
    [resource(BROKER, "", ("min.insync.replicas", DELETE, None))],
    [resource(BROKER, "1", ("min.insync.replicas", SET, "2"))],
    [resource(BROKER, "1", ("min.insync.replicas", DELETE, None))],
    [resource(BROKER, "1", ("log.retention.ms", SET, "7"))],
    [resource(BROKER, "1", ("log.retention.ms", SET, "0"))],
    [resource(BROKER, "1", ("log.retention.hours", SET, "7"))],
    [resource(BROKER, "", ("log.retention.ms", SET, "8"))],
    [resource(BROKER, "", ("node.id", SET, "8"))],
    [resource(BROKER, "", ("node.id", DELETE, None))],
    [resource(BROKER, "", ("plugin.key", SET, "8"))],
    [resource(BROKER, "", ("ssl.client.auth", SET, "none"))],
    [resource(BROKER, "1", ("ssl.client.auth", SET, "none"))],
    [resource(BROKER, "1", ("ssl.client.auth", SET, "maybe"))],
    [resource(BROKER, "1", ("ssl.keystore.location", SET, "x"))],
    [resource(BROKER, "", ("listener.name.plaintext.max.connections", SET, "5"))],
    [resource(BROKER, "", ("listener.name.plaintext.ssl.client.auth", SET, "none"))],
    [resource(BROKER, "1", ("log.cleaner.threads", SET, "2"))],
    [resource(BROKER, "1", ("log.cleaner.threads", SET, "0"))],
    [resource(BROKER, "1", ("num.io.threads", SET, "40"))],
    [resource(BROKER, "1", ("num.io.threads", SET, "16"))],
    [resource(BROKER, "1", ("num.io.threads", SET, "x"))],
    [resource(BROKER, "1", ("num.io.threads", APPEND, "1"))],
    [resource(BROKER, "", ("log.cleanup.policy", APPEND, "compact"))],
    [resource(BROKER, "", ("log.cleanup.policy", SUBTRACT, "compact"))],
    [resource(BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "9"), ("log.cleaner.max.compaction.lag.ms", SET, "8"))],
    [resource(BROKER, "", ("leader.replication.throttled.rate", SET, "1000"))],
    [resource(BROKER, "", ("leader.replication.throttled.rate", SET, "-1"))],
    [resource(BROKER, "1", ("group.consumer.assignment.interval.ms", SET, "2000"))],
    [resource(BROKER, "2", ("log.retention.ms", SET, "7"))],
    [resource(BROKER, "one", ("log.retention.ms", SET, "7"))],
    [resource(BROKER, "-1", ("log.retention.ms", SET, "7"))],
    [resource(BROKER, "1")],
    [resource(BROKER, "", ("log.retention.ms", 7, "7"))],
    [resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))],
    [resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1"))],
    [resource(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1"))],
    [resource(GROUP, "g", ("unknown", SET, "1"))],
    [resource(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))],
    [resource(GROUP, "h", ("share.isolation.level", SET, "read_committed"))],
    [resource(GROUP, "h", ("share.isolation.level", DELETE, None))],
    [resource(CLIENT_METRICS, "m", ("interval.ms", SET, "1000"), ("metrics", SET, "a"))],
    [resource(CLIENT_METRICS, "m", ("metrics", APPEND, "b"))],
    [resource(CLIENT_METRICS, "m", ("interval.ms", SET, "1"))],
    [resource(CLIENT_METRICS, "m", ("match", SET, "nobody=x"))],
    [resource(CLIENT_METRICS, "m", ("unknown", SET, "x"))],
    [resource(CLIENT_METRICS, "", ("interval.ms", SET, "1000"))],
    [resource(CLIENT_METRICS, "n", ("interval.ms", DELETE, None))],
    [resource(LOGGER, "1", ("root", SET, "WARN"))],
    [resource(LOGGER, "1", ("root", SET, "FATAL"))],
    [resource(LOGGER, "1", ("root", SET, "debug"))],
    [resource(LOGGER, "1", ("root", SET, "OFF"))],
    [resource(LOGGER, "1", ("root", SET, ""))],
    [resource(LOGGER, "1", ("root", SET, None))],
    [resource(LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "WARN"))],
    [resource(LOGGER, "1", ("root", SET, "INFO"), ("none", SET, "WARN"))],
    [resource(LOGGER, "1", ("root", SET, "TRACE"))],
    [resource(LOGGER, "1", ("root", DELETE, None))],
    [resource(LOGGER, "1", ("root", APPEND, "WARN"))],
    [resource(LOGGER, "1", ("root", SUBTRACT, "WARN"))],
    [resource(LOGGER, "1", ("none", SET, "WARN"))],
    [resource(LOGGER, "1", ("none", SET, "x"))],
    [resource(LOGGER, "1", ("none", DELETE, None))],
    [resource(LOGGER, "1", ("", SET, "WARN"))],
    [resource(LOGGER, "1")],
    [resource(LOGGER, "2", ("root", SET, "WARN"))],
    [resource(LOGGER, "", ("root", SET, "WARN"))],
    [resource(LOGGER, "one", ("root", SET, "WARN"))],
    [resource(LOGGER, "1", ("root", SET, "INFO")), resource(LOGGER, "1", ("root", SET, "WARN"))],
    [resource(LOGGER, "1", ("root", SET, "INFO")), resource(TOPIC, "a", ("retention.ms", SET, "9"))],
    [resource(3, "x", ("interval.ms", SET, "1000"))],
    [resource(0, "x")],
    [resource(TOPIC, "a", ("segment.ms", SET, "1")), resource(BROKER, "9", ("log.roll.ms", SET, "1"))],
]  # fmt: skip
STEPS[-1] = [*STEPS[-1][:2], resource(GROUP, "", ("unknown", SET, ""))]

REPLACEMENTS: list[tuple[int, str, dict[str, str | None]]] = [
    (TOPIC, "c", {"retention.ms": "5", "retention.bytes": "6"}),
    (TOPIC, "c", {"retention.ms": "7"}),
    (TOPIC, "c", {"retention.ms": None}),
    (TOPIC, "c", {"retention.ms": "x"}),
    (TOPIC, "c", {"unknown": "x"}),
    (TOPIC, "none", {"retention.ms": "7"}),
    (BROKER, "", {"min.insync.replicas": "1", "log.cleaner.backoff.ms": "77"}),
    (BROKER, "", {"log.cleaner.backoff.ms": "77"}),
    (BROKER, "1", {"log.cleaner.backoff.ms": "78"}),
    (BROKER, "1", {"node.id": "78"}),
    (BROKER, "2", {"log.cleaner.backoff.ms": "78"}),
    (LOGGER, "1", {"root": "INFO"}),
    (GROUP, "g", {"share.session.timeout.ms": "46000"}),
    (CLIENT_METRICS, "m", {"match": ""}),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    kafka, odradek = Broker(tmp_path_factory.mktemp("kafka")), Node(tmp_path_factory.mktemp("odradek"))
    with kafka.running(), odradek.running():
        ports = Both(kafka.port, odradek.port)
        topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "abc"]
        for port in ports:
            created = ask(port, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7, CreateTopicsResponse)
            assert [topic.error_code for topic in created.topics] == [0, 0, 0]
            root = IncrementalAlterConfigsRequest(resources=[resource(LOGGER, "1", ("root", SET, "INFO"))])  # they start apart
            assert [each.error_code for each in ask(port, root, 1, IncrementalAlterConfigsResponse).responses] == [0]
        yield ports


def outcomes(answer: IncrementalAlterConfigsResponse | AlterConfigsResponse) -> list[tuple[int, str, int, bool]]:
    return [
        (each.resource_type, each.resource_name, each.error_code, each.error_message is not None) for each in answer.responses
    ]


def described(port: int, type_: int, name: str) -> tuple[int, dict[str, tuple[object, ...]]]:
    """Everything of a resource but what differs between two machines, and documentation."""
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
    (result,) = ask(port, DescribeConfigsRequest(resources=[wanted], include_synonyms=True), 4, DescribeConfigsResponse).results
    return result.error_code, {
        entry.name: (
            entry.value, entry.config_source, entry.read_only, entry.is_sensitive, entry.config_type,
            [(each.name, each.value, each.source) for each in entry.synonyms],
        )
        for entry in result.configs
        if not entry.name.endswith((".listeners", ".dirs", ".servers")) and entry.name != "listeners"
        and (type_ != LOGGER or entry.name == "root")  # each has its own loggers beside it
    }  # fmt: skip


def listed(port: int, version: int, *types: int) -> tuple[int, set[tuple[int, str]]]:
    answer = ask(port, ListConfigResourcesRequest(resource_types=list(types)), version, ListConfigResourcesResponse)
    return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}


def agree(both: Both, type_: int, name: str) -> None:
    """Both describe a resource alike, once they have heard of all changes."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < deadline:
        if described(both.kafka, type_, name) == described(both.odradek, type_, name):
            return
        time.sleep(0.1)
    (theirs, kafka), (ours, odradek) = described(both.kafka, type_, name), described(both.odradek, type_, name)
    names = {*kafka, *odradek}
    assert [(key, kafka.get(key), odradek.get(key)) for key in sorted(names) if kafka.get(key) != odradek.get(key)] == []
    assert theirs == ours


def test_single_changes_have_the_same_outcome(both: Both) -> None:
    different = []
    for at, step in enumerate(STEPS):
        for validate_only in (True, False):
            request = IncrementalAlterConfigsRequest(resources=step, validate_only=validate_only)
            theirs, ours = (ask(port, request, 1, IncrementalAlterConfigsResponse) for port in both)
            if outcomes(theirs) != outcomes(ours):
                different.append((at, step, validate_only, theirs, ours))
        if step[0].resource_type in (TOPIC, BROKER, LOGGER, GROUP, CLIENT_METRICS):
            agree(both, step[0].resource_type, step[0].resource_name)
    assert not different, "\n".join(map(str, different))


def test_replacements_have_the_same_outcome(both: Both) -> None:
    different = []
    for type_, name, values in REPLACEMENTS:
        configs = [AlterConfigsRequest.AlterableConfig(name=key, value=value) for key, value in values.items()]
        wanted = AlterConfigsRequest.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
        for version in (0, 2):
            theirs, ours = (ask(port, AlterConfigsRequest(resources=[wanted]), version, AlterConfigsResponse) for port in both)
            if outcomes(theirs) != outcomes(ours):
                different.append((type_, name, values, theirs, ours))
        agree(both, type_, name)
    assert not different, "\n".join(map(str, different))


@pytest.mark.parametrize(
    ("type_", "name"),
    [(TOPIC, "a"), (TOPIC, "none"), (TOPIC, "a b"), (TOPIC, ""), (BROKER, ""), (BROKER, "1"), (BROKER, "2"), (BROKER, "x"),
     (GROUP, "g"), (GROUP, ""), (CLIENT_METRICS, "m"), (CLIENT_METRICS, ""), (LOGGER, ""), (LOGGER, "1"), (LOGGER, "2"),
     (LOGGER, "x"), (3, "x")],
)  # fmt: skip
def test_what_is_asked_for_is_described_alike(both: Both, type_: int, name: str) -> None:
    agree(both, type_, name)


def test_only_the_keys_that_are_named_are_described(both: Both) -> None:
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name="a", configuration_keys=["retention.ms", "unknown", "segment.ms"]
    )
    for version in range(1, 5):
        answers = [ask(port, DescribeConfigsRequest(resources=[wanted]), version, DescribeConfigsResponse) for port in both]
        theirs, ours = ({entry.name: entry for entry in answer.results[0].configs} for answer in answers)
        assert set(ours) == {"retention.ms", "segment.ms"}
        assert ours == theirs


@pytest.mark.parametrize(
    ("version", "types"),
    [(0, ()), (1, ()), (1, (TOPIC,)), (1, (BROKER, GROUP)), (1, (CLIENT_METRICS,)), (1, (LOGGER,)), (1, (3,))],
)
def test_resources_are_listed_alike(both: Both, version: int, types: tuple[int, ...]) -> None:
    assert listed(both.odradek, version, *types) == listed(both.kafka, version, *types)

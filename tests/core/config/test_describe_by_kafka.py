"""Configurations are described as a running Apache Kafka describes them: values, sources, synonyms, types, what is secret."""

import time
from collections.abc import Iterator

import pytest

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.describe import (
    Entry,
    Synonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from odradek.core.config.properties import parse
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET = 0
SETTLE_SECONDS_MAX = 30

STATIC = {
    "log.retention.hours": "5",
    "log.retention.minutes": "7",
    "log.roll.hours": "3",
    "log.cleaner.io.max.bytes.per.second": "1e9",
    "compression.type": "zstd",
    "custom.key": "hidden",
    "delegation.token.secret.key": "hidden too",
    "group.consumer.session.timeout.ms": "46000",
    "log.initial.task.delay.ms": "100",
    "ssl.keystore.password": "hidden as well",
    "listener.name.plaintext.ssl.keystore.password": "hidden here",
    "listener.name.plaintext.ssl.client.auth": "none",
    "listener.name.plaintext.plain.sasl.jaas.config": "hidden there",
    "log.cleanup.policy": " compact , delete ",
}
CLUSTER_WIDE = {"log.cleaner.threads": "2", "log.retention.ms": "123456", "leader.replication.throttled.rate": "1000"}
PER_BROKER = {"log.cleaner.backoff.ms": "1234", "log.flush.interval.ms": "99", "ssl.client.auth": "requested"}
TOPICS = {
    "bare": {},
    "set": {"retention.ms": "5", "cleanup.policy": "compact", "segment.bytes": "2000000", "compression.type": "gzip"},
    "small": {"internal.segment.bytes": "3000"},
}
GROUP_VALUES = {
    "consumer.session.timeout.ms": "47000",
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
}
SUBSCRIPTION = {"interval.ms": "1000", "match": "client_id=a"}


def alter(port: int, type_: int, name: str, values: dict[str, str]) -> None:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=value)
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=type_, resource_name=name, configs=configs)
    answer = ask(port, IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


def described(port: int, type_: int, name: str) -> list[Entry]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = ask(port, request, 4, DescribeConfigsResponse).results
    assert result.error_code == 0, result
    return [
        Entry(
            entry.name,
            entry.value,
            entry.config_source,  # type: ignore[arg-type]
            entry.is_sensitive,
            entry.read_only,
            tuple(Synonym(one.name, one.value, one.source) for one in entry.synonyms),  # type: ignore[arg-type]
            entry.config_type,
            "",
        )
        for entry in result.configs
    ]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"), **{name.replace(".", "_"): value for name, value in STATIC.items()})
    with broker.running():
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in values.items()],
            )
            for name, values in TOPICS.items()
        ]
        created = ask(broker.port, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7, CreateTopicsResponse)
        assert [topic.error_code for topic in created.topics] == [0] * len(topics), created
        alter(broker.port, BROKER, "", CLUSTER_WIDE)
        alter(broker.port, BROKER, "1", PER_BROKER)
        alter(broker.port, GROUP, "g", GROUP_VALUES)
        alter(broker.port, CLIENT_METRICS, "m", SUBSCRIPTION)
        yield broker


@pytest.fixture(scope="module")
def config(kafka: Broker) -> BrokerConfig:
    values = parse((kafka.folder / "server.properties").read_text())
    # A cluster of Kafka 4.3 is born with this one.
    return BrokerConfig(values).with_dynamic(CLUSTER_WIDE | {"min.insync.replicas": "1"}, PER_BROKER)


def check(kafka: Broker, type_: int, name: str, ours: list[Entry]) -> None:
    """Ours are Kafka's, once it has heard of all changes."""
    wanted = {entry.name: without_documentation(entry) for entry in ours}
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    found: dict[str, Entry] = {}
    while time.monotonic() < deadline:
        found = {entry.name: entry for entry in described(kafka.port, type_, name)}
        if found == wanted:
            return
        time.sleep(0.1)
    names = {*wanted, *found}
    assert [(wanted.get(name), found.get(name)) for name in sorted(names) if wanted.get(name) != found.get(name)] == []


def without_documentation(entry: Entry) -> Entry:
    return Entry(entry.name, entry.value, entry.source, entry.is_sensitive, entry.is_read_only, entry.synonyms, entry.type, "")


@pytest.mark.parametrize("topic", TOPICS)
def test_topics(kafka: Broker, config: BrokerConfig, topic: str) -> None:
    check(kafka, TOPIC, topic, describe_topic(config, TOPICS[topic]))


def test_a_broker(kafka: Broker, config: BrokerConfig) -> None:
    check(kafka, BROKER, "1", describe_broker(config))


def test_all_brokers(kafka: Broker, config: BrokerConfig) -> None:
    check(kafka, BROKER, "", describe_cluster(config))


def test_groups(kafka: Broker, config: BrokerConfig) -> None:
    check(kafka, GROUP, "g", describe_group(config, GROUP_VALUES))
    check(kafka, GROUP, "other", describe_group(config, {}))


def test_subscriptions(kafka: Broker) -> None:
    check(kafka, CLIENT_METRICS, "m", describe_client_metrics(SUBSCRIPTION))
    check(kafka, CLIENT_METRICS, "other", describe_client_metrics({}))


def test_no_secret_is_shown(config: BrokerConfig) -> None:
    assert "hidden" not in str(describe_broker(config))

"""What Apache Kafka refuses is refused, what it takes is taken: whole configurations of nodes, topics, groups, client metrics."""

from collections.abc import Mapping

import pytest

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.client_metrics import check_client_metrics
from odradek.core.config.group import check_group, group_config
from odradek.core.config.key import InvalidConfig
from odradek.core.config.table import group_keys, topic_keys
from odradek.core.config.topic import check_topic, topic_config
from odradek.wire.errors import Refused
from tests.core.config.node import BROKER, CONTROLLER, ONE_NODE
from tests.kafka.oracle import Oracle

REMOTE = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "x",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
}
BOTH = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:19092"
ALL_PLAIN = "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"

NODES: list[dict[str, str]] = [
    ONE_NODE,
    BROKER,
    CONTROLLER,
    {name: value for name, value in ONE_NODE.items() if name != "process.roles"},
    {name: value for name, value in ONE_NODE.items() if name != "node.id"},
    {name: value for name, value in ONE_NODE.items() if name != "node.id"} | {"broker.id": "3"},
    {name: value for name, value in ONE_NODE.items() if name != "controller.listener.names"},
    {name: value for name, value in ONE_NODE.items() if name != "controller.quorum.bootstrap.servers"},
    {name: value for name, value in ONE_NODE.items() if name != "log.dirs"},
    {name: value for name, value in ONE_NODE.items() if name != "listeners"},
    {name: value for name, value in BROKER.items() if name != "listeners"},
    BROKER | {"listeners": BOTH},
    BROKER | {"controller.quorum.auto.join.enable": "true"},
    BROKER | {"controller.quorum.voters": "1@a:1"},
    BROKER | {"controller.quorum.voters": "2@a:1"},
    BROKER | {"controller.listener.names": "A,B"},
    BROKER | {"controller.listener.names": "A", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    BROKER | {"controller.listener.names": "a", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:PLAINTEXT"},
    BROKER | {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    BROKER | {"listeners": "PLAINTEXT://0.0.0.0:9092"},
    BROKER | {"listeners": "PLAINTEXT://:9092"},
    CONTROLLER | {"listeners": "CONTROLLER://0.0.0.0:19092"},
    CONTROLLER | {"listeners": "CONTROLLER://:19092"},
    CONTROLLER | {"listeners": BOTH},
    CONTROLLER | {"controller.listener.names": "CONTROLLER,OTHER"},
    CONTROLLER | {"controller.listener.names": "OTHER"},
    CONTROLLER | {"controller.quorum.voters": "2@a:1"},
    CONTROLLER | {"controller.quorum.voters": "1@a:1,2@b:1"},
    CONTROLLER | {"inter.broker.listener.name": "CONTROLLER"},
    CONTROLLER | {"advertised.listeners": "CONTROLLER://a:1"},
]
CHANGES: list[dict[str, str]] = [
    {"broker.id": "1"},
    {"broker.id": "2"},
    {"node.id": "-1"},
    {"node.id": " 7 "},
    {"process.roles": "broker,controller,broker"},
    {"process.roles": "observer"},
    {"listeners": BOTH + ",PLAINTEXT://127.0.0.1:9093"},
    {"listeners": BOTH + ",OTHER://127.0.0.1:9093"},
    {"listeners": BOTH + ",OTHER://127.0.0.1:9093", "listener.security.protocol.map": ALL_PLAIN},
    {"listeners": BOTH + ",OTHER://127.0.0.1:9093", "listener.security.protocol.map": "OTHER:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
    {"listeners": BOTH, "listener.security.protocol.map": "OTHER:NONE"},
    {"listeners": BOTH, "listener.security.protocol.map": "OTHER"},
    {"listeners": BOTH, "listener.security.protocol.map": ""},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://a:9092,CONTROLLER://b:9092"},
    {"listeners": "PLAINTEXT://a:9092"},
    {"listeners": "CONTROLLER://a:9092"},
    {"listeners": "plaintext://a:9092,controller://a:9093"},
    {"listeners": "PLAINTEXT:9092"},
    {"listeners": "PLAINTEXT://a:x"},
    {"listeners": "PLAINTEXT://a b:9092,CONTROLLER://a:9093"},
    {"controller.listener.names": "controller"},
    {"controller.listener.names": "PLAINTEXT"},
    {"advertised.listeners": "PLAINTEXT://a:1"},
    {"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://a:1"},
    {"advertised.listeners": "CONTROLLER://a:1"},
    {"advertised.listeners": "OTHER://a:1"},
    {"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:1"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "PLAINTEXT://a:1,CONTROLLER://0.0.0.0:1"},
    {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:19092", "advertised.listeners": "PLAINTEXT://a:9092"},
    {"listeners": "PLAINTEXT://a:9092,CONTROLLER://0.0.0.0:19092"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {"inter.broker.listener.name": "plaintext"},
    {"inter.broker.listener.name": "OTHER"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "SSL"},
    {"controller.quorum.voters": "1@a:1"},
    {"controller.quorum.voters": "2@a:1"},
    {"controller.quorum.bootstrap.servers": ""},
    {"log.dirs": ""},
    {"log.dirs": "a,a"},
    {"log.dirs": "a,b", "cordoned.log.dirs": "a"},
    {"log.dirs": "a,b", "cordoned.log.dirs": "c"},
    {"cordoned.log.dirs": "*"},
    {"cordoned.log.dirs": "*,data"},
    {"log.roll.ms": "0"},
    {"log.roll.ms": "1"},
    {"log.roll.jitter.ms": "-1"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-7"},
    {"log.retention.minutes": "0"},
    {"log.retention.hours": "0"},
    {"log.retention.hours": "-1"},
    {"log.retention.hours": "0", "log.retention.ms": "5"},
    {"log.cleaner.threads": "200"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.fetch.wait.max.ms": "20", "replica.lag.time.max.ms": "10"},
    {"replica.fetch.wait.max.ms": "20", "replica.socket.timeout.ms": "10"},
    {"queued.max.request.bytes": "100"},
    {"queued.max.request.bytes": "0"},
    {"queued.max.request.bytes": "104857600"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1:x"},
    {"max.connections.per.ip.overrides": "a b:5"},
    {"max.connections.per.ip.overrides": "a:5, b:6"},
    {"max.connections.per.ip.overrides": "::1:6"},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "101"},
    {"connections.max.idle.ms": "-1"},
    {"group.consumer.session.timeout.ms": "44999"},
    {"group.consumer.session.timeout.ms": "60000"},
    {"group.consumer.session.timeout.ms": "60001"},
    {"group.consumer.max.session.timeout.ms": "100"},
    {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5000"},
    {"group.consumer.min.session.timeout.ms": "1", "group.consumer.session.timeout.ms": "5001"},
    {"group.consumer.heartbeat.interval.ms": "4999"},
    {"group.consumer.assignment.interval.ms": "15001"},
    {"group.share.heartbeat.interval.ms": "15001"},
    {"group.share.record.lock.duration.ms": "14999"},
    {"group.share.record.lock.duration.ms": "60001"},
    {"group.share.delivery.count.limit": "10"},
    {"group.share.max.delivery.count.limit": "5", "group.share.delivery.count.limit": "6"},
    {"group.share.partition.max.record.locks": "4001"},
    {"group.share.max.share.sessions": "1"},
    {"group.share.max.size": "10", "group.share.max.share.sessions": "5"},
    {"group.share.assignors": "simple,simple2"},
    {"group.share.assignors": "unknown"},
    {"group.consumer.assignors": "range"},
    {"group.consumer.assignors": "unknown"},
    {"group.streams.num.standby.replicas": "2"},
    {"group.streams.num.standby.replicas": "3"},
    {"group.streams.session.timeout.ms": "10"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"group.coordinator.rebalance.protocols": "classic"},
    {"group.coordinator.rebalance.protocols": "classic,share"},
    {"offsets.topic.compression.codec": "4"},
    {"offsets.topic.compression.codec": "5"},
    {"share.coordinator.state.topic.compression.codec": "-1"},
    {"early.start.listeners": "PLAINTEXT"},
    {"early.start.listeners": "OTHER"},
    {"unknown.key": "x"},
    {"message.max.bytes": "x"},
    {"min.insync.replicas": "0"},
    {"broker.heartbeat.interval.ms": "8000"},
    {"metadata.log.dir": "m"},
    {"log.cleaner.threads": "0"},
    {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"},
    {"transaction.state.log.replication.factor": "40000"},
    {"num.replica.alter.log.dirs.threads": "0"},
]  # fmt: skip


def takes(check: object, *arguments: Mapping[str, str] | BrokerConfig | str) -> str | None:
    assert callable(check)
    try:
        check(*arguments)
    except (InvalidConfig, Refused) as error:
        return str(error)
    return None


@pytest.mark.parametrize("properties", [*NODES, *(ONE_NODE | change for change in CHANGES)], ids=str)
def test_a_node_is_refused_as_by_kafka(oracle: Oracle, properties: dict[str, str]) -> None:
    ours, theirs = takes(BrokerConfig, properties), oracle.call("Configs.broker", properties=properties)
    assert (ours is None) == (theirs is None), f"we say {ours}, Apache Kafka says {theirs}"


TOPICS: list[dict[str, str]] = [
    {},
    {"unknown": "1"},
    {"retention.ms": "-2"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": ""},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"},
    {"remote.storage.enable": "true"},
    {"remote.log.copy.disable": "true"},
    {"internal.segment.bytes": "10"},
    {"segment.bytes": "10"},
    {"leader.replication.throttled.replicas": "1:x"},
    {"message.timestamp.difference.max.ms": "1"},
]
REMOTE_TOPICS: list[dict[str, str]] = [
    {"remote.storage.enable": "true"},
    {"remote.storage.enable": "true", "cleanup.policy": "compact"},
    {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
    {"remote.storage.enable": "true", "cleanup.policy": ""},
    {"remote.storage.enable": "true", "local.retention.ms": "-1"},
    {"remote.storage.enable": "true", "local.retention.ms": "-1", "retention.ms": "-1"},
    {"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "4"},
    {"remote.storage.enable": "true", "local.retention.ms": "5", "retention.ms": "5"},
    {"remote.storage.enable": "true", "local.retention.bytes": "-1", "retention.bytes": "5"},
    {"remote.storage.enable": "true", "local.retention.bytes": "6", "retention.bytes": "5"},
    {"remote.storage.enable": "true", "local.retention.bytes": "6"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "5", "retention.ms": "6"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.ms": "6", "retention.ms": "6"},
    {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "local.retention.bytes": "5", "retention.bytes": "6"},
    {"remote.storage.enable": "false"},
    {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"},
    {},
]


@pytest.mark.parametrize(
    ("change", "overrides", "before"),
    [
        *(({}, overrides, {}) for overrides in TOPICS),
        *((REMOTE, overrides, {}) for overrides in REMOTE_TOPICS),
        *((REMOTE, overrides, {"remote.storage.enable": "true"}) for overrides in REMOTE_TOPICS),
    ],
    ids=str,
)
def test_a_topic_is_refused_as_by_kafka(
    oracle: Oracle, change: dict[str, str], overrides: dict[str, str], before: dict[str, str]
) -> None:
    properties = ONE_NODE | change
    ours = takes(check_topic, BrokerConfig(properties), overrides, before)
    theirs = oracle.call("Configs.topic", properties=properties, overrides=overrides, before=before)
    assert (ours is None) == (theirs is None), f"we say {ours}, Apache Kafka says {theirs}"


@pytest.mark.parametrize(
    ("change", "overrides"),
    [
        ({}, {}),
        ({"log.retention.hours": "2"}, {}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {}),
        ({"log.retention.minutes": "3", "log.retention.ms": "5"}, {}),
        ({"log.retention.hours": "-3"}, {}),
        ({"log.roll.hours": "3", "log.roll.jitter.hours": "1"}, {}),
        ({"log.roll.ms": "3", "log.roll.jitter.ms": "1"}, {}),
        ({"log.flush.interval.ms": "3"}, {}),
        ({"log.flush.scheduler.interval.ms": "4"}, {}),
        ({"log.cleanup.policy": "compact", "compression.type": "zstd", "compression.zstd.level": "-7"}, {"retention.ms": "9"}),
        ({"message.max.bytes": "5", "min.insync.replicas": "2"}, {"max.message.bytes": "7", "cleanup.policy": "delete, compact"}),
        ({"log.preallocate": "true", "unclean.leader.election.enable": "true"}, {"min.cleanable.dirty.ratio": "1"}),
    ],
    ids=str,
)
def test_a_topic_has_the_values_that_it_has_in_kafka(oracle: Oracle, change: dict[str, str], overrides: dict[str, str]) -> None:
    properties = ONE_NODE | change
    theirs = oracle.call("Configs.topicValues", properties=properties, overrides=overrides)
    config = topic_config(BrokerConfig(properties), overrides)
    for name, key in topic_keys().items():
        if name == "cleanup.policy":
            assert config.cleanup_policy == set(theirs[name].split(","))
        elif not key.is_internal:
            assert key.format(getattr(config, name.replace(".", "_"))) == theirs[name], name


GROUPS: list[dict[str, str]] = [
    {},
    {"unknown": "1"},
    {"consumer.session.timeout.ms": "44999"},
    {"consumer.session.timeout.ms": "60001"},
    {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"},
    {"consumer.heartbeat.interval.ms": "4999"},
    {"consumer.heartbeat.interval.ms": "x"},
    {"consumer.assignment.interval.ms": "15001"},
    {"share.record.lock.duration.ms": "14999"},
    {"share.record.lock.duration.ms": "60001"},
    {"share.delivery.count.limit": "11"},
    {"share.delivery.count.limit": "1"},
    {"share.partition.max.record.locks": "99"},
    {"share.partition.max.record.locks": "4001"},
    {"share.assignment.interval.ms": "15001"},
    {"share.auto.offset.reset": "by_duration:PT1H"},
    {"share.isolation.level": "read_committed"},
    {"share.renew.acknowledge.enable": "false"},
    {"streams.num.standby.replicas": "3"},
    {"streams.session.timeout.ms": "60001"},
    {"streams.initial.rebalance.delay.ms": "0"},
    {"streams.assignment.interval.ms": "15001"},
]
CLOSE = {"group.consumer.min.session.timeout.ms": "1", "group.consumer.min.heartbeat.interval.ms": "1"}


@pytest.mark.parametrize(
    ("change", "overrides"),
    [
        *(({}, overrides) for overrides in GROUPS),
        (CLOSE, {"consumer.session.timeout.ms": "5000"}),
        (CLOSE, {"consumer.session.timeout.ms": "5001"}),
        ({"group.consumer.session.timeout.ms": "50000"}, {}),
    ],
    ids=str,
)
def test_a_group_is_refused_and_bounded_as_by_kafka(oracle: Oracle, change: dict[str, str], overrides: dict[str, str]) -> None:
    properties = ONE_NODE | change
    broker = BrokerConfig(properties)
    ours, theirs = takes(check_group, broker, overrides), oracle.call("Configs.group", properties=properties, overrides=overrides)
    assert (ours is None) == (theirs is None), f"we say {ours}, Apache Kafka says {theirs}"
    if not {"unknown", "x", "1", "99"} & {*overrides, *overrides.values()}:
        config = group_config(broker, overrides)
        bounded = {name: key.format(getattr(config, name.replace(".", "_"))) for name, key in group_keys().items()}
        assert bounded == oracle.call("Configs.groupValues", properties=properties, overrides=overrides)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("a", {}),
        ("", {}),
        ("a", {"unknown": "1"}),
        ("a", {"interval.ms": "99"}),
        ("a", {"interval.ms": "100"}),
        ("a", {"interval.ms": "3600000"}),
        ("a", {"interval.ms": "3600001"}),
        ("a", {"interval.ms": "x"}),
        ("a", {"metrics": "a,b"}),
        ("a", {"metrics": "*"}),
        ("a", {"metrics": ""}),
        ("a", {"match": "client_id=a.*"}),
        ("a", {"match": "client_id=a.*,client_source_port=1"}),
        ("a", {"match": "client_id = a"}),
        ("a", {"match": "client_id"}),
        ("a", {"match": "client_id="}),
        ("a", {"match": "client_id=a=b"}),
        ("a", {"match": "client_id=(a"}),
        ("a", {"match": "other=a"}),
        ("a", {"match": ""}),
    ],
    ids=str,
)
def test_a_client_metrics_subscription_is_refused_as_by_kafka(oracle: Oracle, name: str, overrides: dict[str, str]) -> None:
    ours = takes(check_client_metrics, name, overrides)
    theirs = oracle.call("Configs.clientMetrics", subscription=name, overrides=overrides)
    assert (ours is None) == (theirs is None), f"we say {ours}, Apache Kafka says {theirs}"

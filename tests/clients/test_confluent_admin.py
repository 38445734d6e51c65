"""confluent-kafka (librdkafka) as an administrator: every call that it has and a node serves, and the errors of each."""

from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.confluent import admin, code_of, consuming, create, fill, rows
from tests.clients.waiting import until
from tests.kafka.broker import CLUSTER_ID, Broker


@pytest.fixture(scope="module")
def client(server: Broker) -> AdminClient:
    return admin(server.bootstrap)


def source_of(entry: ConfigEntry) -> ConfigSource:
    return ConfigSource(entry.source)


def try_create(client: AdminClient, topic: NewTopic, **options: Any) -> int:
    return code_of(client.create_topics([topic], **options)[topic.topic].result)


def configs_of(client: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result()
    return found


# -- topics


def test_topics_are_created_listed_described_and_deleted(server: Broker, client: AdminClient, name: str) -> None:
    names = [f"{name}-{number}" for number in range(5)]
    for future in client.create_topics([NewTopic(each, 3, 1) for each in names]).values():
        future.result()
    listed = client.list_topics(timeout=30).topics
    assert [len(listed[each].partitions) for each in names] == [3] * 5
    described = client.describe_topics(TopicCollection(names))
    for each in names:
        topic = described[each].result()
        assert (topic.name, topic.is_internal, len(topic.partitions)) == (each, False, 3)
        for index, partition in enumerate(topic.partitions):
            nodes = [partition.leader, *partition.replicas, *partition.isr]
            assert (partition.id, [node.id for node in nodes]) == (index, [1, 1, 1])
            assert (partition.leader.host, partition.leader.port) == ("127.0.0.1", server.port)
    assert len({str(described[each].result().topic_id) for each in names}) == 5
    for future in client.delete_topics(names).values():
        future.result()
    until(lambda: not set(names) & set(client.list_topics(timeout=30).topics), "the deletion")


def test_a_topic_is_not_created_when_it_only_asks_whether_it_could(client: AdminClient, name: str) -> None:
    client.create_topics([NewTopic(name, 1)], validate_only=True)[name].result()
    assert name not in client.list_topics(timeout=30).topics


def test_topics_that_cannot_be_are_refused(client: AdminClient, name: str) -> None:
    client.create_topics([NewTopic(name, 1)])[name].result()
    assert try_create(client, NewTopic(name, 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert try_create(client, NewTopic(name, 1), validate_only=True) == KafkaError.TOPIC_ALREADY_EXISTS
    assert try_create(client, NewTopic("no/topic", 1)) == KafkaError.TOPIC_EXCEPTION
    assert try_create(client, NewTopic("..", 1)) == KafkaError.TOPIC_EXCEPTION
    assert try_create(client, NewTopic("x" * 250, 1)) == KafkaError.TOPIC_EXCEPTION
    assert try_create(client, NewTopic(f"{name}-0", 0)) == KafkaError.INVALID_PARTITIONS
    assert try_create(client, NewTopic(f"{name}-3", 1, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert try_create(client, NewTopic(f"{name}-9", 2, replica_assignment=[[9], [9]])) == KafkaError.INVALID_REPLICA_ASSIGNMENT
    for key, value in (("no.such.key", "1"), ("retention.ms", "soon"), ("cleanup.policy", "forget"), ("segment.bytes", "1")):
        assert try_create(client, NewTopic(f"{name}-c", 1, config={key: value})) == KafkaError.INVALID_CONFIG
    collision = NewTopic(f"{name}.x", 1)
    client.create_topics([collision])[collision.topic].result()
    assert try_create(client, NewTopic(f"{name}_x", 1)) == KafkaError.TOPIC_EXCEPTION
    assert set(client.list_topics(timeout=30).topics) & {name, f"{name}-0", f"{name}-3", f"{name}-c"} == {name}


def test_topics_that_are_not_there_are_told(client: AdminClient, name: str) -> None:
    assert code_of(client.delete_topics([name])[name].result) == KafkaError.UNKNOWN_TOPIC_OR_PART
    described = client.describe_topics(TopicCollection([name]))[name]
    assert code_of(described.result) == KafkaError.UNKNOWN_TOPIC_OR_PART
    resource = ConfigResource(ResourceType.TOPIC, name)
    assert code_of(client.describe_configs([resource])[resource].result) == KafkaError.UNKNOWN_TOPIC_OR_PART
    partition = TopicPartition(name, 0)
    assert code_of(client.list_offsets({partition: OffsetSpec.for_timestamp(0)})[partition].result) == KafkaError._NOENT
    assert code_of(client.create_partitions([NewPartitions(name, 2)])[name].result) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_grows_but_does_not_shrink(client: AdminClient, name: str) -> None:
    client.create_topics([NewTopic(name, 2)])[name].result()
    client.create_partitions([NewPartitions(name, 4)], validate_only=True)[name].result()
    assert len(client.list_topics(name, timeout=30).topics[name].partitions) == 2
    client.create_partitions([NewPartitions(name, 4)])[name].result()
    until(lambda: len(client.list_topics(name, timeout=30).topics[name].partitions) == 4, "the new partitions")
    for wanted in (4, 3):
        assert code_of(client.create_partitions([NewPartitions(name, wanted)])[name].result) == KafkaError.INVALID_PARTITIONS


# -- configurations


def test_the_configuration_of_a_topic_is_described_and_altered(client: AdminClient, name: str) -> None:
    client.create_topics([NewTopic(name, 1, config={"retention.ms": "1000"})])[name].result()
    found = configs_of(client, ResourceType.TOPIC, name)
    assert (found["retention.ms"].value, source_of(found["retention.ms"])) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (found["segment.bytes"].value, found["segment.bytes"].is_default) == (str(2**30), True)

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result()

    def has(key: str, value: str) -> None:
        until(lambda: configs_of(client, ResourceType.TOPIC, name)[key].value == value, f"{key}={value}")

    alter("retention.ms", "2000", AlterConfigOpType.SET)
    has("retention.ms", "2000")
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    has("cleanup.policy", "delete,compact")
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    has("cleanup.policy", "compact")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    has("retention.ms", "604800000")
    for key, value, operation in (
        ("no.such.key", "1", AlterConfigOpType.SET),
        ("retention.ms", "soon", AlterConfigOpType.SET),
        ("retention.ms", "1", AlterConfigOpType.APPEND),
    ):
        assert code_of(lambda: alter(key, value, operation)) == KafkaError.INVALID_CONFIG  # noqa: B023


def test_all_configurations_of_a_topic_can_be_replaced(client: AdminClient, name: str) -> None:
    client.create_topics([NewTopic(name, 1, config={"retention.ms": "1000", "segment.bytes": "2000000"})])[name].result()
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "5000"})
    with pytest.deprecated_call():
        client.alter_configs([resource])[resource].result()

    def is_replaced() -> bool:
        found = configs_of(client, ResourceType.TOPIC, name)
        return (found["retention.ms"].value, found["segment.bytes"].value) == ("5000", str(2**30))

    until(is_replaced, "the new configuration")


def test_the_configuration_of_a_broker_is_described_and_altered(server: Broker, client: AdminClient) -> None:
    found = configs_of(client, ResourceType.BROKER, "1")
    assert found["log.dirs"].value == str(server.data)
    assert found["log.dirs"].is_read_only
    assert (found["node.id"].value, source_of(found["node.id"])) == ("1", ConfigSource.STATIC_BROKER_CONFIG)

    def alter(key: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result()

    def has(value: str, source: ConfigSource) -> None:
        def look() -> bool:
            entry = configs_of(client, ResourceType.BROKER, "1")["log.segment.bytes"]
            return (entry.value, source_of(entry)) == (value, source)

        until(look, f"{value} from {source}")

    alter("log.segment.bytes", "30000000")
    has("30000000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    alter("log.segment.bytes", None)
    has(str(2**30), ConfigSource.DEFAULT_CONFIG)
    assert code_of(lambda: alter("node.id", "2")) == KafkaError.INVALID_REQUEST
    assert code_of(lambda: alter("log.segment.bytes", "many")) == KafkaError.INVALID_REQUEST


# -- groups


def test_groups_are_listed_described_and_deleted(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, 3)
    with consuming(server.bootstrap, name, client_id="reader") as consumer:
        consumer.subscribe([name])
        rows(consumer, 3)
        consumer.commit(asynchronous=False)
        group = client.describe_consumer_groups([name])[name].result()
        assert (group.state, group.type, group.is_simple_consumer_group) == (
            ConsumerGroupState.STABLE,
            ConsumerGroupType.CLASSIC,
            False,
        )
        assert (group.partition_assignor, group.coordinator.id) == ("range", 1)
        (member,) = group.members
        assert member.client_id == "reader"
        assert member.member_id.startswith("reader-")
        assert "127.0.0.1" in member.host
        assert [partition.partition for partition in member.assignment.topic_partitions] == [0, 1]
        assert listed(client)[name] == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
        assert name not in listed(client, states={ConsumerGroupState.EMPTY})
        assert code_of(client.delete_consumer_groups([name])[name].result) == KafkaError.NON_EMPTY_GROUP
    assert listed(client, states={ConsumerGroupState.EMPTY})[name][0] == ConsumerGroupState.EMPTY
    client.delete_consumer_groups([name])[name].result()
    assert name not in listed(client)
    assert code_of(client.delete_consumer_groups([name])[name].result) == KafkaError.GROUP_ID_NOT_FOUND


def listed(client: AdminClient, **options: Any) -> dict[str, tuple[ConsumerGroupState, ConsumerGroupType]]:
    answer = client.list_consumer_groups(**options).result()
    assert not answer.errors
    return {group.group_id: (group.state, group.type) for group in answer.valid}


def test_offsets_of_a_group_are_altered_and_listed(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name, 3)
    wanted = [TopicPartition(name, index, 10 + index) for index in range(3)]
    answer = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, wanted)])[name].result()
    assert all(partition.error is None for partition in answer.topic_partitions)
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result().topic_partitions
    assert sorted((each.partition, each.offset) for each in found) == [(0, 10), (1, 11), (2, 12)]
    some = [TopicPartition(name, 1), TopicPartition(name, 7)]
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name, some)])[name].result().topic_partitions
    assert [(each.partition, each.offset, each.error) for each in found] == [(1, 11, None), (7, -1001, None)]
    missing = [TopicPartition(f"{name}-none", 0, 1)]
    answer = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, missing)])[name].result()
    assert [each.error.code() for each in answer.topic_partitions] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    described = client.describe_consumer_groups([name])[name].result()
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])


def test_offsets_of_a_busy_group_are_not_altered(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 1)
    with consuming(server.bootstrap, name) as consumer:
        consumer.subscribe([name])
        rows(consumer, 1)
        wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 0)])
        answer = client.alter_consumer_group_offsets([wanted])[name]
        assert [each.error.code() for each in answer.result().topic_partitions] == [KafkaError.UNKNOWN_MEMBER_ID]


def test_a_group_that_is_not_there_is_told(client: AdminClient, name: str) -> None:
    assert client.describe_consumer_groups([name])[name].result().state == ConsumerGroupState.DEAD
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result()
    assert found.topic_partitions == []


# -- the cluster and its partitions


def test_the_cluster_is_described(server: Broker, client: AdminClient) -> None:
    cluster = client.describe_cluster().result()
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, "127.0.0.1", server.port)]
    assert cluster.controller.id == 1
    assert cluster.cluster_id == client.list_topics(timeout=30).cluster_id
    assert len(cluster.cluster_id) == len(CLUSTER_ID)
    operations = client.describe_cluster(include_authorized_operations=True).result().authorized_operations
    assert {operation.name for operation in operations} == {
        "CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE", "ALTER", "DESCRIBE", "ALTER_CONFIGS",
    }  # fmt: skip


def test_offsets_are_listed_by_kind(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name, 2)
    fill(server.bootstrap, name, 12)

    def offset(kind: str, *arguments: int, **options: Any) -> int:
        partition = TopicPartition(name, 0)
        found: int = client.list_offsets({partition: getattr(OffsetSpec, kind)(*arguments)}, **options)[partition].result().offset
        return found

    assert offset("earliest") == 0
    assert offset("latest") == 12
    assert offset("latest", isolation_level=IsolationLevel.READ_COMMITTED) == 12
    assert offset("for_timestamp", 0) == 0
    assert offset("for_timestamp", 2**42) == -1
    assert 0 <= offset("max_timestamp") < 12


def test_records_are_deleted(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name)
    fill(server.bootstrap, name, 12)

    def delete(offset: int, index: int = 0) -> int:
        wanted = TopicPartition(name, index, offset)
        low: int = client.delete_records([wanted])[wanted].result().low_watermark
        return low

    assert delete(5) == 5
    assert delete(3) == 5
    assert delete(-1) == 12  # all of them
    assert code_of(lambda: delete(13)) == KafkaError.OFFSET_OUT_OF_RANGE
    assert code_of(lambda: delete(0, index=7)) == KafkaError._NOENT


def test_leaders_are_elected_where_it_is_needed(server: Broker, client: AdminClient, name: str) -> None:
    create(server.bootstrap, name)
    partitions = [TopicPartition(name, 0), TopicPartition(f"{name}-none", 0)]
    for kind in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        found = client.elect_leaders(kind, partitions).result()
        codes = [error.code() for error in found.values()]
        assert codes == [KafkaError.ELECTION_NOT_NEEDED, KafkaError.UNKNOWN_TOPIC_OR_PART]

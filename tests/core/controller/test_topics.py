"""Topics, partitions and their records, where one broker would not show it."""

from collections.abc import Callable

import msgspec
import pytest

from odradek.core.config.key import InvalidConfig
from odradek.core.controller.partitions import create_partitions
from odradek.core.controller.topics import create_topics, new_topic_id
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import BrokerRegistrationChangeRecord, CreatePartitionsRequest, CreateTopicsRequest
from tests.core.controller.cluster import cluster, folder_of, replayed, rules

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig


def create(image: MetadataImage, *topics: Topic) -> list[tuple[str, str | None]]:
    decision = create_topics(image, CreateTopicsRequest(topics=list(topics)), rules(2, 3))
    replayed(image, decision.records)
    return [(ErrorCode(topic.error_code).name, topic.error_message) for topic in decision.response.topics]


def by_hand(name: str, *replicas: list[int]) -> Topic:
    assignments = [Assignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(replicas)]
    return Topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def test_what_a_client_leaves_open_is_taken_from_the_configuration() -> None:
    image = cluster([1, 2, 3])
    assert create(image, Topic(name="t", num_partitions=-1, replication_factor=-1)) == [("NONE", None)]
    partitions = image.topics["t"].partitions
    assert [sorted(partition.replicas) for partition in partitions.values()] == [[1, 2, 3], [1, 2, 3]]
    assert all(partition.isr == partition.replicas for partition in partitions.values())


def test_brokers_that_are_fenced_or_leaving_are_not_in_the_first_isr() -> None:
    image = cluster([3], fenced=[1], leaving=[2])
    assert create(image, by_hand("t", [1, 2, 3])) == [("NONE", None)]
    partition = image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2, 3), (3,), 3)
    assert partition.directories == (folder_of(1), folder_of(2), folder_of(3))


def test_a_partition_needs_one_broker_that_is_active() -> None:
    image = cluster([3], fenced=[1], leaving=[2])
    reason = "All brokers specified in the manual partition assignment for partition 1 are fenced or in controlled shutdown."
    assert create(image, by_hand("t", [3, 1], [1, 2])) == [("INVALID_REPLICA_ASSIGNMENT", reason)]
    answer = create(cluster([], fenced=[1, 2, 3]), Topic(name="u", num_partitions=1, replication_factor=3))
    reason = "All brokers are currently fenced, or have all their log directories cordoned."
    assert answer == [("INVALID_REPLICATION_FACTOR", f"Unable to replicate the partition 3 time(s): {reason}")]


def test_a_broker_that_is_leaving_takes_no_new_partitions() -> None:
    image = cluster([1], leaving=[2])
    (answer,) = create(image, Topic(name="t", num_partitions=1, replication_factor=2))
    assert answer[0] == "INVALID_REPLICATION_FACTOR"
    assert "only 1 broker(s)" in str(answer[1])


@pytest.mark.parametrize(
    ("folders", "expected"),
    [([], MIGRATING_DIRECTORY), ([b"a" * 16], b"a" * 16), ([b"a" * 16, b"b" * 16], UNASSIGNED_DIRECTORY)],
)
def test_the_folder_of_a_new_replica_is_known_where_the_broker_has_one(folders: list[bytes], expected: bytes) -> None:
    image = cluster([1])
    image.brokers[1] = msgspec.structs.replace(image.brokers[1], log_dirs=tuple(folders))
    create(image, by_hand("t", [1]))
    assert image.topics["t"].partitions[0].directories == (expected,)


def test_a_broker_whose_folders_are_all_cordoned_gets_nothing_new() -> None:
    image = cluster([1, 2])
    image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, cordoned_log_dirs=[folder_of(1)]))
    create(image, Topic(name="t", num_partitions=9, replication_factor=1))
    assert {partition.leader for partition in image.topics["t"].partitions.values()} == {2}


@pytest.mark.parametrize(("level", "version"), [(30, 2), (23, 2), (22, 1), (17, 1), (16, 0), (7, 0)])
def test_records_are_written_in_the_version_of_the_metadata_version(level: int, version: int) -> None:
    image = cluster([1], level=level)
    decision = create_topics(image, CreateTopicsRequest(topics=[by_hand("t", [1])]), rules())
    assert [written for _, written in decision.records] == [0, version]
    replayed(image, decision.records)
    directory = folder_of(1) if level >= 17 else MIGRATING_DIRECTORY
    assert image.topics["t"].partitions[0].directories == (directory,)


def test_configs_stand_between_the_topic_and_its_partitions() -> None:
    configs = [Config(name="retention.ms", value="1"), Config(name="cleanup.policy", value="compact")]
    topic = Topic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    decision = create_topics(cluster(), CreateTopicsRequest(topics=[topic]), rules())
    kinds = [record.schema.name for record, _ in decision.records]
    assert kinds == ["TopicRecord", "ConfigRecord", "ConfigRecord", "PartitionRecord"]


def test_a_topic_with_invalid_configs_is_refused_and_the_others_are_made() -> None:
    def check(name: str, configs: dict[str, str]) -> None:
        if "bad" in configs:
            raise InvalidConfig("Unknown topic config name: bad")

    topics = [
        Topic(name="a", num_partitions=1, replication_factor=1, configs=[Config(name="bad", value="1")]),
        Topic(name="b", num_partitions=1, replication_factor=1),
    ]
    decision = create_topics(cluster(), CreateTopicsRequest(topics=topics), msgspec.structs.replace(rules(), check_configs=check))
    first, second = decision.response.topics
    assert (first.error_code, first.error_message) == (ErrorCode.INVALID_CONFIG, "Unknown topic config name: bad")
    assert second.error_code == ErrorCode.NONE
    assert [record.schema.name for record, _ in decision.records] == ["TopicRecord", "PartitionRecord"]


def test_added_partitions_go_on_where_the_topic_ends() -> None:
    image = cluster([1, 2, 3])
    create(image, by_hand("t", [1, 2], [2, 3]))
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5, assignments=None)
    decision = create_partitions(image, CreatePartitionsRequest(topics=[wanted]), lambda _: 0)
    replayed(image, decision.records)
    assert list(image.topics["t"].partitions) == [0, 1, 2, 3, 4]
    assert all(len(partition.replicas) == 2 for partition in image.topics["t"].partitions.values())


def test_no_topic_id_begins_with_a_minus_in_base64() -> None:
    given = iter([bytes([0b11111000]) + bytes(15), bytes([0b11111011]) + bytes(15), b"a" * 16])
    take: Callable[[], bytes] = lambda: next(given)  # noqa: E731
    assert new_topic_id(take) == b"a" * 16

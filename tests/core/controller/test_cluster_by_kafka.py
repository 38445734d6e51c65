"""Apache Kafka and our controller are asked about features, elections, reassignments and the quorum: they answer the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.controller.elections import elect_leaders
from odradek.core.controller.features import update_features
from odradek.core.controller.quorum import QuorumStatus, describe_quorum
from odradek.core.controller.reassignments import list_reassignments
from odradek.core.controller.replication import ReplicationRules
from odradek.core.controller.topics import create_topics
from odradek.core.metadata.features import KNOWN
from odradek.core.metadata.image import MetadataImage
from odradek.core.raft.voters import Voter, VoterSet
from odradek.log.disk import RealDisk
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.wire.errors import Refused
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FeatureLevelRecord,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    RegisterBrokerRecord,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.core.controller.cluster import cluster, folder_of, replayed, rules
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

ELR, GROUP, METADATA, KRAFT = "eligible.leader.replicas.version", "group.version", "metadata.version", "kraft.version"
UNKNOWN_TYPE, UPGRADE, SAFE, UNSAFE = 0, 1, 2, 3

UPDATES: list[list[tuple[str, int, int]]] = [
    [(ELR, 0, UPGRADE)],
    [(ELR, 0, SAFE)],
    [(ELR, 1, SAFE)],
    [(ELR, 1, UPGRADE)],
    [(ELR, 2, UPGRADE)],
    [("nope", 1, UPGRADE)],
    [("nope", 0, UPGRADE)],
    [(GROUP, -1, UPGRADE)],
    [(GROUP, 1, UNKNOWN_TYPE)],
    [(GROUP, 1, UPGRADE)],
    [(GROUP, 0, 4)],
    [(GROUP, 0, SAFE), (GROUP, 1, UPGRADE)],
    [(GROUP, 0, UNSAFE), ("nope", 1, UPGRADE)],
    [],
    [(METADATA, 31, UPGRADE)],
    [(METADATA, 6, SAFE)],
    [(METADATA, 29, UPGRADE)],
    [(METADATA, 29, SAFE)],
    [(METADATA, 29, UNSAFE)],
    [(METADATA, 30, UPGRADE)],
    [(KRAFT, 1, UPGRADE)],
    [(KRAFT, 0, SAFE)],
    [(KRAFT, 2, UPGRADE)],
    [(GROUP, 0, SAFE)],
    [(GROUP, 1, UPGRADE)],
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    broker = Broker(folder)
    with broker.running():
        yield broker


@pytest.fixture
def image() -> MetadataImage:
    """A cluster as Kafka has it: with all features that it knows."""
    image = cluster([])
    for name, (_, high) in KNOWN.items():
        if name != KRAFT:
            image.replay(FeatureLevelRecord(name=name, feature_level=high))
    image.replay(
        RegisterBrokerRecord(
            broker_id=1,
            fenced=False,
            log_dirs=[folder_of(1)],
            features=[
                RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in KNOWN.items()
            ],
        )
    )
    return image


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_updated_and_refused_as_by_kafka(kafka: Broker, image: MetadataImage, version: int) -> None:
    Update = UpdateFeaturesRequest.FeatureUpdateKey  # noqa: N806
    for validate_only in [True, False] if version else [False]:
        for updates in UPDATES:
            request = UpdateFeaturesRequest(validate_only=validate_only)
            for feature, level, kind in updates:
                update = Update(feature=feature, max_version_level=level)
                if version:
                    update.upgrade_type = kind
                else:
                    update.allow_downgrade = kind > UPGRADE
                request.feature_updates.append(update)
            decision = update_features(
                image, request, version=version, node_id=1, kraft_version=1, voters=VoterSet(()), min_insync_replicas=1
            )
            replayed(image, decision.records)
            theirs = ask(kafka.port, request, version, UpdateFeaturesResponse)
            assert UpdateFeaturesResponse.decode(decision.response.to_bytes(version), version) == theirs, updates
    assert image.features[GROUP] == image.features[ELR] == 1


@pytest.fixture
def topic(kafka: Broker, image: MetadataImage) -> str:
    created = CreateTopicsRequest.CreatableTopic(name="elected", num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[created], timeout_ms=10_000)
    replayed(image, create_topics(image, request, rules()).records)
    ask(kafka.port, request, 7, CreateTopicsResponse)
    return created.name


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leaders_are_elected_and_refused_as_by_kafka(kafka: Broker, image: MetadataImage, topic: str, version: int) -> None:
    Chosen = ElectLeadersRequest.TopicPartitions  # noqa: N806
    chosen = [Chosen(topic=topic, partitions=[0, 5]), Chosen(topic="unknown", partitions=[0])]
    for election_type in (0, 1) if version else (0,):
        for partitions in (None, chosen):
            request = ElectLeadersRequest(election_type=election_type, topic_partitions=partitions, timeout_ms=10_000)
            decision = elect_leaders(image, request, ReplicationRules())
            theirs = ask(kafka.port, request, version, ElectLeadersResponse)
            assert decision.records == []
            assert ElectLeadersResponse.decode(decision.response.to_bytes(version), version) == theirs
    with pytest.raises(Refused, match="Unknown election type 7"):
        elect_leaders(image, ElectLeadersRequest(election_type=7), ReplicationRules())


def test_reassignments_are_listed_as_by_kafka(kafka: Broker, image: MetadataImage, topic: str) -> None:
    Chosen = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics  # noqa: N806
    chosen = [Chosen(name=topic, partition_indexes=[0, 9]), Chosen(name="unknown", partition_indexes=[0])]
    for topics in (None, chosen):
        request = ListPartitionReassignmentsRequest(topics=topics)
        theirs = ask(kafka.port, request, 0, ListPartitionReassignmentsResponse)
        assert list_reassignments(image, request) == theirs


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "asked",
    [
        [("__cluster_metadata", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("other", [0])],
        [("__cluster_metadata", [0]), ("other", [3])],
        [],
    ],
)
def test_the_quorum_is_described_as_by_kafka(kafka: Broker, version: int, asked: list[tuple[str, list[int]]]) -> None:
    Topic, Partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData  # noqa: N806
    topics = [Topic(topic_name=name, partitions=[Partition(partition_index=at) for at in numbers]) for name, numbers in asked]
    request = DescribeQuorumRequest(topics=topics)
    theirs = ask(kafka.port, request, version, DescribeQuorumResponse)
    meta = read_meta_properties(RealDisk(), str(kafka.data / META_PROPERTIES))
    assert meta is not None
    assert meta.directory_id is not None
    voter = Voter(1, meta.directory_id.bytes, (("CONTROLLER", "127.0.0.1", kafka.controller_port),))
    found = [partition for topic in theirs.topics for partition in topic.partitions if partition.current_voters]
    seen = found[0] if found else DescribeQuorumResponse.PartitionData()
    status = QuorumStatus(
        leader_id=1,
        leader_epoch=1,
        high_watermark=seen.high_watermark,
        log_end_offset=seen.current_voters[0].log_end_offset if found else 0,
        kraft_version=1,
        voters=VoterSet((voter,)),
        now_ms=seen.current_voters[0].last_fetch_timestamp if found else 0,
    )
    ours = describe_quorum(request, status, version)
    assert DescribeQuorumResponse.decode(ours.to_bytes(version), version) == theirs

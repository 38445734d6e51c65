"""Apache Kafka and our controller are asked for the same topics: they answer the same, and hold the same afterwards."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.controller.partitions import create_partitions
from odradek.core.controller.topic_deletion import delete_topics
from odradek.core.controller.topics import create_topics
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.core.controller.cluster import cluster, replayed, rules
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

Topic = CreateTopicsRequest.CreatableTopic
Assignment = CreateTopicsRequest.CreatableReplicaAssignment
Config = CreateTopicsRequest.CreatableTopicConfig
Added = CreatePartitionsRequest.CreatePartitionsTopic
AddedAssignment = CreatePartitionsRequest.CreatePartitionsAssignment
Doomed = DeleteTopicsRequest.DeleteTopicState

LONG = "x" * 250
HEARD_SECONDS_MAX = 30


def assigned(*replicas: list[int], first: int = 0) -> list[Assignment]:
    return [Assignment(partition_index=number, broker_ids=ids) for number, ids in enumerate(replicas, start=first)]


def topic(name: str, partitions: int = -1, replicas: int = -1, assignments: list[Assignment] | None = None) -> Topic:
    return Topic(name=name, num_partitions=partitions, replication_factor=replicas, assignments=assignments or [])


CREATED = [
    [topic("plain"), topic("three", 3, 1), topic("by-hand", assignments=assigned([1], [1]))],
    [topic("plain"), topic("good"), topic("a.b")],
    [topic("a_b"), topic("a.b"), topic("a_c"), topic("a.c")],
    [topic(""), topic("."), topic(".."), topic("ü"), topic(LONG), topic("a b")],
    [topic("n", 0), topic("m", -2), topic("o", 1, 0), topic("p", 1, -2), topic("q", 0, 0), topic("two", 1, 2)],
    [topic("r", 1, -1, assigned([1])), topic("s", -1, 1, assigned([1])), topic("t", 1, 1, assigned([1]))],
    [topic("u", assignments=assigned([])), topic("v", assignments=assigned([2])), topic("w", assignments=assigned([1, 1]))],
    [topic("x", assignments=assigned([1], first=1)), topic("y", assignments=assigned([1]) + assigned([1]))],
    [topic("z", assignments=assigned([1], [2, 1])), topic("__cluster_metadata"), topic("twice"), topic("twice")],
    [Topic(name="null", num_partitions=1, replication_factor=1, configs=[Config(name="retention.ms", value=None)])],
    [topic("many", 10_001, 1), topic("one", 1, 1)],
]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("kafka")
    broker = Broker(folder)
    with broker.running():
        yield broker


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """What our controller has after all that the tests ask for, in their order."""
    return cluster([1])


def check_held(kafka: Broker, image: MetadataImage) -> None:
    """Kafka has our topics with as many partitions, as soon as its broker has heard of what its controller decided."""
    ours = {name: len(topic.partitions) for name, topic in image.topics.items()}
    deadline = time.monotonic() + HEARD_SECONDS_MAX
    while True:
        answer = ask(kafka.port, MetadataRequest(topics=None), 12, MetadataResponse)
        theirs = {str(topic.name): len(topic.partitions) for topic in answer.topics}
        if theirs == ours or time.monotonic() > deadline:
            assert theirs == ours
            return


@pytest.mark.parametrize("validate_only", [True, False])
def test_topics_are_created_and_refused_as_by_kafka(kafka: Broker, image: MetadataImage, validate_only: bool) -> None:
    for topics in CREATED:
        request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
        decision = create_topics(image, request, rules())
        replayed(image, decision.records)
        theirs = ask(kafka.port, request, 7, CreateTopicsResponse)

        def told(answer: CreateTopicsResponse) -> list[tuple[object, ...]]:
            return sorted(
                (t.name, ErrorCode(t.error_code).name, t.error_message, t.num_partitions, t.replication_factor)
                for t in answer.topics
            )

        assert told(decision.response) == told(theirs)
    check_held(kafka, image)


def test_partitions_are_added_and_refused_as_by_kafka(kafka: Broker, image: MetadataImage) -> None:
    def by_hand(*replicas: list[int]) -> list[AddedAssignment]:
        return [AddedAssignment(broker_ids=ids) for ids in replicas]

    asked = [
        [Added(name="plain", count=3, assignments=None), Added(name="three", count=3, assignments=None)],
        [Added(name="three", count=2, assignments=None), Added(name="unknown", count=2, assignments=None)],
        [Added(name="three", count=5, assignments=by_hand([1])), Added(name="plain", count=4, assignments=by_hand([1]))],
        [Added(name="three", count=4, assignments=by_hand([2])), Added(name="plain", count=5, assignments=by_hand([1, 1]))],
        [Added(name="by-hand", count=9, assignments=None), Added(name="by-hand", count=9, assignments=None)],
    ]
    for validate_only in (True, False):
        for topics in asked:
            request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
            decision = create_partitions(image, request, lambda _: 0)
            replayed(image, decision.records)
            theirs = ask(kafka.port, request, 3, CreatePartitionsResponse)

            def told(answer: CreatePartitionsResponse) -> list[tuple[object, ...]]:
                return sorted((t.name, ErrorCode(t.error_code).name, t.error_message) for t in answer.results)

            assert told(decision.response) == told(theirs)
    check_held(kafka, image)


def test_topics_are_deleted_and_kept_as_by_kafka(kafka: Broker, image: MetadataImage) -> None:
    ids = {str(t.name): t.topic_id for t in ask(kafka.port, MetadataRequest(topics=None), 12, MetadataResponse).topics}

    def request_of(ids: dict[str, bytes]) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=[
                Doomed(name="plain"),
                Doomed(name=None, topic_id=ids["three"]),
                Doomed(name="unknown"),
                Doomed(name=None, topic_id=b"u" * 16),
                Doomed(name=None),
                Doomed(name="good", topic_id=ids["good"]),
                Doomed(name="a.b"),
                Doomed(name="a.b"),
                Doomed(name="by-hand"),
                Doomed(name=None, topic_id=ids["by-hand"]),
            ],
            timeout_ms=10_000,
        )

    decision = delete_topics(image, request_of({topic.name: topic.id for topic in image.topics.values()}))
    replayed(image, decision.records)
    theirs = ask(kafka.port, request_of(ids), 6, DeleteTopicsResponse)

    def told(answer: DeleteTopicsResponse) -> list[tuple[object, ...]]:
        return sorted((str(t.name), ErrorCode(t.error_code).name, str(t.error_message)) for t in answer.responses)

    assert told(decision.response) == told(theirs)
    check_held(kafka, image)

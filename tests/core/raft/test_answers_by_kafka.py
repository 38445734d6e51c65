"""Apache Kafka's only controller and our machine, both leaders of their quorum, are asked the same, and answer the same."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from odradek.core.raft.effects import Answer
from odradek.core.raft.requests import METADATA_TOPIC_ID
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.ids import id_bytes
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from tests.core.raft.memory import CLUSTER_ID, directory_of, voters_of
from tests.core.raft.one import One
from tests.kafka.asking import ask
from tests.kafka.broker import CLUSTER_ID as KAFKA_CLUSTER_ID
from tests.kafka.broker import Broker

TOPIC = "__cluster_metadata"
OTHER_FOLDER = b"another folder.."


class Side(NamedTuple):
    """One of the two: what its requests have to say, and a way to ask."""

    cluster_id: str
    directory_id: bytes
    epoch: int
    ask: Callable[[Message, int], Any]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    with broker.running():
        lines = (broker.data / "meta.properties").read_text().splitlines()
        directory_id = id_bytes(dict(line.split("=", 1) for line in lines if "=" in line)["directory.id"])

        def ask_kafka(request: Message, version: int) -> Any:
            return ask(broker.controller_port, request, version, APIS[request.schema.key].response)

        found = ask_kafka(fetch(0)(Side(KAFKA_CLUSTER_ID, directory_id, 0, ask_kafka)), 17)
        epoch = found.responses[0].partitions[0].current_leader.leader_epoch
        one = One(voters=voters_of(1))

        def ask_ours(request: Message, version: int) -> Any:
            api = APIS[request.schema.key]
            one.asked(api.request.decode(request.to_bytes(version), version), version)
            response = one.only(Answer).response
            return type(response).decode(response.to_bytes(version), version)

        yield Side(KAFKA_CLUSTER_ID, directory_id, epoch, ask_kafka), Side(CLUSTER_ID, directory_of(1), 1, ask_ours)


Question = Callable[[Side], Message]


def vote(epoch: int = 0, topic: str = TOPIC, **changed: Any) -> Question:
    def make(side: Side) -> Message:
        cluster_id, voter_id = changed.get("cluster_id", side.cluster_id), changed.get("voter_id", 1)
        partition = VoteRequest.PartitionData(
            replica_epoch=side.epoch + epoch,
            replica_id=changed.get("replica_id", 2),
            replica_directory_id=OTHER_FOLDER,
            voter_directory_id=changed.get("voter_directory_id", side.directory_id),
            last_offset_epoch=changed.get("last_epoch", 0),
            last_offset=changed.get("last_offset", 0),
            pre_vote=changed.get("pre_vote", False),
        )
        return VoteRequest(
            cluster_id=cluster_id, voter_id=voter_id, topics=[VoteRequest.TopicData(topic_name=topic, partitions=[partition])]
        )

    return make


def begin(epoch: int, topic: str = TOPIC, leader_id: int = 2, cluster_id: str | None = None) -> Question:
    def make(side: Side) -> Message:
        partition = BeginQuorumEpochRequest.PartitionData(leader_id=leader_id, leader_epoch=side.epoch + epoch)
        topics = [BeginQuorumEpochRequest.TopicData(topic_name=topic, partitions=[partition])]
        return BeginQuorumEpochRequest(cluster_id=cluster_id or side.cluster_id, voter_id=1, topics=topics)

    return make


def end(epoch: int, topic: str = TOPIC, leader_id: int = 2, cluster_id: str | None = None) -> Question:
    def make(side: Side) -> Message:
        partition = EndQuorumEpochRequest.PartitionData(leader_id=leader_id, leader_epoch=side.epoch + epoch)
        topics = [EndQuorumEpochRequest.TopicData(topic_name=topic, partitions=[partition])]
        return EndQuorumEpochRequest(cluster_id=cluster_id or side.cluster_id, topics=topics)

    return make


def fetch(epoch: int, **changed: Any) -> Question:
    def make(side: Side) -> Message:
        partition = FetchRequest.FetchPartition(
            partition=changed.get("partition", 0),
            current_leader_epoch=side.epoch + epoch,
            fetch_offset=changed.get("offset", 999_999),
            last_fetched_epoch=changed.get("last_epoch", 0),
            replica_directory_id=OTHER_FOLDER,
        )
        topic_id = changed.get("topic_id", METADATA_TOPIC_ID)
        return FetchRequest(
            cluster_id=changed.get("cluster_id", side.cluster_id),
            replica_state=FetchRequest.ReplicaState(replica_id=changed.get("replica_id", 5)),
            max_wait_ms=changed.get("max_wait_ms", 0),
            topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])],
        )

    return make


def fetch_snapshot(epoch: int, **changed: Any) -> Question:
    def make(side: Side) -> Message:
        partition = FetchSnapshotRequest.PartitionSnapshot(
            partition=changed.get("partition", 0),
            current_leader_epoch=side.epoch + epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=changed.get("offset", 7), epoch=changed.get("last_epoch", 1)),
            replica_directory_id=OTHER_FOLDER,
        )
        topic = FetchSnapshotRequest.TopicSnapshot(name=changed.get("topic", TOPIC), partitions=[partition])
        return FetchSnapshotRequest(cluster_id=changed.get("cluster_id", side.cluster_id), replica_id=5, topics=[topic])

    return make


def add(voter_id: int = 9, directory_id: bytes = OTHER_FOLDER, listener: str = "CONTROLLER", cluster_id: str = "") -> Question:
    def make(side: Side) -> Message:
        listeners = [AddRaftVoterRequest.Listener(name=listener, host="127.0.0.1", port=1)]
        return AddRaftVoterRequest(
            cluster_id=cluster_id or side.cluster_id,
            timeout_ms=1000,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=listeners,
        )

    return make


def remove(voter_id: int = 9, directory_id: bytes = OTHER_FOLDER, cluster_id: str = "") -> Question:
    return lambda side: RemoveRaftVoterRequest(
        cluster_id=cluster_id or side.cluster_id, voter_id=voter_id, voter_directory_id=directory_id
    )


def update(epoch: int = 0, directory_id: bytes = OTHER_FOLDER, listener: str = "CONTROLLER", **changed: Any) -> Question:
    def make(side: Side) -> Message:
        low, high = changed.get("versions", (0, 1))
        return UpdateRaftVoterRequest(
            cluster_id=changed.get("cluster_id", side.cluster_id),
            current_leader_epoch=side.epoch + epoch,
            voter_id=changed.get("voter_id", 9),
            voter_directory_id=directory_id,
            listeners=[UpdateRaftVoterRequest.Listener(name=listener, host="127.0.0.1", port=1)],
            kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                min_supported_version=low, max_supported_version=high
            ),
        )

    return make


QUESTIONS: dict[str, Question] = {
    "vote: another cluster": vote(cluster_id="another"),
    "vote: another topic": vote(topic="t"),
    "vote: an old epoch": vote(-1),
    "vote: no candidate": vote(replica_id=-1),
    "vote: this epoch": vote(0),
    "vote: records of the epoch itself": vote(0, last_epoch=99),
    "vote: below the log": vote(0, last_offset=-1),
    "vote: another voter": vote(0, voter_id=3),
    "vote: another folder": vote(0, voter_directory_id=OTHER_FOLDER),
    "vote: a voter whose folder is not named": vote(0, voter_directory_id=NIL_UUID),
    "pre-vote": vote(0, pre_vote=True, last_offset=10**9),
    "begin: another cluster": begin(0, cluster_id="another"),
    "begin: another topic": begin(0, "t"),
    "begin: an old epoch": begin(-1),
    "begin: no leader": begin(0, leader_id=-1),
    "end: another cluster": end(0, cluster_id="another"),
    "end: another topic": end(0, "t"),
    "end: an old epoch": end(-1),
    "end: no leader": end(0, leader_id=-1),
    "fetch: another cluster": fetch(0, cluster_id="another"),
    "fetch: no cluster": fetch(0, cluster_id=None),
    "fetch: another topic": fetch(0, topic_id=OTHER_FOLDER),
    "fetch: another partition": fetch(0, partition=1),
    "fetch: an old epoch": fetch(-1),
    "fetch: a newer epoch": fetch(1),
    "fetch: records of a newer epoch": fetch(0, last_epoch=99),
    "fetch: below the log": fetch(0, offset=-1),
    "fetch: a negative wait": fetch(0, max_wait_ms=-1),
    "fetch: behind the end": fetch(0, last_epoch=1),
    "fetch: before all epochs": fetch(0, offset=1, last_epoch=0),
    "snapshot: another cluster": fetch_snapshot(0, cluster_id="another"),
    "add: another cluster": add(cluster_id="another"),
    "add: no voter": add(-1),
    "add: no folder": add(directory_id=NIL_UUID),
    "add: no such listener": add(listener="OTHER"),
    "add: a voter already": add(1),
    "remove: another cluster": remove(cluster_id="another"),
    "remove: no voter": remove(-1),
    "remove: no folder": remove(directory_id=NIL_UUID),
    "remove: not a voter": remove(),
    "remove: another folder of a voter": remove(1),
    "update: another cluster": update(cluster_id="another"),
    "update: an old epoch": update(-1),
    "update: a newer epoch": update(1),
    "update: no voter": update(voter_id=-1),
    "update: no folder": update(directory_id=NIL_UUID),
    "update: no such listener": update(listener="OTHER"),
    "update: versions upside down": update(versions=(1, 0)),
    "update: too old": update(versions=(0, 0)),
    "update: not a voter": update(),
}

# Kafka fails over these when it writes the answer, which has no bytes of a snapshot, and says UNKNOWN_SERVER_ERROR.
SNAPSHOT_QUESTIONS: dict[str, tuple[Question, ErrorCode]] = {
    "snapshot: another topic": (fetch_snapshot(0, topic="t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "snapshot: another partition": (fetch_snapshot(0, partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "snapshot: an old epoch": (fetch_snapshot(-1), ErrorCode.FENCED_LEADER_EPOCH),
    "snapshot: a newer epoch": (fetch_snapshot(1), ErrorCode.UNKNOWN_LEADER_EPOCH),
    "snapshot: none such": (fetch_snapshot(0), ErrorCode.SNAPSHOT_NOT_FOUND),
    "snapshot: that of formatting": (fetch_snapshot(0, offset=0, last_epoch=0), ErrorCode.SNAPSHOT_NOT_FOUND),
}


def said(response: Any, side: Side) -> list[object]:
    """What an answer comes down to: errors, who leads, and what it asks for."""
    found: list[object] = [response.error_code]
    topics = getattr(response, "topics", None) or getattr(response, "responses", None) or []
    for partition in (partition for topic in topics for partition in topic.partitions):
        leader = getattr(partition, "current_leader", partition)
        found += [partition.error_code, leader.leader_id, leader.leader_epoch and leader.leader_epoch - side.epoch]
        found.append(getattr(partition, "vote_granted", None))
        if hasattr(partition, "diverging_epoch"):
            found += [partition.diverging_epoch.epoch, partition.snapshot_id.epoch]
    if hasattr(response, "current_leader"):
        found += [response.current_leader.leader_id, response.current_leader.leader_epoch - side.epoch]
    return [*found, len(getattr(response, "node_endpoints", []))]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_leader_answers_as_kafkas_does(both: tuple[Side, Side], question: str) -> None:
    kafka, ours = both
    make = QUESTIONS[question]
    schema = make(ours).schema
    lowest = 17 if schema.name == "FetchRequest" else 2 if "pre-vote" in question else schema.versions[0]
    for version in range(lowest, APIS[schema.key].versions[-1] + 1):
        assert said(ours.ask(make(ours), version), ours) == said(kafka.ask(make(kafka), version), kafka), f"version {version}"


@pytest.mark.parametrize("question", SNAPSHOT_QUESTIONS)
def test_a_snapshot_that_cannot_be_given_is_refused_with_the_reason_where_kafka_fails(
    both: tuple[Side, Side], question: str
) -> None:
    kafka, ours = both
    make, error = SNAPSHOT_QUESTIONS[question]
    for version in range(2):
        assert kafka.ask(make(kafka), version).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        answer = ours.ask(make(ours), version)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (ErrorCode.NONE, error)

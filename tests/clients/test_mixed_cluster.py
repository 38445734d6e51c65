"""A broker of ours in a cluster whose controller and other broker are Apache Kafka's: the way to move a running cluster over."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.wire.messages import DescribeProducersRequest, DescribeProducersResponse, ProduceRequest, ProduceResponse
from odradek.wire.records import Record, build
from tests.clients.confluent import consuming, fill, rows
from tests.clients.confluent_transactor import ConfluentClient
from tests.clients.java_transactor import JavaClient
from tests.clients.server import Node, node_command
from tests.clients.transactions import Client, settled, transacting
from tests.clients.waiting import SECONDS_MAX, until
from tests.cluster.layout import free_block
from tests.kafka.asking import ask
from tests.kafka.broker import CLUSTER_ID, Broker
from tests.kafka.oracle import Oracle

TOOLS = "org.apache.kafka.tools"
TOPICS, ELECTION = f"{TOOLS}.TopicCommand", f"{TOOLS}.LeaderElectionCommand"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
KAFKA, OURS = 1, 5
PRODUCER, NOW_MS = 4711, 1_700_000_000_000
NOT_SERVED = ("share.version", "streams.version")  # features that a cluster with us must not use yet

PROPERTIES = """\
process.roles=broker
node.id={node}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""


class WithoutMore(Broker):
    """Kafka, formatted without the features that are not served yet."""

    def _format(self, voters: tuple[str, ...]) -> None:
        features = [word for name in NOT_SERVED for word in ("--feature", f"{name}=0")]
        self.run_tool("kafka.tools.StorageTool", "format", *voters, "-t", CLUSTER_ID, "-c", self._properties, *features)


class Joining(Node):
    """A broker of ours that joins a cluster."""

    def __init__(self, folder: Path, kafka: Broker) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.data = folder / "data"
        self.port = free_block(1)
        self.process = None
        properties = PROPERTIES.format(node=OURS, controller=kafka.controller_port, port=self.port, data=self.data)
        Path(self._properties).write_text(properties)
        program = node_command(self._properties)[0]
        subprocess.run([program, "storage", "format", "-t", CLUSTER_ID, "-c", self._properties], check=True, capture_output=True)


class Mixed:
    def __init__(self, oracle: Oracle, kafka: Broker, ours: Joining) -> None:
        self.oracle = oracle
        self.kafka = kafka
        self.ours = ours

    def run(self, tool: str, *arguments: str, by: Broker | None = None) -> str:
        at = ["--bootstrap-server", (by or self.kafka).bootstrap]
        answer = self.oracle.call("Tools.run", tool=tool, arguments=[*at, *arguments], given="")
        printed: str = answer["printed"]
        assert answer["status"] == 0, printed + self.ours.output()
        return printed

    def is_in_sync(self, topic: str, leader: int) -> bool:
        described = self.run(TOPICS, "--describe", "--topic", topic)
        found = re.search(r"Leader: (\d+)\s+Replicas: \S+\s+Isr: (\S*)", described)
        return found is not None and (int(found[1]), set(found[2].split(","))) == (leader, {str(KAFKA), str(OURS)})

    def have_the_same(self, topic: str) -> bool:
        """Whether both have the same bytes of a partition."""
        file = f"{topic}-0/{0:020}.log"
        theirs, ours = (self.kafka.data / file).read_bytes(), (self.ours.data / file).read_bytes()
        return len(ours) > 0 and theirs.rstrip(b"\0") == ours.rstrip(b"\0")

    def move(self, topic: str, *replicas: int) -> None:
        """To those nodes, of which the first leads."""
        moves = self.ours.folder / f"{topic}.json"
        wanted = {"topic": topic, "partition": 0, "replicas": list(replicas)}
        moves.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        self.run(REASSIGN, "--execute", "--reassignment-json-file", str(moves))
        until(lambda: "is completed" in self.run(REASSIGN, "--verify", "--reassignment-json-file", str(moves)), "it is moved")


@pytest.fixture(scope="module")
def mixed(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "kafka").mkdir()
    kafka = WithoutMore(folder / "kafka")
    ours = Joining(folder / "ours", kafka)
    with kafka.running(), ours.running():
        yield Mixed(oracle, kafka, ours)


@pytest.mark.parametrize("leader", [KAFKA, OURS])
def test_a_partition_is_replicated_both_ways_and_its_leader_moves(mixed: Mixed, name: str, leader: int) -> None:
    follower = KAFKA + OURS - leader
    mixed.run(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{leader}:{follower}")
    sent = fill(mixed.kafka.bootstrap, name, 100)
    until(lambda: mixed.is_in_sync(name, leader) and mixed.have_the_same(name), "both have it")
    mixed.move(name, follower, leader)
    elected = mixed.run(ELECTION, "--election-type", "preferred", "--topic", name, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {name}-0" in elected
    sent += fill(mixed.kafka.bootstrap, name, 10)
    until(lambda: mixed.is_in_sync(name, follower) and mixed.have_the_same(name), "both have it, the other way round")
    for server in (mixed.kafka, mixed.ours):
        with consuming(server.bootstrap, f"{name}-{server.port}") as consumer:
            consumer.subscribe([name])
            assert [row.value for row in rows(consumer, 110)] == [row.value for row in sent]


@pytest.mark.parametrize("leader", [KAFKA, OURS])
def test_leader_and_follower_tell_the_same_of_producers(mixed: Mixed, name: str, leader: int) -> None:
    mixed.run(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{leader}:{KAFKA + OURS - leader}")
    batch = build([Record(0, NOW_MS, None, b"a")], producer_id=PRODUCER, producer_epoch=3, base_sequence=0)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=name, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    port = (mixed.kafka if leader == KAFKA else mixed.ours).port

    def is_written() -> bool:
        answer = ask(port, request, 9, ProduceResponse).responses[0].partition_responses[0]
        return not answer.error_code

    until(is_written, "the leader has heard that it leads, and has a batch")
    until(lambda: mixed.is_in_sync(name, leader) and mixed.have_the_same(name), "both have it")
    asked = DescribeProducersRequest(topics=[DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0, 1])])
    theirs, ours = (ask(server.port, asked, 0, DescribeProducersResponse).topics for server in (mixed.kafka, mixed.ours))
    assert [found.producer_id for found in theirs[0].partitions[0].active_producers] == [PRODUCER]
    assert ours == theirs


def test_a_topic_is_made_and_deleted_through_our_broker(mixed: Mixed, name: str) -> None:
    mixed.run(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{OURS}:{KAFKA}", by=mixed.ours)
    assert mixed.is_in_sync(name, OURS)
    mixed.run(TOPICS, "--delete", "--topic", name, by=mixed.ours)
    until(lambda: name not in mixed.run(TOPICS, "--list").split(), "it is deleted")
    until(lambda: not (mixed.ours.data / f"{name}-0").exists(), "its log is")


def test_our_broker_comes_back_after_a_crash_and_catches_up(mixed: Mixed, name: str) -> None:
    mixed.run(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{OURS}:{KAFKA}")
    fill(mixed.kafka.bootstrap, name, 50)
    until(lambda: mixed.have_the_same(name), "both have it")
    mixed.ours.stop(signal.SIGKILL)
    fill(mixed.kafka.bootstrap, name, 50)
    mixed.ours.start()
    until(lambda: mixed.is_in_sync(name, KAFKA) and mixed.have_the_same(name), "both have it again")


@pytest.mark.parametrize("kind", ["confluent", "java"])
def test_transactions_go_over_both_while_their_coordinator_and_their_group_move(mixed: Mixed, name: str, kind: str) -> None:
    """In the first version of the protocol, which confluent-kafka speaks, and in the second."""
    source, theirs, ours = f"{name}-source", f"{name}-theirs", f"{name}-ours"
    for topic, leader in ((source, OURS), (theirs, KAFKA), (ours, OURS)):
        mixed.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", str(leader))
    sent = [row.value.decode() for row in fill(mixed.kafka.bootstrap, source, 40) if row.value is not None]
    client: Client = ConfluentClient() if kind == "confluent" else JavaClient(mixed.oracle)
    with transacting(client, mixed.kafka.bootstrap, name) as transactor:
        for number, (coordinator, is_commit) in enumerate([(OURS, True), (KAFKA, True), (OURS, False), (KAFKA, True)]):
            transactor.begin()
            taken = transactor.consume(name, source, 10)
            transactor.send(theirs, 0, taken)
            transactor.send_offsets()
            mixed.move("__transaction_state", coordinator)
            if number == 1:
                mixed.move("__consumer_offsets", OURS)
            transactor.send(ours, 0, taken)
            if is_commit:
                transactor.commit()
            else:
                transactor.abort()
    expected = sent[:20] + sent[30:]
    for topic in (theirs, ours):
        for server in (mixed.kafka, mixed.ours):
            assert settled(server.bootstrap, topic, 1) == [expected]


def test_a_cluster_with_features_that_are_not_served_says_which(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    kafka = Broker(tmp_path / "kafka")
    with kafka.running():
        ours = Joining(tmp_path / "ours", kafka)
        done = subprocess.run(
            node_command(str(ours.folder / "server.properties")), check=False, capture_output=True, timeout=SECONDS_MAX
        )
    assert done.returncode == 1
    told = done.stderr.decode()
    assert "node.id=5 cannot join its cluster: UNSUPPORTED_VERSION" in told
    assert "kafka-features.sh downgrade --feature share.version=0" in told

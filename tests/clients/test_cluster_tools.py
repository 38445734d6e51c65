"""Kafka's own command-line tools on a cluster of four nodes, three of which vote: what somebody who administers it looks for."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from odradek.wire.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from tests.clients.confluent import consuming, fill, rows
from tests.clients.waiting import SECONDS_MAX, until
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout
from tests.kafka.asking import ask
from tests.kafka.broker import HEAP
from tests.kafka.oracle import Oracle
from tools.kafka_jars import class_path

TOOLS = "org.apache.kafka.tools"
TOPICS, GROUPS = f"{TOOLS}.TopicCommand", f"{TOOLS}.consumer.group.ConsumerGroupCommand"
QUORUM, CLUSTER, LOG_DIRS = f"{TOOLS}.MetadataQuorumCommand", f"{TOOLS}.ClusterTool", f"{TOOLS}.LogDirsCommand"
REASSIGN, ELECTION = f"{TOOLS}.reassign.ReassignPartitionsCommand", f"{TOOLS}.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"
NODES = 4
VOTERS = (1, 2, 3)
FETCHED_MS_MAX = 60_000  # what a fetch of this minute is not older than


class Shell:
    """Runs tools against the cluster, or one node of it."""

    def __init__(self, oracle: Oracle, cluster: Cluster) -> None:
        self.oracle = oracle
        self.cluster = cluster

    def run(self, tool: str, *arguments: str, node: int | None = None, status: int = 0) -> str:
        """What it printed."""
        bootstrap = self.cluster.bootstrap if node is None else self.cluster.nodes[node].address
        first = [*arguments[:1], "--bootstrap-server", bootstrap, *arguments[1:]] if tool == CLUSTER else []
        given = first or ["--bootstrap-server", bootstrap, *arguments]
        answer = self.oracle.call("Tools.run", tool=tool, arguments=given, given="")
        printed: str = answer["printed"]
        assert answer["status"] == status, printed + self.cluster.said()
        return printed

    def create(self, topic: str, assignment: str, **configs: str) -> None:
        settings = [word for key, value in configs.items() for word in ("--config", f"{key.replace('_', '.')}={value}")]
        self.run(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *settings)

    def partitions(self, topic: str) -> list[tuple[int, list[int], list[int]]]:
        """Leader, replicas and ISR of each partition."""
        described = self.run(TOPICS, "--describe", "--topic", topic)
        found = re.findall(r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", described)
        assert found, described
        return [(int(leader), numbers(replicas), numbers(isr)) for leader, replicas, isr in found]

    def move(self, file: Path, moves: dict[tuple[str, int], list[int]], *arguments: str) -> str:
        """Has kafka-reassign-partitions do something with moves of partitions to replicas, by way of a file."""
        wanted = [{"topic": topic, "partition": index, "replicas": replicas} for (topic, index), replicas in moves.items()]
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        return self.run(REASSIGN, *arguments, "--reassignment-json-file", str(file))


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(
        tmp_path_factory.mktemp("cluster"),
        Layout(NODES),
        auto_leader_rebalance_enable="false",
        group_initial_rebalance_delay_ms="0",
        offsets_topic_num_partitions="4",
    ) as started:
        yield started


@pytest.fixture
def shell(oracle: Oracle, cluster: Cluster) -> Shell:
    return Shell(oracle, cluster)


def test_the_quorum_says_who_leads_votes_and_watches(shell: Shell) -> None:
    status = shell.run(QUORUM, "describe", "--status")
    told = dict(re.findall(r"(\w+):\s+(\S.*)", status))
    leader = int(told["LeaderId"])
    voters = json.loads(told["CurrentVoters"])
    assert leader in VOTERS
    assert [voter["id"] for voter in voters] == [*VOTERS]
    assert all(voter["endpoints"] and voter["directoryId"] for voter in voters)
    assert [each["id"] for each in json.loads(told["CurrentObservers"])] == [4]
    assert int(told["MaxFollowerLag"]) >= 0
    roles = {node: "Leader" if node == leader else "Follower" if node in VOTERS else "Observer" for node in range(1, NODES + 1)}
    replicas = quorum_rows(shell)
    assert {int(row["NodeId"]): row["Status"] for row in replicas} == roles
    for row in replicas:
        assert len(row["DirectoryId"]) == 22
        assert int(row["LogEndOffset"]) > 0
        assert int(row["LastFetchTimestamp"].removesuffix(" ms ago")) < FETCHED_MS_MAX, row
        assert int(row["LastCaughtUpTimestamp"].removesuffix(" ms ago")) < FETCHED_MS_MAX, row


def quorum_rows(shell: Shell) -> list[dict[str, str]]:
    printed = shell.run(QUORUM, "describe", "--replication", "--human-readable").splitlines()
    lines = [[cell.strip() for cell in line.split("\t")] for line in printed if "\t" in line]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def test_a_voter_leaves_the_quorum_and_comes_back(shell: Shell) -> None:
    voter = next(row for row in quorum_rows(shell) if row["Status"] == "Follower")
    number, directory_id = int(voter["NodeId"]), voter["DirectoryId"]
    gone = ["remove-controller", "--controller-id", str(number), "--controller-directory-id", directory_id]
    for node in range(1, NODES + 1):  # also by brokers that do not lead the quorum
        assert "Removed" in shell.run(QUORUM, *gone, node=node)
        assert {int(row["NodeId"]): row["Status"] for row in quorum_rows(shell)}[number] == "Observer"
        properties = shell.cluster.nodes[number].properties
        assert f"Added controller {number}" in shell.run(QUORUM, "--command-config", properties, "add-controller", node=node)
        assert {int(row["NodeId"]): row["Status"] for row in quorum_rows(shell)}[number] == "Follower"


def test_replicas_move_to_another_broker_and_their_old_logs_go(shell: Shell, name: str, tmp_path: Path) -> None:
    shell.create(name, "1:2:3,2:3:1")
    sent = fill(shell.cluster.bootstrap, name, 100)
    topics, file = tmp_path / "topics.json", tmp_path / "moves.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": name}]}))
    generated = shell.run(REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3,4")
    current, proposed = (json.loads(line)["partitions"] for line in generated.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current] == [[1, 2, 3], [2, 3, 1]]
    assert all(set(each["replicas"]) == {2, 3, 4} for each in proposed)
    moves = {(name, 0): [4, 2, 3], (name, 1): [2, 3]}
    assert "Successfully started partition reassignments" in shell.move(file, moves, "--execute")
    until(lambda: shell.move(file, moves, "--verify").count("is completed") == 2, "the moves")
    assert "No partition reassignments found" in shell.run(REASSIGN, "--list")
    assert [replicas for _, replicas, _ in shell.partitions(name)] == [[4, 2, 3], [2, 3]]
    assert shell.partitions(name)[0][0] == 4  # the old leader is none of the replicas any more
    both = {f"{name}-0", f"{name}-1"}
    found = until(lambda: current_logs(shell.cluster, name) == {1: set(), 2: both, 3: both, 4: {f"{name}-0"}}, "the folders")
    assert found
    removed = {path.split(".")[0] for path in shell.cluster.logs(name)[1] if path.endswith("-delete")}
    assert removed == both
    with consuming(shell.cluster.bootstrap, name) as consumer:
        consumer.subscribe([name])
        assert [row.value for row in rows(consumer, 100)] == [row.value for row in sent]


def current_logs(cluster: Cluster, topic: str) -> dict[int, set[str]]:
    return {number: {name for name in names if "." not in name} for number, names in cluster.logs(topic).items()}


def test_a_move_that_cannot_end_is_listed_and_cancelled(shell: Shell, name: str, tmp_path: Path) -> None:
    shell.create(name, "1:2:3")
    shell.cluster.stop(4)
    try:
        reassign(shell.cluster, name, [4, 2, 3])  # the tool itself refuses brokers that are away
        listed = shell.run(REASSIGN, "--list")
        assert re.search(rf"{name}-0: replicas: 4,2,3,1\. adding: 4\. removing: 1\.", listed)
        assert "Adding Replicas: 4\tRemoving Replicas: 1" in shell.run(TOPICS, "--describe", "--topic", name)
        moves = {(name, 0): [4, 2, 3]}
        assert "still in progress" in shell.move(tmp_path / "moves", moves, "--verify", "--preserve-throttles")
        cancelled = shell.move(tmp_path / "moves", moves, "--cancel", "--preserve-throttles")
        assert "Successfully cancelled partition reassignment" in cancelled
        assert "No partition reassignments found" in shell.run(REASSIGN, "--list")
        assert shell.partitions(name) == [(1, [2, 3, 1], [1, 2, 3])]  # in the order of the move, as Kafka leaves them
    finally:
        shell.cluster.heal()


def reassign(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    kind = AlterPartitionReassignmentsRequest
    partition = kind.ReassignablePartition(partition_index=0, replicas=replicas)
    request = kind(topics=[kind.ReassignableTopic(name=topic, partitions=[partition])], timeout_ms=30_000)
    port = int(cluster.nodes[1].address.split(":")[1])
    answer = ask(port, request, 1, AlterPartitionReassignmentsResponse)
    assert not answer.responses[0].partitions[0].error_code


def test_a_broker_that_is_away_is_missed_and_leads_again_when_elected(shell: Shell, name: str) -> None:
    shell.create(name, "4:1:2")
    missed = ["--describe", "--topic", name]
    assert shell.partitions(name) == [(4, [4, 1, 2], [4, 1, 2])]
    shell.cluster.stop(4)
    try:
        assert shell.partitions(name) == [(1, [4, 1, 2], [1, 2])]
        assert f"Topic: {name}\tPartition: 0" in shell.run(TOPICS, *missed, "--under-replicated-partitions")
        assert f"Topic: {name}\tPartition: 0" in shell.run(TOPICS, *missed, "--at-min-isr-partitions")
        assert name not in shell.run(TOPICS, *missed, "--under-min-isr-partitions")
        assert name not in shell.run(TOPICS, *missed, "--unavailable-partitions")
        assert re.search(r"^4 .* fenced ", shell.run(CLUSTER, "list-endpoints", "--include-fenced-brokers"), re.MULTILINE)
        assert not re.search(r"^4 ", shell.run(CLUSTER, "list-endpoints"), re.MULTILINE)
    finally:
        shell.cluster.heal()
    until(lambda: shell.partitions(name)[0][2] == [1, 2, 4], "it is in sync again")
    assert name not in shell.run(TOPICS, *missed, "--under-replicated-partitions")
    until(lambda: "Partition:" not in shell.run(TOPICS, "--describe", "--under-replicated-partitions"), "all are in sync")
    elected = shell.run(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert "Successfully completed leader election (PREFERRED)" in elected
    assert f"{name}-0" in elected
    assert shell.partitions(name)[0][0] == 4


def test_a_broker_that_has_gone_is_unregistered(shell: Shell) -> None:
    shell.cluster.stop(4)
    try:
        assert "Broker 4 is no longer registered." in shell.run(CLUSTER, "unregister", "--id", "4")
        assert not re.search(r"^4 ", shell.run(CLUSTER, "list-endpoints", "--include-fenced-brokers"), re.MULTILINE)
    finally:
        shell.cluster.heal()
    assert re.search(r"^4 .* unfenced ", shell.run(CLUSTER, "list-endpoints"), re.MULTILINE)


def test_every_node_tells_the_same_of_the_cluster(shell: Shell) -> None:
    nodes = range(1, NODES + 1)
    ids = {shell.run(CLUSTER, "cluster-id", node=node) for node in nodes}
    assert len(ids) == 1
    assert re.fullmatch(r"Cluster ID: \S{22}\n", ids.pop())
    for node in nodes:
        features = shell.run(f"{TOOLS}.FeatureCommand", "describe", node=node)
        assert re.search(r"Feature: metadata.version\s+.*FinalizedVersionLevel: 4.3-IV0", features)
        assert re.search(r"Feature: kraft.version\s+.*FinalizedVersionLevel: 1", features)
        listed = shell.run(CLUSTER, "list-endpoints", node=node)
        assert re.findall(r"^(\d+) .* unfenced ", listed, re.MULTILINE) == ["1", "2", "3", "4"]


def test_configurations_are_changed_through_any_node(shell: Shell, name: str) -> None:
    shell.create(name, "1:2:3")

    def has(node: int, setting: str, kind: str, entity: str) -> bool:
        entities = ["--entity-type", kind, "--entity-name", entity]
        return f"{setting} " in shell.run(CONFIGS, "--describe", *entities, node=node)

    for node in range(1, NODES + 1):
        of_topic, setting = ["--entity-type", "topics", "--entity-name", name], f"retention.ms=7{node}"
        shell.run(CONFIGS, "--alter", *of_topic, "--add-config", setting, node=node)
        for other in range(1, NODES + 1):
            until(partial(has, other, setting, "topics", name), f"node {other} knows what node {node} was told")
        of_broker, setting = ["--entity-type", "brokers", "--entity-name", str(node)], "log.cleaner.threads=2"
        shell.run(CONFIGS, "--alter", *of_broker, "--add-config", setting, node=1 + node % NODES)
        until(partial(has, 1 + node % NODES, setting, "brokers", str(node)), f"node {node} is configured")
        shell.run(CONFIGS, "--alter", *of_broker, "--delete-config", "log.cleaner.threads")


def test_groups_are_described_wherever_their_coordinators_are(shell: Shell, name: str) -> None:
    bootstrap = shell.cluster.bootstrap
    shell.create(name, "1:2:3,2:3:4")
    fill(bootstrap, name, 10)
    groups = [f"{name}-{number}" for number in range(4)]
    for group in groups:
        with consuming(bootstrap, group) as consumer:
            consumer.subscribe([name])
            rows(consumer, 4)
            consumer.commit(asynchronous=False)
    coordinators = set()
    for node in range(1, NODES + 1):
        assert set(groups) <= set(shell.run(GROUPS, "--list", node=node).splitlines())
        for group in groups:
            described = shell.run(GROUPS, "--describe", "--group", group, node=node)
            assert re.search(rf"{group}\s+{name}\s+0\s+4\s+10\s+6", described)
            state = shell.run(GROUPS, "--describe", "--group", group, "--state", node=node)
            coordinators.add(re.search(r"127.0.0.1:\d+\s+\((\d)\)", state)[1])  # type: ignore[index]
    assert len(coordinators) > 1
    assert "successful" in shell.run(GROUPS, "--delete", *(word for group in groups for word in ("--group", group)))


def test_offsets_folders_and_deleted_records_of_all_replicas(shell: Shell, name: str, tmp_path: Path) -> None:
    shell.create(name, "1:2:3,4:1:2")
    fill(shell.cluster.bootstrap, name, 10, partition=1)
    for node in range(1, NODES + 1):
        assert shell.run(f"{TOOLS}.GetOffsetShell", "--topic", name, node=node).splitlines() == [f"{name}:0:0", f"{name}:1:10"]
    wanted = tmp_path / "records.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 1, "offset": 6}]}))
    deleted = shell.run(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {name}-1\tlow_watermark: 6" in deleted
    earliest = shell.run(f"{TOOLS}.GetOffsetShell", "--topic", name, "--time", "earliest")
    assert earliest.splitlines() == [f"{name}:0:0", f"{name}:1:6"]
    folders = json.loads(shell.run(LOG_DIRS, "--describe", "--topic-list", name).splitlines()[-1])["brokers"]
    held = {
        broker["broker"]: {each["partition"] for folder in broker["logDirs"] for each in folder["partitions"]}
        for broker in folders
    }
    both = {f"{name}-0", f"{name}-1"}
    assert held == {1: both, 2: both, 3: {f"{name}-0"}, 4: {f"{name}-1"}}


def test_the_replicas_of_a_partition_are_verified(shell: Shell, name: str) -> None:
    shell.create(name, "1:2:3")
    fill(shell.cluster.bootstrap, name, 100)
    wanted = ["--broker-list", shell.cluster.bootstrap, "--topics-include", name, "--report-interval-ms", "100"]
    command = ["java", *HEAP, "-cp", class_path(), f"{TOOLS}.ReplicaVerificationTool", *wanted]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as tool:
        watch = threading.Timer(SECONDS_MAX, tool.kill)  # it never ends by itself
        watch.start()
        try:
            assert tool.stdout is not None
            told = next((line for line in tool.stdout if f"for partition {name}-0 at offset 100" in line), "")
        finally:
            watch.cancel()
            tool.kill()
    assert "max lag is 0" in told

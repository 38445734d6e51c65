"""`odradek cluster decommission`: a node of four, broker and voter, is emptied, votes no more, and is forgotten when it stops."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tests.cli.program import odradek
from tests.clients.confluent import consuming, create, fill, rows
from tests.clients.waiting import SECONDS_MAX, until
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout

LEAVES, OTHER = 3, 4
TOPICS = ("one", "two", "three")
RECORDS = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"group_initial_rebalance_delay_ms": "0", "offsets_topic_num_partitions": "4"}
    with running(tmp_path_factory.mktemp("cluster"), Layout(4, 3), **settings) as started:
        for topic in TOPICS:
            create(started.bootstrap, topic, partitions=4)
            fill(started.bootstrap, topic, RECORDS, partition=0)
        yield started


def replicas(cluster: Cluster) -> dict[tuple[str, int], list[int]]:
    found = {}
    for topic in cluster.topics(1):
        for part in cluster.partitions(1, topic):
            found[topic, part.partition_index] = list(part.replica_nodes)
    return found


def test_a_dry_run_shows_the_moves_and_makes_none(cluster: Cluster) -> None:
    before = replicas(cluster)
    held = {name for name, nodes in before.items() if LEAVES in nodes}
    assert held
    shown = odradek("cluster", "decommission", str(LEAVES), "--bootstrap-server", cluster.bootstrap, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert {line.split(" to ")[0].strip() for line in shown.stdout.splitlines()[1:]} == {f"{name}-{at}" for name, at in held}
    assert replicas(cluster) == before


def test_moves_that_are_under_way_are_taken_back(cluster: Cluster) -> None:
    cluster.stop(OTHER)
    (topic, index), nodes = next(
        (name, nodes) for name, nodes in replicas(cluster).items() if LEAVES in nodes and OTHER not in nodes
    )
    kind = AlterPartitionReassignmentsRequest
    wanted = [OTHER if node == LEAVES else node for node in nodes]
    part = kind.ReassignablePartition(partition_index=index, replicas=wanted)
    request = kind(topics=[kind.ReassignableTopic(name=topic, partitions=[part])], timeout_ms=30_000)
    answer = cluster.ask(1, request, 1, AlterPartitionReassignmentsResponse)
    assert answer is not None
    assert not answer.responses[0].partitions[0].error_code
    taken_back = odradek("cluster", "decommission", str(LEAVES), "--bootstrap-server", cluster.bootstrap, "--cancel")
    assert taken_back.stdout == "1 moves are taken back\n", taken_back.stderr
    until(lambda: sorted(replicas(cluster)[topic, index]) == sorted(nodes), "it is as it was")
    cluster.start(OTHER)
    cluster.heal()


def test_a_node_that_cannot_be_emptied_or_is_none_is_said_so(cluster: Cluster) -> None:
    unknown = odradek("cluster", "decommission", "9", "--bootstrap-server", cluster.bootstrap)
    assert (unknown.returncode, unknown.stderr) == (1, "odradek: node 9 is none of the brokers 1, 2, 3, 4\n")
    nobody = odradek("cluster", "decommission", "9", "--bootstrap-server", "127.0.0.1:1")
    assert nobody.returncode == 1
    assert "odradek: --bootstrap: no broker answers" in nobody.stderr


def test_a_node_is_emptied_votes_no_more_and_is_forgotten_when_it_stops(cluster: Cluster) -> None:
    program = str(Path(sys.executable).with_name("odradek"))
    command = [sys.executable, program, "cluster", "decommission", str(LEAVES), "--bootstrap-server", cluster.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "stop it now" in line:
                assert not any(LEAVES in nodes for nodes in replicas(cluster).values())
                cluster.stop(LEAVES)
        assert process.wait(SECONDS_MAX) == 0, cluster.said()
    assert lines[-1] == "node 3 is no part of the cluster any more\n"
    assert any("votes no more on the metadata, nodes 1, 2 do" in line for line in lines)
    described = cluster.ask(1, DescribeClusterRequest(include_fenced_brokers=True), 2, DescribeClusterResponse)
    assert described is not None
    assert {broker.broker_id for broker in described.brokers} == {1, 2, OTHER}
    counts = [sum(node in nodes for nodes in replicas(cluster).values()) for node in (1, 2, OTHER)]
    assert max(counts) - min(counts) <= 1
    with consuming(cluster.bootstrap, "reader") as consumer:
        consumer.subscribe(list(TOPICS))
        assert len(list(rows(consumer, RECORDS * len(TOPICS)))) == RECORDS * len(TOPICS)


def test_who_is_gone_is_forgotten_once(cluster: Cluster) -> None:
    again = odradek("cluster", "decommission", str(LEAVES), "--bootstrap-server", cluster.bootstrap)
    assert (again.returncode, again.stderr) == (1, "odradek: node 3 is none of the brokers 1, 2, 4\n")

"""The metadata quorum of processes: what was never committed is gone, and voters lose their folders and move to other ports."""

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.ids import id_text
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from tests.cli.program import odradek
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout, free_block

HAND_OVERS_MAX = 10


def described(cluster: Cluster) -> DescribeQuorumResponse | None:
    """By any node, when there is a leader that tells."""
    topic = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    for number in cluster.serving():
        answer = cluster.ask(number, DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
        if answer is not None and answer.topics and not answer.topics[0].partitions[0].error_code:
            return answer
    return None


def voters(cluster: Cluster) -> dict[int, bytes]:
    """Their folders."""
    found = until(lambda: described(cluster), "the quorum is described")
    assert found is not None
    return {voter.replica_id: voter.replica_directory_id for voter in found.topics[0].partitions[0].current_voters}


def create(cluster: Cluster, number: int, name: str) -> int | None:
    """Through one node; the error code, None when there is no answer."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = cluster.ask(number, CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, CreateTopicsResponse)
    return None if answer is None else answer.topics[0].error_code


# -- what was decided and not committed


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("linked"), Layout(has_links=True)) as started:
        yield started


def test_what_a_controller_decided_and_nobody_committed_is_gone_with_its_leadership(linked: Cluster) -> None:
    before = linked.controller()
    others = [number for number in linked.brokers if number != before]
    linked.links.cut([before], others)
    linked.links.cut(others, [before])
    with ThreadPoolExecutor() as pool:
        lost = pool.submit(create, linked, before, "lost")
        until(lambda: create(linked, others[0], "kept") in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), "others decide")
        assert lost.result() not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    linked.links.heal()
    linked.heal()
    for number in linked.brokers:
        until(lambda number=number: "kept" in linked.topics(number), "everybody knows")  # type: ignore[misc]
        assert "lost" not in linked.topics(number)
    for _ in range(HAND_OVERS_MAX):
        if (leader := linked.controller()) == before:
            break
        linked.stop(leader)
        until(lambda leader=leader: linked.controller() != leader, "another leads")  # type: ignore[misc]
        linked.start(leader)
        linked.heal()
    assert create(linked, before, "lost") == ErrorCode.NONE  # whoever decides now never heard of it


# -- voters


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("voters"), controller_quorum_auto_join_enable="true") as started:
        yield started


def test_a_voter_that_lost_its_folder_joins_again_by_itself(cluster: Cluster) -> None:
    before = voters(cluster)
    cluster.kill(3)
    told = cluster.ask(1, DescribeClusterRequest(), 1, DescribeClusterResponse)
    assert told is not None
    for folder in cluster.log_dirs(3):
        properties = Path(cluster.nodes[3].properties).read_bytes()
        shutil.rmtree(folder)
        folder.mkdir()
        Path(cluster.nodes[3].properties).write_bytes(properties)
    done = odradek("storage", "format", "-c", cluster.nodes[3].properties, "-t", told.cluster_id, "--no-initial-controllers")
    assert done.returncode == 0, done.stderr
    cluster.start(3)
    until(lambda: voters(cluster).get(3, before[3]) != before[3], f"it votes, not with {id_text(before[3])}")
    assert voters(cluster).keys() == before.keys()
    cluster.heal()


def test_a_voter_that_moved_is_found_again(cluster: Cluster) -> None:
    port = free_block(1)
    cluster.stop(2)
    path = Path(cluster.nodes[2].properties)
    path.write_text(re.sub(r"(listeners=.*CONTROLLER\\?:\\?/\\?/[0-9.]+\\?:)\d+", rf"\g<1>{port}", path.read_text()))
    cluster.start(2)
    cluster.heal()

    def is_told() -> bool:
        found = described(cluster)
        places = {node.node_id: node.listeners[0].port for node in found.nodes} if found is not None else {}
        return places.get(2) == port

    until(is_told, "the log has its new port")

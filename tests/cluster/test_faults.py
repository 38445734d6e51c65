"""Nodes of a cluster are killed, stopped and paused under clients that write, read and commit: what was promised holds.

`make chaos` does the same at random, for as long as one likes.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.checks import check_replicas, verdict
from tests.cluster.cluster import Cluster, running
from tests.cluster.workload import Workload

SESSION_MS = 600_000  # longer than any test waits: that a process has ended has to be seen, not waited for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), broker_session_timeout_ms=str(SESSION_MS)) as started:
        yield started


def survive(cluster: Cluster, topic: str, fault: Callable[[Workload], None]) -> None:
    """Has clients at work before, during and after the fault; then looks whether all is as they were told."""
    with cluster.explaining(), Workload(cluster.bootstrap, topic) as workload:
        workload.begins()
        fault(workload)
        workload.goes_on()
        cluster.all_in_sync(topic)
        workload.finish()
    found = verdict(workload)
    assert found.is_good, found
    check_replicas(cluster, topic)


def test_nothing_is_lost_when_the_leader_is_killed(cluster: Cluster) -> None:
    def fault(workload: Workload) -> None:
        leader = cluster.leader("leader")
        cluster.kill(leader)
        workload.goes_on()
        cluster.start(leader)

    survive(cluster, "leader", fault)


def test_nothing_is_lost_when_the_controller_is_killed(cluster: Cluster) -> None:
    def fault(workload: Workload) -> None:
        controller = cluster.controller()
        cluster.kill(controller)
        workload.goes_on()
        assert cluster.controller() is not controller
        cluster.start(controller)

    survive(cluster, "controller", fault)


def test_nothing_is_lost_when_all_are_restarted_one_after_the_other(cluster: Cluster) -> None:
    def fault(workload: Workload) -> None:
        for node in cluster.nodes:
            cluster.stop(node)
            workload.goes_on()
            cluster.start(node)
            cluster.all_in_sync("rolling")

    survive(cluster, "rolling", fault)


def test_nothing_is_lost_when_all_are_killed_at_once(cluster: Cluster) -> None:
    def fault(_: Workload) -> None:
        cluster.kill(*cluster.nodes)
        cluster.start(*cluster.nodes)

    survive(cluster, "all", fault)


def test_a_paused_follower_is_waited_for_and_loses_nothing(cluster: Cluster) -> None:
    def fault(workload: Workload) -> None:
        leader = cluster.leader("paused")
        follower = next(node for node in cluster.nodes if node is not leader)
        cluster.pause(follower)
        workload.is_stuck()
        cluster.go_on(follower)

    survive(cluster, "paused", fault)

"""Nodes of a cluster are killed, stopped, paused and cut off under clients that write, read and commit: what was promised holds.

`make chaos` does the same at random, and more, for as long as one likes.
"""

from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from tests.cluster.chaos import LAYOUTS, SETTINGS
from tests.cluster.checks import suffer
from tests.cluster.cluster import Cluster, running
from tests.cluster.faults import FAULTS, LINK_FAULTS, Fault
from tests.cluster.layout import Layout

IMPATIENT = {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500", "replica_lag_time_max_ms": "3000"}
SESSION_MS = "600000"  # longer than any test waits: that a process has ended has to be seen, not waited for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), Layout(), **SETTINGS | {"broker_session_timeout_ms": SESSION_MS}) as started:
        yield started


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its controllers are nodes of their own; whoever is silent is soon given up."""
    with running(tmp_path_factory.mktemp("cluster"), LAYOUTS["apart with links"], **SETTINGS | IMPATIENT) as started:
        yield started


def check(cluster: Cluster, name: str, fault: Fault) -> None:
    found = suffer(cluster, name.replace(",", "").replace(" ", "-"), partial(fault, cluster, Random(0)))
    assert found.acknowledged > 0
    assert not found.wrong


@pytest.mark.parametrize(
    "name",
    [
        "leader killed",
        "controller killed",
        "coordinator killed, started at once",
        "rolling restart",
        "all killed",
        "follower paused shortly",
    ],
)
def test_nothing_acknowledged_is_lost_or_there_twice(cluster: Cluster, name: str) -> None:
    check(cluster, name, FAULTS[name])


@pytest.mark.parametrize(
    "name", ["leader cut off", "follower reaches nobody", "controller reached by nobody", "links slow", "links reset"]
)
def test_nothing_acknowledged_is_lost_or_there_twice_when_links_fail(linked: Cluster, name: str) -> None:
    check(linked, name, LINK_FAULTS[name])


def test_another_node_leads_the_quorum_when_the_controller_is_killed(cluster: Cluster) -> None:
    with cluster.explaining():
        cluster.heal()
        before = cluster.controller()
        cluster.kill(before)
        assert cluster.controller() is not before

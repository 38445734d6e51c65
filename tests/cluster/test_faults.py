"""Nodes of a cluster are killed, stopped and paused under clients that write, read and commit: what was promised holds.

`make chaos` does the same at random, and more, for as long as one likes.
"""

from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from tests.cluster.chaos import SETTINGS
from tests.cluster.checks import suffer
from tests.cluster.cluster import Cluster, running
from tests.cluster.faults import FAULTS
from tests.cluster.layout import Layout

SESSION_MS = "600000"  # longer than any test waits: that a process has ended has to be seen, not waited for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), Layout(), **SETTINGS | {"broker_session_timeout_ms": SESSION_MS}) as started:
        yield started


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
    topic = name.replace(",", "").replace(" ", "-")
    found = suffer(cluster, topic, partial(FAULTS[name], cluster, Random(0)))
    assert found.acknowledged > 0
    assert not found.wrong


def test_another_node_leads_the_quorum_when_the_controller_is_killed(cluster: Cluster) -> None:
    with cluster.explaining():
        cluster.heal()
        before = cluster.controller()
        cluster.kill(before)
        assert cluster.controller() is not before

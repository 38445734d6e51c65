"""What the client is tried on: a cluster of three nodes of ours, and Apache Kafka; and such a cluster whose nodes are killed."""

import re
from collections.abc import Iterator

import pytest

from tests.client.servers import Server, serving
from tests.cluster.cluster import Cluster, running

NAME_CHARACTERS_MAX = 120


@pytest.fixture(scope="module", params=["three", "kafka"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """What the scenarios of a file talk to. SETTINGS in the file are added to its configuration."""
    with serving(request.param, tmp_path_factory.mktemp("server"), **getattr(request.module, "SETTINGS", {})) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), None) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic or a group of this scenario alone."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-")

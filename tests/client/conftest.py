"""What the client is tried on: a node of ours, and Apache Kafka; and a cluster of three nodes."""

import re
from collections.abc import Iterator

import pytest

from tests.clients.server import Node
from tests.cluster.cluster import Cluster, running
from tests.kafka.broker import Broker

NAME_CHARACTERS_MAX = 120


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """What the scenarios of a file talk to. SETTINGS in the file are added to its configuration."""
    kind = Node if request.param == "odradek" else Broker
    made = kind(tmp_path_factory.mktemp("server"), **getattr(request.module, "SETTINGS", {}))
    with made.running():
        yield made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), None) as found:
        yield found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic or a group of this scenario alone."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-")

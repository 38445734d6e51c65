"""What commands are tried on: one node of ours and one Apache Kafka, each for all files that a worker runs."""

import re
from collections.abc import Iterator

import pytest

from tests.clients.server import Node
from tests.kafka.broker import Broker

NAME_CHARACTERS_MAX = 120


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    with broker.running():
        yield broker


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Node(tmp_path_factory.mktemp("node"))
    with started.running():
        yield started


@pytest.fixture(params=["node", "kafka"])
def server(request: pytest.FixtureRequest) -> Broker:
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic or a group of this scenario alone."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-")

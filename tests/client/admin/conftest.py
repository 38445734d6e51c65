"""What the Admin is tried on: one node of ours and one Apache Kafka, each for all files that a worker runs."""

import re
from collections.abc import Iterator

import pytest

from tests.clients.server import Node
from tests.kafka.broker import Broker

NAME_CHARACTERS_MAX = 120
SETTINGS = {"transaction_partition_verification_enable": "false"}  # or nobody could make a transaction that hangs
KAFKA_SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """For what a node does not serve yet. It has two folders, and asks ACLs."""
    folder = tmp_path_factory.mktemp("kafka")
    broker = Broker(folder, log_dirs=f"{folder}/data,{folder}/more", **SETTINGS, **KAFKA_SETTINGS)
    with broker.running():
        yield broker


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Node(tmp_path_factory.mktemp("node"), **SETTINGS)
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

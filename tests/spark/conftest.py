"""What the tests of Spark share: one session for all of them in a process, a cluster of three nodes of ours, and Apache Kafka."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.clients.transactions import SETTINGS
from tests.cluster.cluster import Cluster, running
from tests.kafka.broker import Broker
from tests.spark.session import session

NAME_CHARACTERS_MAX = 120
CLEANING = {"log_cleaner_backoff_ms": "100"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    found = session(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("three"), None, **SETTINGS, **CLEANING) as found:
        yield found


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka"), **SETTINGS)
    with broker.running():
        yield broker


@pytest.fixture(params=["three", "kafka"])
def server(request: pytest.FixtureRequest) -> str:
    """The addresses of each."""
    found: Cluster | Broker = request.getfixturevalue(request.param)
    return found.bootstrap


@pytest.fixture
def bootstrap(three: Cluster) -> str:
    return three.bootstrap


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic, a query or a group of this test alone."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-")


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")

"""One server for each file of scenarios, and a name for each scenario that no other one has."""

import re
from collections.abc import Iterator

import pytest

from tests.clients.server import serving
from tests.clients.transactions import Place, placed
from tests.kafka.broker import Broker

NAME_CHARACTERS_MAX = 120


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """What the clients of a file talk to. SETTINGS in the file are added to its configuration."""
    with serving(tmp_path_factory.mktemp("server"), **getattr(request.module, "SETTINGS", {})) as running:
        yield running


@pytest.fixture(scope="module", params=["one", "three"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """What the transactions of a file happen in: one node, and three of them."""
    with placed(request.param, tmp_path_factory.mktemp("place")) as running:
        yield running


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic or a group of this scenario alone."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:NAME_CHARACTERS_MAX].strip("-")

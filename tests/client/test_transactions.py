"""Transactions of this client, over one node, over three, and over Apache Kafka: the scenarios that all clients have."""

from collections.abc import Iterator

import pytest

from tests.client.transactor import OdradekClient
from tests.clients.transaction_scenarios import TransactionScenarios
from tests.clients.transactions import SETTINGS, Client, One, Place, placed
from tests.kafka.broker import Broker


@pytest.fixture(scope="module", params=["one", "three", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    if request.param != "kafka":
        with placed(request.param, folder) as found:
            yield found
        return
    server = Broker(folder, **SETTINGS)
    with server.running():
        yield One(server)


@pytest.fixture
def client() -> Client:
    return OdradekClient()


class TestOdradek(TransactionScenarios):
    pass

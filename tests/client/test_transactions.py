"""Transactions of this client, over one node, over three, and over Apache Kafka: the scenarios that all clients have."""

from collections.abc import Iterator

import pytest

from tests.client.transactor import OdradekClient
from tests.clients.confluent import create
from tests.clients.transaction_scenarios import TransactionScenarios, values
from tests.clients.transactions import SETTINGS, Client, MustAbort, One, Place, look, placed, settled, transacting
from tests.clients.waiting import until
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
    def test_a_record_of_a_transaction_that_took_too_long_fails_and_the_producer_goes_on(
        self, client: Client, place: Place, name: str
    ) -> None:
        create(place.bootstrap, name)
        with transacting(client, place.bootstrap, name, transaction_timeout_ms=1_000) as slow:
            slow.begin()
            slow.send(name, 0, values("late", 3))
            until(lambda: look(place.bootstrap, name, 1).ends == [4], "the marker of the coordinator")
            with pytest.raises(MustAbort):
                slow.send(name, 0, values("too late", 3))
            slow.abort()
            slow.begin()
            slow.send(name, 0, values("in time", 3))
            slow.commit()
        assert settled(place.bootstrap, name, 1) == [values("in time", 3)]

"""confluent-kafka (librdkafka) with transactions, over one node and over three."""

import pytest

from tests.clients.confluent_transactor import ConfluentClient
from tests.clients.transaction_scenarios import TransactionScenarios
from tests.clients.transactions import Client


@pytest.fixture
def client() -> Client:
    return ConfluentClient()


class TestConfluent(TransactionScenarios):
    pass

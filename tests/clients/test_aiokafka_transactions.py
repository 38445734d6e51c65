"""aiokafka with transactions of the first version, over one node and over three."""

import pytest

from tests.clients.aiokafka_transactor import AiokafkaClient
from tests.clients.transaction_scenarios import TransactionScenarios
from tests.clients.transactions import Client


@pytest.fixture
def client() -> Client:
    return AiokafkaClient()


class TestAiokafka(TransactionScenarios):
    pass

"""Kafka's own Java clients with transactions, over one node and over three, in both versions of the protocol."""

from pathlib import Path

import pytest

from odradek.wire.batch import headers
from tests.clients.confluent import create
from tests.clients.java_transactor import JavaClient
from tests.clients.server import serving
from tests.clients.transaction_scenarios import TransactionScenarios, values
from tests.clients.transactions import Client, settled, transacting
from tests.clients.waiting import until
from tests.kafka.oracle import Oracle

FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = 4


@pytest.fixture
def client(oracle: Oracle) -> Client:
    return JavaClient(oracle)


class TestJava(TransactionScenarios):
    pass


@pytest.mark.parametrize(("level", "epochs"), [(1, [0]), (2, [0, 1, 2, 3])])
def test_the_epoch_grows_with_each_transaction_in_the_second_version_only(
    oracle: Oracle, client: Client, tmp_path: Path, name: str, level: int, epochs: list[int]
) -> None:
    with serving(tmp_path / "server") as server:
        if level == 1:
            at = ["--bootstrap-server", server.bootstrap]
            lowered = [*at, "downgrade", "--feature", f"transaction.version={level}"]
            assert oracle.call("Tools.run", tool=FEATURES, arguments=lowered, given="")["status"] == 0
            described = {"tool": FEATURES, "arguments": [*at, "describe"], "given": ""}
            until(lambda: is_at(level, oracle.call("Tools.run", **described)["printed"]), "the lower level")
        create(server.bootstrap, name)
        with transacting(client, server.bootstrap, name) as transactor:
            for number in range(TRANSACTIONS):
                transactor.begin()
                transactor.send(name, 0, values(str(number), 2))
                transactor.commit()
        assert settled(server.bootstrap, name, 1) == [[each for number in range(TRANSACTIONS) for each in values(str(number), 2)]]
        data = (server.data / f"{name}-0" / f"{0:020}.log").read_bytes()
    assert list(dict.fromkeys(epochs_of(data))) == epochs


def is_at(level: int, described: str) -> bool:
    (line,) = [line for line in described.splitlines() if "Feature: transaction.version" in line]
    return f"FinalizedVersionLevel: {level}" in line


def epochs_of(data: bytes) -> list[int]:
    """The producer's, of each batch that is no marker."""
    return [header.producer_epoch for _, header in headers(data) if not header.is_control]

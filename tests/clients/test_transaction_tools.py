"""kafka-transactions: what somebody sees of transactions who administers a cluster, and how a hanging one is ended."""

import re

import pytest

from odradek.wire.messages import ProduceRequest, ProduceResponse
from odradek.wire.records import Record, build
from tests.clients.confluent import create
from tests.clients.confluent_transactor import ConfluentClient
from tests.clients.transactions import Fenced, look, settled, transacting
from tests.clients.waiting import until
from tests.kafka.asking import ask
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
SETTINGS = {"transaction_partition_verification_enable": "false"}  # or nobody could make a transaction that hangs
UNKNOWN_PRODUCER = 4711
LONG_AGO_MS = 1_600_000_000_000
TIMEOUT_MS = 54_321
NONE = "None"


def run(oracle: Oracle, server: Broker, *arguments: str, status: int = 0) -> str:
    """What the tool printed."""
    given = ["--bootstrap-server", server.bootstrap, *arguments]
    answer = oracle.call("Tools.run", tool=TRANSACTIONS, arguments=given, given="")
    printed: str = answer["printed"]
    assert answer["status"] == status, printed
    return printed


def table(oracle: Oracle, server: Broker, *arguments: str) -> list[dict[str, str]]:
    """What it printed, by the names of its columns."""
    lines = [re.split(r"\s*\t", line.strip()) for line in run(oracle, server, *arguments).splitlines() if "\t" in line]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def test_transactions_are_listed_in_their_states(oracle: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)

    def state(*filters: str) -> list[tuple[str, str]]:
        rows = table(oracle, server, "list", *filters)
        return [(row["Coordinator"], row["TransactionState"]) for row in rows if row["TransactionalId"] == name]

    with transacting(ConfluentClient(), server.bootstrap, name) as transactor:
        assert state() == [("1", "Empty")]
        for end, ended in ((transactor.commit, "CompleteCommit"), (transactor.abort, "CompleteAbort")):
            transactor.begin()
            transactor.send(name, 0, ["a"])
            assert state() == [("1", "Ongoing")]
            assert state("--duration-filter", "0") == [("1", "Ongoing")]
            assert state("--duration-filter", "3600000") == []
            end()
            until(lambda ended=ended: state() == [("1", ended)], ended)  # type: ignore[misc]


def test_a_transaction_is_described(oracle: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    with transacting(ConfluentClient(), server.bootstrap, name, transaction_timeout_ms=TIMEOUT_MS) as transactor:
        transactor.begin()
        for index in range(2):
            transactor.send(name, index, ["a", "b"])
        (row,) = table(oracle, server, "describe", "--transactional-id", name)
        assert (row["CoordinatorId"], row["TransactionalId"], row["TransactionState"]) == ("1", name, "Ongoing")
        assert row["TransactionTimeoutMs"] == str(TIMEOUT_MS)
        assert 0 <= int(row["TransactionDurationMs"]) < TIMEOUT_MS
        assert sorted(row["TopicPartitions"].split(",")) == [f"{name}-0", f"{name}-1"]
        (listed,) = [each for each in table(oracle, server, "list") if each["TransactionalId"] == name]
        assert listed["ProducerId"] == row["ProducerId"]
        (producer,) = table(oracle, server, "describe-producers", "--topic", name, "--partition", "1")
        assert (producer["ProducerId"], producer["ProducerEpoch"]) == (row["ProducerId"], row["ProducerEpoch"])
        assert (producer["LastSequence"], producer["CurrentTransactionStartOffset"]) == ("1", "0")
        transactor.commit()
        settled(server.bootstrap, name, 2)
        (producer,) = table(oracle, server, "describe-producers", "--topic", name, "--partition", "1")
        assert producer["CurrentTransactionStartOffset"] == NONE
        started_ms = row["CurrentTransactionStartTimeMs"]

        def is_complete() -> bool:
            nonlocal row
            (row,) = table(oracle, server, "describe", "--transactional-id", name)
            return row["TransactionState"] == "CompleteCommit"

        until(is_complete, "the end of the transaction")
        assert (row["CurrentTransactionStartTimeMs"], row.get("TopicPartitions", "")) == (started_ms, "")


def test_an_unknown_transactional_id_is_refused(oracle: Oracle, server: Broker, name: str) -> None:
    printed = run(oracle, server, "describe", "--transactional-id", name, status=1)
    assert f"transactional-id `{name}`" in printed
    assert "could not be found" in printed


def hang(server: Broker, topic: str) -> None:
    """A transaction that no coordinator knows, of long ago."""
    records = [Record(number, LONG_AGO_MS, None, b"hanging") for number in range(3)]
    batch = build(records, producer_id=UNKNOWN_PRODUCER, producer_epoch=3, base_sequence=0, transactional=True)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=10_000, topic_data=[wanted])
    answer = ask(server.port, request, 11, ProduceResponse).responses[0].partition_responses[0]
    assert not answer.error_code, answer


def test_a_hanging_transaction_is_found_and_aborted(oracle: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    with transacting(ConfluentClient(), server.bootstrap, name) as transactor:
        transactor.begin()
        transactor.send(name, 0, ["before"])
        transactor.commit()
    settled(server.bootstrap, name, 1)
    at = ["--topic", name, "--partition", "0"]
    assert table(oracle, server, "find-hanging", *at) == []
    hang(server, name)
    for scope in (at, ["--topic", name], ["--broker-id", "1"]):
        (found,) = table(oracle, server, "find-hanging", *scope)
        assert (found["Topic"], found["Partition"], found["StartOffset"]) == (name, "0", "2")
        assert (found["ProducerId"], found["ProducerEpoch"], found["CoordinatorEpoch"]) == (str(UNKNOWN_PRODUCER), "3", "-1")
        assert found["LastTimestamp"] == str(LONG_AGO_MS)
    assert look(server.bootstrap, name, 1).ends == [2]
    assert "Could not find any open transactions" in run(oracle, server, "abort", *at, "--start-offset", "1", status=1)
    run(oracle, server, "abort", *at, "--start-offset", "2")
    assert settled(server.bootstrap, name, 1) == [["before"]]
    assert look(server.bootstrap, name, 1).ends == [6]
    assert table(oracle, server, "find-hanging", *at) == []


def test_transactions_are_listed_by_a_pattern(oracle: Oracle, server: Broker, name: str) -> None:
    ids = [f"{name}-{number}" for number in (1, 2, 33)]
    for each in ids:
        with transacting(ConfluentClient(), server.bootstrap, each):
            pass

    def listed(pattern: str) -> list[str]:
        return sorted(row["TransactionalId"] for row in table(oracle, server, "list", "--transactional-id-pattern", pattern))

    assert listed(f"{name}-[0-9]") == ids[:2]
    assert listed(f"{name}-.*") == ids
    assert listed(name) == []  # it has to match the whole id
    assert "Failed to list transactions" in run(oracle, server, "list", "--transactional-id-pattern", "(", status=1)


def test_a_transaction_is_terminated_by_force(oracle: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    with transacting(ConfluentClient(), server.bootstrap, name) as transactor:
        transactor.begin()
        transactor.send(name, 0, ["a"])
        run(oracle, server, "forceTerminateTransaction", "--transactionalId", name)
        assert settled(server.bootstrap, name, 1) == [[]]
        with pytest.raises(Fenced):
            transactor.commit()
    (row,) = table(oracle, server, "describe", "--transactional-id", name)
    assert row["TransactionState"] == "Empty"  # as if somebody had taken the id

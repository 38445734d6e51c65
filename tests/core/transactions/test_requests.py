"""What producers are answered: the right one, the one that asks again, and the zombie."""

import pytest

from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.transaction import EPOCH_MAX, State, Transaction
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionLogValue,
)
from tests.core.transactions.host import BROKER, CLIENT, NAME, TIMEOUT_MS, V1, V2, Host

A, B = ("a", 0), ("b", 3)
NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
FENCED, UNKNOWN = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING


def ongoing() -> tuple[Host, tuple[int, int]]:
    host = Host()
    producer = host.begun()
    assert host.add(producer, A) == [NONE]
    return host, producer


def complete(*, commit: bool = True, version: int = V2) -> tuple[Host, tuple[int, int]]:
    host, producer = ongoing()
    assert host.end(producer, commit=commit, version=version)[0] is NONE
    host.write_markers()
    return host, producer


# -- InitProducerId


def test_each_new_producer_gets_the_next_epoch() -> None:
    host = Host()
    assert [host.init() for _ in range(3)] == [(NONE, 1001, epoch) for epoch in range(3)]


def test_a_producer_that_goes_on_gets_the_next_epoch_and_the_same_again_when_it_asks_again() -> None:
    host = Host()
    producer = host.begun()
    assert host.init(*producer) == (NONE, 1001, 1)
    assert host.init(*producer) == (NONE, 1001, 1)
    assert host.init(1001, 1) == (NONE, 1001, 2)
    assert host.init(*producer)[0] is FENCED


def test_a_producer_that_was_replaced_is_fenced_when_it_wants_to_go_on() -> None:
    host = Host()
    producer = host.begun()
    host.begun()
    assert host.init(*producer)[0] is FENCED
    assert host.init(*producer, version=3)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert host.init(77, 0)[0] is FENCED


def test_an_open_transaction_is_aborted_before_a_new_producer_may_begin() -> None:
    host, producer = ongoing()
    assert host.init()[0] is CONCURRENT
    assert host.is_in(State.PREPARE_ABORT)
    assert host.init()[0] is CONCURRENT
    assert host.end(producer)[0] is ErrorCode.INVALID_TXN_STATE
    host.write_markers()
    assert host.init() == (NONE, 1001, 2)
    assert host.add(producer, A) == [FENCED]


@pytest.mark.parametrize("is_its_own", [True, False])
def test_who_goes_on_from_an_epoch_that_is_over_leaves_the_open_transaction_alone(is_its_own: bool) -> None:
    host = Host()
    producer = host.begun()
    current = host.init(*producer)[1:] if is_its_own else host.begun()
    assert host.add(current, A) == [NONE]
    assert host.init(*producer)[0] is FENCED
    assert host.init(*producer, version=3)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert host.end(current)[0] is NONE


def test_who_goes_on_from_the_current_epoch_has_its_open_transaction_aborted() -> None:
    host, producer = ongoing()
    assert host.init(*producer)[0] is CONCURRENT
    host.write_markers()
    assert host.init(*producer) == (NONE, 1001, 1)


def test_a_producer_whose_transaction_timed_out_may_go_on_in_version_2() -> None:
    host, producer = ongoing()
    host.pass_time(2 * TIMEOUT_MS)
    host.write_markers()
    assert host.add(producer, A) == [FENCED]
    assert host.init(*producer) == (NONE, 1001, 1)


def test_a_producer_whose_transaction_timed_out_is_fenced_in_version_1() -> None:
    host = Host(TransactionConfig(version=0))
    producer = host.begun()
    host.add(producer, A, version=CLIENT)
    host.pass_time(2 * TIMEOUT_MS)
    host.write_markers()
    assert host.init(*producer)[0] is FENCED


def test_a_new_producer_gets_a_new_id_when_the_epochs_are_used_up() -> None:
    host = Host()
    host.begun()
    host.coordinator.entries[NAME].transaction = host.transaction.initialized(1001, EPOCH_MAX - 1, TIMEOUT_MS, 0)
    assert host.init(1001, EPOCH_MAX - 1) == (NONE, 1002, 0)
    assert host.init(1001, EPOCH_MAX - 1) == (NONE, 1002, 0), "asked again, because the answer was lost"


def test_without_a_producer_id_nobody_begins() -> None:
    host = Host()
    host.no_ids = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert host.init()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    host.no_ids = None
    assert host.init()[0] is NONE


def test_two_who_begin_at_once_get_different_epochs() -> None:
    host = Host(is_replicated=True)
    first = host.send_init()
    assert host.init()[0] is CONCURRENT
    host.commit()
    assert host.answers[first].producer_epoch == 0  # type: ignore[attr-defined]
    second = host.send_init()
    host.commit()
    assert host.answers[second].producer_epoch == 1  # type: ignore[attr-defined]


def timed_out(host: Host, producer_id: int = -1, epoch: int = -1) -> None:
    """One asks to begin, and is told that it took too long; then it is committed all the same."""
    ticket = host.send_init(producer_id, epoch)
    host.pass_time(host.config.request_timeout_ms)
    assert host.answers[ticket].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[attr-defined]
    host.commit()


def test_who_asks_again_after_a_commit_that_took_too_long_is_not_fenced() -> None:
    host = Host()
    producer = host.begun()
    host.is_replicated = True
    timed_out(host, *producer)
    host.is_replicated = False
    assert host.init(*producer) == (NONE, 1001, 1)


def test_a_zombie_stays_fenced_when_the_commit_of_its_successor_took_too_long() -> None:
    host = Host()
    producer = host.begun()
    assert host.init(*producer) == (NONE, 1001, 1)
    host.is_replicated = True
    timed_out(host)
    host.is_replicated = False
    assert host.init(*producer)[0] is FENCED


# -- partitions


def test_partitions_add_up_and_one_that_is_in_is_not_written_again() -> None:
    host, producer = ongoing()
    written = len(host.log)
    assert host.add(producer, A) == [NONE]
    assert len(host.log) == written
    assert host.add(producer, B, A) == [NONE, NONE]
    assert host.transaction.partitions == frozenset({A, B})


def test_what_is_verified_is_in_the_transaction_or_the_transaction_must_be_aborted() -> None:
    host, producer = ongoing()
    written = len(host.log)
    assert host.add(producer, A, B, verify=True) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert len(host.log) == written


@pytest.mark.parametrize("verify", [False, True])
def test_partitions_of_somebody_else_are_refused(verify: bool) -> None:
    host, (producer_id, epoch) = ongoing()
    assert host.add((producer_id, epoch + 1), A, verify=verify) == [FENCED]
    assert host.add((producer_id + 1, epoch), A, verify=verify) == [UNKNOWN]
    assert host.added(host.send_add((producer_id, epoch - 1), A, version=1)) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize(("name", "error"), [("", ErrorCode.INVALID_REQUEST), ("unknown", UNKNOWN)])
def test_a_transactional_id_that_nobody_has_is_refused(name: str, error: ErrorCode) -> None:
    host = Host()
    kind = AddPartitionsToTxnRequest
    topics = [kind.AddPartitionsToTxnTopic(name="a", partitions=[0])]
    asked = kind(transactions=[kind.AddPartitionsToTxnTransaction(transactional_id=name, topics=topics)])
    assert host.added(host.send_as_it_is(asked, BROKER)) == [error]
    ended = host.call(EndTxnRequest(transactional_id=name), V2)
    assert ended.error_code == error  # type: ignore[attr-defined]


# -- the end


@pytest.mark.parametrize("version", [V1, V2])
def test_an_end_that_is_repeated_is_answered_as_before(version: int) -> None:
    host, producer = ongoing()
    first = host.end(producer, version=version)
    assert host.end(producer, version=version)[0] is CONCURRENT, "until the markers are written"
    host.write_markers()
    assert host.end(producer, version=version) == first
    assert host.end(producer, commit=False, version=version)[0] is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [V1, V2])
def test_a_decision_cannot_be_changed(version: int) -> None:
    host, producer = ongoing()
    host.end(producer, commit=False, version=version)
    assert host.end(producer, version=version)[0] is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [V1, V2])
def test_the_end_of_somebody_else_is_refused(version: int) -> None:
    host, (producer_id, epoch) = ongoing()
    assert host.end((producer_id + 1, epoch), version=version)[0] is UNKNOWN
    assert host.end((producer_id, epoch + 1), version=version)[0] is FENCED
    assert host.is_in(State.ONGOING)


def test_an_end_of_version_2_that_comes_late_does_not_end_the_next_transaction() -> None:
    host, producer = complete()
    following = (producer[0], producer[1] + 1)
    assert host.add(following, B) == [NONE]
    assert host.end(producer)[0] is FENCED
    assert host.end(producer, commit=False)[0] is FENCED
    assert host.is_in(State.ONGOING)


def test_nothing_can_be_aborted_in_version_2_and_bumps_the_epoch_and_nothing_committed_is_an_error() -> None:
    host = Host()
    producer = host.begun()
    assert host.end(producer)[0] is ErrorCode.INVALID_TXN_STATE
    assert host.end(producer, commit=False) == (NONE, (1001, 1))
    assert host.is_in(State.COMPLETE_ABORT)
    assert host.end((1001, 1), commit=False) == (NONE, (1001, 2))
    assert host.end((1001, 2))[0] is ErrorCode.INVALID_TXN_STATE


def test_nothing_can_be_ended_in_version_1() -> None:
    host = Host()
    producer = host.begun()
    assert host.end(producer, commit=False, version=V1)[0] is ErrorCode.INVALID_TXN_STATE
    assert host.end(producer, version=1)[0] is ErrorCode.INVALID_TXN_STATE
    assert host.end((1001, 9), version=1)[0] is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_the_partition_refuses_changes_nothing() -> None:
    host, producer = ongoing()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert host.end(producer)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.add(producer, B) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    host.refusing = None
    assert host.transaction.partitions == frozenset({A})
    assert host.end(producer)[0] is NONE


# -- what administrators are told


def test_transactions_are_described_and_listed() -> None:
    host, producer = ongoing()
    host.pass_time(5_000)
    described = host.call(DescribeTransactionsRequest(transactional_ids=[NAME, "unknown", ""]), 0)
    assert isinstance(described, DescribeTransactionsResponse)
    found, unknown, nameless = described.transaction_states
    assert (found.transaction_state, found.producer_id, found.producer_epoch) == ("Ongoing", *producer)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", [0])]
    assert found.transaction_timeout_ms == TIMEOUT_MS
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nameless.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("request_", "is_found"),
    [
        (ListTransactionsRequest(), True),
        (ListTransactionsRequest(state_filters=["Ongoing", "Empty"]), True),
        (ListTransactionsRequest(state_filters=["Empty"]), False),
        (ListTransactionsRequest(producer_id_filters=[1001]), True),
        (ListTransactionsRequest(producer_id_filters=[1]), False),
        (ListTransactionsRequest(duration_filter=4_000), True),
        (ListTransactionsRequest(duration_filter=6_000), False),
    ],
)
def test_transactions_are_listed_by_state_producer_and_age(request_: ListTransactionsRequest, is_found: bool) -> None:
    host, _ = ongoing()
    host.pass_time(5_000)
    listed = host.call(request_, 2)
    assert isinstance(listed, ListTransactionsResponse)
    names = [(each.transactional_id, each.transaction_state) for each in listed.transaction_states]
    assert names == ([(NAME, "Ongoing")] if is_found else [])


def test_records_read_back_as_they_were_written() -> None:
    host, _ = complete()
    for record in host.log:
        assert isinstance(record.value, TransactionLogValue)
        assert Transaction.of(record.value).value(1) == record.value
    old = host.transaction.value(0)
    assert Transaction.of(TransactionLogValue.decode(old.to_bytes(0), 0)).epoch == host.transaction.epoch

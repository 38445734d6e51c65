"""Structural checks of transactions find what they look for, and nothing that may be."""

import pytest

from odradek.core.transactions.transaction import State, Transaction
from odradek.log.names import FileKind
from odradek.wire.batch import read_header
from odradek.wire.control import end_marker
from tests.sim.machine import BEGIN_MS
from tests.sim.steady import steady_cluster
from tests.sim.structural.findings import Violated
from tests.sim.structural.logs import Batch
from tests.sim.structural.transactions import History, TransactionChecks, has_marker, newest_leaders

PRODUCER_ID, EPOCH = 7, 5


def marker(offset: int, *, commit: bool = True, coordinator_epoch: int = 1) -> Batch:
    data = end_marker(
        commit=commit,
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        coordinator_epoch=coordinator_epoch,
        timestamp=0,
        base_offset=offset,
    )
    return Batch(read_header(data), bytes(data))


def told(checks: TransactionChecks, state: State, version: int) -> None:
    """What the coordinator has written."""
    transaction = Transaction(producer_id=PRODUCER_ID, epoch=EPOCH, timeout_ms=1, state=state, version=version)
    checks._changed("id", None, transaction)


def ended(checks: TransactionChecks, *markers: Batch, start: int = 0) -> None:
    history = History(start=start)
    for each in markers:
        checks._ended("t-0", history, each)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_an_end_of_version_2_that_comes_twice_is_found(is_told_first: bool) -> None:
    checks = TransactionChecks()
    if is_told_first:
        told(checks, State.PREPARE_COMMIT, version=2)
    ended(checks, marker(0), marker(1))
    if not is_told_first:
        checks._check_repeated()
        told(checks, State.PREPARE_COMMIT, version=2)
    with pytest.raises(Violated, match="epoch 5, again at 1"):
        checks._check_repeated()


def test_before_it_one_epoch_ends_many_transactions_whatever_the_life_before_had() -> None:
    checks = TransactionChecks()
    told(checks, State.EMPTY, version=2)
    ended(checks, marker(0), marker(1, commit=False))
    checks._check_repeated()
    told(checks, State.PREPARE_ABORT, version=0)
    checks._check_repeated()


def test_another_coordinator_may_write_an_end_again() -> None:
    checks = TransactionChecks()
    told(checks, State.PREPARE_COMMIT, version=2)
    ended(checks, marker(0), marker(1, coordinator_epoch=2))
    checks._check_repeated()


def test_a_replica_that_begins_behind_an_end_may_have_it_written_again() -> None:
    checks = TransactionChecks()
    told(checks, State.PREPARE_COMMIT, version=2)
    ended(checks, marker(3), marker(9), start=4)
    checks._check_repeated()
    ended(checks, marker(13), marker(19), start=13)
    with pytest.raises(Violated, match="again at 19"):
        checks._check_repeated()


def test_an_end_that_rot_in_any_segment_may_hide_is_not_missed() -> None:
    replica = newest_leaders(steady_cluster())["t", 0]
    closed = replica.log.segments[0]
    replica.log.roll(BEGIN_MS)
    replica.log.append_as_follower(marker(replica.log.end_offset).data, now_ms=BEGIN_MS)
    assert len(replica.log.segments) == 2
    assert has_marker(replica, (PRODUCER_ID, EPOCH))
    assert not has_marker(replica, (PRODUCER_ID, EPOCH + 1))
    replica.medium.node(closed.path(FileKind.LOG)).is_rotten = True
    assert has_marker(replica, (PRODUCER_ID, EPOCH + 1))


def test_a_log_that_is_stable_past_an_open_transaction_is_found_unless_rot_may_hide_the_end() -> None:
    cluster = steady_cluster()
    replica = newest_leaders(cluster)["t", 0]
    committed = replica.log.high_watermark
    history = History(next_offset=committed, open={PRODUCER_ID: committed - 2})
    checks = TransactionChecks()
    checks.histories[replica.key] = history
    with pytest.raises(Violated, match=f"is stable up to {committed} on .*, and open from {committed - 2} on"):
        checks.check(cluster)
    history.next_offset = committed - 1
    checks.check(cluster)

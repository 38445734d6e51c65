"""A transaction from its first partition to its last marker, and what its coordinator does when time passes, or it moves."""

import pytest

from odradek.core.coordinator.events import Now
from odradek.core.transactions.config import TransactionConfig
from odradek.core.transactions.coordinator import COMPLETION_RETRY_MS, HELD_MS_MAX
from odradek.core.transactions.events import ConfigChanged, Markers, MarkersWritten
from odradek.core.transactions.transaction import EPOCH_MAX, State
from odradek.wire.errors import ErrorCode
from tests.core.transactions.host import BROKER, CLIENT, NAME, TIMEOUT_MS, V1, V2, Host

A, B = ("a", 0), ("b", 3)
NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
CLEANUP_MS = 10_000


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_version_2_ends_in_the_next_epoch(commit: bool) -> None:
    host = Host()
    producer = host.begun()
    assert producer == (1001, 0)
    assert host.add(producer, A, B) == [NONE, NONE]
    assert host.end(producer, commit=commit) == (NONE, (1001, 1))
    assert host.is_in(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    assert host.markers == [Markers(NAME, 1001, 1, commit, 2, frozenset({A, B}))]
    host.write_markers()
    assert host.is_in(State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert host.transaction.partitions == frozenset()


def test_a_transaction_of_version_1_ends_in_its_epoch() -> None:
    host = Host()
    producer = host.begun()
    assert host.add(producer, A, version=CLIENT) == [NONE]
    error, _ = host.end(producer, version=V1)
    assert error is NONE
    assert host.markers == [Markers(NAME, *producer, True, 0, frozenset({A}))]
    host.write_markers()
    assert (host.state, host.transaction.epoch) == (State.COMPLETE_COMMIT, 0)


def test_it_is_complete_when_all_partitions_have_their_marker() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A, B)
    host.end(producer)
    (markers,) = host.markers
    host.write_markers(A)
    assert host.is_in(State.PREPARE_COMMIT)
    host.step(MarkersWritten(markers, frozenset({A})))  # once more
    assert host.is_in(State.PREPARE_COMMIT)
    host.step(MarkersWritten(markers, frozenset({B})))
    assert host.is_in(State.COMPLETE_COMMIT)


def test_markers_of_another_epoch_complete_nothing() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    host.end(producer)
    host.step(MarkersWritten(Markers(NAME, producer[0], 0, True, 2, frozenset({A})), frozenset({A})))
    assert host.is_in(State.PREPARE_COMMIT)


def test_nothing_follows_from_what_is_not_committed() -> None:
    host = Host(is_replicated=True)
    first = host.send_init()
    assert first not in host.answers
    assert host.init()[0] is CONCURRENT
    host.commit()
    producer = (1001, 0)
    adding = host.send_add(producer, A)
    host.commit()
    assert host.added(adding) == [NONE]
    ending = host.send_end(producer)
    assert ending not in host.answers
    assert not host.markers
    assert host.end(producer)[0] is CONCURRENT
    host.commit()
    assert ending in host.answers
    assert len(host.markers) == 1


def test_a_decision_whose_answer_was_given_up_is_carried_out_when_it_is_committed_after_all() -> None:
    host = Host(is_replicated=True)
    host.send_init()
    host.commit()
    host.send_add((1001, 0), A)
    host.commit()
    ending = host.send_end((1001, 0))
    host.pass_time(host.config.request_timeout_ms + 1)
    assert host.answers[ending].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[attr-defined]
    assert not host.markers
    host.commit()
    assert len(host.markers) == 1


def test_whoever_takes_over_sends_the_markers_again() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A, B)
    host.end(producer, commit=False)
    host.markers.clear()
    host.fail_over()
    assert host.markers == [Markers(NAME, 1001, 1, False, 2, frozenset({A, B}))]
    host.write_markers()
    assert host.is_in(State.COMPLETE_ABORT)
    host.fail_over()
    assert not host.markers


def test_the_end_of_a_transaction_in_the_log_of_a_coordinator_is_nothing_to_it() -> None:
    """A client may have had it written there."""
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    host.coordinator.replay_end_of_transaction(7, 1001, is_commit=True)
    assert host.is_in(State.ONGOING)


def test_whoever_takes_over_gives_the_epoch_of_a_new_producer_to_nobody_else() -> None:
    """The one before asks for it with the epoch of an end whose answer was lost."""
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    assert host.end(producer)[0] is NONE
    host.write_markers()
    successor = host.begun()
    host.fail_over()
    assert host.init(*producer)[0] is ErrorCode.PRODUCER_FENCED
    assert host.add(successor, A) == [NONE]


def test_whoever_takes_over_sends_markers_for_what_is_committed_only() -> None:
    host = Host(is_replicated=True)
    host.send_init()
    host.commit()
    host.send_add((1001, 0), A)
    host.commit()
    host.send_end((1001, 0))
    host.fail_over()
    assert not host.markers
    host.commit()
    assert len(host.markers) == 1


def test_what_could_not_be_written_at_the_end_is_tried_again() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    host.end(producer)
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    host.write_markers()
    host.pass_time(3 * COMPLETION_RETRY_MS)
    assert host.is_in(State.PREPARE_COMMIT)
    host.refusing = None
    host.pass_time(COMPLETION_RETRY_MS)
    assert host.is_in(State.COMPLETE_COMMIT)


@pytest.mark.parametrize(("version", "bumped"), [(2, 2), (0, 0)])
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(version: int, bumped: int) -> None:
    host = Host(TransactionConfig(version=version))
    producer = host.begun()
    host.add(producer, A, version=BROKER if version else CLIENT)
    host.pass_time(TIMEOUT_MS - CLEANUP_MS)
    assert host.is_in(State.ONGOING)
    host.pass_time(3 * CLEANUP_MS)
    assert host.markers == [Markers(NAME, 1001, 1, False, bumped, frozenset({A}))]
    assert host.end(producer, version=V2 if version else V1)[0] in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    host.write_markers()
    assert host.is_in(State.COMPLETE_ABORT)


@pytest.mark.parametrize("is_moved", [True, False])
def test_also_when_the_wall_clock_was_set_back(is_moved: bool) -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    host.now = Now(host.now.monotonic_ms, host.now.wall_ms - 9 * 3_600_000)
    if is_moved:
        host.fail_over()
    host.pass_time(TIMEOUT_MS - CLEANUP_MS)
    assert host.is_in(State.ONGOING)
    host.pass_time(3 * CLEANUP_MS)
    assert host.is_in(State.PREPARE_ABORT)


def test_a_wall_clock_that_is_set_forth_takes_no_time_from_a_transaction_that_was_seen() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    host.pass_time(2 * CLEANUP_MS)
    host.now = Now(host.now.monotonic_ms, host.now.wall_ms + 9 * 3_600_000)
    host.pass_time(TIMEOUT_MS - 4 * CLEANUP_MS)
    assert host.is_in(State.ONGOING)
    host.pass_time(4 * CLEANUP_MS)
    assert host.is_in(State.PREPARE_ABORT)


def test_the_next_transaction_has_the_whole_time_again() -> None:
    host = Host()
    producer = host.begun()
    for _ in range(3):
        assert host.add(producer, A) == [NONE]
        host.pass_time(TIMEOUT_MS - CLEANUP_MS)
        error, producer = host.end(producer)
        assert error is NONE
        host.write_markers()


def test_a_transactional_id_that_nobody_uses_is_forgotten_when_it_is_at_rest() -> None:
    expiration_ms = 24 * 3_600_000
    host = Host(TransactionConfig(transactional_id_expiration_ms=expiration_ms, transaction_max_timeout_ms=2**31 - 1))
    producer = host.begun()
    host.add(producer, A)
    host.end(producer)
    host.pass_time(2 * expiration_ms)
    assert NAME in host.coordinator.entries
    host.write_markers()
    host.pass_time(2 * expiration_ms)
    assert NAME not in host.coordinator.entries
    assert NAME not in host.loaded_again().entries
    assert host.begun() == (1002, 0)


def test_an_epoch_that_is_used_up_gives_way_to_a_new_producer_id() -> None:
    host = Host()
    producer = host.begun()
    for epoch in range(EPOCH_MAX - 1):
        host.coordinator.entries[NAME].transaction = host.transaction.initialized(1001, epoch + 1, TIMEOUT_MS, 0)
    producer = (1001, EPOCH_MAX - 1)
    assert host.add(producer, A) == [NONE]
    assert host.end(producer) == (NONE, (1002, 0))
    assert host.markers == [Markers(NAME, 1001, EPOCH_MAX, True, 2, frozenset({A}))]
    assert host.end(producer)[0] is CONCURRENT
    following = host.send_add((1002, 0), B)
    assert host.init(1002, 0)[0] is host.end((1002, 0), commit=False)[0] is CONCURRENT, "it is promised, and not there yet"
    host.write_markers()
    assert host.added(following) == [NONE]
    assert host.state is State.ONGOING
    assert host.end((1002, 0)) == (NONE, (1002, 1))


def test_who_adds_partitions_waits_a_while_for_the_markers_of_the_last_transaction() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    _, following = host.end(producer)
    one, other = host.send_add(following, A), host.send_add(following, B)
    assert not {one, other} & host.answers.keys()
    host.write_markers()
    assert host.added(one) == host.added(other) == [NONE]
    assert host.transaction.partitions == frozenset({A, B}), "the second rests on what the first has written"
    host.end(following)
    late = host.send_add((following[0], following[1] + 1), A)
    host.pass_time(HELD_MS_MAX)
    assert host.added(late) == [CONCURRENT]


def test_who_waits_is_told_when_the_coordinator_moves() -> None:
    host = Host()
    producer = host.begun()
    host.add(producer, A)
    _, following = host.end(producer)
    ticket = host.send_add(following, A)
    host.do(host.coordinator.unloaded(host.now))
    assert host.added(ticket) == [ErrorCode.NOT_COORDINATOR]


def test_a_version_that_is_raised_counts_from_the_next_fence_on() -> None:
    host = Host(TransactionConfig(version=0))
    producer = host.begun()
    host.add(producer, A, version=CLIENT)
    host.step(ConfigChanged(TransactionConfig(version=2)))
    assert host.init()[0] is CONCURRENT
    assert host.markers[0].version == 2

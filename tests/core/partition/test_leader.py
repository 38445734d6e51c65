"""The leader of a partition: the high watermark, the ISR, and what it answers. What keeps data is in test_replicas.py."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.core.metadata.brokers import Broker
from odradek.core.metadata.topics import LOST_DIRECTORY, RECOVERED, RECOVERING, UNASSIGNED_DIRECTORY
from odradek.core.partition.leader import AWAIT_METADATA, NOT_APPLIED, READ_FROM_LEADER, IsrChange, Leader
from odradek.wire.errors import ErrorCode, Refused
from tests.core.partition.leading import LAG_MS, broker, fetch, leading, state


def set_broker(leader: Leader, registration: Broker) -> None:
    leader.brokers[registration.id] = registration  # type: ignore[index]


def sent(leader: Leader) -> IsrChange:
    change = leader.take_unsent()
    assert change is not None
    return change


def test_with_one_replica_what_is_appended_is_committed() -> None:
    leader = leading(state((1,), replicas=(1,)), min_insync=2)
    assert leader.appended(7, 0)
    assert leader.high_watermark == 7
    assert leader.outcome(7, 0) is ErrorCode.NONE


def test_the_high_watermark_is_what_every_member_of_the_isr_has() -> None:
    leader = leading()
    assert not leader.appended(10, 0)
    assert not fetch(leader, 2, 10)
    assert leader.outcome(4, 0) is None
    assert fetch(leader, 3, 4)
    assert leader.high_watermark == 4
    assert leader.outcome(4, 0) is ErrorCode.NONE
    assert leader.outcome(5, 0) is None


@given(st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 3))), st.integers(1, 3))
def test_the_high_watermark_never_moves_back_within_an_epoch(fetches: list[tuple[int, int]], min_insync: int) -> None:
    leader = leading(min_insync=min_insync)
    for now_ms, (follower, lag) in enumerate(fetches):
        before = leader.high_watermark
        leader.appended(leader.log_end + 1, now_ms)
        fetch(leader, follower, max(0, leader.log_end - lag), now_ms)
        assert before <= leader.high_watermark <= leader.log_end


def test_a_leader_that_is_left_alone_commits_what_it_has() -> None:
    leader = leading(log_end=10, high_watermark=3)
    assert leader.lead(state((1,), partition_epoch=11), 10, 1, 0)
    assert leader.high_watermark == 10


# -- who leaves the ISR


def test_a_follower_that_is_late_leaves_the_isr() -> None:
    leader = leading()
    leader.appended(10, 0)
    fetch(leader, 2, 10, 5)
    leader.tick(LAG_MS)
    assert leader.unsent is None
    leader.tick(LAG_MS + 1)
    change = sent(leader)
    assert (change.isr, change.broker_epochs) == ((1, 2), (101, 102))
    assert (change.leader_epoch, change.partition_epoch, change.recovery_state) == (5, 10, RECOVERED)
    assert not leader.advance(LAG_MS + 1)  # until the controller has made it
    assert leader.answered(change, (1, 2), 5, 11, LAG_MS + 1)
    assert (leader.isr, leader.partition_epoch, leader.high_watermark) == ((1, 2), 11, 10)


def test_a_follower_that_keeps_up_with_a_log_that_never_rests_stays() -> None:
    """It never has everything, but it always has what there was at its last fetch."""
    leader = leading()
    for now_ms in range(0, 3 * LAG_MS, 1000):
        leader.appended(leader.log_end + 10, now_ms)
        for follower in (2, 3):
            fetch(leader, follower, max(leader.log_end - 10, 0), now_ms)
        leader.tick(now_ms)
    assert leader.unsent is None


def test_a_follower_that_has_everything_stays_however_long_nothing_comes() -> None:
    leader = leading(log_end=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    leader.tick(LAG_MS * 100)
    assert leader.unsent is None


def test_a_member_of_the_isr_that_never_fetched_is_named_without_its_epoch() -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    assert sent(leader).broker_epochs == (101, -1, 103)


# -- who joins it


def test_a_follower_that_has_caught_up_joins() -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 10
    fetch(leader, 3, 9)
    assert leader.unsent is None
    fetch(leader, 3, 10)
    change = sent(leader)
    assert (change.isr, change.broker_epochs) == ((1, 2, 3), (101, 102, 103))
    leader.answered(change, (1, 2, 3), 5, 11, 0)
    assert leader.isr == (1, 2, 3)


@pytest.mark.parametrize("registration", [broker(3, fenced=True), broker(3, leaving=True), broker(3, epoch=999)])
def test_a_follower_that_the_controller_would_refuse_is_not_proposed(registration: Broker) -> None:
    leader = leading(state((1, 2)), log_end=10)
    set_broker(leader, registration)
    fetch(leader, 3, 10, broker_epoch=999 if registration.epoch != 999 else 1000)
    assert leader.unsent is None


def test_a_follower_whose_folder_has_failed_is_neither_proposed_nor_waited_for() -> None:
    """It had everything a moment ago, and its broker is alive."""
    leader = leading(log_end=10)
    for follower in (2, 3):
        fetch(leader, follower, 10)
    left = msgspec.structs.replace(
        state((1, 2), partition_epoch=11), directories=(UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
    )
    leader.appended(11, 1)
    leader.lead(left, 11, 1, 1)
    fetch(leader, 2, 11, 1)
    assert leader.high_watermark == 11
    fetch(leader, 3, 11, 1)
    assert leader.unsent is None


def test_a_follower_of_an_older_version_tells_no_broker_epoch_and_joins() -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10, broker_epoch=-1)
    assert sent(leader).broker_epochs == (101, -1, -1)


def test_one_change_is_under_way_at_a_time() -> None:
    leader = leading(state((1,), replicas=(1, 2, 3)), log_end=10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    first = sent(leader)
    assert first.isr == (1, 2)
    leader.tick(LAG_MS * 10)
    assert leader.unsent is None
    leader.answered(first, (1, 2), 5, 11, 0)
    fetch(leader, 3, 10)
    assert sent(leader).isr == (1, 2, 3)


def test_a_leader_that_was_elected_uncleanly_says_that_it_has_recovered_with_its_first_change() -> None:
    leader = leading(state((1,), recovery_state=RECOVERING), log_end=10)
    fetch(leader, 2, 10)
    assert sent(leader).recovery_state == RECOVERED


# -- what becomes of a change


@pytest.mark.parametrize("code", sorted(NOT_APPLIED))
def test_a_change_that_was_not_made_is_taken_back(code: ErrorCode) -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    leader.refused(sent(leader), code)
    assert leader.change is None
    assert leader.maximal_isr == (1, 2)
    fetch(leader, 3, 10)
    assert sent(leader).isr == (1, 2, 3)


@pytest.mark.parametrize("code", sorted(AWAIT_METADATA))
def test_a_change_of_which_nobody_knows_waits_for_the_metadata(code: ErrorCode) -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    leader.refused(sent(leader), code)
    fetch(leader, 3, 10)
    assert leader.unsent is None
    assert leader.maximal_isr == (1, 2, 3)
    leader.lead(state((1, 2), partition_epoch=11), 10, 1, 0)
    assert leader.change is None
    fetch(leader, 3, 10)
    assert sent(leader).partition_epoch == 11


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_change_that_did_not_get_through_is_sent_again(code: ErrorCode) -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    change = sent(leader)
    leader.refused(change, code)
    assert leader.maximal_isr == (1, 2, 3)
    assert leader.take_unsent() is change


def test_an_answer_to_a_change_that_the_metadata_has_overtaken_is_ignored() -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    change = sent(leader)
    leader.lead(state((1,), partition_epoch=12), 10, 1, 0)
    assert not leader.answered(change, (1, 2, 3), 5, 11, 0)
    assert leader.isr == (1,)
    leader.refused(change, ErrorCode.NOT_CONTROLLER)
    assert leader.unsent is None


def test_metadata_older_than_the_controllers_answer_changes_nothing() -> None:
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    leader.answered(sent(leader), (1, 2, 3), 5, 11, 0)
    leader.lead(state((1, 2), partition_epoch=10), 10, 1, 0)
    assert (leader.isr, leader.partition_epoch) == ((1, 2, 3), 11)


def test_a_new_replica_of_a_reassignment_is_known_within_the_epoch() -> None:
    leader = leading(log_end=10)
    with pytest.raises(Refused, match="UNKNOWN_LEADER_EPOCH"):
        fetch(leader, 4, 0)
    leader.lead(state(replicas=(1, 2, 3, 4), adding=(4,), partition_epoch=11), 10, 1, 0)
    fetch(leader, 4, 10)
    assert not leader.is_under_replicated
    assert sent(leader).isr == (1, 2, 3, 4)


# -- what produce requests are answered


def test_a_batch_for_all_replicas_is_refused_while_too_few_are_in_sync() -> None:
    leader = leading(state((1,)), min_insync=2)
    assert leader.admission(acks_all=True, now_ms=0) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.admission(acks_all=False, now_ms=0) is ErrorCode.NONE
    assert leader.is_under_min_isr
    assert leader.is_under_replicated


def test_a_batch_that_was_appended_before_the_isr_shrank_is_answered_so() -> None:
    leader = leading(min_insync=2)
    leader.appended(5, 0)
    fetch(leader, 2, 5)
    fetch(leader, 3, 5)
    leader.lead(state((1,), partition_epoch=11), 5, 2, 0)
    assert leader.outcome(5, 0) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    leader = leading(state((1, 2), replicas=(1, 2)), min_insync=3)
    assert leader.admission(acks_all=True, now_ms=0) is ErrorCode.NONE
    assert leader.is_at_min_isr


def test_a_lower_minimum_commits_what_waited() -> None:
    leader = leading(state((1,)), log_end=10, min_insync=2)
    assert leader.high_watermark == 0
    assert leader.configure(1, 0)
    assert leader.high_watermark == 10


# -- what others ask


def test_the_low_watermark_is_the_lowest_start_of_those_who_can_be_reached() -> None:
    leader = leading(log_end=10)
    assert leader.low_watermark(5, 0) == -1
    for follower, log_start in ((2, 5), (3, 3)):
        leader.fetched(leader.follower(follower, 5), 10, log_start, 100 + follower, 0)
    assert leader.low_watermark(5, 0) == 3
    set_broker(leader, broker(3, fenced=True))
    assert leader.low_watermark(5, 0) == 5


def test_nobody_knows_the_low_watermark_while_too_few_are_in_sync_or_another_may_lead() -> None:
    leader = leading(state((1,)), log_end=10, min_insync=2)
    for follower in (2, 3):
        set_broker(leader, broker(follower, fenced=True))
    assert leader.low_watermark(5, 0) == -1
    leader.configure(1, 0)
    assert leader.low_watermark(5, 0) == 5
    leader.session.certain_until_ms = 7
    assert leader.low_watermark(5, 7) == -1


def test_a_follower_that_has_not_heard_of_a_deletion_does_not_join() -> None:
    leader = leading(state((1, 3)), log_end=10)
    leader.least_start = 5
    follower = leader.follower(2, 5)
    leader.fetched(follower, 10, 4, 102, 0)
    assert leader.unsent is None
    leader.fetched(follower, 10, 5, 102, 0)
    assert set(sent(leader).isr) == {1, 2, 3}


def test_a_consumer_reads_from_the_furthest_replica_of_its_rack() -> None:
    leader = leading(log_end=10)
    for number, rack in ((1, "a"), (2, "b"), (3, "b")):
        set_broker(leader, broker(number, rack=rack))
    fetch(leader, 2, 7)
    fetch(leader, 3, 9)
    assert leader.read_replica("b", "PLAINTEXT", 5, 0) == 3
    assert leader.read_replica("b", "PLAINTEXT", 8, 0) == 3
    assert leader.read_replica("b", "PLAINTEXT", 10, 0) == READ_FROM_LEADER  # none of them has it
    assert leader.read_replica("b", "SSL", 5, 0) == READ_FROM_LEADER
    assert leader.read_replica("a", "PLAINTEXT", 5, 0) == READ_FROM_LEADER
    assert leader.read_replica("c", "PLAINTEXT", 5, 0) == READ_FROM_LEADER
    assert leader.read_replica("", "PLAINTEXT", 5, 0) == READ_FROM_LEADER
    leader.lead(state((1, 2), partition_epoch=11), 10, 1, 0)
    assert leader.read_replica("b", "PLAINTEXT", 5, 0) == 2  # 3 may fall behind for good

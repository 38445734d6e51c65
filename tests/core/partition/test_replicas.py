"""What must never go wrong with replicas, rule by rule. Each test says how it was seen to fail with the rule switched off.

Histories in which many rules meet are in test_replication_model.py.
"""

import pytest

from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.follower import Action, Follower, Step
from odradek.core.partition.leader import Leader
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import FetchResponse
from tests.core.partition.following import ListedLog
from tests.core.partition.leading import LAG_MS, broker, fetch, leading, state

TOPIC = b"t" * 16
BACKOFF_MS = 1000


def following(log: ListedLog, epoch: int = 5) -> Follower:
    return Follower("t", TOPIC, 0, log, 1, epoch)


def told_of_divergence(follower: Follower, epoch: int, end_offset: int) -> Step:
    diverging = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return follower.answered(follower.wanted(1), FetchResponse.PartitionData(diverging_epoch=diverging), 0, BACKOFF_MS)


# -- a follower cuts its log by epochs, never by its high watermark


def test_a_follower_never_truncates_to_its_high_watermark() -> None:
    """Seen to fail with `offset` of the cut taken from the log's high watermark: 2 instead of 4."""
    log = ListedLog.of(1, 1, 1, 1, 2)
    log.high_watermark = 2  # what is above may be committed all the same
    assert told_of_divergence(following(log), 1, 10) == Step(Action.TRUNCATE, 4)


def test_a_new_epoch_alone_cuts_nothing() -> None:
    """Seen to fail with a `follow` that gives the log's high watermark as the offset to fetch from: 0 instead of 3."""
    log = ListedLog.of(1, 1, 1)
    follower = following(log)
    follower.follow(2, 6)
    wanted = follower.wanted(1)
    assert (wanted.fetch_offset, wanted.current_leader_epoch) == (3, 6)


def test_every_fetch_tells_the_epoch_of_the_last_record() -> None:
    """Seen to fail without `last_fetched_epoch` in `wanted`: -1, with which a leader compares nothing."""
    log = ListedLog.of(1, 1, 4)
    assert following(log).wanted(1).last_fetched_epoch == 4
    log.truncate_to(2)
    assert following(log).wanted(1).last_fetched_epoch == 1


def test_a_follower_repeats_until_the_epochs_agree() -> None:
    """KIP-279: seen to fail with the cut taken as the leader's end alone: [1, 1, 2, 3, 5] is left as it is."""
    log = ListedLog.of(1, 1, 2, 3, 5)
    leader = ListedLog.of(1, 1, 1, 4, 4, 4)
    follower = following(log, 6)
    leader.begin_epoch(6)
    for _ in range(2):
        wanted = follower.wanted(1)
        epoch, end = leader.epoch_end(wanted.last_fetched_epoch)
        assert epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset
        log.truncate_to(told_of_divergence(follower, epoch, end).offset)
    assert [record.epoch for record in log.records] == [1, 1]


def test_an_answer_of_another_epoch_is_not_taken() -> None:
    """Seen to fail without the comparison of epochs in `answered`: APPEND."""
    log = ListedLog.of(1, 1)
    follower = following(log, 5)
    asked = follower.wanted(1)
    follower.follow(2, 6)
    assert follower.answered(asked, FetchResponse.PartitionData(records=b"x"), 0, BACKOFF_MS).action is Action.NONE


# -- a leader serves its epoch alone


@pytest.mark.parametrize(("epoch", "code"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_fetch_of_another_leader_epoch_is_refused(epoch: int, code: ErrorCode) -> None:
    """KIP-320: seen to fail without `check_epoch` in `follower`: nothing is raised, and the high watermark moves."""
    leader = leading(log_end=10)
    with pytest.raises(Refused) as refused:
        fetch(leader, 2, 10, epoch=epoch)
    assert refused.value.code is code
    assert leader.replicas[2].log_end == -1


def test_the_high_watermark_moves_only_on_fetches_of_the_current_epoch() -> None:
    """A leader that leads again, and never heard of the one in between, who may have had 3 cut its log.

    Seen to fail with `Replica.reset` only for replicas that are new to the leader: the high watermark is 10 at once."""
    leader = leading()
    leader.appended(10, 0)
    fetch(leader, 3, 10)
    leader.lead(state(epoch=7, partition_epoch=12), 10, 1, 0)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


# -- who counts for the high watermark, and for acknowledgements


def expanding() -> Leader:
    """ISR 1 and 2, and 3 on its way into it, long ago."""
    leader = leading(state((1, 2)), log_end=10, now_ms=0)
    fetch(leader, 2, 10, 0)
    fetch(leader, 3, 10, 0)
    assert leader.take_unsent() is not None
    leader.appended(20, 10)
    return leader


def test_the_high_watermark_waits_for_the_maximal_isr() -> None:
    """Seen to fail with `isr` in the place of `maximal_isr` in `advance`: 20, which the new member does not have."""
    leader = expanding()
    fetch(leader, 2, 20, LAG_MS * 2)
    assert leader.high_watermark == 10
    fetch(leader, 3, 20, LAG_MS * 2)
    assert leader.high_watermark == 20


def test_metadata_of_the_same_partition_epoch_does_not_forget_a_change_under_way() -> None:
    """Seen to fail with every `lead` taking the ISR of the metadata: the high watermark is 20."""
    leader = expanding()
    leader.lead(state((1, 2)), 20, 1, 10)
    fetch(leader, 2, 20, LAG_MS * 2)
    assert leader.high_watermark == 10


def test_a_member_that_is_being_removed_counts_until_it_is() -> None:
    """Seen to fail with `maximal_isr` set to what a shrinking asks for: 10 is committed, and the controller may still elect 3."""
    leader = leading(min_insync=2)
    leader.appended(10, 0)
    fetch(leader, 2, 10, LAG_MS * 2)
    leader.tick(LAG_MS * 2)
    change = leader.take_unsent()
    assert change is not None
    assert change.isr == (1, 2)
    leader.advance(LAG_MS * 2)
    assert leader.high_watermark == 0
    assert leader.answered(change, (1, 2), 5, 11, LAG_MS * 2)
    assert leader.high_watermark == 10


def test_whether_enough_are_in_sync_is_judged_by_the_committed_isr() -> None:
    """Seen to fail with `maximal_isr` in the place of `isr` in `admission` and `advance`: NONE, and 10."""
    leader = leading(state((1,)), log_end=10, min_insync=2)
    fetch(leader, 2, 10)
    assert leader.maximal_isr == (1, 2)
    assert leader.admission(acks_all=True, now_ms=0) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.high_watermark == 0


def test_the_high_watermark_does_not_move_while_too_few_are_in_sync() -> None:
    """KIP-966: seen to fail without the comparison with `min_insync` in `advance`: 10, which the eligible replica lacks."""
    leader = leading(min_insync=2)
    leader.appended(10, 0)
    leader.lead(state((1,), partition_epoch=11), 10, 2, 0)
    assert leader.high_watermark == 0
    assert leader.outcome(10, 0) is None


def test_a_follower_joins_only_past_the_start_of_the_leaders_epoch() -> None:
    """What is below it may be committed although the new leader's high watermark is behind.

    Seen to fail without `epoch_start` in `_may_join`: 3 is proposed at offset 4."""
    leader = leading(state((1, 2)), log_end=10, high_watermark=4)
    fetch(leader, 3, 4)
    fetch(leader, 3, 9)
    assert leader.unsent is None
    fetch(leader, 3, 10)
    assert leader.unsent is not None


def test_a_follower_joins_only_at_the_high_watermark() -> None:
    """Seen to fail without `high_watermark` in `_may_join`: 3 is proposed at offset 12."""
    leader = leading(state((1, 2)), log_end=10)
    leader.appended(20, 0)
    fetch(leader, 2, 20)
    fetch(leader, 3, 12)
    assert leader.unsent is None


def test_a_follower_about_to_join_is_waited_for() -> None:
    """Otherwise it would run after the high watermark for ever. Seen to fail without `is_caught_up` in `advance`: 20."""
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 2, 10, 0)
    leader.brokers[3] = broker(3, fenced=True)  # type: ignore[index]
    fetch(leader, 3, 10, 0)
    leader.brokers[3] = broker(3)  # type: ignore[index]
    leader.appended(20, 1)
    fetch(leader, 2, 20, 1)
    assert leader.high_watermark == 10


@pytest.mark.parametrize("registration", [broker(3, fenced=True), broker(3, leaving=True)])
def test_a_replica_that_is_fenced_or_shuts_down_does_not_hold_the_high_watermark_back(registration: object) -> None:
    """KAFKA-15021: seen to fail without `_is_eligible` in `advance`: 10, until the lag time is over."""
    leader = leading(state((1, 2)), log_end=10)
    leader.brokers[3] = registration  # type: ignore[index]
    fetch(leader, 3, 10, 0)
    leader.appended(20, 1)
    fetch(leader, 2, 20, 1)
    assert leader.high_watermark == 20


# -- broker epochs


def test_a_fetch_from_before_a_restart_is_refused() -> None:
    """KIP-903: seen to fail without the comparison in `fetched`: the position of a log that is gone is noted."""
    leader = leading(state((1, 2)), log_end=10)
    leader.brokers[3] = broker(3, epoch=200)  # type: ignore[index]
    with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
        fetch(leader, 3, 10, broker_epoch=103)
    assert leader.replicas[3].log_end == -1
    assert leader.unsent is None


def test_a_change_names_the_broker_epoch_with_which_the_follower_fetched() -> None:
    """So that the controller refuses it when the follower has lost its tail meanwhile. Seen to fail with -1: it takes any."""
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10)
    assert leader.unsent is not None
    assert leader.unsent.broker_epochs[-1] == 103


def test_a_follower_whose_registration_the_leader_has_not_seen_does_not_join() -> None:
    """Seen to fail with `is_active` alone in `_is_eligible`: 3 is proposed."""
    leader = leading(state((1, 2)), log_end=10)
    fetch(leader, 3, 10, broker_epoch=200)
    assert leader.unsent is None


# -- a woken leader


def woken() -> tuple[Leader, BrokerSession]:
    """A leader that was alone in its ISR when it was stopped for longer than its session."""
    session = BrokerSession(9000, 101)
    session.heartbeat_answered(0, 10)
    assert session.metadata_confirmed(20, 30)
    leader = leading(state((1,)), now_ms=30, session=session)
    assert leader.appended(1, 8999)
    leader.appended(2, 9000)
    return leader, session


def test_a_woken_leader_acknowledges_nothing() -> None:
    """Seen to fail without `certain_until_ms` in `advance`, `outcome` and `admission`: 2 is committed and acknowledged."""
    leader, _ = woken()
    assert leader.high_watermark == 1
    assert leader.outcome(1, 9000) is None
    assert leader.admission(acks_all=False, now_ms=9000) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_with_one_replica_that_is_woken_acknowledges_nothing() -> None:
    """Seen to fail without `certain_until_ms` in `appended`: 1."""
    leader = leading(state((1,), replicas=(1,)), session=BrokerSession(9000))
    assert not leader.appended(1, 0)
    assert leader.high_watermark == 0


def test_a_leader_that_voted_alone_acknowledges_nothing_when_it_is_woken_after_others_came_to_vote() -> None:
    """Seen to fail without `not_alone`: 2."""
    session = BrokerSession.alone(101)
    session.heartbeat_answered(0, 10)
    session.not_alone(9000, 1000)
    leader = leading(state((1,)), now_ms=1000, session=session)
    assert leader.appended(1, 9999)
    leader.appended(2, 10_000)
    assert leader.high_watermark == 1
    session.heartbeat_answered(10_000, 10_010)
    assert session.metadata_confirmed(10_015, 10_020)
    session.not_alone(9000, 18_000)
    assert not session.is_certain(19_000)


def test_a_heartbeat_alone_does_not_bring_certainty_back() -> None:
    """It may have unfenced a broker whose partitions are led by others. Seen to fail when any heartbeat moves the lease."""
    leader, session = woken()
    session.heartbeat_answered(10_000, 10_010)
    assert not leader.advance(10_020)
    assert not session.metadata_confirmed(10_005, 10_020)  # asked before it was answered
    assert session.metadata_confirmed(10_015, 10_020)
    assert leader.advance(10_020)
    assert leader.outcome(2, 10_020) is ErrorCode.NONE


def test_a_session_that_never_ended_is_prolonged_by_heartbeats_from_when_they_were_sent() -> None:
    """Seen to fail with the lease counted from the answer: certain at 11,500."""
    session = BrokerSession(9000)
    session.heartbeat_answered(0, 10)
    session.metadata_confirmed(10, 10)
    session.heartbeat_answered(2000, 5000)
    assert session.is_certain(10_999)
    assert not session.is_certain(11_000)


def test_a_fenced_broker_is_certain_of_nothing() -> None:
    """Seen to fail when an answer that says fenced is passed over: certain until 9000."""
    session = BrokerSession(9000)
    session.heartbeat_answered(0, 10)
    session.metadata_confirmed(10, 10)
    session.fenced()
    assert not session.is_certain(20)
    assert not session.metadata_confirmed(20, 20)


def test_a_node_takes_no_role_from_metadata_older_than_its_registration() -> None:
    """A broker that lost its tail leads in an old epoch for a moment, and its followers cut their logs: found by the model, which
    shows what is lost with a `may_take_roles` that is always true."""
    session = BrokerSession(9000)
    assert not session.may_take_roles(100)
    session.registered(41)
    assert not session.may_take_roles(41)
    assert session.may_take_roles(42)

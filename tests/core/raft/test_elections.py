"""Who leads: pre-votes, votes, epochs, and what a node remembers of them."""

import pytest

from odradek.core.raft.effects import Answer, LeaderIs, LostLeadership, Persist, Probe, Send
from odradek.core.raft.electing import CAMPAIGN_STAGGER_MS
from odradek.core.raft.election import Election
from odradek.core.raft.requests import end_quorum_epoch_request
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    FetchRequest,
    VoteRequest,
    VoteResponse,
)
from tests.core.raft.cluster import Cluster
from tests.core.raft.memory import CLUSTER_ID, directory_of, voter_of, voters_of
from tests.core.raft.one import One, begin_of, fetched, granted, known, log_of, vote_of


def is_granted(one: One, request: VoteRequest | object) -> bool:
    response = one.answers(request)  # type: ignore[arg-type]
    assert isinstance(response, VoteResponse)
    return response.topics[0].partitions[0].vote_granted


def vote_error(one: One, request: object) -> int:
    response = one.answers(request)  # type: ignore[arg-type]
    assert isinstance(response, VoteResponse)
    return response.error_code or response.topics[0].partitions[0].error_code


# -- votes


def test_a_vote_is_on_disk_before_it_is_answered() -> None:
    one = One()
    effects = one.asked(vote_of(2, 5, (0, 0)))
    kinds = [type(effect) for effect in effects if isinstance(effect, Persist | Answer)]
    assert kinds[-1] is Answer
    assert Election(epoch=5, voted_id=2, voted_directory_id=directory_of(2)) in [
        effect.election for effect in effects if isinstance(effect, Persist)
    ]


def test_a_node_votes_once_in_an_epoch() -> None:
    one = One()
    assert is_granted(one, vote_of(2, 5, (0, 0)))
    assert not is_granted(one, vote_of(3, 5, (0, 0)))
    assert is_granted(one, vote_of(2, 5, (0, 0)))  # the answer was lost


def test_a_vote_is_remembered_after_a_start() -> None:
    one = One(election=Election(epoch=5, voted_id=2, voted_directory_id=directory_of(2)))
    assert not is_granted(one, vote_of(3, 5, (0, 0)))
    assert is_granted(one, vote_of(2, 5, (0, 0)))


@pytest.mark.parametrize(("last", "wanted"), [((2, 2), True), ((2, 3), True), ((3, 1), True), ((2, 1), False), ((1, 9), False)])
def test_a_vote_goes_to_a_log_that_is_no_shorter(last: tuple[int, int], wanted: bool) -> None:
    one = One(log=log_of(1, 2))
    assert is_granted(one, vote_of(2, 5, last)) is wanted


def test_a_vote_for_another_folder_of_this_node_is_refused() -> None:
    one = One()
    request = vote_of(2, 5, (0, 0))
    assert isinstance(request, VoteRequest)
    request.topics[0].partitions[0].voter_directory_id = directory_of(1, life=1)
    assert vote_error(one, request) == ErrorCode.INVALID_VOTER_KEY


def test_requests_of_old_epochs_and_other_clusters_are_refused() -> None:
    one = One(election=Election(epoch=7))
    assert vote_error(one, vote_of(2, 6, (0, 0))) == ErrorCode.FENCED_LEADER_EPOCH
    request = vote_of(2, 8, (0, 0))
    assert isinstance(request, VoteRequest)
    request.cluster_id = "another"
    assert vote_error(one, request) == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert one.raft.epoch == 7


@pytest.mark.parametrize(
    ("last_epoch", "pre_vote", "is_valid"), [(5, False, False), (4, False, True), (5, True, True), (6, True, False)]
)
def test_a_candidate_cannot_have_records_of_its_own_epoch(last_epoch: int, pre_vote: bool, is_valid: bool) -> None:
    error = vote_error(One(), vote_of(2, 5, (last_epoch, 3), pre_vote=pre_vote))
    assert error == (ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST)


# -- pre-votes


def test_a_follower_that_hears_from_its_leader_refuses_a_pre_vote() -> None:
    one = One().follows(2)
    assert is_granted(one, vote_of(3, 1, (0, 0), pre_vote=True))  # it has not fetched yet
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    assert not is_granted(one, vote_of(3, 1, (0, 0), pre_vote=True))
    assert one.raft.leader.leader_id == 2


def test_a_pre_vote_raises_no_epoch_and_is_no_vote() -> None:
    one = One()
    one.campaigns()
    requests = one.sent(VoteRequest)
    assert {
        node: send.request.topics[0].partitions[0].pre_vote
        for node, send in requests.items()
        if isinstance(send.request, VoteRequest)
    } == {2: True, 3: True}
    assert one.raft.epoch == 0
    assert is_granted(one, vote_of(2, 0, (0, 0), pre_vote=True))
    assert not one.all(Persist)


def test_a_node_that_was_cut_off_comes_back_without_a_new_epoch() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    one.passes(2000)
    for node_id in (2, 3):
        one.hears(one.sent(VoteRequest)[node_id], granted(1, yes=False))
    assert one.raft.epoch == 1
    assert one.raft.leader.leader_id == 2


def test_a_voter_that_knows_no_pre_vote_is_asked_for_its_vote() -> None:
    one = One()
    one.campaigns()
    one.hears(one.sent(VoteRequest)[2], VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert one.raft.epoch == 1


# -- elections


def test_a_majority_of_votes_makes_a_leader_and_it_says_so_to_disk_first() -> None:
    one = One().wins()
    kinds = [type(effect).__name__ for effect in one.done]
    elections = [effect.election for effect in one.done if isinstance(effect, Persist)]
    assert elections[-2:] == [
        Election(epoch=1, voted_id=1, voted_directory_id=directory_of(1)),
        Election(epoch=1, leader_id=1),
    ]
    assert len(kinds) - kinds[::-1].index("Persist") - 1 < kinds.index("AppendControl") < kinds.index("BecameLeader")
    assert set(one.sent(BeginQuorumEpochRequest)) == {2, 3}


def test_one_voter_elects_itself_without_asking() -> None:
    one = One(voters=voters_of(1))
    assert one.raft.is_leader
    assert one.raft.high_watermark == one.log.end_offset > 0
    assert not one.all(Send)
    assert not one.passes(100_000)


def test_every_start_of_the_only_voter_begins_a_new_epoch() -> None:
    one = One(voters=voters_of(1), election=Election(epoch=6, leader_id=1), log=log_of(6))
    assert one.raft.epoch == 7
    assert One(voters=voters_of(1), election=Election(epoch=2), log=log_of(6)).raft.epoch == 7


def test_a_node_never_leads_an_epoch_again_that_it_led_before_a_start() -> None:
    saved = Election(epoch=6, leader_id=1, voted_id=1, voted_directory_id=directory_of(1))
    one = One(election=saved, log=log_of(6))
    assert not one.raft.is_leader
    assert set(one.sent(EndQuorumEpochRequest)) == {2, 3}
    assert not is_granted(one, vote_of(2, 6, (5, 9)))
    one.passes(1000)
    assert one.raft.epoch == 7
    assert not one.raft.is_leader


def test_the_voters_of_a_new_cluster_campaign_at_once_one_after_the_other() -> None:
    for node_id, turn_ms in ((1, CAMPAIGN_STAGGER_MS), (2, 2 * CAMPAIGN_STAGGER_MS), (3, 3 * CAMPAIGN_STAGGER_MS)):
        one = One(node_id)
        one.passes(turn_ms - 1)
        assert not one.sent(VoteRequest)
        one.passes(1)
        assert one.sent(VoteRequest)


def test_a_voter_that_knows_of_an_epoch_waits_for_its_leader_before_it_campaigns() -> None:
    one = One(election=Election(epoch=7))
    one.passes(999)  # of controller.quorum.election.timeout.ms
    assert not one.sent(VoteRequest)


def test_an_observer_never_campaigns() -> None:
    one = One(4)
    one.passes(60_000)
    assert one.raft.epoch == 0
    assert not one.sent(VoteRequest)
    assert one.sent(FetchRequest)  # it looks for a leader


def test_a_node_with_another_folder_is_not_the_voter() -> None:
    voters = voters_of(2, 3)
    lost = voter_of(1).__class__(1, directory_of(1, life=1), voter_of(1).endpoints)
    assert not One(voters=voters.with_added(lost)).raft.is_voter


def test_votes_of_one_voter_count_once() -> None:
    one = One(voters=voters_of(1, 2, 3, 4, 5))
    one.campaigns()
    first = one.sent(VoteRequest)[2]
    one.hears(first, granted(0))
    one.hears(first, granted(0))
    assert one.raft.epoch == 0


def test_a_newer_epoch_ends_leadership_and_whoever_waits_is_told() -> None:
    one = One().wins().commits()
    one.asked(vote_of(3, 9, (0, 0)))
    assert one.only(LostLeadership).epoch == 1
    assert one.only(LeaderIs) == LeaderIs(-1, 9)
    assert not one.raft.is_leader


def test_begin_quorum_epoch_is_answered_with_what_is_known_of_the_leader() -> None:
    one = One()
    response = one.answers(begin_of(2, 3))
    assert isinstance(response, BeginQuorumEpochResponse)
    assert (response.topics[0].partitions[0].leader_id, response.topics[0].partitions[0].leader_epoch) == (2, 3)
    assert response.node_endpoints[0].host == "node-2"
    older = one.answers(begin_of(3, 2))
    assert isinstance(older, BeginQuorumEpochResponse)
    assert older.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    other = one.answers(begin_of(3, 3))
    assert isinstance(other, BeginQuorumEpochResponse)
    assert other.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST  # an epoch has one leader
    assert one.raft.leader.leader_id == 2


# -- the end of an epoch


def end_of(node_id: int, epoch: int, *successors: int) -> EndQuorumEpochRequest:
    return end_quorum_epoch_request(CLUSTER_ID, known(node_id, epoch), [voter_of(successor).key for successor in successors])


def test_the_first_successor_campaigns_at_once_and_the_others_later() -> None:
    first, second = One().follows(2), One().follows(2)
    first.asked(end_of(2, 1, 1, 3))
    assert first.sent(VoteRequest)
    second.asked(end_of(2, 1, 3, 1))
    assert not second.sent(VoteRequest)
    second.passes(500)
    assert second.sent(VoteRequest)


def test_a_leader_resigns_when_no_majority_has_fetched_in_one_and_a_half_fetch_timeouts() -> None:
    one = One().wins()
    one.passes(2900)
    one.fetches(3)
    one.passes(2900)
    assert one.raft.is_leader
    one.passes(200)
    assert not one.raft.is_leader
    ends = one.sent(EndQuorumEpochRequest)
    assert set(ends) == {2, 3}
    successors = ends[2].request.topics[0].partitions[0].preferred_candidates
    assert [candidate.candidate_id for candidate in successors] == [3, 2]  # most of the log first


def test_a_node_that_stops_gives_leadership_up_and_does_not_campaign() -> None:
    one = One().wins()
    one.does(one.raft.stop(one.now_ms))
    one.only(LostLeadership)
    one.passes(60_000)
    assert one.raft.epoch == 1


# -- a leader that dies


def test_a_broken_connection_alone_changes_nothing() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    one.does(one.raft.reset(2, one.now_ms))
    assert one.only(Probe).node.host == "node-2"
    one.passes(1000)
    assert not one.sent(VoteRequest)
    assert not one.does(one.raft.reset(3, one.now_ms))


def test_a_leader_that_refuses_connections_is_followed_up_at_once() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    one.does(one.raft.refused(2, one.now_ms))
    assert set(one.sent(VoteRequest)) == {2, 3}
    assert one.raft.epoch == 1


def test_voters_that_see_it_together_campaign_one_after_another_and_grant_pre_votes() -> None:
    one = One(3, voters_of(1, 2, 3))
    one.asked(begin_of(2, 1, to=3))
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    assert not is_granted(one, vote_of(1, 1, (0, 0), to=3, pre_vote=True))
    one.does(one.raft.refused(2, one.now_ms))
    assert not one.sent(VoteRequest)
    assert is_granted(one, vote_of(1, 1, (0, 0), to=3, pre_vote=True))
    one.passes(CAMPAIGN_STAGGER_MS)
    assert one.sent(VoteRequest)


def test_who_was_refused_asks_again_soon_while_the_leader_is_gone() -> None:
    one = One(voters=voters_of(1, 2, 3, 4, 5)).follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    one.does(one.raft.refused(2, one.now_ms))
    sent = len([effect for effect in one.done if isinstance(effect, Send)])
    for node_id in (3, 4, 5):
        one.hears(one.sent(VoteRequest)[node_id], granted(1, yes=False))
    effects = one.passes(100)
    assert any(isinstance(effect, Send) and isinstance(effect.request, VoteRequest) for effect in effects)
    assert sent


def test_a_leader_that_is_gone_and_refuses_again_does_not_end_the_pause_between_two_campaigns() -> None:
    one = One(voters=voters_of(1, 2, 3)).follows(2)
    one.does(one.raft.refused(2, one.now_ms))
    asked = one.sent(VoteRequest)
    for node_id in (2, 3):
        one.hears(asked[node_id], granted(1, yes=False))
    effects = one.does(one.raft.refused(2, one.now_ms))
    assert not any(isinstance(effect, Send) and isinstance(effect.request, VoteRequest) for effect in effects)
    effects = one.passes(100)
    assert any(isinstance(effect, Send) and isinstance(effect.request, VoteRequest) for effect in effects)


def test_a_refused_connection_of_a_node_that_does_not_lead_changes_nothing() -> None:
    one = One().follows(2)
    assert not one.does(one.raft.refused(3, one.now_ms))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_cluster_that_was_down_has_a_leader_as_soon_as_a_majority_is_up(is_clean: bool, seed: int) -> None:
    """Whoever comes first: nobody waits out a timeout for a leader that was started again, or is not there yet."""
    cluster = Cluster(seed, [1, 2, 3], [], dynamic=True).start()
    cluster.elect()
    cluster.run(3000)
    for member in cluster.members.values():
        if is_clean:
            member.step(lambda raft, now_ms: raft.stop(now_ms))
    cluster.run(100)
    for member in cluster.members.values():
        member.crash()
    for at, member in enumerate(cluster.random.sample(list(cluster.members.values()), 3)):
        if at:
            cluster.run(cluster.random.choice((0, 100, 400)))
        member.start()
    assert cluster.run(200, lambda: cluster.leader() is not None)

"""Who votes changes: one at a time, who joins is caught up, who leaves resigns; and all of it in a cluster."""

import pytest

from odradek.core.raft.effects import Answer, AppendControl, LostLeadership
from odradek.core.raft.voters import Voter
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchRequest,
    KRaftVersionRecord,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VotersRecord,
)
from tests.core.raft.cluster import Cluster
from tests.core.raft.memory import CLUSTER_ID, LISTENER, directory_of, fixed_voters_of, voter_of, voters_of
from tests.core.raft.one import One, fetched


def addition_of(node_id: int, *, ack_when_committed: bool = True) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=node_id,
        voter_directory_id=directory_of(node_id),
        listeners=[AddRaftVoterRequest.Listener(name=LISTENER, host=f"node-{node_id}", port=9093)],
        ack_when_committed=ack_when_committed,
    )


def removal_of(node_id: int, directory_id: bytes | None = None) -> RemoveRaftVoterRequest:
    directory_id = directory_of(node_id) if directory_id is None else directory_id
    return RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id)


def update_of(node_id: int, host: str = "moved", versions: tuple[int, int] = (0, 1), epoch: int = 1) -> UpdateRaftVoterRequest:
    return UpdateRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        current_leader_epoch=epoch,
        voter_id=node_id,
        voter_directory_id=directory_of(node_id),
        listeners=[UpdateRaftVoterRequest.Listener(name=LISTENER, host=host, port=9093)],
        kraft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
            min_supported_version=versions[0], max_supported_version=versions[1]
        ),
    )


def versions_of(low: int = 0, high: int = 1) -> ApiVersionsResponse:
    feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=low, max_version=high)
    return ApiVersionsResponse(supported_features=[feature])


def error_of(response: Message) -> int:
    assert isinstance(response, AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse)
    return response.error_code


def changes(one: One) -> list[int]:
    """The errors of the changes that were answered."""
    answers = [effect.response for effect in one.done if isinstance(effect, Answer)]
    return [error_of(answer) for answer in answers if isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse)]


def settled() -> One:
    return One().wins().commits()


# -- joining


def test_a_new_voter_is_asked_for_its_versions_caught_up_and_answered_when_committed() -> None:
    one = settled()
    one.fetches(4)
    one.asked(addition_of(4))
    assert one.raft.voters.ids == [1, 2, 3]
    one.hears(one.sent(ApiVersionsRequest)[4], versions_of())
    assert one.raft.voters.ids == [1, 2, 3, 4]  # in force before it is committed
    one.fetches(2)
    assert not changes(one)  # three of four are needed
    one.fetches(4)
    assert changes(one) == [ErrorCode.NONE]


def test_who_has_not_caught_up_does_not_become_a_voter() -> None:
    one = settled()
    one.asked(addition_of(4))
    one.hears(one.sent(ApiVersionsRequest)[4], versions_of())
    assert error_of(one.only(Answer).response) == ErrorCode.REQUEST_TIMED_OUT
    assert one.raft.voters.ids == [1, 2, 3]


def test_who_does_not_know_the_kraft_version_does_not_become_a_voter() -> None:
    one = settled()
    one.fetches(4)
    one.asked(addition_of(4))
    one.hears(one.sent(ApiVersionsRequest)[4], versions_of(0, 0))
    assert error_of(one.only(Answer).response) == ErrorCode.INVALID_REQUEST


def test_who_joins_by_itself_is_answered_before_the_commit() -> None:
    one = settled()
    one.fetches(4)
    one.asked(addition_of(4, ack_when_committed=False))
    effects = one.hears(one.sent(ApiVersionsRequest)[4], versions_of())
    assert [error_of(effect.response) for effect in effects if isinstance(effect, Answer)] == [ErrorCode.NONE]
    assert not [effect for effect in one.passes(3000) if isinstance(effect, Answer)]


def test_a_node_id_is_a_voter_once() -> None:
    assert error_of(settled().answers(addition_of(2))) == ErrorCode.DUPLICATE_VOTER


def test_an_addition_that_is_not_answered_in_time_is_given_up() -> None:
    one = settled()
    one.asked(addition_of(4))
    for _ in range(4):
        one.passes(600)
        one.commits()
    assert changes(one) == [ErrorCode.REQUEST_TIMED_OUT]


# -- one at a time


@pytest.mark.parametrize("second", [addition_of(5), removal_of(3), update_of(2)], ids=["add", "remove", "update"])
def test_there_is_one_change_at_a_time(second: Message) -> None:
    one = settled()
    one.asked(removal_of(2))
    assert error_of(one.answers(second)) == ErrorCode.REQUEST_TIMED_OUT
    assert one.raft.voters.ids == [1, 3]


def test_a_change_waits_for_the_commit_of_the_one_before_even_when_nobody_waits_for_that() -> None:
    one = settled()
    one.asked(update_of(2))
    assert error_of(one.answers(removal_of(3))) == ErrorCode.REQUEST_TIMED_OUT
    one.commits()
    one.asked(removal_of(3))
    assert one.raft.voters.ids == [1, 2]


def test_an_addition_that_waits_for_versions_is_a_change_under_way() -> None:
    one = settled()
    one.asked(addition_of(4))
    assert error_of(one.answers(removal_of(3))) == ErrorCode.REQUEST_TIMED_OUT
    assert one.raft.voters.ids == [1, 2, 3]


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("change", [addition_of(4), removal_of(3), update_of(2)], ids=["add", "remove", "update"])
def test_a_new_leader_changes_nothing_before_it_has_committed_something(change: Message, dynamic: bool) -> None:
    assert error_of(One(dynamic=dynamic).wins().answers(change)) == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("change", [addition_of(4), removal_of(3)], ids=["add", "remove"])
def test_fixed_voters_are_not_changed(change: Message) -> None:
    one = One(dynamic=False).wins().commits()
    assert error_of(one.answers(change)) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("change", [addition_of(4), removal_of(3), update_of(2)], ids=["add", "remove", "update"])
def test_only_the_leader_changes_voters(change: Message) -> None:
    assert error_of(One().follows(2).answers(change)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- leaving


def test_a_voter_is_removed_by_id_and_folder() -> None:
    one = settled()
    assert error_of(one.answers(removal_of(3, directory_of(3, life=1)))) == ErrorCode.VOTER_NOT_FOUND
    assert error_of(one.answers(removal_of(3, NIL_UUID))) == ErrorCode.INVALID_REQUEST
    assert error_of(one.answers(removal_of(9))) == ErrorCode.VOTER_NOT_FOUND


def test_the_last_voter_stays() -> None:
    one = One(voters=voters_of(1))
    assert error_of(one.answers(removal_of(1))) == ErrorCode.VOTER_NOT_FOUND


def test_a_leader_that_removes_itself_resigns_after_the_commit() -> None:
    one = settled()
    one.asked(removal_of(1))
    assert one.raft.is_leader
    one.fetches(2)
    assert one.raft.is_leader  # it does not count itself any more
    one.fetches(3)
    assert not one.raft.is_leader
    assert changes(one) == [ErrorCode.NONE]
    assert one.all(LostLeadership)


def test_a_change_under_way_is_answered_when_leadership_is_lost() -> None:
    one = settled()
    one.asked(removal_of(3))
    one.does(one.raft.resign(one.now_ms))
    assert error_of(one.only(Answer).response) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- moving


def test_a_voter_that_moved_is_noted_in_the_log() -> None:
    one = settled()
    assert error_of(one.answers(update_of(2))) == ErrorCode.NONE
    assert one.raft.voters.endpoints_of(2) == ((LISTENER, "moved", 9093),)
    assert any(isinstance(effect, AppendControl) for effect in one.effects)


def test_a_voter_that_would_not_know_the_kraft_version_is_refused() -> None:
    assert error_of(settled().answers(update_of(2, versions=(0, 0)))) == ErrorCode.INVALID_REQUEST
    assert error_of(settled().answers(update_of(9))) == ErrorCode.VOTER_NOT_FOUND
    assert error_of(settled().answers(update_of(2, epoch=0))) == ErrorCode.FENCED_LEADER_EPOCH


def test_a_leader_whose_address_changed_says_so_with_its_first_record() -> None:
    moved = Voter(1, directory_of(1), ((LISTENER, "elsewhere", 1),))
    one = One(voters=voters_of(1, 2, 3).with_voter(moved)).wins()
    assert one.raft.voters.find(1) == voter_of(1)


# -- from fixed voters to voters in the log


def fixed(node_id: int = 1) -> One:
    return One(node_id, fixed_voters_of(1, 2, 3), dynamic=False)


def test_fixed_voters_tell_the_leader_who_they_are_and_so_go_into_the_log() -> None:
    one = fixed().wins().commits()
    assert one.raft.told_voters.with_voter(Voter(1)) == fixed_voters_of(1, 2, 3).with_voter(Voter(1))
    for node_id in (2, 3):
        assert error_of(one.answers(update_of(node_id, f"node-{node_id}"))) == ErrorCode.NONE
    assert not one.all(AppendControl)
    assert one.raft.voters == fixed_voters_of(1, 2, 3)
    assert one.raft.told_voters == voters_of(1, 2, 3)
    one.appends()
    committed = one.raft.high_watermark
    one.does(one.raft.upgrade(1, one.now_ms))
    assert (one.raft.kraft_version, one.raft.voters) == (1, voters_of(1, 2, 3))
    assert [type(message) for _, message in one.only(AppendControl).messages] == [KRaftVersionRecord, VotersRecord]
    assert error_of(one.answers(removal_of(3))) == ErrorCode.REQUEST_TIMED_OUT  # before that is committed
    assert one.raft.high_watermark == committed
    one.fetches(2)
    assert one.raft.high_watermark == one.log.end_offset
    one.asked(removal_of(3))
    assert one.raft.voters.ids == [1, 2]


def test_what_fixed_voters_told_is_forgotten_with_leadership() -> None:
    one = fixed().wins().commits()
    one.asked(update_of(2))
    one.does(one.raft.resign(one.now_ms))
    assert one.raft.told_voters == fixed_voters_of(1, 2, 3)


def test_a_fixed_voter_tells_each_leader_once_who_it_is() -> None:
    one = fixed().follows(2)
    for leader_id, epoch in ((2, 1), (3, 2)):
        one.follows(leader_id, epoch).passes(1900)
        one.hears(one.sent(FetchRequest)[leader_id], fetched(leader_id, epoch))
        one.passes(200)
        one.hears(one.sent(FetchRequest)[leader_id], fetched(leader_id, epoch))
        told = one.sent(UpdateRaftVoterRequest)[leader_id]
        assert isinstance(told.request, UpdateRaftVoterRequest)
        assert (told.request.voter_directory_id, told.request.current_leader_epoch) == (directory_of(1), epoch)
        one.hears(told, UpdateRaftVoterResponse(current_leader=current_leader(leader_id, epoch)))
        for _ in range(3):
            one.passes(1900)
            one.hears(one.sent(FetchRequest)[leader_id], fetched(leader_id, epoch))
        assert one.sent(UpdateRaftVoterRequest)[leader_id] is told


def current_leader(leader_id: int, epoch: int) -> UpdateRaftVoterResponse.CurrentLeader:
    return UpdateRaftVoterResponse.CurrentLeader(leader_id=leader_id, leader_epoch=epoch, host=f"node-{leader_id}", port=9093)


# -- in a cluster


def test_a_voter_joins_and_leaves_while_records_are_committed() -> None:
    cluster = Cluster(1, [1, 2, 3], [4], dynamic=True).start()
    cluster.elect()
    cluster.run(3000)
    cluster.add_voter(4)
    assert cluster.run(5000, lambda: len(cluster.answers) == 1)
    assert error_of(cluster.answers[0]) == ErrorCode.NONE
    leader = cluster.elect()
    cluster.remove_voter(leader.id)
    assert cluster.run(5000, lambda: len(cluster.answers) == 2)
    assert error_of(cluster.answers[1]) == ErrorCode.NONE
    cluster.run(5000)
    after = cluster.elect()
    assert after.id != leader.id
    assert after.raft is not None
    assert after.raft.voters.ids == [node_id for node_id in (1, 2, 3, 4) if node_id != leader.id]


def test_a_controller_joins_by_itself() -> None:
    cluster = Cluster(2, [1], [2, 3], dynamic=True, auto_join=True).start()
    leader = cluster.elect()
    assert leader.raft is not None
    assert cluster.run(30_000, lambda: leader.raft is not None and sorted(leader.raft.voters.ids) == [1, 2, 3])


def test_a_leader_cut_off_with_its_own_removal_can_end_it() -> None:
    """Only it has the record that takes it out, and nobody can be elected without its vote: so it campaigns."""
    cluster = Cluster(3, [1, 2], [], dynamic=True).start()
    leader = cluster.elect()
    (other,) = [member for member in cluster.members.values() if member is not leader]
    cluster.run(3000)
    cluster.crash(other.id)
    cluster.remove_voter(leader.id)
    cluster.run(50)
    cluster.crash(leader.id)
    leader.log.synced_offset = leader.log.end_offset
    cluster.heal()
    cluster.run(30_000, lambda: cluster.leader() is other)
    assert cluster.elect() is other


def test_a_crash_that_is_seen_is_over_before_any_timeout() -> None:
    cluster = Cluster(4, [1, 2, 3], [], dynamic=True).start()
    leader = cluster.elect()
    cluster.run(3000)
    cluster.crash(leader.id, seen=True)
    assert cluster.run(500, lambda: cluster.leader() is not None)  # a fetch timeout is 2000

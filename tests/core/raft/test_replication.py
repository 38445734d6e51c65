"""The log of the quorum: what is committed, what a fetch means on both sides, snapshots."""

import pytest

from odradek.core.raft.batches import SnapshotId, control_batch
from odradek.core.raft.effects import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    Append,
    HighWatermark,
    InstallSnapshot,
    QuorumBroken,
    Truncate,
    WriteSnapshot,
)
from odradek.core.raft.election import Election
from odradek.core.raft.requests import Asked, fetch_response, fetch_snapshot_request, fetch_snapshot_response
from odradek.wire.control import ControlType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, UpdateRaftVoterRequest
from tests.core.raft.memory import CLUSTER_ID, data_batch, directory_of, snapshot_bytes, voter_of, voters_of
from tests.core.raft.one import One, begin_of, fetch_of, fetched, known, log_of, vote_of


def answered(one: One, request: object) -> FetchResponse.PartitionData:
    response = one.answers(request)  # type: ignore[arg-type]
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def diverging(leader_id: int, epoch: int, at: tuple[int, int]) -> FetchResponse:
    response = fetched(leader_id, epoch)
    response.responses[0].partitions[0].diverging_epoch = FetchResponse.EpochEndOffset(epoch=at[0], end_offset=at[1])
    return response


def offers(leader_id: int, epoch: int, snapshot: SnapshotId) -> FetchResponse:
    response = fetched(leader_id, epoch)
    response.responses[0].partitions[0].snapshot_id = FetchResponse.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch)
    return response


# -- what is committed


def test_the_leader_learns_positions_from_fetch_offsets() -> None:
    one = One().wins()
    assert one.raft.high_watermark == -1
    one.fetches(2)
    assert one.only(HighWatermark).offset == one.log.end_offset == one.raft.high_watermark
    one.appends()
    one.fetches(3)
    assert one.raft.high_watermark == one.log.end_offset


def test_records_of_earlier_epochs_are_committed_with_one_of_the_leaders_own() -> None:
    one = One(log=log_of(1, 1), election=Election(epoch=1)).wins()
    for node_id in (2, 3):
        one.asked(fetch_of(node_id, one.raft.epoch, (1, 2)))
    assert one.raft.high_watermark == -1
    one.fetches(2)
    assert one.raft.high_watermark == one.log.end_offset


def test_the_leader_counts_itself_only_up_to_what_is_synced_on_its_own_disk() -> None:
    one = One().wins().commits()
    committed = one.raft.high_watermark
    one.syncs = False
    one.appends()
    one.fetches(2)
    assert one.raft.high_watermark == committed
    one.sync()
    assert one.raft.high_watermark == one.log.end_offset


def test_the_followers_alone_commit_what_the_leader_has_not_synced() -> None:
    one = One().wins().commits()
    one.syncs = False
    one.appends()
    one.commits()
    assert one.raft.high_watermark == one.log.end_offset


def test_an_observer_and_a_voters_other_folder_commit_nothing() -> None:
    one = One().wins()
    one.fetches(4)
    other = fetch_of(2, one.raft.epoch, (one.log.last_epoch, one.log.end_offset))
    assert isinstance(other, FetchRequest)
    other.topics[0].partitions[0].replica_directory_id = directory_of(2, life=1)
    one.asked(other)
    assert one.raft.high_watermark == -1
    assert one.raft.leadership is not None
    assert [key.id for key in one.raft.leadership.observers] == [4, 2]


def test_a_position_that_goes_back_takes_nothing_back() -> None:
    one = One().wins().commits()
    committed = one.raft.high_watermark
    one.appends()
    one.asked(fetch_of(2, one.raft.epoch, (0, 0)))
    assert one.raft.high_watermark == committed


# -- fetches, as the leader answers them


def test_a_fetch_at_the_end_waits_for_records_or_its_time() -> None:
    one = One().wins().commits()
    last = one.log.last_epoch, one.log.end_offset
    one.asked(fetch_of(2, one.raft.epoch, last, max_wait_ms=100))
    assert not one.all(Answer)
    one.appends()
    assert any(isinstance(effect, AnswerFetch) and effect.offset == last[1] for effect in one.done)
    one.asked(fetch_of(2, one.raft.epoch, (one.log.last_epoch, one.log.end_offset), max_wait_ms=100))
    assert not one.all(Answer)
    one.passes(100)
    assert one.all(Answer)


def test_a_fetch_that_knows_less_of_the_high_watermark_is_answered_when_that_moves() -> None:
    one = One().wins().commits()
    one.appends()
    last = one.log.last_epoch, one.log.end_offset
    one.asked(fetch_of(2, one.raft.epoch, last, max_wait_ms=500, high_watermark=last[1]))
    assert not one.all(Answer)
    behind = fetch_of(3, one.raft.epoch, last, max_wait_ms=500, high_watermark=last[1] - 1)
    assert answered(one, behind).high_watermark == last[1]


def test_logs_that_part_are_told_so_and_get_no_records() -> None:
    one = One(log=log_of(1, 1, 3), election=Election(epoch=3)).wins()
    partition = answered(one, fetch_of(2, one.raft.epoch, (2, 5)))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, 2)
    partition = answered(one, fetch_of(2, one.raft.epoch, (1, 9)))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, 2)
    assert one.raft.leadership is not None
    assert one.raft.leadership.voters[2].end_offset == -1  # a fetch that does not fit does not count


@pytest.mark.parametrize("last", [(2, 3), (3, 5), (2, 6), (0, 0)])
def test_a_follower_below_the_start_is_sent_to_the_snapshot(last: tuple[int, int]) -> None:
    start = SnapshotId(5, 4)
    one = One(log=log_of(4, start=start), election=Election(epoch=4)).wins()
    partition = answered(one, fetch_of(2, one.raft.epoch, last))
    assert (partition.snapshot_id.end_offset, partition.snapshot_id.epoch) == start


def test_fetches_of_other_epochs_and_to_others_than_the_leader_are_refused() -> None:
    one = One().wins()
    assert answered(one, fetch_of(2, 0, (0, 0))).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert answered(one, fetch_of(2, 9, (0, 0))).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert answered(one, fetch_of(2, 1, (2, 0))).error_code == ErrorCode.INVALID_REQUEST
    partition = answered(One().follows(2), fetch_of(3, 1, (0, 0)))
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 1)


def test_who_waits_is_told_when_the_leader_is_none_any_more() -> None:
    one = One().wins().commits()
    one.asked(fetch_of(2, one.raft.epoch, (one.log.last_epoch, one.log.end_offset), max_wait_ms=500))
    one.asked(vote_of(3, 9, (1, 99)))
    errors = [
        effect.response.responses[0].partitions[0].error_code
        for effect in one.all(Answer)
        if isinstance(effect.response, FetchResponse)
    ]
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


# -- fetches, as a follower makes them


def test_the_next_fetch_leaves_when_what_was_fetched_is_synced() -> None:
    one = One(syncs=False).follows(2)
    first = one.sent(FetchRequest)[2]
    one.hears(first, fetched(2, 1, data_batch(0, 1)))
    assert one.only(Append).base_offset == 0
    assert one.sent(FetchRequest)[2] is first
    one.passes(5000)
    assert one.sent(FetchRequest)[2] is first  # and a slow disk is not the leader's fault
    one.sync()
    request = one.sent(FetchRequest)[2].request
    assert isinstance(request, FetchRequest)
    wanted = request.topics[0].partitions[0]
    assert (wanted.fetch_offset, wanted.last_fetched_epoch) == (1, 1)


def test_a_follower_knows_as_committed_only_what_it_has() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1, data_batch(0, 1), high_watermark=7))
    assert one.raft.high_watermark == 1


def test_a_follower_cuts_its_log_where_it_parts_from_the_leaders() -> None:
    one = One(log=log_of(1, 1, 2), election=Election(epoch=3)).follows(2, 4)
    one.hears(one.sent(FetchRequest)[2], diverging(2, 4, (1, 1)))
    assert one.only(Truncate).end_offset == 1
    one.passes(0)
    request = one.sent(FetchRequest)[2].request
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_a_follower_whose_epochs_differ_cuts_to_where_both_can_agree() -> None:
    one = One(log=log_of(1, 3, 3), election=Election(epoch=3)).follows(2, 4)
    one.hears(one.sent(FetchRequest)[2], diverging(2, 4, (2, 3)))
    assert one.only(Truncate).end_offset == 1


def test_nothing_committed_is_ever_cut_off() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1, data_batch(0, 1), high_watermark=1))
    with pytest.raises(QuorumBroken, match="format the folder"):
        one.hears(one.sent(FetchRequest)[2], diverging(2, 1, (0, 0)))


def test_an_answer_to_an_earlier_log_is_passed_over() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], None)
    elsewhere = one.sent(FetchRequest)[3]  # who may know of another leader
    one.passes(20)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1, data_batch(0, 1)))
    one.hears(elsewhere, diverging(2, 1, (0, 0)))
    assert not one.all(Truncate)
    assert one.log.end_offset == 1


@pytest.mark.parametrize("records", [data_batch(1, 1), data_batch(0, 9), b"x" * 61, data_batch(0, 1)[:-1] + b"?"])
def test_records_that_are_not_the_next_ones_or_not_sound_are_not_taken(records: bytes) -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1, records, high_watermark=5))
    assert not one.all(Append)
    assert one.raft.high_watermark == -1


def test_a_batch_that_was_cut_in_the_middle_is_left_for_the_next_fetch() -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1, data_batch(0, 1) + data_batch(1, 1)[:40]))
    assert one.log.end_offset == 1


def test_voters_in_the_log_hold_at_once_and_are_taken_back_with_it() -> None:
    one = One(log=log_of(1), election=Election(epoch=1)).follows(2, 2)
    record = [(ControlType.KRAFT_VOTERS, voters_of(1, 2, 3, 4).to_record())]
    batch = bytes(control_batch(record, base_offset=1, epoch=2, now_ms=0))
    one.hears(one.sent(FetchRequest)[2], fetched(2, 2, batch))
    assert one.raft.voters.ids == [1, 2, 3, 4]
    one.asked(begin_of(3, 3))
    one.hears(one.sent(FetchRequest)[3], diverging(3, 3, (1, 1)))
    assert one.raft.voters.ids == [1, 2, 3]


# -- snapshots


def snapshot_answer(epoch: int, snapshot: SnapshotId, data: bytes, position: int, count: int) -> FetchSnapshotResponse:
    response = fetch_snapshot_response(known(2, epoch), Asked(1, ""), ErrorCode.NONE, snapshot, size=len(data), position=position)
    response.topics[0].partitions[0].unaligned_records = data[position : position + count]
    return response


def test_a_snapshot_is_fetched_by_position_and_the_log_begins_at_its_end() -> None:
    one = One().follows(2)
    snapshot = SnapshotId(7, 1)
    data = snapshot_bytes(snapshot, 1, voters_of(1, 2, 4))
    one.hears(one.sent(FetchRequest)[2], offers(2, 1, snapshot))
    for position in (0, 100):
        request = one.sent(FetchSnapshotRequest)[2].request
        assert isinstance(request, FetchSnapshotRequest)
        assert request.topics[0].partitions[0].position == position
        one.hears(one.sent(FetchSnapshotRequest)[2], snapshot_answer(1, snapshot, data, position, 100 if position == 0 else 9999))
        assert one.only(WriteSnapshot).position == position
    assert one.only(InstallSnapshot).snapshot == snapshot
    one.log.begin_at(snapshot, data)
    one.does(one.raft.installed(snapshot, 1, voters_of(1, 2, 4), one.now_ms))
    assert one.raft.high_watermark == 7
    assert one.raft.voters.ids == [1, 2, 4]


def test_a_snapshot_that_is_not_sound_erases_nothing_and_is_asked_for_again() -> None:
    one = One(log=log_of(1), election=Election(epoch=1)).follows(2, 2)
    snapshot = SnapshotId(7, 2)
    one.hears(one.sent(FetchRequest)[2], offers(2, 2, snapshot))
    one.hears(one.sent(FetchSnapshotRequest)[2], snapshot_answer(2, snapshot, b"broken", 0, 99))
    one.does(one.raft.install_failed(one.now_ms))
    assert one.raft.voters.ids == [1, 2, 3]
    assert one.log.end_offset == 1
    one.passes(100)
    request = one.sent(FetchRequest)[2].request
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 1


def test_a_snapshot_of_which_a_piece_could_not_be_written_is_fetched_from_its_beginning() -> None:
    one = One().follows(2)
    snapshot = SnapshotId(7, 1)
    data = snapshot_bytes(snapshot, 1, voters_of(1, 2, 3))
    one.hears(one.sent(FetchRequest)[2], offers(2, 1, snapshot))
    one.hears(one.sent(FetchSnapshotRequest)[2], snapshot_answer(1, snapshot, data, 0, 100))
    late = one.sent(FetchSnapshotRequest)[2]
    one.does(one.raft.install_failed(one.now_ms))
    one.hears(late, snapshot_answer(1, snapshot, data, 100, 9999))
    one.passes(100)
    one.hears(one.sent(FetchRequest)[2], offers(2, 1, snapshot))
    request = one.sent(FetchSnapshotRequest)[2].request
    assert isinstance(request, FetchSnapshotRequest)
    assert request.topics[0].partitions[0].position == 0


def test_while_a_snapshot_is_installed_nothing_is_fetched_from_the_next_leader() -> None:
    """The log would grow by what that one has, and then be thrown away for the snapshot."""
    one = One().follows(2)
    snapshot = SnapshotId(7, 1)
    data = snapshot_bytes(snapshot, 1, voters_of(1, 2, 3))
    one.hears(one.sent(FetchRequest)[2], offers(2, 1, snapshot))
    one.hears(one.sent(FetchSnapshotRequest)[2], snapshot_answer(1, snapshot, data, 0, 9999))
    one.follows(3, 2)
    one.passes(100)
    assert 3 not in one.sent(FetchRequest)
    one.log.begin_at(snapshot, data)
    one.does(one.raft.installed(snapshot, 1, voters_of(1, 2, 3), one.now_ms))
    request = one.sent(FetchRequest)[3].request
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 7


@pytest.mark.parametrize(
    "gone",
    [
        fetch_snapshot_response(known(2, 1), Asked(1, ""), ErrorCode.SNAPSHOT_NOT_FOUND),
        FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),  # as Kafka says it
    ],
)
def test_a_snapshot_that_the_leader_let_go_of_is_given_up(gone: FetchSnapshotResponse) -> None:
    one = One().follows(2)
    one.hears(one.sent(FetchRequest)[2], offers(2, 1, SnapshotId(7, 1)))
    before = one.sent(FetchRequest)[2]
    one.hears(one.sent(FetchSnapshotRequest)[2], gone)
    one.passes(20)
    assert one.sent(FetchRequest)[2] is not before


def test_snapshots_are_served_by_position() -> None:
    start = SnapshotId(5, 4)
    one = One(log=log_of(4, start=start), election=Election(epoch=4)).wins()
    size = one.log.snapshot_size(start)
    assert size is not None

    def asks(snapshot: SnapshotId, position: int, epoch: int = 5) -> FetchSnapshotRequest:
        return fetch_snapshot_request(CLUSTER_ID, voter_of(2).key, epoch, snapshot, position, 50)

    one.asked(asks(start, 10))
    assert (one.only(AnswerSnapshot).position, one.only(AnswerSnapshot).bytes_max) == (10, 50)
    refused = {
        ErrorCode.SNAPSHOT_NOT_FOUND: asks(SnapshotId(4, 4), 0),
        ErrorCode.POSITION_OUT_OF_RANGE: asks(start, size),
        ErrorCode.FENCED_LEADER_EPOCH: asks(start, 0, 4),
    }
    for error, request in refused.items():
        response = one.answers(request)
        assert isinstance(response, FetchSnapshotResponse)
        assert response.topics[0].partitions[0].error_code == error


# -- who leads, as answers say


def test_an_answer_of_another_epoch_leads_to_its_leader() -> None:
    one = One().follows(2)
    newer = fetch_response(known(3, 4), Asked(17, ""), ErrorCode.FENCED_LEADER_EPOCH)
    one.hears(one.sent(FetchRequest)[2], newer)
    assert (one.raft.leader.leader_id, one.raft.epoch) == (3, 4)
    assert one.sent(FetchRequest)[3].node.host == "node-3"


def test_an_observer_whose_leader_is_silent_asks_others_who_leads() -> None:
    one = One(4).follows(2)
    one.done.clear()
    one.passes(2000)  # of controller.quorum.request.timeout.ms
    assert set(one.sent(FetchRequest)) == {1, 2}


def test_a_voter_whose_address_changed_says_so() -> None:
    moved = voter_of(1).__class__(1, directory_of(1), (("CONTROLLER", "elsewhere", 1),))
    one = One(voters=voters_of(1, 2, 3).with_voter(moved)).follows(2)
    one.passes(1900)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    one.passes(200)
    one.hears(one.sent(FetchRequest)[2], fetched(2, 1))
    request = one.sent(UpdateRaftVoterRequest)[2].request
    assert isinstance(request, UpdateRaftVoterRequest)
    assert request.listeners[0].host == "node-1"

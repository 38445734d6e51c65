"""What a leader says of a quorum of several."""

from odradek.core.controller.quorum import QuorumStatus, ReplicaStatus, describe_quorum
from odradek.core.raft.voters import Voter, VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import DescribeQuorumRequest

FOLDERS = {number: b"folder of node %d" % number for number in range(1, 6)}
Topic, Partition = DescribeQuorumRequest.TopicData, DescribeQuorumRequest.PartitionData
REQUEST = DescribeQuorumRequest(topics=[Topic(topic_name="__cluster_metadata", partitions=[Partition(partition_index=0)])])


def status(*, is_leader: bool = True) -> QuorumStatus:
    """Of voters 1, which leads, 2, which is behind, and 3, which was never heard of; 4 observes, and 2 in another folder."""
    return QuorumStatus(
        leader_id=1,
        leader_epoch=5,
        high_watermark=90,
        log_end_offset=100,
        kraft_version=1,
        voters=VoterSet(tuple(Voter(number, FOLDERS[number]) for number in (1, 2, 3))),
        now_ms=1_000,
        replicas=(
            ReplicaStatus(id=2, directory_id=FOLDERS[2], log_end_offset=90, last_fetch_ms=990, last_caught_up_ms=900),
            ReplicaStatus(id=4, directory_id=FOLDERS[4], log_end_offset=80, last_fetch_ms=980, last_caught_up_ms=-1),
            ReplicaStatus(id=2, directory_id=FOLDERS[5], log_end_offset=70, last_fetch_ms=970, last_caught_up_ms=-1),
        ),
        is_leader=is_leader,
    )


def test_voters_and_observers_are_told_apart_by_their_folders() -> None:
    described = describe_quorum(REQUEST, status(), 2).topics[0].partitions[0]
    assert [
        (state.replica_id, state.replica_directory_id, state.log_end_offset, state.last_fetch_timestamp)
        for state in described.current_voters
    ] == [(1, FOLDERS[1], 100, 1_000), (2, FOLDERS[2], 90, 990), (3, FOLDERS[3], -1, -1)]
    assert [(state.replica_id, state.log_end_offset) for state in described.observers] == [(4, 80), (2, 70)]
    assert [state.last_caught_up_timestamp for state in described.current_voters] == [1_000, 900, -1]


def test_folders_are_spoken_of_since_version_2() -> None:
    described = describe_quorum(REQUEST, status(), 1).topics[0].partitions[0]
    assert {state.replica_directory_id for state in [*described.current_voters, *described.observers]} == {NIL_UUID}


def test_who_does_not_lead_says_so() -> None:
    described = describe_quorum(REQUEST, status(is_leader=False), 2).topics[0].partitions[0]
    assert (described.error_code, described.current_voters) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])

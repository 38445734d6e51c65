"""What an answer of another node says of epochs and leaders, before its own part looks at the rest.

Invariants
 1. An answer of an old epoch changes nothing; one of a newer epoch is the end of whatever was going on.
 2. An answer that changed nothing is not followed by the same request at once.
"""

from odradek.core.raft.changing import Changing
from odradek.core.raft.electing import Electing
from odradek.core.raft.election import NOBODY
from odradek.core.raft.following import Following
from odradek.core.raft.outbox import Pending
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.requests import EpochResponse, fetched_is_of_metadata, is_of_metadata
from odradek.core.raft.voters import Endpoints
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddRaftVoterResponse,
    ApiVersionsResponse,
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
    VoteResponse,
)


class Responses:
    def __init__(self, quorum: QuorumState, electing: Electing, following: Following, changing: Changing) -> None:
        self.quorum = quorum
        self.electing = electing
        self.following = following
        self.changing = changing

    def take(self, pending: Pending, response: Message | None, now_ms: int) -> bool:
        """False when the node is to be left alone for a while."""
        match response:
            case VoteResponse() | BeginQuorumEpochResponse() | EndQuorumEpochResponse():
                return self._epoch(pending, response, now_ms)
            case FetchResponse():
                return self._fetched(pending, response, now_ms)
            case FetchSnapshotResponse():
                return self._fetched_snapshot(pending, response, now_ms)
            case ApiVersionsResponse():
                return self.changing.found_versions(pending.node.id, response, now_ms)
            case UpdateRaftVoterResponse():
                leader = response.current_leader
                endpoints = ((self.quorum.config.listener, leader.host, leader.port),) if leader.host else ()
                heard = self._heard(response.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
                if heard is None:
                    self.following.told(response.error_code)
                return True if heard is None else heard
            case AddRaftVoterResponse() | RemoveRaftVoterResponse():
                return True  # it looks again after a while
            case _:
                return False

    def _heard(self, error: int, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool | None:
        """What the answer says of the epoch; None when the rest of it is to be looked at."""
        quorum = self.quorum
        before = quorum.state
        if epoch < quorum.epoch or error == ErrorCode.UNKNOWN_LEADER_EPOCH:
            return False
        is_wrong = error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        is_news = epoch > quorum.epoch or (leader_id != NOBODY and quorum.leader.leader_id == NOBODY)
        if is_wrong or is_news:
            is_newer = epoch > quorum.epoch
            quorum.hear_of(leader_id, epoch, endpoints, now_ms)
            if is_wrong or is_newer or error != ErrorCode.NONE:
                return quorum.state is not before
        return None

    def _epoch(self, pending: Pending, response: EpochResponse, now_ms: int) -> bool:
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(response, VoteResponse):
            self.electing.cannot_pre_vote(now_ms)
            return False
        if response.error_code != ErrorCode.NONE or not is_of_metadata(response):
            return False
        partition = response.topics[0].partitions[0]
        endpoints = leader_endpoints(response, partition.leader_id, self.quorum.config.listener)
        heard = self._heard(partition.error_code, partition.leader_id, partition.leader_epoch, endpoints, now_ms)
        if heard is not None:
            return heard
        if isinstance(response, VoteResponse):
            return self.electing.voted(pending.node.id, response, now_ms)
        if isinstance(response, EndQuorumEpochResponse) and partition.error_code == ErrorCode.NONE:
            self.electing.acknowledged(pending.node.id)
        return partition.error_code == ErrorCode.NONE

    def _fetched(self, pending: Pending, response: FetchResponse, now_ms: int) -> bool:
        if response.error_code != ErrorCode.NONE or not fetched_is_of_metadata(response):
            return False
        partition = response.responses[0].partitions[0]
        leader = partition.current_leader
        endpoints = leader_endpoints(response, leader.leader_id, self.quorum.config.listener)
        heard = self._heard(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
        if heard is not None:
            return heard
        assert isinstance(pending.request, FetchRequest)
        return self.following.fetched(pending.request, response, now_ms)

    def _fetched_snapshot(self, pending: Pending, response: FetchSnapshotResponse, now_ms: int) -> bool:
        if response.error_code != ErrorCode.NONE or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
            self.following.give_up_snapshot()  # Kafka fails so when it has let go of it
            return False
        partition = response.topics[0].partitions[0]
        leader = partition.current_leader
        endpoints = leader_endpoints(response, leader.leader_id, self.quorum.config.listener)
        heard = self._heard(partition.error_code, leader.leader_id, leader.leader_epoch, endpoints, now_ms)
        if heard is not None:
            return heard
        assert isinstance(pending.request, FetchSnapshotRequest)
        return self.following.fetched_snapshot(pending.request, response, now_ms)


def leader_endpoints(response: EpochResponse | FetchResponse | FetchSnapshotResponse, leader_id: int, listener: str) -> Endpoints:
    """Where an answer says that the leader is."""
    return tuple((listener, point.host, point.port) for point in response.node_endpoints if point.node_id == leader_id)

"""Who leads next: pre-votes, votes, and the beginning and end of epochs.

Invariants
 1. A vote is persisted before it is answered; a node votes for itself before it asks others.
 2. A pre-vote raises nobody's epoch but that of a node that is behind.
 3. Who is asked checks that it is meant: its node id, and its folder where the request names one.
"""

from collections.abc import Callable
from typing import Final

from odradek.core.raft.effects import Ticket
from odradek.core.raft.election import NOBODY
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.requests import (
    Asked,
    begin_quorum_epoch_response,
    end_quorum_epoch_request,
    end_quorum_epoch_response,
    is_of_metadata,
    vote_request,
    vote_response,
)
from odradek.core.raft.states import NEVER_MS, Candidate, Follower, Prospective, Resigned, Unattached
from odradek.core.raft.voters import ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)

CAMPAIGN_STAGGER_MS: Final = 50  # between voters that see a leader die at the same moment, so that they do not split the vote
UNNAMED: Final = -1  # the voter of a request of version 0


class Electing:
    def __init__(self, quorum: QuorumState, lead: Callable[[Candidate, int], None]) -> None:
        self.quorum = quorum
        self.lead = lead  # what a candidate with a majority does

    # -- the start

    def start(self, now_ms: int) -> None:
        """The state of a node that was just started: never that of a leader."""
        quorum, saved, key = self.quorum, self.quorum.persisted, self.quorum.config.key
        voted = ReplicaKey(saved.voted_id, saved.voted_directory_id) if saved.voted_id != NOBODY else None
        endpoints = quorum.history.voters.endpoints_of(saved.leader_id)
        if quorum.is_only_voter:
            quorum.become(Unattached(max(saved.epoch, quorum.log.last_epoch), now_ms))
            quorum.become_candidate(now_ms)
            self._count(now_ms)
        elif saved.epoch < quorum.log.last_epoch:
            quorum.become_unattached(quorum.log.last_epoch, now_ms)
        elif saved.leader_id == key.id:
            unacknowledged = [voter for voter in quorum.history.voters.ids if voter != key.id]
            deadline_ms = quorum.election_deadline_ms(now_ms)
            quorum.become(Resigned(saved.epoch, deadline_ms, key, unacknowledged, []))
        elif saved.leader_id != NOBODY and endpoints:
            deadline_ms = now_ms + quorum.config.fetch_timeout_ms
            quorum.become(Follower(saved.epoch, saved.leader_id, endpoints, deadline_ms, deadline_ms, voted))
        else:
            quorum.become_unattached(saved.epoch, now_ms, leader_id=saved.leader_id, voted=voted)
            state = quorum.state
            if saved.epoch == 0 and quorum.may_campaign and isinstance(state, Unattached):
                state.election_deadline_ms = (
                    now_ms + CAMPAIGN_STAGGER_MS + self._turn_ms(NOBODY)
                )  # a new cluster has no leader to wait for

    def _turn_ms(self, gone_id: int) -> int:
        """When this voter is to campaign, where all of them know at about the same time that nobody leads."""
        ids = [voter for voter in self.quorum.history.voters.ids if voter != gone_id and voter < self.quorum.config.node_id]
        return len(ids) * CAMPAIGN_STAGGER_MS

    # -- requests

    def _error(self, request: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest) -> ErrorCode | None:
        """What is wrong with the whole of a request."""
        if request.cluster_id not in (None, self.quorum.config.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        return None if is_of_metadata(request) else ErrorCode.INVALID_REQUEST

    def _refusal(self, sender_id: int, epoch: int) -> ErrorCode | None:
        if epoch < self.quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if sender_id < 0 else None

    def _is_meant(self, voter_id: int, directory_id: bytes) -> bool:
        if voter_id == UNNAMED:
            return True
        config = self.quorum.config
        return voter_id == config.node_id and directory_id in (NIL_UUID, config.directory_id)

    def vote(self, ticket: Ticket, request: VoteRequest, asked: Asked, now_ms: int) -> None:
        quorum = self.quorum
        error = self._error(request)
        if error is not None:
            quorum.answer(ticket, VoteResponse(error_code=error))
            return
        refusal, granted = self._decide_vote(request, now_ms)
        quorum.answer(ticket, vote_response(quorum.leader, asked, refusal, granted=granted))

    def _decide_vote(self, request: VoteRequest, now_ms: int) -> tuple[ErrorCode, bool]:
        quorum = self.quorum
        asks = request.topics[0].partitions[0]
        epoch, last = asks.replica_epoch, (asks.last_offset_epoch, asks.last_offset)
        newest_epoch = epoch if asks.pre_vote else epoch - 1
        if asks.last_offset < 0 or not 0 <= asks.last_offset_epoch <= newest_epoch:
            return ErrorCode.INVALID_REQUEST, False
        refusal = self._refusal(asks.replica_id, epoch)
        if refusal is not None:
            return refusal, False
        if epoch > quorum.epoch:
            quorum.become_unattached(epoch, now_ms)
        if not self._is_meant(request.voter_id, asks.voter_directory_id):
            return ErrorCode.INVALID_VOTER_KEY, False
        candidate = ReplicaKey(asks.replica_id, asks.replica_directory_id)
        state = quorum.state
        granted = state.grants(candidate, pre_vote=asks.pre_vote, up_to_date=last >= quorum.last)
        if granted and not asks.pre_vote and isinstance(state, Unattached | Prospective) and state.voted is None:
            quorum.become_unattached(epoch, now_ms, voted=candidate)
        return ErrorCode.NONE, granted

    def begin(self, ticket: Ticket, request: BeginQuorumEpochRequest, asked: Asked, now_ms: int) -> None:
        quorum = self.quorum
        error = self._error(request)
        if error is not None:
            quorum.answer(ticket, BeginQuorumEpochResponse(error_code=error))
            return
        begins = request.topics[0].partitions[0]
        refusal = self._refusal(begins.leader_id, begins.leader_epoch)
        if refusal is None:
            endpoints = tuple((point.name, point.host, point.port) for point in request.leader_endpoints)
            if not quorum.hear_of(begins.leader_id, begins.leader_epoch, endpoints, now_ms):
                refusal = ErrorCode.INVALID_REQUEST
            elif not self._is_meant(request.voter_id, begins.voter_directory_id):
                refusal = ErrorCode.INVALID_VOTER_KEY
        quorum.answer(ticket, begin_quorum_epoch_response(quorum.leader, asked, refusal or ErrorCode.NONE))

    def end(self, ticket: Ticket, request: EndQuorumEpochRequest, asked: Asked, now_ms: int) -> None:
        quorum = self.quorum
        error = self._error(request)
        if error is not None:
            quorum.answer(ticket, EndQuorumEpochResponse(error_code=error))
            return
        ends = request.topics[0].partitions[0]
        refusal = self._refusal(ends.leader_id, ends.leader_epoch)
        if refusal is None:
            endpoints = tuple((point.name, point.host, point.port) for point in request.leader_endpoints)
            if not quorum.hear_of(ends.leader_id, ends.leader_epoch, endpoints, now_ms):
                refusal = ErrorCode.INVALID_REQUEST
            elif isinstance(quorum.state, Follower) and quorum.state.leader_id == ends.leader_id:
                quorum.state.fetch_deadline_ms = now_ms + self._succession_ms(ends)
        quorum.answer(ticket, end_quorum_epoch_response(quorum.leader, asked, refusal or ErrorCode.NONE))

    def _succession_ms(self, ends: EndQuorumEpochRequest.PartitionData) -> int:
        """The first of the successors campaigns at once, the others later, each twice as late as the one before. A leader that
        was started again names none: then it is everybody's turn."""
        key, longest_ms = self.quorum.config.key, self.quorum.config.election_backoff_max_ms
        named = [ReplicaKey(info.candidate_id, info.candidate_directory_id) for info in ends.preferred_candidates]
        named = named or [ReplicaKey(successor) for successor in ends.preferred_successors]
        if not named:
            return self._turn_ms(ends.leader_id)
        meant = [at for at, name in enumerate(named) if name.id == key.id and name.directory_id in (NIL_UUID, key.directory_id)]
        if not meant:
            return longest_ms
        return 0 if meant[0] == 0 else min(longest_ms, longest_ms >> (len(named) - 1) << (meant[0] - 1))

    # -- answers

    def voted(self, node_id: int, response: VoteResponse, now_ms: int) -> bool:
        """The partition's error was looked at, and the epoch is this one. False when the node is to be left alone for a while."""
        state = self.quorum.state
        partition = response.topics[0].partitions[0]
        if partition.error_code != ErrorCode.NONE:
            return False
        if isinstance(state, Prospective | Candidate):
            state.ballot.record(node_id, granted=partition.vote_granted)
            self._count(now_ms)
        return True

    def cannot_pre_vote(self, now_ms: int) -> None:
        """A voter is so old that it knows no pre-vote: then there is an election without."""
        if isinstance(self.quorum.state, Prospective):
            self.quorum.become_candidate(now_ms)
            self._count(now_ms)

    def _count(self, now_ms: int) -> None:
        quorum, state = self.quorum, self.quorum.state
        if isinstance(state, Prospective):
            if state.ballot.is_granted:
                quorum.become_candidate(now_ms)
                self._count(now_ms)
            elif state.ballot.is_rejected:
                self._give_up(state, now_ms)
        elif isinstance(state, Candidate):
            if state.ballot.is_granted:
                self.lead(state, now_ms)
            elif state.ballot.is_rejected:
                state.election_deadline_ms = min(state.election_deadline_ms, now_ms + quorum.backoff_ms(state.retries))

    def _give_up(self, state: Prospective, now_ms: int) -> None:
        """Back to where it was: the majority hears from a leader, or knows more."""
        quorum = self.quorum
        if state.leader_id == NOBODY or not state.endpoints:
            quorum.become_unattached(state.epoch, now_ms, leader_id=state.leader_id, voted=state.voted)
            return
        quorum.become_follower(state.epoch, state.leader_id, state.endpoints, now_ms)
        if state.leader_is_gone:  # the others have perhaps not seen it yet
            follower = quorum.state
            assert isinstance(follower, Follower)
            follower.leader_is_gone, follower.retries = True, state.retries
            follower.fetch_deadline_ms = min(follower.fetch_deadline_ms, now_ms + quorum.backoff_ms(state.retries))

    def acknowledged(self, node_id: int) -> None:
        """An EndQuorumEpoch was heard."""
        state = self.quorum.state
        if isinstance(state, Resigned) and node_id in state.unacknowledged:
            state.unacknowledged.remove(node_id)

    # -- a leader that died

    def refused(self, node_id: int, now_ms: int) -> None:
        """The host was refused where the leader should be. The voters campaign one after another, beginning at once. Who has done
        so, and was not elected, waits as long as it said: it is refused again with every fetch."""
        quorum, state = self.quorum, self.quorum.state
        if not isinstance(state, Follower) or state.leader_id != node_id or state.leader_is_gone:
            return
        if quorum.may_campaign:
            state.leader_is_gone = True
            state.fetch_deadline_ms = min(state.fetch_deadline_ms, now_ms + self._turn_ms(node_id))

    # -- time

    def poll(self, state: Unattached | Prospective | Candidate | Resigned, now_ms: int) -> int:
        """Does what is due; gives the time to look again."""
        quorum = self.quorum
        deadline_ms = NEVER_MS if quorum.is_stopping else state.election_deadline_ms
        match state:
            case Unattached():
                if deadline_ms <= now_ms and quorum.may_campaign:
                    self._campaign(now_ms)
                return deadline_ms if quorum.may_campaign else NEVER_MS
            case Prospective():
                if deadline_ms <= now_ms:
                    self._give_up(state, now_ms)
                    return now_ms
                return min(self._ask(state, now_ms), deadline_ms)
            case Candidate():
                if deadline_ms <= now_ms:
                    self._campaign(now_ms)
                    return now_ms
                return min(self._ask(state, now_ms), deadline_ms)
            case Resigned():
                if deadline_ms <= now_ms:
                    quorum.become_unattached(state.epoch + 1, now_ms)
                    return now_ms
                return min(self._tell_end(state, now_ms), deadline_ms)

    def _campaign(self, now_ms: int) -> None:
        if self.quorum.may_campaign:
            self.quorum.become_prospective(now_ms)
            self._count(now_ms)
        else:
            self.quorum.become_unattached(self.quorum.epoch, now_ms, voted=self.quorum.config.key)

    def campaign(self, now_ms: int) -> None:
        """The leader has not been heard from for too long."""
        assert isinstance(self.quorum.state, Follower)
        self._campaign(now_ms)

    def _ask(self, state: Prospective | Candidate, now_ms: int) -> int:
        if state.ballot.is_rejected:
            return NEVER_MS
        quorum = self.quorum
        pre_vote = isinstance(state, Prospective)
        again_ms = NEVER_MS
        for voter_id in state.ballot.missing:
            voter, node = quorum.history.voters.find(voter_id), quorum.voter_node(voter_id)
            if voter is None or node is None:
                continue
            make = self._vote_request(voter.key, pre_vote=pre_vote)
            again_ms = min(again_ms, quorum.send(node, make, now_ms))
        return again_ms

    def _vote_request(self, voter: ReplicaKey, *, pre_vote: bool) -> Callable[[], Message]:
        quorum, config = self.quorum, self.quorum.config
        return lambda: vote_request(config.cluster_id, quorum.epoch, config.key, voter, quorum.last, pre_vote=pre_vote)

    def _tell_end(self, state: Resigned, now_ms: int) -> int:
        quorum = self.quorum
        again_ms = NEVER_MS
        request = end_quorum_epoch_request(quorum.config.cluster_id, quorum.leader, state.successors)
        for voter_id in state.unacknowledged:
            node = quorum.voter_node(voter_id)
            if node is not None:
                again_ms = min(again_ms, quorum.send(node, lambda: request, now_ms))
        return again_ms

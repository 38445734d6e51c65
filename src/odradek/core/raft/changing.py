"""Changes of who votes: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, all decided by the leader.

Invariants
 1. One change at a time: the record of the last one is committed, and so is a record of this leader's epoch, before the next.
 2. Who is added has caught up with the log first, and knows the kraft.version in force.
 3. A leader that is not in the committed set any more resigns.
 4. Fixed voters come into the log when each has told its folder and what it supports, all of them at once.
"""

from typing import Final

from odradek.core.raft.batches import voters_messages
from odradek.core.raft.effects import Ticket
from odradek.core.raft.election import NOBODY
from odradek.core.raft.leading import Leading
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.states import NEVER_MS, UNKNOWN, Leader, VoterChange
from odradek.core.raft.voters import Endpoints, ReplicaKey, Voter, VoterSet
from odradek.wire.control import ControlType
from odradek.wire.errors import ErrorCode
from odradek.wire.ids import id_text
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

CAUGHT_UP_WITHIN_MS: Final = 3_600_000
KRAFT_VERSION: Final = "kraft.version"


def hello() -> ApiVersionsRequest:
    """Nobody answers who does not say what it is."""
    return ApiVersionsRequest(client_software_name="odradek-quorum", client_software_version="1")


class Refusal(Exception):
    """Why a change is not made."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error, self.message = error, message


def endpoints_of(listeners: list[AddRaftVoterRequest.Listener] | list[UpdateRaftVoterRequest.Listener]) -> Endpoints:
    return tuple((listener.name, listener.host, listener.port) for listener in listeners)


class Changing:
    def __init__(self, quorum: QuorumState, leading: Leading) -> None:
        self.quorum = quorum
        self.leading = leading

    # -- what every change needs

    def _leader(self, cluster_id: str | None, epoch: int) -> Leader:
        quorum = self.quorum
        if cluster_id not in (None, quorum.config.cluster_id):
            raise Refusal(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"The request is for cluster {cluster_id!r}, and this one is {quorum.config.cluster_id!r}.",
            )
        error = self.leading.leader_error(epoch)
        if error is not None:
            raise Refusal(error)
        assert isinstance(quorum.state, Leader)
        return quorum.state

    def _check_settled(self, leader: Leader) -> None:
        """Whether another change may begin."""
        if leader.change is not None:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "Another change of the voters is under way: ask again when it is done.")
        if leader.high_watermark == UNKNOWN:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "The leader was just elected and has committed nothing yet: ask again.")

    def _settled_voters(self, leader: Leader) -> VoterSet:
        """The voters that the log names, when another change may begin."""
        history = self.quorum.history
        self._check_settled(leader)
        if history.kraft_version == 0:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                "The voters are fixed by controller.quorum.voters: they can be changed where kraft.version is 1.",
            )
        if history.voters_offset >= leader.high_watermark:
            raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "The last change of the voters is not committed yet: ask again.")
        return history.voters

    def _key(self, voter_id: int, directory_id: bytes) -> ReplicaKey:
        if voter_id < 0 or directory_id == NIL_UUID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "A voter is named by its node id and by the id of its metadata folder.")
        return ReplicaKey(voter_id, directory_id)

    def _checked(self, endpoints: Endpoints) -> Endpoints:
        listener = self.quorum.config.listener
        if not any(name == listener for name, _, _ in endpoints):
            raise Refusal(ErrorCode.INVALID_REQUEST, f"The voter has no endpoint for the listener {listener}.")
        return endpoints

    def _append(self, voters: VoterSet) -> int:
        return self.leading.append_control([(ControlType.KRAFT_VOTERS, voters.to_record())])

    # -- AddRaftVoter

    def add(self, ticket: Ticket, request: AddRaftVoterRequest, now_ms: int) -> None:
        quorum = self.quorum
        try:
            leader = self._leader(request.cluster_id, quorum.epoch)
            key = self._key(request.voter_id, request.voter_directory_id)
            endpoints = self._checked(endpoints_of(request.listeners))
            voters = self._settled_voters(leader)
            if key.id in voters.ids:
                raise Refusal(ErrorCode.DUPLICATE_VOTER, f"Node {key.id} is a voter already, of {voters.ids}.")
            node = quorum.node_of(key.id, endpoints)
            assert node is not None
            if quorum.outbox.ready_ms(node.id, now_ms) > now_ms:
                raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"Node {key.id} is not ready for requests: ask again.")
        except Refusal as refusal:
            quorum.answer(ticket, AddRaftVoterResponse(error_code=refusal.error, error_message=refusal.message))
            return
        leader.change = VoterChange(
            ticket, True, key, endpoints, now_ms + quorum.config.request_timeout_ms, request.ack_when_committed
        )
        quorum.send(node, hello, now_ms)

    def found_versions(self, node_id: int, response: ApiVersionsResponse, now_ms: int) -> bool:
        """What the node that is to vote can do."""
        quorum, leader = self.quorum, self.quorum.state
        change = leader.change if isinstance(leader, Leader) else None
        if not isinstance(leader, Leader) or change is None or change.offset is not None or change.key.id != node_id:
            return True
        try:
            if response.error_code != ErrorCode.NONE:
                raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"Node {node_id} did not say its versions: {response.error_code}.")
            voter = self._new_voter(change, response)
            self._check_caught_up(leader, change.key, now_ms)
        except Refusal as refusal:
            leader.change = None
            quorum.answer(change.ticket, AddRaftVoterResponse(error_code=refusal.error, error_message=refusal.message))
            return refusal.error != ErrorCode.REQUEST_TIMED_OUT
        change.offset = self._append(quorum.history.voters.with_added(voter))
        if not change.ack_when_committed:
            quorum.answer(change.ticket, AddRaftVoterResponse())
        return True

    def _new_voter(self, change: VoterChange, response: ApiVersionsResponse) -> Voter:
        level = self.quorum.history.kraft_version
        found = next((feature for feature in response.supported_features if feature.name == KRAFT_VERSION), None)
        if found is None or not found.min_version <= level <= found.max_version:
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"Node {change.key.id} does not know {KRAFT_VERSION} {level}: install a newer version."
            )
        return Voter(change.key.id, change.key.directory_id, change.endpoints, found.min_version, found.max_version)

    def _check_caught_up(self, leader: Leader, key: ReplicaKey, now_ms: int) -> None:
        replica = leader.observers.get(key)
        if replica is None or replica.last_caught_up_ms == UNKNOWN or now_ms - replica.last_fetch_ms >= CAUGHT_UP_WITHIN_MS:
            raise Refusal(
                ErrorCode.REQUEST_TIMED_OUT,
                f"Node {key.id} with the folder {id_text(key.directory_id)} has not caught up with the metadata log: "
                "start it as a controller, and ask again.",
            )

    # -- RemoveRaftVoter

    def remove(self, ticket: Ticket, request: RemoveRaftVoterRequest, now_ms: int) -> None:
        quorum = self.quorum
        try:
            leader = self._leader(request.cluster_id, quorum.epoch)
            key = self._key(request.voter_id, request.voter_directory_id)
            voters = self._settled_voters(leader)
            left = voters.without(key)
            if left is None:
                raise Refusal(
                    ErrorCode.VOTER_NOT_FOUND,
                    f"Node {key.id} with the folder {id_text(key.directory_id)} is not one of the voters {voters.ids}, or is the "
                    "last one.",
                )
        except Refusal as refusal:
            quorum.answer(ticket, RemoveRaftVoterResponse(error_code=refusal.error, error_message=refusal.message))
            return
        deadline_ms = now_ms + quorum.config.request_timeout_ms
        leader.change = VoterChange(ticket, False, key, (), deadline_ms, offset=self._append(left))

    # -- UpdateRaftVoter

    def update(self, ticket: Ticket, request: UpdateRaftVoterRequest, now_ms: int) -> None:
        """Where a voter is and what it supports: for the log, or for when fixed voters come into it."""
        history = self.quorum.history
        try:
            leader = self._leader(request.cluster_id, request.current_leader_epoch)
            key = self._key(request.voter_id, request.voter_directory_id)
            endpoints = self._checked(endpoints_of(request.listeners))
            supported = request.kraft_version_feature
            if not 0 <= supported.min_supported_version <= supported.max_supported_version:
                raise Refusal(ErrorCode.INVALID_REQUEST)
            self._check_settled(leader)
            voters = leader.fixed_voters or self._settled_voters(leader)
            if not supported.min_supported_version <= history.kraft_version <= supported.max_supported_version:
                raise Refusal(ErrorCode.INVALID_REQUEST)
            if voters.find(key.id) is None if leader.fixed_voters else not voters.is_voter(key):
                raise Refusal(ErrorCode.VOTER_NOT_FOUND)
        except Refusal as refusal:
            self._answer_update(ticket, refusal.error)
            return
        changed = Voter(key.id, key.directory_id, endpoints, supported.min_supported_version, supported.max_supported_version)
        if leader.fixed_voters:
            leader.fixed_voters = voters.with_voter(changed)
        elif voters.find(key.id) != changed:
            self._append(voters.with_voter(changed))
        self.leading.heard(leader, leader.replica(key), now_ms)
        self._answer_update(ticket, ErrorCode.NONE)

    def _answer_update(self, ticket: Ticket, error: ErrorCode) -> None:
        leader = self.quorum.leader
        current = UpdateRaftVoterResponse.CurrentLeader(leader_id=leader.leader_id, leader_epoch=leader.epoch)
        address = leader.address(self.quorum.config.listener)
        if leader.leader_id != NOBODY and address is not None:
            current.host, current.port = address
        self.quorum.answer(ticket, UpdateRaftVoterResponse(error_code=error, current_leader=current))

    # -- kraft.version

    def upgrade(self, kraft_version: int) -> None:
        """Fixed voters go into the log, as they told of themselves; from then on they can be changed."""
        leader, history = self.quorum.state, self.quorum.history
        assert isinstance(leader, Leader)
        assert leader.fixed_voters is not None
        assert kraft_version > history.kraft_version
        assert NIL_UUID not in {voter.directory_id for voter in leader.fixed_voters.voters}
        voters, leader.fixed_voters = leader.fixed_voters, None
        self.leading.append_control(voters_messages(kraft_version, voters))

    # -- commit and time

    def committed(self, leader: Leader) -> None:
        """The high watermark may have moved past a change."""
        change = leader.change
        if change is not None and change.offset is not None and leader.high_watermark > change.offset:
            leader.change = None
            if not change.is_addition:
                self.quorum.answer(change.ticket, RemoveRaftVoterResponse())
            elif change.ack_when_committed:
                self.quorum.answer(change.ticket, AddRaftVoterResponse())
        is_committed = leader.high_watermark > self.quorum.history.voters_offset
        leader.leaves = leader.leaves or (is_committed and leader.high_watermark != UNKNOWN and not self.quorum.is_voter)

    def poll(self, leader: Leader, now_ms: int) -> int:
        change = leader.change
        if change is None:
            return NEVER_MS
        if change.deadline_ms > now_ms:
            return change.deadline_ms
        leader.change = None
        kind = AddRaftVoterResponse if change.is_addition else RemoveRaftVoterResponse
        if change.ack_when_committed or change.offset is None:
            self.quorum.answer(change.ticket, kind(error_code=ErrorCode.REQUEST_TIMED_OUT))
        return NEVER_MS

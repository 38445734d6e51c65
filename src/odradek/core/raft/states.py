"""The states of a node in the quorum, and what each says to a request for its vote.

    unattached --timeout--> prospective --pre-votes--> candidate --votes--> leader --> resigned
         ^                        |                                                       |
         +------ refused ---------+---- follower <-- of whoever leads        epoch + 1 ---+

A node that does not vote is unattached or a follower. A higher epoch makes any of them unattached, or a follower of its leader.

Invariants
 1. A vote in an epoch is given once: to the one that `voted` names, and never by a node that knows the epoch's leader.
 2. A vote, and a pre-vote, only goes to a log that is no shorter than one's own.
 3. A pre-vote changes nothing here, and a follower that hears from its leader refuses it.
"""

from typing import Final, TypeAlias

from msgspec import Struct, field

from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.effects import Ticket
from odradek.core.raft.election import NOBODY, Election
from odradek.core.raft.voters import Endpoints, ReplicaKey, VoterSet
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FetchRequest

NEVER_MS: Final = 1 << 62
UNKNOWN: Final = -1


def elected(epoch: int, leader_id: int, voted: ReplicaKey | None) -> Election:
    voted = voted or ReplicaKey(NOBODY)
    return Election(epoch=epoch, leader_id=leader_id, voted_id=voted.id, voted_directory_id=voted.directory_id)


def is_same(voted: ReplicaKey, candidate: ReplicaKey) -> bool:
    """A candidate of an old version does not say which folder it has."""
    return voted.id == candidate.id and voted.directory_id in (NIL_UUID, candidate.directory_id)


def may_vote(voted: ReplicaKey | None, leader_id: int, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
    """What a node says that follows nobody."""
    if pre_vote:
        return up_to_date
    if voted is not None:
        return is_same(voted, candidate)
    return leader_id == NOBODY and up_to_date


class Ballot(Struct):
    """The votes of one round, among those who voted when it began."""

    voters: tuple[int, ...]
    granted: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_granted(self) -> bool:
        return len(self.granted) >= self.majority

    @property
    def is_rejected(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.majority

    @property
    def missing(self) -> list[int]:
        return [voter for voter in self.voters if voter not in self.granted and voter not in self.rejected]

    def record(self, voter_id: int, *, granted: bool) -> None:
        """The first answer counts."""
        if voter_id in self.missing:
            (self.granted if granted else self.rejected).append(voter_id)


class Unattached(Struct):
    epoch: int
    election_deadline_ms: int
    leader_id: int = NOBODY  # known, but not where it is
    voted: ReplicaKey | None = None

    @property
    def election(self) -> Election:
        return elected(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return may_vote(self.voted, self.leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date)


class Prospective(Struct):
    """Asks whether it would be elected before it disturbs anybody with a new epoch."""

    epoch: int
    election_deadline_ms: int
    ballot: Ballot
    retries: int
    leader_id: int = NOBODY
    endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    leader_is_gone: bool = False

    @property
    def election(self) -> Election:
        return elected(self.epoch, self.leader_id, self.voted)

    def grants(self, candidate: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return may_vote(self.voted, self.leader_id, candidate, pre_vote=pre_vote, up_to_date=up_to_date)


class Candidate(Struct):
    epoch: int
    election_deadline_ms: int
    ballot: Ballot
    retries: int
    voted: ReplicaKey  # this node

    @property
    def election(self) -> Election:
        return elected(self.epoch, NOBODY, self.voted)

    def grants(self, _: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return pre_vote and up_to_date


class Replica(Struct):
    """What the leader knows of one that fetches."""

    key: ReplicaKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    last_leader_end_offset: int = UNKNOWN  # where the log ended at its last fetch

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif offset >= self.last_leader_end_offset != UNKNOWN:
            self.last_caught_up_ms = self.last_fetch_ms
        self.last_fetch_ms = now_ms
        self.end_offset = offset
        self.last_leader_end_offset = leader_end_offset


class WaitingFetch(Struct):
    """A fetch at the end of the log, that waits for more."""

    ticket: Ticket
    request: FetchRequest
    version: int
    listener: str
    deadline_ms: int


class VoterChange(Struct):
    """The one change of voters that is under way."""

    ticket: Ticket
    is_addition: bool
    key: ReplicaKey
    endpoints: Endpoints
    deadline_ms: int
    ack_when_committed: bool = True
    offset: int | None = None  # of the record; None while the new voter is asked for its versions


class Leader(Struct):
    epoch: int
    epoch_start: int
    key: ReplicaKey
    voters: dict[int, Replica]
    check_deadline_ms: int  # by then a majority has fetched, or it is not the leader any more
    begin_deadline_ms: int
    high_watermark: int = UNKNOWN
    observers: dict[ReplicaKey, Replica] = field(default_factory=dict)
    fetched: list[int] = field(default_factory=list)  # voters that fetched since the deadline was moved
    waiting: list[WaitingFetch] = field(default_factory=list)
    change: VoterChange | None = None
    leaves: bool = False  # it is not in the committed set of voters any more
    fixed_voters: VoterSet | None = None  # of the settings, with what each has told of itself; None where the log names them

    @property
    def election(self) -> Election:
        return elected(self.epoch, self.key.id, None)  # as Kafka has it

    def grants(self, _: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:  # noqa: ARG002
        return False

    def replica(self, key: ReplicaKey) -> Replica:
        voter = self.voters.get(key.id)
        if voter is not None and voter.key.directory_id in (NIL_UUID, key.directory_id):
            return voter
        return self.observers.setdefault(key, Replica(key))

    def is_voter(self, replica: Replica) -> bool:
        return self.voters.get(replica.key.id) is replica

    def take_voters(self, voters: VoterSet) -> None:
        """The voters are now these; who was one before is an observer."""
        known = self.voters
        self.voters = {}
        for voter in voters.voters:
            before = known.pop(voter.id, None)
            if before is not None and before.key.directory_id in (NIL_UUID, voter.directory_id):
                before.key = voter.key
                self.voters[voter.id] = before
            else:
                self.voters[voter.id] = self.observers.pop(voter.key, Replica(voter.key))
                if before is not None:
                    self.observers[before.key] = before
        for before in known.values():
            self.observers[before.key] = before
        self.fetched = [voter for voter in self.fetched if voter in self.voters]


class Resigned(Struct):
    """Led this epoch, and says so to those who are to choose another. After a start too: it never leads the epoch again."""

    epoch: int
    election_deadline_ms: int
    key: ReplicaKey
    unacknowledged: list[int]
    successors: list[ReplicaKey]

    @property
    def election(self) -> Election:
        return elected(self.epoch, self.key.id, None)  # as Kafka has it

    def grants(self, _: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return pre_vote and up_to_date


class Download(Struct):
    """A snapshot that is being fetched."""

    snapshot: SnapshotId
    position: int = 0
    is_whole: bool = False  # written, and being installed


class Follower(Struct):
    epoch: int
    leader_id: int
    endpoints: Endpoints
    fetch_deadline_ms: int
    update_deadline_ms: int  # when it looks again whether the voters say the right things of it
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    has_told: bool = False  # the leader, who this voter is: of fixed voters it knows nothing else
    leader_is_gone: bool = False
    retries: int = 0  # of campaigns because it is gone
    download: Download | None = None

    @property
    def election(self) -> Election:
        return elected(self.epoch, self.leader_id, self.voted)

    def grants(self, _: ReplicaKey, *, pre_vote: bool, up_to_date: bool) -> bool:
        return pre_vote and up_to_date and (not self.has_fetched or self.leader_is_gone)


State: TypeAlias = Unattached | Prospective | Candidate | Leader | Resigned | Follower

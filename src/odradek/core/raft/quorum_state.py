"""What a node knows of the quorum, and the only places where that changes: its state, its vote, who leads, what is committed.

Election, leading, following and changes of voters are parts of their own; they share this.

Invariants
 1. The epoch never goes down. What must not be forgotten is persisted before anything that rests on it leaves.
 2. The high watermark never goes down.
 3. Only a node campaigns that the latest voter set names, or the one before while the latest is not known to be committed: such
    a node may be the only one that can bring its own removal to an end.
"""

from collections.abc import Callable
from typing import Final

from odradek.core.raft.effects import (
    Answer,
    Effect,
    HighWatermark,
    LeaderIs,
    LostLeadership,
    MetadataLog,
    Node,
    Persist,
    RaftConfig,
)
from odradek.core.raft.election import NOBODY, Election
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.outbox import Outbox
from odradek.core.raft.requests import Asked, KnownLeader, fetch_response
from odradek.core.raft.states import (
    NEVER_MS,
    UNKNOWN,
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from odradek.core.raft.voters import Endpoints, ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import AddRaftVoterResponse, RemoveRaftVoterResponse

FIRST_BOOTSTRAP_ID: Final = -2
BACKOFF_BASE_MS: Final = 50
BACKOFF_DOUBLINGS_MAX: Final = 10


class QuorumState:
    def __init__(
        self,
        config: RaftConfig,
        log: MetadataLog,
        history: VoterHistory,
        election: Election,
        chance: Callable[[int], int],
    ) -> None:
        """`chance(n)` gives a number of 0 to n - 1. The log is synced."""
        self.config = config
        self.log = log
        self.history = history
        self.chance = chance
        self.effects: list[Effect] = []
        self.outbox = Outbox(config.request_timeout_ms, config.retry_backoff_ms)
        self.persisted = election
        self.synced_offset = log.end_offset
        self.high_watermark = UNKNOWN
        self.is_stopping = False
        self.is_installing = False  # a snapshot, also when another leads by now than who sent it: the log is to begin with it
        self.state: State = Unattached(election.epoch, NEVER_MS)
        self._told = LeaderIs(NOBODY, -1)

    # -- who is who

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def is_voter(self) -> bool:
        return self.history.voters.is_voter(self.config.key)

    @property
    def may_campaign(self) -> bool:
        history, key = self.history, self.config.key
        if history.voters.is_voter(key):
            return True
        before = history.voters_before
        return before is not None and before.is_voter(key) and history.voters_offset >= self.high_watermark

    @property
    def is_only_voter(self) -> bool:
        return self.is_voter and len(self.history.voters.voters) == 1

    @property
    def leader(self) -> KnownLeader:
        state = self.state
        endpoints: Endpoints = ()
        if isinstance(state, Leader | Resigned):
            endpoints = self.config.endpoints
        elif isinstance(state, Follower | Prospective):
            endpoints = state.endpoints
        return KnownLeader(state.election.leader_id, state.epoch, endpoints)

    @property
    def last(self) -> tuple[int, int]:
        """The epoch of the last record, and the end of the log; larger is more up to date."""
        return self.log.last_epoch, self.log.end_offset

    def node_of(self, node_id: int, endpoints: Endpoints) -> Node | None:
        """Where a node is by the voters' listener."""
        found = next(((host, port) for name, host, port in endpoints if name == self.config.listener), None)
        return None if found is None else Node(node_id, *found)

    def voter_node(self, node_id: int) -> Node | None:
        return self.node_of(node_id, self.history.voters.endpoints_of(node_id))

    def bootstrap_nodes(self) -> list[Node]:
        """Whom one asks who knows nobody: the bootstrap servers, and the voters as far as they are known. Never itself."""
        servers = [Node(FIRST_BOOTSTRAP_ID - at, host, port) for at, (host, port) in enumerate(self.config.bootstrap)]
        voters = [self.voter_node(node_id) for node_id in self.history.voters.ids]
        named = [(host, port) for _, host, port in self.config.endpoints]
        found: list[Node] = []
        for node in [*servers, *filter(None, voters)]:
            if (node.host, node.port) not in named:
                named.append((node.host, node.port))
                found.append(node)
        return found

    # -- time and chance

    def election_deadline_ms(self, now_ms: int) -> int:
        timeout_ms = self.config.election_timeout_ms
        return now_ms + timeout_ms + (self.chance(timeout_ms) if timeout_ms else 0)

    def backoff_ms(self, retries: int) -> int:
        """A random pause that doubles its reach with each retry."""
        reach_ms = BACKOFF_BASE_MS << min(retries, BACKOFF_DOUBLINGS_MAX)
        return min(self.chance(reach_ms) + 1, self.config.election_backoff_max_ms)

    # -- what goes out

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def answer(self, ticket: object, response: Message) -> None:
        self.do(Answer(ticket, response))

    def send(self, node: Node, make: Callable[[], Message], now_ms: int) -> int:
        """Sends when the node can be sent something; gives the time to look again."""
        ready_ms = self.outbox.ready_ms(node.id, now_ms)
        if ready_ms > now_ms:
            return ready_ms
        self.do(self.outbox.send(node, make(), now_ms))
        return self.outbox.ready_ms(node.id, now_ms)

    def advance(self, offset: int) -> None:
        """What is below the offset is committed."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.do(HighWatermark(offset))

    # -- transitions

    def become(self, state: State) -> None:
        before = self.state
        assert state.epoch >= before.epoch
        if isinstance(before, Leader) and not isinstance(state, Leader):
            self.state = state
            self._leave(before)
        self.state = state
        if state.election != self.persisted and not isinstance(state, Resigned):
            self.persisted = state.election
            self.do(Persist(state.election, self.history.kraft_version, self.history.voters.ids))
        self.outbox.reset()
        self.tell()

    def tell(self) -> None:
        leader = self.leader
        told = LeaderIs(leader.leader_id, leader.epoch, leader.endpoints)
        if told != self._told and not isinstance(self.state, Resigned):
            self._told = told
            self.do(told)

    def _leave(self, leader: Leader) -> None:
        """Everybody who waits for a leader that is none any more is told so."""
        for waiting in leader.waiting:
            asked = Asked(waiting.version, waiting.listener)
            self.answer(waiting.ticket, fetch_response(self.leader, asked, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        change = leader.change
        if change is not None and (change.ack_when_committed or change.offset is None):
            kind = AddRaftVoterResponse if change.is_addition else RemoveRaftVoterResponse
            self.answer(change.ticket, kind(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.do(LostLeadership(leader.epoch))

    def become_unattached(self, epoch: int, now_ms: int, *, leader_id: int = NOBODY, voted: ReplicaKey | None = None) -> None:
        deadline_ms = NEVER_MS
        if self.may_campaign:
            deadline_ms = self.election_deadline_ms(now_ms)
            before = self.state
            if voted is None and epoch > before.epoch and isinstance(before, Unattached | Prospective | Candidate):
                deadline_ms = min(before.election_deadline_ms, deadline_ms)  # an epoch that leads nowhere puts nothing off
        self.become(Unattached(epoch, deadline_ms, leader_id, voted))

    def become_prospective(self, now_ms: int) -> None:
        state = self.state
        assert self.may_campaign
        assert not isinstance(state, Leader)
        leader = self.leader
        retries = state.retries + 1 if isinstance(state, Prospective | Candidate | Follower) else 1
        prospective = Prospective(
            state.epoch,
            self.election_deadline_ms(now_ms),
            self._own_ballot(),
            retries,
            leader.leader_id,
            leader.endpoints,
            None if isinstance(state, Resigned) else state.voted,
            isinstance(state, Follower) and state.leader_is_gone,
        )
        self.become(prospective)

    def become_candidate(self, now_ms: int) -> None:
        assert self.may_campaign
        state = self.state
        retries = state.retries if isinstance(state, Prospective) else 1
        deadline_ms = self.election_deadline_ms(now_ms)
        self.become(Candidate(self.epoch + 1, deadline_ms, self._own_ballot(), retries, self.config.key))

    def _own_ballot(self) -> Ballot:
        granted = [self.config.node_id] if self.is_voter else []
        return Ballot(tuple(self.history.voters.ids), granted)

    def become_follower(self, epoch: int, leader_id: int, endpoints: Endpoints, now_ms: int) -> None:
        assert leader_id != self.config.node_id
        before = self.state
        voted = (
            before.voted
            if epoch == before.epoch and isinstance(before, Unattached | Prospective | Candidate | Follower)
            else None
        )
        deadline_ms = now_ms + self.config.fetch_timeout_ms
        self.become(Follower(epoch, leader_id, endpoints, deadline_ms, deadline_ms, voted))

    def hear_of(self, leader_id: int, epoch: int, endpoints: Endpoints, now_ms: int) -> bool:
        """A message of another node names an epoch, and perhaps its leader. False when that cannot be: two leaders of one epoch,
        or this node as one that it is not."""
        if epoch < self.epoch:
            return True
        known = self.leader
        if leader_id != NOBODY and leader_id == self.config.node_id:
            return epoch == self.epoch and isinstance(self.state, Leader | Resigned)
        endpoints = endpoints or self.history.voters.endpoints_of(leader_id)
        if epoch > self.epoch:
            if leader_id == NOBODY or not endpoints:
                self.become_unattached(epoch, now_ms, leader_id=leader_id)
            else:
                self.become_follower(epoch, leader_id, endpoints, now_ms)
        elif leader_id != NOBODY:
            if known.leader_id not in (NOBODY, leader_id):
                return False
            is_news = known.leader_id == NOBODY or len(endpoints) > len(known.endpoints)
            if is_news and endpoints:
                self.become_follower(epoch, leader_id, endpoints, now_ms)
        return True

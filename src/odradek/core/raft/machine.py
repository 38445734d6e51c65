"""The metadata quorum as one node sees it: KRaft without IO. Every decision is here, everything that is done is the host's.

The host makes a `Raft` of a log that is synced, calls `start`, and then one method for each thing that happens. Each gives the
effects to do (`effects.py`), and then `deadline_ms` says when to call `tick` if nothing else happens. `now_ms` is monotonic.

A leader's host appends batches of its own to the log, in `epoch`. After these, and after an `AppendControl`, it says `appended`;
whatever was written, by the leader or by an `Append`, it says `synced` when that is on disk. A follower's host only ever writes
what an effect says.

Invariants
 1. An input changes the state at once, and what it lets go leaves as effects, in order.
 2. With the same inputs and the same chance it does the same things.
"""

from collections.abc import Callable
from typing import Final

from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.changing import Changing
from odradek.core.raft.effects import Effect, MetadataLog, Probe, RaftConfig, Ticket
from odradek.core.raft.electing import Electing
from odradek.core.raft.election import Election
from odradek.core.raft.following import Following
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.leading import Leading
from odradek.core.raft.quorum_state import QuorumState
from odradek.core.raft.requests import Asked, KnownLeader
from odradek.core.raft.responses import Responses
from odradek.core.raft.states import NEVER_MS, Follower, Leader, Unattached
from odradek.core.raft.voters import VoterSet
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)

TRANSITIONS_MAX: Final = 10  # in one input; more would be a circle


class Raft:
    def __init__(
        self,
        config: RaftConfig,
        log: MetadataLog,
        history: VoterHistory,
        election: Election,
        chance: Callable[[int], int],
    ) -> None:
        """`history` has what the newest snapshot and the log say of voters; `chance(n)` gives a number of 0 to n - 1."""
        self._quorum = QuorumState(config, log, history, election, chance)
        self._leading = Leading(self._quorum)
        self._electing = Electing(self._quorum, self._leading.begin)
        self._following = Following(self._quorum)
        self._changing = Changing(self._quorum, self._leading)
        self._responses = Responses(self._quorum, self._electing, self._following, self._changing)
        self.deadline_ms = NEVER_MS

    # -- what one may ask

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def leader(self) -> KnownLeader:
        return self._quorum.leader

    @property
    def is_leader(self) -> bool:
        return isinstance(self._quorum.state, Leader)

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def high_watermark(self) -> int:
        """Up to where everything is committed, as far as this node knows; -1 when it does not."""
        return self._quorum.high_watermark

    @property
    def synced_offset(self) -> int:
        """Up to where the log is on disk here; what is committed may be ahead of it."""
        return self._quorum.synced_offset

    @property
    def voters(self) -> VoterSet:
        return self._quorum.history.voters

    @property
    def kraft_version(self) -> int:
        return self._quorum.history.kraft_version

    @property
    def told_voters(self) -> VoterSet:
        """The voters as a leader knows them: of fixed ones, those that have told it their folders and what they support."""
        state = self._quorum.state
        return (state.fixed_voters if isinstance(state, Leader) else None) or self.voters

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet | None]:
        """What a snapshot that ends at an offset has to say: kraft.version, and the voters where the log names them."""
        return self._quorum.history.at(end_offset)

    @property
    def leadership(self) -> Leader | None:
        """What the leader knows of its replicas, for DescribeQuorum."""
        state = self._quorum.state
        return state if isinstance(state, Leader) else None

    # -- what happens

    def start(self, now_ms: int) -> list[Effect]:
        self._electing.start(now_ms)
        return self._settle(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        return self._settle(now_ms)

    def receive(self, ticket: Ticket, request: Message, version: int, now_ms: int, listener: str = "") -> list[Effect]:
        """A request of another node, or of an administrator, by one of this node's listeners."""
        asked = Asked(version, listener or self._quorum.config.listener)
        match request:
            case FetchRequest():
                self._leading.fetch(ticket, request, asked, now_ms)
            case FetchSnapshotRequest():
                self._leading.fetch_snapshot(ticket, request, asked, now_ms)
            case VoteRequest():
                self._electing.vote(ticket, request, asked, now_ms)
            case BeginQuorumEpochRequest():
                self._electing.begin(ticket, request, asked, now_ms)
            case EndQuorumEpochRequest():
                self._electing.end(ticket, request, asked, now_ms)
            case AddRaftVoterRequest():
                self._changing.add(ticket, request, now_ms)
            case RemoveRaftVoterRequest():
                self._changing.remove(ticket, request, now_ms)
            case UpdateRaftVoterRequest():
                self._changing.update(ticket, request, now_ms)
            case _:
                raise AssertionError(f"{type(request).__name__} is not for the quorum")
        return self._settle(now_ms)

    def responded(self, correlation_id: int, response: Message | None, now_ms: int) -> list[Effect]:
        """The answer to a `Send`; None when there will be none."""
        pending = self._quorum.outbox.take(correlation_id)
        if pending is not None and not self._responses.take(pending, response, now_ms):
            self._quorum.outbox.pause(pending.node.id, now_ms)
        return self._settle(now_ms)

    def appended(self, now_ms: int) -> list[Effect]:
        """The leader's log has grown, by an `AppendControl` or by what the host appended."""
        assert self.is_leader
        return self._settle(now_ms)

    def synced(self, offset: int, now_ms: int) -> list[Effect]:
        """The log is on disk up to an offset."""
        quorum = self._quorum
        assert offset <= quorum.log.end_offset
        was_busy = isinstance(quorum.state, Follower) and self._following.is_busy()
        quorum.synced_offset = max(quorum.synced_offset, offset)
        if was_busy and isinstance(quorum.state, Follower) and not self._following.is_busy():
            self._following.installed(now_ms)
        if isinstance(quorum.state, Leader):
            self._leading.count(quorum.state)
        return self._settle(now_ms)

    def installed(self, snapshot: SnapshotId, kraft_version: int, voters: VoterSet | None, now_ms: int) -> list[Effect]:
        """The log begins at a snapshot that was fetched, with the voters that it names."""
        quorum = self._quorum
        assert quorum.log.end_offset == snapshot.offset
        quorum.is_installing = False
        quorum.history.note_snapshot(snapshot, kraft_version, voters)
        quorum.synced_offset = snapshot.offset
        quorum.advance(snapshot.offset)
        self._following.installed(now_ms)
        return self._settle(now_ms)

    def install_failed(self, now_ms: int) -> list[Effect]:
        """A snapshot that was fetched is not sound, or a piece of it could not be written; the leader is asked again."""
        self._quorum.is_installing = False
        state = self._quorum.state
        if isinstance(state, Follower):
            state.download = None
            self._quorum.outbox.pause(state.leader_id, now_ms)
            self._following.installed(now_ms)
        return self._settle(now_ms)

    def upgrade(self, kraft_version: int, now_ms: int) -> list[Effect]:
        """Has the leader raise kraft.version: `told_voters`, who all support it, are in the log from then on."""
        self._changing.upgrade(kraft_version)
        return self._settle(now_ms)

    def start_moved(self) -> None:
        """The log has let go of what a snapshot holds."""
        self._quorum.history.trim(self._quorum.log.start_offset)

    def reset(self, node_id: int, now_ms: int) -> list[Effect]:
        """A connection to a node broke. When it is the leader, the host looks whether it is still there."""
        quorum, state = self._quorum, self._quorum.state
        if isinstance(state, Follower) and state.leader_id == node_id:
            node = quorum.node_of(node_id, state.endpoints)
            if node is not None:
                quorum.do(Probe(node))
        return self._settle(now_ms)

    def refused(self, node_id: int, now_ms: int) -> list[Effect]:
        """A node refuses connections: its process is gone."""
        self._electing.refused(node_id, now_ms)
        return self._settle(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """Gives leadership up: because the node stops, or because its log cannot be written."""
        quorum = self._quorum
        quorum.history.truncate(quorum.log.end_offset)  # a control batch that could not be written names nobody
        if isinstance(quorum.state, Leader):
            self._leading.resign(quorum.state, now_ms)
        return self._settle(now_ms)

    def stop(self, now_ms: int) -> list[Effect]:
        """The node is about to stop: it leads no more, and does not campaign."""
        self._quorum.is_stopping = True
        return self.resign(now_ms)

    # -- time

    def _settle(self, now_ms: int) -> list[Effect]:
        """Does what is due in whatever state this leads to, and hands the effects out."""
        quorum = self._quorum
        for _ in range(TRANSITIONS_MAX):
            before = quorum.state
            self.deadline_ms = self._poll(now_ms)
            if quorum.state is before:
                break
        else:
            raise AssertionError(f"the quorum goes round in circles: {quorum.state}")
        effects, quorum.effects = quorum.effects, []
        return effects

    def _poll(self, now_ms: int) -> int:
        quorum, state = self._quorum, self._quorum.state
        if isinstance(state, Leader):
            self._changing.committed(state)
            return min(self._changing.poll(state, now_ms), self._leading.poll(state, now_ms))
        if isinstance(state, Follower):
            is_late = quorum.may_campaign and not quorum.is_stopping and state.fetch_deadline_ms <= now_ms
            if is_late and (state.leader_is_gone or not self._following.is_busy()):
                self._electing.campaign(now_ms)
                return now_ms
            return self._following.poll(state, now_ms)
        again_ms = self._electing.poll(state, now_ms)
        if isinstance(state, Unattached) and quorum.state is state:
            again_ms = min(again_ms, self._following.ask_anybody(now_ms))
        return again_ms

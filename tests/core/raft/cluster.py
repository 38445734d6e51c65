"""A cluster of quorum machines in virtual time: one seed is one whole run.

Messages go as bytes; they are late, lost, doubled and overtake each other; links are cut one way; nodes crash and come back with
what was synced, and perhaps more; syncs take their time. What must never be is checked when it would happen.
"""

import heapq
from collections.abc import Callable
from random import Random

from odradek.core.raft.batches import SnapshotId, control_batch, decode_snapshot
from odradek.core.raft.effects import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    Append,
    AppendControl,
    BecameLeader,
    Effect,
    HighWatermark,
    InstallSnapshot,
    Persist,
    Probe,
    RaftConfig,
    Send,
    Truncate,
    WriteSnapshot,
)
from odradek.core.raft.election import NOBODY, Election
from odradek.core.raft.machine import Raft
from odradek.core.raft.voters import VoterSet
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tests.core.raft.memory import CLUSTER_ID, LISTENER, MemoryLog, data_batch, snapshot_bytes, voter_of, voters_of

FETCH_BYTES_MAX = 400  # so that a fetch of a few batches is cut in the middle of one
SNAPSHOT_BYTES_MAX = 100  # so that a snapshot takes several fetches
TICKS_AT_ONCE_MAX = 1000


def over_the_wire(message: Message) -> Message:
    version = message.schema.versions[-1]
    return type(message).decode(message.to_bytes(version), version)


class Member:
    """One node: its disk, and while it is up its machine and host."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.log = MemoryLog()
        self.election = Election()
        self.raft: Raft | None = None
        self.life = 0
        self.parts: dict[SnapshotId, bytes] = {}
        self._wake: int | None = None

    def start(self) -> None:
        cluster = self.cluster
        assert self.raft is None
        self.life += 1
        self.log.synced_offset = self.log.end_offset  # the host syncs what it found
        self.parts = {}
        self._wake = None
        static = VoterSet(()) if cluster.formatted else cluster.voters
        history = self.log.history(static, cluster.formatted)
        config = RaftConfig(
            cluster_id=CLUSTER_ID,
            node_id=self.id,
            directory_id=voter_of(self.id).directory_id,
            endpoints=voter_of(self.id).endpoints,
            bootstrap=tuple((f"node-{voter}", 9093) for voter in cluster.voters.ids),
            fetch_bytes_max=FETCH_BYTES_MAX,
            fetch_snapshot_bytes_max=SNAPSHOT_BYTES_MAX,
            auto_join=cluster.auto_join,
        )
        self.raft = Raft(config, self.log, history, self.election, cluster.random.randrange)
        self.step(lambda raft, now_ms: raft.start(now_ms))

    def crash(self) -> None:
        """What was not synced is lost, or a part of it."""
        self.raft = None
        self.life += 1
        unsynced = [batch for batch in self.log.batches if batch.end_offset > self.log.synced_offset]
        kept = self.cluster.random.randint(0, len(unsynced))
        if kept < len(unsynced):
            self.log.truncate(unsynced[kept].base_offset)

    def step(self, call: Callable[[Raft, int], list[Effect]]) -> None:
        if self.raft is None:
            return
        raft = self.raft
        for effect in call(raft, self.cluster.now_ms):
            self.do(effect)
        if self.raft is raft and raft.deadline_ms < 1 << 60 and self._wake != raft.deadline_ms:
            life, wake_ms, self._wake = self.life, raft.deadline_ms, raft.deadline_ms
            self.cluster.at(max(wake_ms, self.cluster.now_ms), lambda: self._tick(life, wake_ms))

    def _tick(self, life: int, wake_ms: int) -> None:
        if life == self.life and wake_ms == self._wake:
            self._wake = None
            self.step(lambda raft, now_ms: raft.tick(now_ms))

    def later(self, delay_ms: int, call: Callable[[Raft, int], list[Effect]]) -> None:
        """When this life of the node is still going on by then."""
        life = self.life

        def run() -> None:
            if life == self.life:
                self.step(call)

        self.cluster.at(self.cluster.now_ms + delay_ms, run)

    def sync_later(self) -> None:
        def run(raft: Raft, now_ms: int) -> list[Effect]:
            offset = min(end_offset, self.log.end_offset)
            self.log.synced_offset = max(self.log.synced_offset, offset)
            return raft.synced(offset, now_ms)

        end_offset = self.log.end_offset
        self.later(self.cluster.random.randint(0, self.cluster.sync_ms_max), run)

    def append(self, value: bytes) -> None:
        """What a controller does that leads."""
        assert self.raft is not None
        assert self.raft.is_leader
        self.log.append(data_batch(self.log.end_offset, self.raft.epoch, value))
        self.cluster.note_log(self)
        self.step(lambda raft, now_ms: raft.appended(now_ms))
        self.sync_later()

    def take_snapshot(self) -> None:
        raft = self.raft
        if raft is None or raft.high_watermark <= self.log.start_offset or raft.high_watermark > self.log.synced_offset:
            return
        snapshot = SnapshotId(raft.high_watermark, self.log.epoch_before(raft.high_watermark))
        if any(batch.base_offset < snapshot.offset < batch.end_offset for batch in self.log.batches):
            return
        self.log.take_snapshot(snapshot, snapshot_bytes(snapshot, *raft.voters_at(snapshot.offset)))
        raft.start_moved()

    def do(self, effect: Effect) -> None:
        cluster, log = self.cluster, self.log
        match effect:
            case Send():
                cluster.send(self, effect)
            case Answer(ticket, response):
                cluster.answer(self, ticket, response)
            case AnswerFetch(ticket, response, offset, bytes_max):
                response.responses[0].partitions[0].records = log.read(offset, bytes_max)
                cluster.answer(self, ticket, response)
            case AnswerSnapshot(ticket, response, snapshot, position, bytes_max):
                data = log.snapshots[snapshot][position : position + bytes_max]
                response.topics[0].partitions[0].unaligned_records = data
                cluster.answer(self, ticket, response)
            case Persist(election):
                self.election = election
                cluster.note_vote(self, election)
            case AppendControl(messages, base_offset, epoch):
                assert base_offset == log.end_offset
                log.append(control_batch(messages, base_offset=base_offset, epoch=epoch, now_ms=0))
                cluster.note_log(self)
                self.later(0, lambda raft, now_ms: raft.appended(now_ms) if raft.is_leader else raft.tick(now_ms))
                self.sync_later()
            case Append(records, base_offset):
                assert base_offset == log.end_offset
                log.append(records)
                cluster.note_log(self)
                self.sync_later()
            case Truncate(end_offset):
                log.truncate(end_offset)
            case WriteSnapshot(snapshot, position, data):
                assert position == len(self.parts.get(snapshot, b"")) or position == 0
                self.parts[snapshot] = (b"" if position == 0 else self.parts[snapshot]) + bytes(data)
            case InstallSnapshot(snapshot):
                self.later(cluster.random.choice((0, 5, 50)), lambda raft, now_ms: self._install(raft, snapshot, now_ms))
            case BecameLeader():
                cluster.note_leader(self, effect)
            case HighWatermark(offset):
                cluster.note_committed(self, offset)
            case Probe(node):
                self.later(1, lambda raft, now_ms: self._probe(raft, node.id, now_ms))
            case _:
                pass

    def _install(self, raft: Raft, snapshot: SnapshotId, now_ms: int) -> list[Effect]:
        if self.cluster.random.random() < 0.1:
            return raft.install_failed(now_ms)
        data = self.parts.pop(snapshot)
        found = decode_snapshot(data)
        self.log.begin_at(snapshot, data)
        return raft.installed(snapshot, found.kraft_version, found.voters, now_ms)

    def _probe(self, raft: Raft, node_id: int, now_ms: int) -> list[Effect]:
        is_down = self.cluster.members[node_id].raft is None
        return raft.refused(node_id, now_ms) if is_down else []


class Cluster:
    def __init__(
        self, seed: int, voter_ids: list[int], observer_ids: list[int], *, dynamic: bool, auto_join: bool = False
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.voters = voters_of(*voter_ids)
        self.formatted = self.voters if dynamic else None
        self.auto_join = auto_join
        self.members = {node_id: Member(self, node_id) for node_id in voter_ids + observer_ids}
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.cut: dict[tuple[int, int], None] = {}
        self.loss = self.doubling = 0.0
        self.delay_ms_max = 3
        self.sync_ms_max = 5
        self.asked: dict[object, tuple[int, int]] = {}  # ticket -> candidate and epoch of a vote
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.written: dict[tuple[int, int], int] = {}  # (offset, epoch) -> crc of the batch that begins there
        self.committed: dict[int, tuple[int, int, int]] = {}  # base offset -> end, epoch, crc
        self.answers: list[Message] = []
        self._order = 0

    # -- time

    def at(self, time_ms: int, run: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self.events, (time_ms, self._order, run))

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        end_ms, ticks = self.now_ms + duration_ms, 0
        while self.events and self.events[0][0] <= end_ms:
            time_ms, _, run = heapq.heappop(self.events)
            ticks = ticks + 1 if time_ms == self.now_ms else 0
            assert ticks < TICKS_AT_ONCE_MAX, "time does not pass"
            self.now_ms = time_ms
            run()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    # -- the network

    def deliver(self, source: int, target: int, run: Callable[[], None]) -> None:
        if (source, target) in self.cut or self.random.random() < self.loss:
            return
        for _ in range(2 if self.random.random() < self.doubling else 1):
            self.at(self.now_ms + self.random.randint(0, self.delay_ms_max), run)

    def send(self, member: Member, send: Send) -> None:
        target = self.members[int(send.node.host.removeprefix("node-"))]
        request, life = over_the_wire(send.request), member.life

        def arrive() -> None:
            ticket = (member.id, life, send.correlation_id)
            if target.raft is None:
                member.later(
                    0, lambda raft, now_ms: raft.responded(send.correlation_id, None, now_ms)
                ) if life == member.life else None
            elif isinstance(request, ApiVersionsRequest):
                feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                self.answer(target, ticket, ApiVersionsResponse(supported_features=[feature]))
            else:
                version = request.schema.versions[-1]
                if isinstance(request, VoteRequest) and not request.topics[0].partitions[0].pre_vote:
                    self.asked[ticket] = (member.id, request.topics[0].partitions[0].replica_epoch)
                target.step(lambda raft, now_ms: raft.receive(ticket, request, version, now_ms))

        self.deliver(member.id, target.id, arrive)

    def answer(self, member: Member, ticket: object, response: Message) -> None:
        response = over_the_wire(response)
        if not isinstance(ticket, tuple):  # an administrator's
            self.answers.append(response)
            return
        if isinstance(response, VoteResponse) and ticket in self.asked and response.topics[0].partitions[0].vote_granted:
            candidate_id, epoch = self.asked[ticket]
            assert self.votes.setdefault((member.id, epoch), candidate_id) == candidate_id, f"node {member.id} votes twice"
        node_id, life, correlation_id = ticket
        target = self.members[node_id]

        def arrive() -> None:
            if target.life == life:
                target.step(lambda raft, now_ms: raft.responded(correlation_id, response, now_ms))

        self.deliver(member.id, node_id, arrive)

    # -- what must never be

    def note_vote(self, member: Member, election: Election) -> None:
        if election.voted_id != NOBODY:
            before = self.votes.setdefault((member.id, election.epoch), election.voted_id)
            assert before == election.voted_id, f"node {member.id} voted twice in epoch {election.epoch}"

    def note_log(self, member: Member) -> None:
        batch = member.log.batches[-1]
        for batch in member.log.batches[-3:]:
            before = self.written.setdefault((batch.base_offset, batch.epoch), batch.crc)
            assert before == batch.crc, f"two records at {batch.base_offset} in epoch {batch.epoch}"

    def note_leader(self, member: Member, won: BecameLeader) -> None:
        assert won.epoch not in self.leaders, f"nodes {self.leaders[won.epoch]} and {member.id} lead epoch {won.epoch}"
        self.leaders[won.epoch] = member.id
        self.check_has_committed(member, max((row[0] for row in self.committed.values()), default=0))

    def note_committed(self, member: Member, offset: int) -> None:
        for batch in member.log.batches:
            if batch.end_offset <= offset:
                row = (batch.end_offset, batch.epoch, batch.crc)
                before = self.committed.setdefault(batch.base_offset, row)
                assert before == row, f"node {member.id} commits another record at {batch.base_offset}"
        self.check_has_committed(member, offset)

    def check_has_committed(self, member: Member, end_offset: int) -> None:
        """All that is committed below an offset is in a node's log, or below its start."""
        held = {batch.base_offset: batch for batch in member.log.batches}
        for base_offset, (end, epoch, crc) in self.committed.items():
            if member.log.start_offset <= base_offset and end <= end_offset:
                batch = held.get(base_offset)
                assert batch is not None, f"node {member.id} lacks what was committed at {base_offset}"
                assert (batch.end_offset, batch.epoch, batch.crc) == (end, epoch, crc)
        assert member.log.end_offset >= end_offset

    # -- what a test does with it

    def start(self) -> "Cluster":
        for member in self.members.values():
            member.start()
        return self

    def leader(self) -> Member | None:
        """The leader of the highest epoch, when its epoch is known to be committed."""
        leading = [member for member in self.members.values() if member.raft is not None and member.raft.leadership]
        if not leading:
            return None
        newest = max(leading, key=lambda member: member.raft.epoch if member.raft else -1)
        leadership = newest.raft.leadership if newest.raft else None
        return newest if leadership and leadership.high_watermark >= 0 else None

    def elect(self) -> Member:
        assert self.run(60_000, lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    def crash(self, node_id: int, *, seen: bool = False) -> None:
        member = self.members[node_id]
        member.crash()
        if seen:
            for other in self.members.values():
                other.later(1, lambda raft, now_ms: raft.reset(node_id, now_ms))

    def ask(self, request: Message) -> None:
        """An administrator's request, to whoever leads."""
        leader = self.leader()
        if leader is not None:
            version = request.schema.versions[-1]
            leader.step(lambda raft, now_ms: raft.receive("administrator", request, version, now_ms))

    def add_voter(self, node_id: int) -> None:
        voter = voter_of(node_id)
        listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host=f"node-{node_id}", port=9093)]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=voter.directory_id, listeners=listeners
        )
        self.ask(request)

    def remove_voter(self, node_id: int) -> None:
        directory_id = voter_of(node_id).directory_id
        self.ask(RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id))

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.doubling = 0.0
        self.delay_ms_max = 3
        self.sync_ms_max = 5
        for member in self.members.values():
            if member.raft is None:
                member.start()

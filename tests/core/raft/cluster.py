"""A cluster of quorum machines in virtual time: one seed is one whole run.

Messages go as bytes; they are late, lost, doubled and overtake each other; links are cut one way; nodes crash, also between two
effects of one input, and come back with what was synced, and perhaps more, or with an empty folder of another id; syncs take
their time. What must never be (invariants.py) is checked when it would happen.
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
from odradek.core.raft.election import Election
from odradek.core.raft.history import VoterHistory
from odradek.core.raft.machine import Raft
from odradek.core.raft.voters import ReplicaKey, VoterSet
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    RemoveRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from tests.core.raft.invariants import Invariants, hold
from tests.core.raft.memory import (
    CLUSTER_ID,
    LISTENER,
    MemoryLog,
    data_batch,
    directory_of,
    fixed_voters_of,
    snapshot_bytes,
    voter_of,
    voters_of,
)

FETCH_BYTES = (1, 150, 400)  # so that a fetch of a few batches is cut in the middle of one, or behind each
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
        self.folder = 0
        self.is_formatted = True  # the folder names the first voters
        self.parts: dict[SnapshotId, bytes] = {}
        self.high_watermark = -1  # as it knows it in this life
        self._wake: int | None = None

    def start(self) -> None:
        cluster = self.cluster
        assert self.raft is None
        self.life += 1
        self.log.synced_offset = self.log.end_offset  # the host syncs what it found
        self.parts = {}
        self.high_watermark = -1
        self._wake = None
        config = RaftConfig(
            cluster_id=CLUSTER_ID,
            node_id=self.id,
            directory_id=self.key.directory_id,
            endpoints=voter_of(self.id).endpoints,
            bootstrap=tuple((f"node-{voter}", 9093) for voter in cluster.voters.ids),
            fetch_bytes_max=cluster.fetch_bytes_max,
            fetch_snapshot_bytes_max=SNAPSHOT_BYTES_MAX,
            auto_join=cluster.auto_join,
        )
        self.raft = Raft(config, self.log, self.history(), self.election, cluster.random.randrange)
        self.step(lambda raft, now_ms: raft.start(now_ms))

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, directory_of(self.id, self.folder))

    def history(self) -> VoterHistory:
        """What the folder says of voters."""
        formatted = self.cluster.formatted
        fixed = VoterSet(()) if formatted else fixed_voters_of(*self.cluster.voters.ids)
        return self.log.history(fixed, formatted if self.is_formatted else None)

    def lose_folder(self) -> None:
        """The next start is with an empty folder, formatted to join voters that are there."""
        if self.raft is not None:
            self.crash()
        self.folder += 1
        self.log, self.election, self.is_formatted = MemoryLog(), Election(), False

    def crash(self) -> None:
        """What was not synced is lost, or a part of it."""
        self.raft = None
        self.life += 1
        unsynced = [batch for batch in self.log.batches if batch.end_offset > self.log.synced_offset]
        kept = self.cluster.random.randint(0, len(unsynced))
        if kept < len(unsynced):
            self.log.truncate(unsynced[kept].base_offset)
        if self.cluster.restart_ms is not None:
            self.cluster.at(self.cluster.now_ms + self.cluster.restart_ms, self.start_again)

    def start_again(self) -> None:
        if self.raft is None:
            self.start()

    def step(self, call: Callable[[Raft, int], list[Effect]]) -> None:
        if self.raft is None:
            return
        raft = self.raft
        for effect in call(raft, self.cluster.now_ms):
            if self.cluster.random.random() < self.cluster.crash_amid:
                self.crash()
                return
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
        self.cluster.invariants.grew(self.log)
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
            case Persist(election, kraft_version, voter_ids):
                self.election = Election.of(election.to_json(kraft_version, voter_ids))
                cluster.invariants.persisted(self.key, election)
            case AppendControl(messages, base_offset, epoch):
                assert base_offset == log.end_offset
                assert self.raft is not None
                logs = {member.key: member.log for member in cluster.members.values()}
                cluster.invariants.appends(self.raft, effect, self.history(), logs)
                log.append(control_batch(messages, base_offset=base_offset, epoch=epoch, now_ms=0))
                cluster.invariants.grew(log)
                self.later(0, lambda raft, now_ms: raft.appended(now_ms) if raft.is_leader else raft.tick(now_ms))
                self.sync_later()
            case Append(records, base_offset):
                assert base_offset == log.end_offset
                log.append(records)
                cluster.invariants.grew(log)
                self.sync_later()
            case Truncate(end_offset):
                log.truncate(end_offset)
            case WriteSnapshot(snapshot, position, data):
                assert position == len(self.parts.get(snapshot, b"")) or position == 0
                self.parts[snapshot] = (b"" if position == 0 else self.parts[snapshot]) + bytes(data)
            case InstallSnapshot(snapshot):
                self.later(cluster.random.choice((0, 5, 50)), lambda raft, now_ms: self._install(raft, snapshot, now_ms))
            case BecameLeader():
                cluster.invariants.leads(self.key, effect, log)
            case HighWatermark(offset):
                before, self.high_watermark = self.high_watermark, offset
                cluster.invariants.commits(log, before, offset)
                if self.raft is not None and self.raft.is_leader:
                    cluster.check_committed(self.raft, log, offset)
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
        self.crash_amid = 0.0  # how likely a node crashes before an effect
        self.restart_ms: int | None = None  # after which who crashed starts again by itself
        self.fetch_bytes_max = self.random.choice(FETCH_BYTES)
        self.invariants = Invariants()
        self.asked: dict[object, tuple[ReplicaKey, int]] = {}  # ticket -> candidate and epoch of a vote
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
        request, life, candidate = over_the_wire(send.request), member.life, member.key

        def arrive() -> None:
            ticket = (member.id, life, send.correlation_id)
            if target.raft is None:
                if life == member.life:  # nobody listens where it is
                    member.later(0, lambda raft, now_ms: raft.responded(send.correlation_id, None, now_ms))
                    member.later(0, lambda raft, now_ms: raft.refused(send.node.id, now_ms))
            elif isinstance(request, ApiVersionsRequest):
                feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                self.answer(target, ticket, ApiVersionsResponse(supported_features=[feature]))
            else:
                version = request.schema.versions[-1]
                if isinstance(request, VoteRequest) and not request.topics[0].partitions[0].pre_vote:
                    self.asked[ticket] = (candidate, request.topics[0].partitions[0].replica_epoch)
                target.step(lambda raft, now_ms: raft.receive(ticket, request, version, now_ms))

        self.deliver(member.id, target.id, arrive)

    def answer(self, member: Member, ticket: object, response: Message) -> None:
        response = over_the_wire(response)
        if not isinstance(ticket, tuple):  # an administrator's
            self.answers.append(response)
            return
        if isinstance(response, VoteResponse) and ticket in self.asked and response.topics[0].partitions[0].vote_granted:
            candidate, epoch = self.asked[ticket]
            self.invariants.voted(member.key, epoch, candidate)
        node_id, life, correlation_id = ticket
        target = self.members[node_id]

        def arrive() -> None:
            if target.life == life:
                target.step(lambda raft, now_ms: raft.responded(correlation_id, response, now_ms))

        self.deliver(member.id, node_id, arrive)

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
        directory_id = self.members[node_id].key.directory_id
        listeners = [AddRaftVoterRequest.Listener(name=LISTENER, host=f"node-{node_id}", port=9093)]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id, listeners=listeners
        )
        self.ask(request)

    def upgrade(self) -> None:
        """Has fixed voters put into the log, when all have told who they are."""
        leader = self.leader()
        if leader is not None and leader.raft is not None and leader.raft.kraft_version == 0:
            told = leader.raft.told_voters
            if all(voter.directory_id != NIL_UUID for voter in told.voters):
                leader.step(lambda raft, now_ms: raft.upgrade(1, now_ms))

    def check_committed(self, raft: Raft, log: MemoryLog, offset: int) -> None:
        """What a leader says is committed is of its own epoch, and on the disks of a majority, unless one has lost its folder."""
        hold(log.epoch_before(offset) == raft.epoch, f"epoch {raft.epoch} commits what is of another at {offset}")
        if not any(member.folder for member in self.members.values()):
            synced = [member for member in self.members.values() if member.log.synced_offset >= offset]
            count = sum(raft.voters.is_voter(member.key) for member in synced)
            hold(count > len(raft.voters.voters) // 2, f"{offset} is committed and on {count} disks")

    def isolate(self, node_id: int) -> None:
        for other in self.members:
            self.cut[(node_id, other)] = self.cut[(other, node_id)] = None

    def remove_voter(self, node_id: int) -> None:
        directory_id = self.members[node_id].key.directory_id
        self.ask(RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id))

    def heal(self) -> None:
        self.cut.clear()
        self.loss = self.doubling = 0.0
        self.delay_ms_max = 3
        self.sync_ms_max = 5
        self.crash_amid, self.restart_ms = 0.0, None
        for member in self.members.values():
            if member.raft is None:
                member.start()

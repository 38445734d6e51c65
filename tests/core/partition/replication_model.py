"""A cluster of three brokers with one partition, without clocks, threads and sockets: all that may happen, by chance of a seed.

Leaders, followers and the controller are the product's own machines; logs are lists. Nodes see the metadata late and several
changes at once; fetches, answers and AlterPartitions are delayed and lost; nodes stop, crash and lose what was not synced;
leadership moves.

Held after every step:
 1. What was acknowledged to acks=all is in the log of every member of ISR and ELR that did not lose its tail.
 2. Nobody who reads below a high watermark, of a leader or a follower, ever sees two values at one offset.
 3. A leader's high watermark never moves back in its epoch, and never past its log.
"""

from collections.abc import Callable
from random import Random
from typing import Any, cast

from odradek.core.controller.alter_partition import alter_partition
from odradek.core.controller.brokers import after_stop, fence, shut_down, unfence
from odradek.core.controller.decision import Versioned
from odradek.core.controller.replication import ReplicationRules
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import NO_LEADER, RECOVERING, Partition
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.follower import Action, Follower
from odradek.core.partition.isr_changes import IsrChanges
from odradek.core.partition.leader import Leader
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    FeatureLevelRecord,
    FetchRequest,
    FetchResponse,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.core.partition.following import ListedLog, Record

TOPIC = b"t" * 16
KEY = (TOPIC, 0)
LAG_MS, SESSION_MS, BACKOFF_MS = 30, 120, 2
MESSAGES_MAX = 12  # under way; the oldest are lost
HEALING_ROUNDS = 50


class Lost(AssertionError):
    """A rule was broken."""


class Node:
    """One broker. What a crash leaves is `log` up to `synced`, and what it had read of the metadata."""

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.image = MetadataImage()
        self.applied = 0
        self.log = ListedLog()
        self.synced = 0
        self.is_up = True
        self.is_intact = True  # since it registered it has lost nothing
        self.stopped_cleanly = False
        self.begin(-1)

    def begin(self, broker_epoch: int) -> None:
        self.session = BrokerSession(SESSION_MS, broker_epoch)
        self.changes = IsrChanges(self.id)
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.told = (-1, -1)  # epoch and high watermark of the leader that it was

    def follow_metadata(self, count: int) -> None:
        """Replays some records, and looks at the outcome once."""
        for record in self.cluster.metadata[self.applied : self.applied + count]:
            self.image.replay(record)
            self.applied += 1
        topic = self.image.topics_by_id.get(TOPIC)
        if topic is None or not self.session.may_take_roles(self.applied):
            return
        state = topic.partitions[0]
        if state.leader == self.id:
            self.lead(state)
        else:
            self.leader = None
            if state.leader == NO_LEADER:
                self.follower = None
            elif self.follower is None:
                self.follower = Follower("t", TOPIC, 0, self.log, state.leader, state.leader_epoch)
            else:
                self.follower.follow(state.leader, state.leader_epoch)

    def lead(self, state: Partition) -> None:
        self.follower = None
        if self.leader is None:
            self.leader = self.cluster.leader_type(self.id, self.image.brokers, self.session, LAG_MS, self.log.high_watermark)
        if state.leader_epoch > self.leader.epoch:
            self.log.begin_epoch(state.leader_epoch)
        self.leader.lead(state, self.log.end_offset, self.cluster.min_insync, self.cluster.now_ms)

    # -- what a follower does

    def fetch(self) -> None:
        if self.follower is not None and self.follower.is_ready(self.cluster.now_ms):
            follower, wanted, epoch = self.follower, self.follower.wanted(1000), self.session.broker_epoch
            to = self.cluster.nodes[follower.leader_id]
            self.cluster.send(lambda: to.serve(self, follower, wanted, epoch))

    def take(self, follower: Follower, asked: FetchRequest.FetchPartition, answer: FetchResponse.PartitionData) -> None:
        if follower is not self.follower:
            return
        step = follower.answered(asked, answer, self.cluster.now_ms, BACKOFF_MS)
        if step.action is Action.TRUNCATE:
            self.cluster.truncate(self, step.offset)
        elif step.action is Action.ASK_OFFSETS:
            follower.is_asking = False  # logs of the model begin at 0, so the next fetch tells where they part
        elif step.action in (Action.APPEND, Action.TAKE_WATERMARKS):
            self.log.append(cast("list[Record]", answer.records))
            self.log.high_watermark = follower.watermarks(answer).high_watermark

    # -- what a leader does

    def serve(self, sender: "Node", follower: Follower, wanted: FetchRequest.FetchPartition, broker_epoch: int) -> None:
        answer = FetchResponse.PartitionData()
        if self.leader is None:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            try:
                self.read(self.leader, sender.id, wanted, broker_epoch, answer)
            except Refused as refused:
                answer.error_code = refused.code
        self.cluster.send(lambda: sender.take(follower, wanted, answer))

    def read(
        self,
        leader: Leader,
        broker_id: int,
        wanted: FetchRequest.FetchPartition,
        broker_epoch: int,
        answer: FetchResponse.PartitionData,
    ) -> None:
        replica = leader.follower(broker_id, wanted.current_leader_epoch)
        if wanted.last_fetched_epoch >= 0:
            epoch, end = self.log.epoch_end(wanted.last_fetched_epoch)
            if epoch < 0:
                raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, "nothing is known of the epoch")
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
                return
        if wanted.fetch_offset > self.log.end_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, "past the end")
        records = self.log.read(wanted.fetch_offset)[: self.cluster.chance.randint(1, 4)]
        leader.fetched(replica, wanted.fetch_offset, 0, broker_epoch, self.cluster.now_ms)
        answer.records = cast("Any", records)
        answer.high_watermark, answer.log_start_offset = leader.high_watermark, 0

    def produce(self) -> None:
        cluster = self.cluster
        if self.leader is not None and self.leader.admission(acks_all=True, now_ms=cluster.now_ms) is ErrorCode.NONE:
            cluster.values += 1
            self.log.append([Record(self.leader.epoch, cluster.values)])
            self.leader.appended(self.log.end_offset, cluster.now_ms)
            cluster.waiting.append((self, self.leader, self.log.end_offset, cluster.values))

    def propose(self) -> None:
        if self.leader is not None:
            self.leader.tick(self.cluster.now_ms)
            if self.leader.unsent is not None:
                self.changes.add(KEY, self.leader)
        request = self.changes.request(self.session.broker_epoch)
        if request is not None:
            changes = self.changes
            self.cluster.send(lambda: self.cluster.alter(self, changes, request), lost=changes.failed)


class Cluster:
    def __init__(self, seed: int, min_insync: int = 2, leader_type: type[Leader] = Leader) -> None:
        self.chance = Random(seed)
        self.leader_type = leader_type
        self.min_insync = min_insync
        self.rules = ReplicationRules(min_insync_replicas=min_insync)
        self.is_over = False  # all who had everything lost something, and one was elected uncleanly: nothing is promised
        self.now_ms = 0
        self.values = 0
        self.metadata: list[Message] = []
        self.image = MetadataImage()
        self.heard_ms: dict[int, int] = {}
        self.messages: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.waiting: list[tuple[Node, Leader, int, int]] = []
        self.acknowledged: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.nodes = {number: Node(self, number) for number in (1, 2, 3)}
        features = {"metadata.version": 30, "eligible.leader.replicas.version": 1}
        self.commit([(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in features.items()])
        for node in self.nodes.values():
            self.register(node)
            node.follow_metadata(100)
            self.heartbeat(node)
        record = PartitionRecord(
            topic_id=TOPIC,
            partition_id=0,
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)] * 3,
        )
        self.commit([(TopicRecord(name="t", topic_id=TOPIC), 0), (record, 2)])
        for node in self.nodes.values():
            self.catch_up(node)

    @property
    def partition(self) -> Partition:
        return self.image.topics_by_id[TOPIC].partitions[0]

    # -- the controller

    def commit(self, records: list[Versioned]) -> None:
        for record, _ in records:
            self.metadata.append(record)
            self.image.replay(record)
            if isinstance(record, PartitionChangeRecord) and record.leader_recovery_state == RECOVERING:
                self.is_over = True

    def register(self, node: Node) -> None:
        stopped = after_stop(self.image, node.id, self.rules, is_clean=node.stopped_cleanly)
        self.commit(stopped)
        epoch = len(self.metadata)
        self.commit([(RegisterBrokerRecord(broker_id=node.id, broker_epoch=epoch, incarnation_id=bytes(16)), 4)])
        node.begin(epoch)
        node.is_up = node.is_intact = True
        node.stopped_cleanly = False

    def heartbeat(self, node: Node) -> None:
        broker, sent_ms = self.image.brokers[node.id], self.now_ms
        self.heard_ms[node.id] = sent_ms
        if broker.fenced and node.applied > broker.epoch:
            self.commit(unfence(self.image, node.id, broker.epoch, self.rules).records)
        if self.chance.random() < 0.8:
            if self.image.brokers[node.id].fenced:
                node.session.fenced()
            else:
                node.session.heartbeat_answered(sent_ms, self.now_ms)

    def alter(self, node: Node, changes: IsrChanges, request: AlterPartitionRequest) -> None:
        try:
            decision = alter_partition(self.image, request, self.rules, version=3)
        except Refused as refused:
            response = AlterPartitionResponse(error_code=refused.code)
        else:
            self.commit(decision.records)
            response = decision.response
        self.send(lambda: self.altered(node, changes, response), lost=changes.failed)

    def altered(self, node: Node, changes: IsrChanges, response: AlterPartitionResponse) -> None:
        if node.changes is changes:
            changes.answered(response, self.now_ms)

    def fence_the_silent(self) -> None:
        for number, broker in self.image.brokers.items():
            if not broker.fenced and self.now_ms - self.heard_ms[number] > SESSION_MS:
                self.commit(fence(self.image, number, self.rules).records)
                return

    def move_leadership(self) -> None:
        others = [number for number in self.partition.isr if self.image.brokers[number].is_active]
        if others and self.partition.leader != NO_LEADER:
            record = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=self.chance.choice(others))
            self.commit([(record, 2)])

    # -- what happens to nodes

    def crash(self, node: Node) -> None:
        """The power goes: what was not synced may be gone, and the high watermark on disk is an old one."""
        self.truncate(node, self.chance.randint(min(node.synced, node.log.end_offset), node.log.end_offset))
        node.log.high_watermark = self.chance.randint(0, node.log.high_watermark)
        node.log.learn_epochs()
        node.is_up = node.is_intact = False
        node.begin(-1)

    def stop(self, node: Node) -> None:
        broker = self.image.brokers[node.id]
        if broker.epoch == node.session.broker_epoch and not broker.in_controlled_shutdown:
            self.commit(shut_down(self.image, node.id, broker.epoch, self.rules).records)
            node.synced = node.log.end_offset
            node.is_up = False
            node.stopped_cleanly = True
            node.begin(-1)

    def catch_up(self, node: Node) -> None:
        node.follow_metadata(len(self.metadata))
        node.session.metadata_confirmed(self.now_ms, self.now_ms)

    def truncate(self, node: Node, offset: int) -> None:
        node.log.truncate_to(offset)
        node.synced = min(node.synced, offset)

    # -- the network

    def send(self, deliver: Callable[[], None], lost: Callable[[], None] = lambda: None) -> None:
        self.messages.append((deliver, lost))
        if len(self.messages) > MESSAGES_MAX:
            self.messages.pop(0)[1]()

    def deliver(self) -> None:
        if self.messages:
            is_in_order = self.chance.random() < 0.7
            deliver, lost = self.messages.pop(0 if is_in_order else self.chance.randrange(len(self.messages)))
            (lost if self.chance.random() < 0.05 else deliver)()

    # -- one step, and what must hold after it

    def step(self) -> None:
        chance = self.chance
        self.now_ms += chance.choice((0, 0, 0, 1, 1, 3))
        node = self.nodes[chance.randint(1, 3)]
        roll = chance.random()
        if roll < 0.36:
            self.deliver()
        elif roll < 0.38:
            self.fence_the_silent()
        elif roll < 0.40:
            self.move_leadership()
        elif roll < 0.415:
            self.calm()
        elif not node.is_up:
            if roll < 0.55:
                self.register(node)
        elif roll < 0.62:
            for follower in [each for each in self.nodes.values() if chance.random() < 0.5]:
                follower.fetch()
        elif roll < 0.71:
            for leader in self.nodes.values():
                leader.produce()
        elif roll < 0.80:
            self.heartbeat(node)
        elif roll < 0.88:
            node.follow_metadata(chance.randint(1, 3))
        elif roll < 0.90:
            self.catch_up(node)
        elif roll < 0.96:
            for leader in self.nodes.values():
                leader.propose()
        elif roll < 0.985:
            node.synced = node.log.end_offset
        elif roll < 0.99:
            self.stop(node)
        elif roll < 0.997:
            self.crash(node)
        self.acknowledge()
        self.check()

    def acknowledge(self) -> None:
        still_waiting = []
        for node, leader, end, value in self.waiting:
            if node.leader is not leader:
                continue  # answered with an error
            outcome = leader.outcome(end, self.now_ms)
            if outcome is ErrorCode.NONE:
                self.acknowledged[end - 1] = value
            elif outcome is None:
                still_waiting.append((node, leader, end, value))
        self.waiting = still_waiting

    def check(self) -> None:
        if self.is_over:
            return
        for node in self.nodes.values():
            if node.leader is not None:
                self.check_leader(node, node.leader)
            if node.is_up:
                self.check_readers(node)
        for number in {*self.partition.isr, *self.partition.elr}:
            node = self.nodes[number]
            for offset, value in self.acknowledged.items() if node.is_intact else ():
                if offset >= node.log.end_offset or node.log.records[offset].value != value:
                    raise Lost(f"{value} at {offset}, acknowledged, is not on {number}: {self.partition}")

    def check_leader(self, node: Node, leader: Leader) -> None:
        epoch, high_watermark = node.told
        if leader.high_watermark > node.log.end_offset:
            raise Lost("a high watermark past the log")
        if epoch == leader.epoch and leader.high_watermark < high_watermark:
            raise Lost(f"the high watermark of {node.id} went back from {high_watermark} to {leader.high_watermark}")
        node.told = (leader.epoch, leader.high_watermark)
        node.log.high_watermark = leader.high_watermark

    def check_readers(self, node: Node) -> None:
        for offset in range(node.log.high_watermark):
            value = node.log.records[offset].value
            if self.seen.setdefault(offset, value) != value:
                raise Lost(f"offset {offset} was {self.seen[offset]}, and is {value} on {node.id}")

    # -- when all is well

    def calm(self) -> None:
        """For a moment nothing goes wrong."""
        self.now_ms += 1
        for node in self.nodes.values():
            if node.is_up:
                self.heartbeat(node)
                self.catch_up(node)
                node.fetch()
                node.propose()
            while self.messages:
                self.messages.pop(0)[0]()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(HEALING_ROUNDS):
            for node in self.nodes.values():
                if not node.is_up:
                    self.register(node)
            self.calm()
            self.acknowledge()
            self.check()

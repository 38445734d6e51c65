"""The leader of one partition: what is committed, who is in sync, and whom it serves. Without IO.

It is told what happened (`lead`, `appended`, `fetched`, `answered`, `refused`, `tick`) and tells whether the high watermark
moved; a change of the ISR that is to be sent stands in `unsent` until somebody takes it. Log and waiting requests are its host's.

Invariants
 1. high_watermark <= log_end, and within a leader epoch the high watermark never moves back.
 2. It waits for every member of `maximal_isr`: the committed ISR, and whoever an AlterPartition without an answer may have added.
    Whether there are enough of them is judged by the committed one alone.
 3. It moves by fetches of the current leader epoch only, and not while the ISR is below `min_insync` (KIP-966).
 4. At most one change of the ISR is under way. What became of it is learned from its answer, or from a newer partition epoch.
 5. A follower is proposed for the ISR only at or past the high watermark and the start of the leader's epoch, by a fetch of the
    broker epoch under which it is registered, neither fenced nor shutting down (KIP-841, KIP-903), nor in a folder that failed.
    Who cannot be proposed is not waited for.
 6. Nothing is committed or acknowledged while the node's session may be over.
 7. Whoever may lead next has forgotten what was deleted: a deletion is done only while enough are in sync, when all of them have
    heard of it; and who joins the ISR has heard of those before.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from odradek.core.metadata.brokers import Broker
from odradek.core.metadata.topics import RECOVERED, Partition
from odradek.core.partition.broker_session import BrokerSession
from odradek.core.partition.replica import NEVER_MS, Replica
from odradek.wire.errors import ErrorCode, Refused

NO_EPOCH: Final = -1  # of a fetch or a broker that tells none
READ_FROM_LEADER: Final = -1

NOT_APPLIED = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
AWAIT_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class IsrChange(msgspec.Struct, eq=False):
    """What an AlterPartition asks for one partition."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]  # of each member, as it fetched; -1 where it has not
    leader_epoch: int
    partition_epoch: int
    recovery_state: int = RECOVERED


class Leader:
    __slots__ = (
        "adding",
        "brokers",
        "change",
        "directories",
        "epoch",
        "epoch_start",
        "high_watermark",
        "isr",
        "lag_time_max_ms",
        "least_start",
        "log_end",
        "maximal_isr",
        "min_insync",
        "min_insync_replicas",
        "node_id",
        "partition_epoch",
        "replicas",
        "session",
        "unsent",
    )

    def __init__(
        self, node_id: int, brokers: Mapping[int, Broker], session: BrokerSession, lag_time_max_ms: int, high_watermark: int = 0
    ) -> None:
        """`brokers` is the image's own mapping: what it says is looked up when it matters. The high watermark is what the node
        knew of it as a follower, or kept on disk."""
        self.node_id = node_id
        self.brokers = brokers
        self.session = session
        self.lag_time_max_ms = lag_time_max_ms
        self.high_watermark = high_watermark
        self.log_end = high_watermark
        self.epoch = NO_EPOCH
        self.epoch_start = 0
        self.least_start = 0  # of a log that joins the ISR
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.maximal_isr: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.replicas: dict[int, Replica] = {}  # the others
        self.directories: dict[int, bytes] = {}  # what the metadata says that each is in
        self.min_insync_replicas = 1
        self.min_insync = 1
        self.change: IsrChange | None = None  # under way
        self.unsent: IsrChange | None = None  # the same, before it was sent, or when it is to be sent again

    # -- what the metadata says

    def lead(self, state: Partition, log_end: int, min_insync_replicas: int, now_ms: int) -> bool:
        """Leads by what the metadata says: a new epoch, or a change within it. What is older than an answer of the controller
        that is known already changes nothing."""
        assert state.leader == self.node_id
        if state.partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = state.leader_epoch > self.epoch
        self.log_end = log_end
        self.replicas = {
            broker: self.replicas.get(broker) or Replica(broker) for broker in state.replicas if broker != self.node_id
        }
        self.directories = dict(zip(state.replicas, state.directories, strict=True))
        self.adding = state.adding
        if is_new_epoch:
            self.epoch = state.leader_epoch
            self.epoch_start = log_end
            for broker, replica in self.replicas.items():
                replica.reset(now_ms if broker in state.isr else NEVER_MS)
        if is_new_epoch or self.change is None or state.partition_epoch > self.partition_epoch:
            self._commit_isr(state.isr, state.partition_epoch)
        return self.configure(min_insync_replicas, now_ms)

    def configure(self, min_insync_replicas: int, now_ms: int) -> bool:
        """`min.insync.replicas`, of which there are never more than replicas."""
        self.min_insync_replicas = min_insync_replicas
        self.min_insync = min(min_insync_replicas, len(self.replicas) + 1)
        return self.advance(now_ms)

    def _commit_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self.change = self.unsent = None

    # -- the log grows, and followers fetch it

    def appended(self, log_end: int, now_ms: int) -> bool:
        self.log_end = log_end
        if not self.replicas and now_ms < self.session.certain_until_ms:
            self.high_watermark = log_end
            return True
        if len(self.maximal_isr) > 1:
            return False  # none of them has it yet
        return self.advance(now_ms)

    def follower(self, broker_id: int, leader_epoch: int) -> Replica:
        """Who fetches, before anything is read for it. Refused when it is none of ours, or in another epoch."""
        self.check_epoch(leader_epoch)
        replica = self.replicas.get(broker_id)
        if replica is None:  # perhaps one of a reassignment that is not known here yet: it tries again
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise Refused(code, f"broker {broker_id} is no replica in leader epoch {self.epoch}")
        return replica

    def check_epoch(self, leader_epoch: int) -> None:
        """Refuses who knows another leader epoch."""
        if leader_epoch in (self.epoch, NO_EPOCH):
            return
        if leader_epoch < self.epoch:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {leader_epoch} is over, {self.epoch} is current")
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {leader_epoch} is not known yet, {self.epoch} is current")

    def fetched(self, replica: Replica, offset: int, log_start: int, broker_epoch: int, now_ms: int) -> bool:
        """A follower fetches from an offset that our logs have in common. A fetch that waits is noted once, when it comes."""
        broker = self.brokers.get(replica.broker_id)
        if broker is not None and not broker.fenced and NO_EPOCH != broker_epoch < broker.epoch:
            reason = f"broker {broker.id} fetches with broker epoch {broker_epoch}, and is registered with {broker.epoch}"
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        before = replica.log_end
        replica.fetched(offset, log_start, self.log_end, broker_epoch, now_ms)
        if self.change is None and replica.broker_id not in self.isr and self._may_join(replica):
            self._propose((*self.isr, replica.broker_id))
            self.maximal_isr = (*self.isr, replica.broker_id)
        return before != offset and self.advance(now_ms)

    def _may_join(self, replica: Replica) -> bool:
        is_whole = replica.log_end >= self.high_watermark and replica.log_end >= self.epoch_start
        return is_whole and replica.log_start >= self.least_start and self._is_eligible(replica)

    def _is_eligible(self, replica: Replica) -> bool:
        """Whether the controller would take it into the ISR, and could elect it then."""
        broker = self.brokers.get(replica.broker_id)
        return (
            broker is not None
            and broker.is_active
            and replica.broker_epoch in (broker.epoch, NO_EPOCH)
            and broker.has_online(self.directories[replica.broker_id])
        )

    def advance(self, now_ms: int) -> bool:
        """Moves the high watermark as far as all have come who are in sync, or caught up and about to be."""
        if now_ms >= self.session.certain_until_ms or len(self.isr) < self.min_insync:
            return False
        log_end = committed = self.log_end
        for broker, replica in self.replicas.items():
            if replica.log_end < committed and (
                broker in self.maximal_isr
                or (replica.is_caught_up(log_end, now_ms, self.lag_time_max_ms) and self._is_eligible(replica))
            ):
                committed = replica.log_end
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    # -- changes of the ISR

    def tick(self, now_ms: int) -> None:
        """Proposes that those leave who have not caught up for `replica.lag.time.max.ms`. Half that time is often enough."""
        if self.change is not None or len(self.isr) < 2:
            return
        left = tuple(broker for broker in self.isr if broker == self.node_id or not self._is_late(broker, now_ms))
        if len(left) < len(self.isr):
            self._propose(left)

    def _is_late(self, broker: int, now_ms: int) -> bool:
        replica = self.replicas.get(broker)
        return replica is None or not replica.is_caught_up(self.log_end, now_ms, self.lag_time_max_ms)

    def _propose(self, isr: tuple[int, ...]) -> None:
        epochs = tuple(self._broker_epoch(broker) for broker in isr)
        self.change = self.unsent = IsrChange(isr, epochs, self.epoch, self.partition_epoch)

    def _broker_epoch(self, broker: int) -> int:
        """-1 for a member that has not fetched: were it another by now, the partition epoch would not be the current one."""
        if broker == self.node_id:
            return self.session.broker_epoch
        replica = self.replicas.get(broker)
        return NO_EPOCH if replica is None else max(replica.broker_epoch, NO_EPOCH)

    def take_unsent(self) -> IsrChange | None:
        """The change that is to be sent now."""
        change, self.unsent = self.unsent, None
        return change

    def answered(self, change: IsrChange, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int, now_ms: int) -> bool:
        """The controller made a change, or found it made."""
        if change is not self.change or leader_epoch != self.epoch or partition_epoch < self.partition_epoch:
            return False  # the metadata was faster, or will say what this is
        self._commit_isr(isr, partition_epoch)
        return self.advance(now_ms)

    def refused(self, change: IsrChange, code: int) -> None:
        """The controller did not make a change, or nobody knows."""
        if change is not self.change or code in AWAIT_METADATA:
            return
        if code in NOT_APPLIED:  # it says that the partition epoch is right, so no other request was applied either
            self._commit_isr(self.isr, self.partition_epoch)
        else:
            self.unsent = change

    # -- what produce requests may hope for

    def admission(self, *, acks_all: bool, now_ms: int) -> ErrorCode:
        """Whether a batch may be appended."""
        if now_ms >= self.session.certain_until_ms:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks_all and len(self.isr) < self.min_insync:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def outcome(self, end_offset: int, now_ms: int) -> ErrorCode | None:
        """What to answer who waits for all replicas to have what ends at an offset; None as long as it has to wait."""
        if self.high_watermark < end_offset or now_ms >= self.session.certain_until_ms:
            return None
        return ErrorCode.NONE if len(self.isr) >= self.min_insync else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # -- what others ask

    def low_watermark(self, log_start: int, now_ms: int) -> int:
        """Below it no replica has anything, those left aside that cannot be reached; -1 while one has not fetched, and while one
        of those may lead."""
        if self.admission(acks_all=True, now_ms=now_ms):
            return -1
        for broker_id, replica in self.replicas.items():
            if replica.log_start < log_start:
                broker = self.brokers.get(broker_id)
                if broker is not None and not broker.fenced:
                    log_start = replica.log_start
        return log_start

    def read_replica(self, rack: str, listener: str, offset: int, now_ms: int) -> int:
        """Who a consumer in a rack should read from (KIP-392): the replica of its rack that is furthest, READ_FROM_LEADER
        when this one is as near as any."""
        own = self.brokers.get(self.node_id)
        if not rack or (own is not None and own.rack == rack):
            return READ_FROM_LEADER
        near = []
        for broker_id, replica in self.replicas.items():
            broker = self.brokers.get(broker_id)
            is_near = broker is not None and not broker.fenced and broker.rack == rack and listener in broker.listeners
            if is_near and broker_id in self.isr and replica.log_start <= offset <= replica.log_end:
                near.append((replica.log_end, replica.caught_up_ms - now_ms, broker_id))
        return max(near)[2] if near else READ_FROM_LEADER

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a reassignment adds are not missed yet."""
        wanted = len(self.replicas) + 1 - len(self.adding)
        return len(self.isr) < wanted

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_insync

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.isr) == self.min_insync

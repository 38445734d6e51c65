"""Transactions: what their coordinators know, and what is in the logs of their partitions, over all nodes and over time.

Invariants that are checked
 1. A coordinator is what its partition of __transaction_state says.
 2. Of a transactional id the epochs never go back while it has one producer id, a transaction is complete in the way that was
    decided, and only when each of its partitions has its marker.
 3. A log has nothing of an epoch that had ended there, and an end of version 2 once from each coordinator; again only where a
    replica begins behind the first, and so does not know of it.
 4. A transaction that is open in a log is open at its coordinator, with that partition.
 5. No log is stable past the first transaction that is open in it. One whose end was there when the log was opened, and is not
    committed, may be read already, as in Kafka: the end is decided, and comes again where it is lost. So may one whose end was
    committed by a leader whose followers had not heard of that.
 6. Whoever reads a batch of an aborted transaction hears of that.
 7. No partition has the end of a transaction from a coordinator by whose log it is not decided for good.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from odradek.core.partition.replica import TopicIdPartition
from odradek.core.transactions.coordinator import TransactionCoordinator
from odradek.core.transactions.transaction import EPOCH_BUMPED_SINCE, PREPARED, State, TopicIndex, Transaction
from odradek.log.log import Log
from odradek.log.lookup import aborted_between
from odradek.node.coordinators import Shard
from odradek.node.transactions import TRANSACTION_STATE
from odradek.wire.control import ControlType, read_end_marker
from odradek.wire.log_records import decode_coordinator_record
from odradek.wire.message import Message
from odradek.wire.messages import TopicRecord, TransactionLogKey, TransactionLogValue
from odradek.wire.records import records
from tests.log.medium import Medium
from tests.sim.structural.findings import hold
from tests.sim.structural.logs import UNKNOWN, Batch, Cursor, batches_below, content_of
from tests.sim.structural.replicas import Replica, all_replicas, newest_image

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster

OPEN: Final = frozenset({State.ONGOING, *PREPARED})

Ended = tuple[int, int]  # producer id, epoch of the marker


class History(msgspec.Struct):
    """What is committed in one partition, as far as transactions go. A hole, which rot leaves, shows nothing."""

    next_offset: int = 0
    start: int = 0  # of the replica that begins last
    open: dict[int, int] = {}  # by producer id: the first offset
    epochs: dict[int, int] = {}  # of the last marker of a producer
    markers: dict[Ended, int] = {}  # and the offset of each
    last: dict[int, tuple[int, int]] = {}  # of producers without data since: epoch and coordinator epoch of the marker


class Repeated(NamedTuple):
    """An end that came twice."""

    ended: Ended
    history: History
    first_offset: int
    what: str


class TransactionChecks:
    def __init__(self, committed_to: Callable[[TopicIdPartition], int] = lambda _: 0) -> None:
        """`committed_to` tells how much of a partition any leader has known to be committed."""
        self.committed_to = committed_to
        self.histories: dict[TopicIdPartition, History] = {}
        self.topic_ids: dict[str, bytes] = {}  # by name: of the first topic
        self.made_anew: dict[str, None] = {}  # names that more than one topic has had
        self.states: dict[str, Transaction] = {}  # by transactional id, as committed
        self.names: dict[int, str] = {}  # by producer id
        self.places: dict[str, int] = {}  # of transactional ids: the partition of __transaction_state
        self.next_offsets: dict[int, int] = {}  # of partitions of __transaction_state
        self.versions: dict[Ended, int] = {}  # in which the end of a transaction was decided
        self.repeated: list[Repeated] = []  # of which the version is not known yet
        self.completed: list[tuple[str, Transaction]] = []  # as they were decided, whose markers were not looked for yet
        self.opened: weakref.WeakKeyDictionary[Log, int] = weakref.WeakKeyDictionary()  # where logs ended when first seen
        self.transactions_seen = self.markers_seen = 0

    # -- what is committed

    def replayed(self, records: Sequence[Message]) -> None:
        """A batch of the metadata."""
        for record in records:
            if isinstance(record, TopicRecord) and self.topic_ids.setdefault(record.name, record.topic_id) != record.topic_id:
                self.made_anew[record.name] = None

    def look(self, replica: Replica, batches: list[Batch]) -> None:
        """New batches of a replica, below its high watermark."""
        topic, _, index = replica.name.rpartition("-")
        if topic == TRANSACTION_STATE:
            for batch in batches:
                self._state_written(int(index), batch)
            return
        history = self.histories.setdefault(replica.key, History())
        history.start = max(history.start, replica.log.start_offset)
        for batch in batches:
            header = batch.header
            if header.base_offset < history.next_offset:
                continue
            if header.base_offset > history.next_offset:
                history.open.clear()
                history.last.clear()
            history.next_offset = header.next_offset
            if header.is_control and header.producer_id >= 0:
                self._ended(replica.name, history, batch)
            elif header.is_transactional:
                self._appended(replica.name, history, batch)

    def _state_written(self, index: int, batch: Batch) -> None:
        if batch.header.base_offset < self.next_offsets.get(index, 0):
            return
        self.next_offsets[index] = batch.header.next_offset
        for record in records(batch.data, 0, batch.header):
            assert record.key is not None
            entry = decode_coordinator_record(TRANSACTION_STATE, record.key, record.value)
            assert isinstance(entry.key, TransactionLogKey)
            name = entry.key.transactional_id
            self.places[name] = index
            if entry.value is None:
                self.states.pop(name, None)
                continue
            assert isinstance(entry.value, TransactionLogValue)
            self._changed(name, self.states.get(name), Transaction.of(entry.value))

    def _changed(self, name: str, before: Transaction | None, after: Transaction) -> None:
        self.states[name] = after
        self.names[after.producer_id] = name
        self.transactions_seen += 1
        if after.state in PREPARED:
            self.versions[after.producer_id, after.epoch] = after.version
        if before is None:
            return
        if before.producer_id == after.producer_id:
            hold(after.epoch >= before.epoch, f"{name} had epoch {before.epoch}, and has {after.epoch} now")
        if after.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            hold(
                before.state in PREPARED and before.is_commit == after.is_commit,
                f"{name} is {after.state.title}, and was {before.state.title} before",
            )
            self.completed.append((name, before))
        elif before.state in PREPARED:
            hold(False, f"{name} was {before.state.title}, and is {after.state.title} without having been completed")

    def _appended(self, name: str, history: History, batch: Batch) -> None:
        header = batch.header
        producer_id, epoch = header.producer_id, header.producer_epoch
        ended = history.epochs.get(producer_id, UNKNOWN)
        hold(
            epoch >= ended,
            f"{name} has a batch of producer {producer_id}, epoch {epoch}, at {header.base_offset}, behind its end with {ended}",
        )
        history.last.pop(producer_id, None)
        history.open.setdefault(producer_id, header.base_offset)

    def _ended(self, name: str, history: History, batch: Batch) -> None:
        header = batch.header
        record = next(iter(records(batch.data, 0, header)), None)
        if record is None:  # compaction has taken it
            return
        _, coordinator_epoch = read_end_marker(record)
        producer_id, epoch = header.producer_id, header.producer_epoch
        self.markers_seen += 1
        if history.last.get(producer_id) == (epoch, coordinator_epoch):
            what = f"{name} has the end of a transaction of producer {producer_id}, epoch {epoch}, again at {header.base_offset}"
            self.repeated.append(Repeated((producer_id, epoch), history, history.markers[producer_id, epoch], what))
        history.open.pop(producer_id, None)
        history.last[producer_id] = (epoch, coordinator_epoch)
        history.epochs[producer_id] = epoch
        history.markers[producer_id, epoch] = header.base_offset

    # -- between two turns of the world

    def check(self, cluster: "SimCluster") -> None:
        self._check_repeated()
        leaders = newest_leaders(cluster)
        check_decided(cluster, leaders)
        completed, self.completed = self.completed, []
        for name, decided in completed:
            for place in sorted(decided.partitions):
                self._check_complete(name, decided, place, leaders.get(place))
        for replica in all_replicas(cluster):
            self.opened.setdefault(replica.log, replica.log.end_offset)
        for place, replica in leaders.items():
            log = replica.log
            first = self._first_open(replica)
            stable = log.last_stable_offset
            if first is not None and not log.config.compacts and first >= log.start_offset:
                hold(stable <= first, f"{replica.name} is stable up to {stable} on {replica.who}, and open from {first} on")
            for first_offset, producer_id in log.producers.ongoing.items():
                self._check_open(replica, place, first_offset, producer_id, leaders)

    def _first_open(self, replica: Replica) -> int | None:
        log, history = replica.log, self.histories.get(replica.key, History())
        opened = history.open
        if not opened or log.last_stable_offset <= min(opened.values()):
            return min(opened.values(), default=None)
        if history.next_offset < log.high_watermark:  # rot in its segment hides what it has committed last
            return None
        seen = max(self.opened[log], self.committed_to(replica.key))
        ended = {
            header.producer_id for _, _, header in log.batches(log.high_watermark, min(seen, log.end_offset)) if header.is_control
        }
        return min((first for producer, first in opened.items() if producer not in ended), default=None)

    def _check_repeated(self) -> None:
        """Before version 2 a producer ends all of its transactions with one epoch, and some may have nothing here."""
        for each in self.repeated:
            may_be = self.versions.get(each.ended, 0) < EPOCH_BUMPED_SINCE or each.first_offset < each.history.start
            hold(may_be, each.what)
        self.repeated = [each for each in self.repeated if each.ended not in self.versions]

    def _check_complete(self, name: str, decided: Transaction, place: TopicIndex, replica: Replica | None) -> None:
        """By then the marker is committed: whoever leads the partition has it. Where the topic was made anew, nobody can tell
        which of them was meant: a coordinator knows it by its name."""
        ended = (decided.producer_id, decided.epoch)
        if replica is None or replica.log.start_offset > 0 or replica.log.config.compacts or place[0] in self.made_anew:
            return
        is_there = ended in self.histories.get(replica.key, History()).markers or has_marker(replica, ended)
        hold(is_there, f"{name} is complete, and {replica.name} on {replica.who} has no end of it, of {ended}")

    def _check_open(
        self, replica: Replica, place: TopicIndex, first_offset: int, producer_id: int, leaders: dict[TopicIndex, Replica]
    ) -> None:
        """Where all that its coordinator has written is seen to be committed: a new one may not know yet how much of it is."""
        name = self.names.get(producer_id, "")
        known, index = self.states.get(name), self.places.get(name, UNKNOWN)
        coordinator = leaders.get((TRANSACTION_STATE, index))
        if known is None or coordinator is None or self.next_offsets.get(index) != coordinator.log.end_offset:
            return
        what = f"a transaction of producer {producer_id} is open in {replica.name} on {replica.who} from {first_offset} on"
        is_open = known.state in OPEN and known.producer_id == producer_id and place in known.partitions
        hold(is_open, f"{what}, and at its coordinator {known.state.title} with {sorted(known.partitions)}")

    # -- rarely

    def check_whole(self, cluster: "SimCluster") -> int:
        """Gives how many transactional ids were compared."""
        count = 0
        for number, node in cluster.nodes.items():
            transactions, medium = getattr(node, "transactions", None), cluster.members[number].disks.medium
            for index, shard in transactions.shards.items() if transactions is not None else ():
                if shard.is_loaded and not shard.is_closed and not shard.is_stepping and shard.partition.log.damage is None:
                    count += check_coordinator(f"the coordinator of {TRANSACTION_STATE}-{index} on node {number}", shard, medium)
        for replica in newest_leaders(cluster).values():
            if not replica.log.config.compacts:
                check_aborted(replica)
        return count


def newest_leaders(cluster: "SimCluster") -> dict[TopicIndex, Replica]:
    """Who leads by all that anybody knows, where that one has a sound log. What was deleted nobody leads."""
    topics = newest_image(cluster).topics.values()
    epochs = {(topic.id, index): state.leader_epoch for topic in topics for index, state in topic.partitions.items()}
    found: dict[TopicIndex, Replica] = {}
    for replica in all_replicas(cluster):
        topic_name, _, number = replica.name.rpartition("-")
        if replica.leading is not None and replica.leader_epoch == epochs.get(replica.key) and replica.log.damage is None:
            found[topic_name, int(number)] = replica
    return found


def check_decided(cluster: "SimCluster", leaders: dict[TopicIndex, Replica]) -> None:
    """Of version 2, where the epoch of an end is seen with it. What another coordinator knew of its log nobody can tell."""
    for number, node in cluster.nodes.items():
        transactions = getattr(node, "transactions", None)
        for shard in transactions.shards.values() if transactions is not None else ():
            epoch, committed = shard.partition.leader_epoch, shard.partition.log.high_watermark
            for name, entry in shard.coordinator.entries.items() if shard.is_loaded else ():
                decided = entry.transaction
                if entry.offset < committed or decided.state not in PREPARED or decided.version < EPOCH_BUMPED_SINCE:
                    continue
                for place in sorted(decided.partitions & leaders.keys()):
                    producer = leaders[place].log.producers.producers.get(decided.producer_id)
                    hold(
                        producer is None or (producer.epoch, producer.coordinator_epoch) != (decided.epoch, epoch),
                        f"{leaders[place].name} has an end of {name} from node {number}, which has it at {entry.offset}, "
                        f"and knows that {committed} is committed",
                    )


def has_marker(replica: Replica, ended: Ended) -> bool:
    """Also above the high watermark, of which a new leader may not know yet what it was. Rot hides what is there."""
    cursor = Cursor()
    for batch in batches_below(replica.medium, replica.log, replica.log.end_offset, cursor):
        if batch.header.is_control and (batch.header.producer_id, batch.header.producer_epoch) == ended:
            return True
    is_hidden = any(content_of(replica.medium, segment) is None for segment in replica.log.segments)
    return is_hidden or cursor.next_offset == UNKNOWN


def check_coordinator(name: str, shard: Shard[TransactionCoordinator], medium: Medium) -> int:
    live = shard.coordinator
    fresh, cursor, log = TransactionCoordinator(live.config, live.high_watermark), Cursor(), shard.partition.log
    for batch in batches_below(medium, log, live.log_end, cursor):
        for record in records(batch.data, 0, batch.header):
            assert record.key is not None
            entry = decode_coordinator_record(TRANSACTION_STATE, record.key, record.value)
            fresh.replay(record.offset, entry.key, entry.value, UNKNOWN)
    if cursor.next_offset == UNKNOWN:
        return 0
    ours = {known: (entry.transaction, entry.offset) for known, entry in live.entries.items()}
    theirs = {known: (entry.transaction, entry.offset) for known, entry in fresh.entries.items()}
    for known in sorted({*ours, *theirs}):
        hold(ours.get(known) == theirs.get(known), f"{name} has {known} as {ours.get(known)}, and its log as {theirs.get(known)}")
    return len(ours)


def check_aborted(replica: Replica) -> None:
    """Reads each batch of an aborted transaction alone."""
    log = replica.log
    open_batches: dict[int, list[Batch]] = {}
    next_offset = 0
    for batch in batches_below(replica.medium, log, log.high_watermark, Cursor()):
        header = batch.header
        if header.base_offset != next_offset:  # rot hides the end of some
            open_batches.clear()
        next_offset = header.next_offset
        if not header.is_transactional or header.last_offset < log.start_offset:
            continue
        if not header.is_control:
            open_batches.setdefault(header.producer_id, []).append(batch)
            continue
        (record,) = records(batch.data, 0, header)
        is_aborted = read_end_marker(record)[0] is ControlType.ABORT
        for each in open_batches.pop(header.producer_id, []) if is_aborted else ():
            hold(
                is_told(log, each),
                f"{replica.name} on {replica.who} does not tell that the batch at {each.header.base_offset} was aborted",
            )
        open_batches.pop(header.producer_id, None)


def is_told(log: Log, batch: Batch) -> bool:
    header = batch.header
    told = aborted_between(log, header.base_offset, header.next_offset)
    return any(each.producer_id == header.producer_id and each.first_offset <= header.base_offset for each in told)

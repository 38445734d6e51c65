"""A small cluster that is right: logs with a high watermark, transactions, compaction, deletions, losses, and a group.

It does at random what clients and nodes may do, and tells the history of it. No rule may complain of such a history, however the
steps fall; `damage.py` breaks one, and then a rule has to.

Invariants
 1. What is below the high watermark is never cut off, except by a loss that the history tells.
 2. Clients see only what is below the high watermark, and in read_committed below the first open transaction.
"""

from random import Random
from typing import Final

import msgspec

from tests.checker import history
from tests.checker.history import History, Isolation, Position, Record, SendBegun

PRODUCERS: Final = ("p", "q", "x")  # x writes transactions
PLAIN: Final = "w"  # without idempotence
READERS: Final[dict[str, Isolation]] = {"r": "read_uncommitted", "s": "read_committed"}
MEMBERS: Final = ("m", "n")
PARTITIONS: Final = (("t", 0), ("u", 0), ("c", 0))
COMPACTED: Final = "c"
KEYS: Final = ("k", "l")
POLL_RECORDS_MAX: Final = 4
OFFSETS_AT_ONCE_MAX: Final = 3  # committed offsets that nobody has heard of yet

Partition = tuple[str, int]


class Entry(msgspec.Struct):
    offset: int
    send: SendBegun | None  # none: the marker of a transaction
    transaction: int | None = None


class Log(msgspec.Struct):
    entries: list[Entry] = []
    start: int = 0
    high_watermark: int = 0
    end: int = 0

    def append(self, entry_of: SendBegun | None, transaction: int | None) -> int:
        self.entries.append(Entry(self.end, entry_of, transaction))
        self.end += 1
        return self.end - 1


class Under(msgspec.Struct):
    """A send that has not ended."""

    event: SendBegun
    offset: int | None = None
    attempts: int = 0


class Cluster:
    """`Cluster(Random(seed)).run(steps)` gives a history."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.history = History()
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.unsent: dict[str, list[Under]] = {name: [] for name in (*PRODUCERS, PLAIN)}
        self.sent: dict[str, list[Under]] = {name: [] for name in (*PRODUCERS, PLAIN)}
        self.positions: dict[tuple[str, Partition], int] = {}
        self.transaction: int | None = None
        self.aborted: set[int] = set()
        self.ended: set[int] = set()
        self.in_doubt: int | None = None  # its commit was asked for
        self.values = 0
        self.committed = {"g": -1, "h": -1}  # for t-0; h is the group of x, whose commits are in its transactions
        self.pending = -1  # what the transaction will commit
        self.owner = ""
        self.generation = 0
        self.commits: list[tuple[int, str, int, int, bool]] = []  # id, member, generation, offset, is applied
        self.asked: list[tuple[int, str, int]] = []  # id, group, and what is to be answered
        self.topics: list[str] = []
        self._tell(history.RemovalAllowed(0, "a", COMPACTED, "compact"))

    def _tell(self, event: history.AnyEvent) -> None:
        event.at_ms = float(len(self.history.events))
        self.history.add(event)

    def run(self, steps: int) -> History:
        often = [self.send, self.send, self.append, self.append, self.append, self.replicate, self.replicate, self.end]
        often += [self.end, self.end, self.poll, self.poll, self.poll, self.commit, self.commit, self.witness, self.process]
        rare = [self.refuse, self.cut, self.compact, self.delete, self.lose, self.rebalance, self.change_topic]
        self.rebalance()
        for _ in range(steps):
            step = self.chance.choice(rare if self.chance.random() < 0.08 else often)
            step()
            if self.chance.random() < 0.05 or self.transaction is None:
                self.transact()
        self.finish()
        return self.history

    # -- writing

    def send(self) -> None:
        producer = self.chance.choice([*PRODUCERS, PLAIN])
        if producer == "x" and self.transaction is None:
            return
        topic, partition = self.chance.choice(PARTITIONS)
        self.values += 1
        value = None if topic == COMPACTED and self.chance.random() < 0.2 else f"v{self.values}"
        key = self.chance.choice(KEYS) if topic == COMPACTED else None
        event = SendBegun(0, producer, self.history.next_id(), topic, partition, key, value, producer)
        event.is_idempotent = producer != PLAIN
        event.acks = -1 if event.is_idempotent else self.chance.choice((-1, 0, 1))
        event.transaction = self.transaction if producer == "x" else None
        self._tell(event)
        self.unsent[producer].append(Under(event))

    def append(self) -> None:
        producer = self.chance.choice([*PRODUCERS, PLAIN])
        if not self.unsent[producer]:
            return
        under = self.unsent[producer].pop(0)
        event = under.event
        for _ in range(2 if producer == PLAIN and event.acks and self.chance.random() < 0.3 else 1):
            under.attempts += 1
            under.offset = self.logs[event.topic, event.partition].append(event, event.transaction)
        self.sent[producer].append(under)

    def replicate(self) -> None:
        log = self.logs[self.chance.choice(PARTITIONS)]
        log.high_watermark = self.chance.randint(log.high_watermark, log.end)

    def end(self) -> None:
        producer = self.chance.choice([*PRODUCERS, PLAIN])
        if not self.sent[producer]:
            return
        under = self.chance.choice(self.sent[producer])
        event, offset = under.event, under.offset
        assert offset is not None
        is_safe = offset < self.logs[event.topic, event.partition].high_watermark
        if event.acks == -1 and not is_safe:
            return
        self.sent[producer].remove(under)
        if event.acks == 0 or (producer != "x" and self.chance.random() < 0.1):
            self._tell(history.SendEnded(0, producer, event.id, "unknown", attempts=under.attempts))
        else:
            self._tell(history.SendEnded(0, producer, event.id, "acknowledged", offset, under.attempts))

    def refuse(self) -> None:
        producer = self.chance.choice([*PRODUCERS, PLAIN])
        if self.unsent[producer] and not self.unsent[producer][-1].attempts:
            under = self.unsent[producer].pop()
            self._tell(history.SendEnded(0, producer, under.event.id, "refused"))

    def cut(self) -> None:
        """A leader is gone, and what it alone had; idempotent producers send it again."""
        log = self.logs[self.chance.choice(PARTITIONS)]
        self._cut_to(log, log.high_watermark)

    def _cut_to(self, log: Log, end: int) -> None:
        gone = [entry for entry in log.entries if entry.offset >= end]
        if any(entry.send is None for entry in gone):
            return  # markers are written to all replicas at once here
        log.entries = [entry for entry in log.entries if entry.offset < end]
        log.end = min(log.end, end)
        log.high_watermark = min(log.high_watermark, end)
        lost = {entry.send.id for entry in gone if entry.send}
        for producer in PRODUCERS:
            again = [under for under in self.sent[producer] if under.event.id in lost]
            self.sent[producer] = [under for under in self.sent[producer] if under.event.id not in lost]
            self.unsent[producer] = again + self.unsent[producer]
        self.sent[PLAIN] = [under for under in self.sent[PLAIN] if under.event.id not in lost]

    # -- what may be removed

    def compact(self) -> None:
        log = self.logs[COMPACTED, 0]
        end = self._last_stable_offset(log)
        log.entries = [entry for entry in log.entries if entry.transaction not in self.aborted or entry.offset >= end]
        last = {entry.send.key: entry.offset for entry in log.entries if entry.send and entry.offset < end}
        kept = [entry for entry in log.entries if not entry.send or entry.offset >= last.get(entry.send.key, 0)]
        if self.chance.random() < 0.5:  # the tombstones too: all that they delete is gone
            kept = [entry for entry in kept if not entry.send or entry.send.value or entry.offset >= end]
        log.entries = kept

    def _last_stable_offset(self, log: Log) -> int:
        opened = [entry.offset for entry in log.entries if entry.send and self._is_open(entry.transaction)]
        return min([log.high_watermark, *opened])

    def delete(self) -> None:
        partition = PARTITIONS[1]
        log = self.logs[partition]
        end = self._last_stable_offset(log)  # or the model would have to remember where open transactions began
        if log.start < end:
            log.start = self.chance.randint(log.start, end)
            id_ = self.history.next_id()
            self._tell(history.DeletionBegun(0, "a", id_, *partition, log.start))
            self._tell(history.DeletionEnded(0, "a", id_, "acknowledged", log.start))
            log.entries = [entry for entry in log.entries if entry.offset >= log.start]

    def lose(self) -> None:
        """Power is lost everywhere: of a log only a part is there again. `t` is spared: of one all is to be sure."""
        lost = self.chance.choice(PARTITIONS[1:])
        log = self.logs[lost]
        markers = [entry.offset + 1 for entry in log.entries if entry.send is None]
        end = self.chance.randint(max([log.start, *markers]), log.end)
        self._tell(history.LossAllowed(0, "a", "power lost", [lost[0]]))
        self._cut_to(log, end)
        for (reader, partition), position in list(self.positions.items()):
            if partition == lost and position > end:
                self._move(reader, partition, end)

    # -- reading

    def _move(self, reader: str, partition: Partition, offset: int) -> None:
        self.positions[reader, partition] = offset
        self._tell(history.Moved(0, reader, *partition, offset, "out of range"))

    def poll(self) -> None:
        reader = self.chance.choice([*READERS, *MEMBERS])
        if reader in MEMBERS:
            if (reader, PARTITIONS[0]) not in self.positions:
                return
            partition = PARTITIONS[0]
        else:
            partition = self.chance.choice(PARTITIONS)
        isolation = READERS.get(reader, "read_committed")
        log = self.logs[partition]
        if (reader, partition) not in self.positions or (reader in READERS and self.chance.random() < 0.02):
            self.positions[reader, partition] = start = self.chance.randint(log.start, log.high_watermark)
            self._tell(history.Assigned(0, reader, [Position(*partition, start)]))
        if self.positions[reader, partition] < log.start:
            self._move(reader, partition, log.start)
        self._tell(history.PollBegun(0, reader))
        records, position = self._read(partition, self.positions[reader, partition], isolation)
        self.positions[reader, partition] = position
        positions = [Position(*partition, position)] if self.chance.random() < 0.5 else []
        self._tell(history.Polled(0, reader, records, positions, isolation))

    def _read(
        self, partition: Partition, begin: int, isolation: Isolation, count: int = POLL_RECORDS_MAX
    ) -> tuple[list[Record], int]:
        log = self.logs[partition]
        limit = self._last_stable_offset(log) if isolation == "read_committed" else log.high_watermark
        records: list[Record] = []
        for entry in log.entries:
            if begin <= entry.offset < limit and len(records) < count:
                begin = entry.offset + 1
                if entry.send and not (isolation == "read_committed" and entry.transaction in self.aborted):
                    records.append(Record(*partition, entry.offset, entry.send.key, entry.send.value))
        return records, begin

    def _is_open(self, transaction: int | None) -> bool:
        return transaction is not None and transaction not in self.ended

    # -- transactions

    def transact(self) -> None:
        if self.in_doubt is not None:
            self._end_transaction(self.in_doubt, self.chance.random() < 0.5)
            self.in_doubt = None
        if self.transaction is None:
            self.transaction = self.history.next_id()
            self._tell(history.TransactionBegun(0, "x", self.transaction, "tx", "x"))
        elif not self.unsent["x"] and not self.sent["x"]:
            self._ask_for_end(self.transaction)
            self.transaction = None

    def process(self) -> None:
        """x reads in its transaction, and commits with it what it has read."""
        if self.transaction is None:
            return
        position = self.positions.setdefault(("x", PARTITIONS[0]), 0)
        records, position = self._read(PARTITIONS[0], position, "read_committed")
        self.positions["x", PARTITIONS[0]] = self.pending = position
        self._tell(history.Polled(0, "x", records, [], "read_committed", self.transaction))
        offsets, id_ = [Position("t", 0, position)], self.history.next_id()
        self._tell(history.CommitBegun(0, "x", id_, "h", offsets, "x", -1, self.transaction))
        self._tell(history.CommitEnded(0, "x", id_, acknowledged=offsets))

    def _ask_for_end(self, transaction: int) -> None:
        is_commit, is_heard = self.chance.random() < 0.7, self.chance.random() < 0.8
        self._tell(history.TransactionEnding(0, "x", transaction, is_commit))
        if is_heard:
            self._end_transaction(transaction, is_commit)
            self._tell(history.TransactionEnded(0, "x", transaction, "committed" if is_commit else "aborted"))
        elif is_commit:
            self.in_doubt = transaction
        else:
            self._end_transaction(transaction, is_commit=False)

    def _end_transaction(self, transaction: int, is_commit: bool) -> None:
        self.ended.add(transaction)
        if not is_commit:
            self.aborted.add(transaction)
        elif self.pending >= 0:
            self.committed["h"] = self.pending
        self.pending = -1
        for log in self.logs.values():
            if any(entry.transaction == transaction for entry in log.entries):
                log.append(None, None)
                log.high_watermark = log.end

    # -- the group

    def rebalance(self) -> None:
        if self.owner and self.chance.random() < 0.7:
            self._tell(history.Revoked(0, self.owner, [Position("t", 0)], "g"))
            del self.positions[self.owner, PARTITIONS[0]]
            self.owner = ""
        self.generation += 1
        new = self.chance.choice([member for member in MEMBERS if member != self.owner])
        id_ = self.history.next_id()
        self._tell(history.CommittedAsked(0, new, id_, "g"))
        self._tell(history.CommittedSeen(0, new, id_, "g", [Position("t", 0, self.committed["g"])]))
        self.owner = new
        start = self.positions[new, PARTITIONS[0]] = max(self.committed["g"], 0)
        self._tell(history.Assigned(0, new, [Position("t", 0, start)], [], "g", new, self.generation))

    def commit(self) -> None:
        """One is begun, or reaches the coordinator, or is heard of."""
        if len(self.commits) < OFFSETS_AT_ONCE_MAX and self.owner:
            member = self.chance.choice([member for member in MEMBERS if (member, PARTITIONS[0]) in self.positions])
            generation = self.generation if member == self.owner else self.generation - 1
            offset = self.positions[member, PARTITIONS[0]]
            id_ = self.history.next_id()
            self._tell(history.CommitBegun(0, member, id_, "g", [Position("t", 0, offset)], member, generation))
            self.commits.append((id_, member, generation, offset, False))
        if not self.commits:
            return
        index = self.chance.randrange(len(self.commits))
        id_, member, generation, offset, is_applied = self.commits[index]
        if is_applied:
            del self.commits[index]
            if self.chance.random() < 0.8:
                self._tell(history.CommitEnded(0, member, id_, acknowledged=[Position("t", 0, offset)]))
        elif generation == self.generation:
            self.committed["g"] = offset
            self.commits[index] = id_, member, generation, offset, True
        else:
            del self.commits[index]
            self._tell(history.CommitEnded(0, member, id_, refused=[Position("t", 0, offset)]))

    def witness(self) -> None:
        if self.asked and self.chance.random() < 0.5:
            id_, group, offset = self.asked.pop(0)
            self._tell(history.CommittedSeen(0, "z", id_, group, [Position("t", 0, offset)]))
        else:
            id_, group = self.history.next_id(), self.chance.choice(("g", "h"))
            self._tell(history.CommittedAsked(0, "z", id_, group))
            self.asked.append((id_, group, self.committed[group]))

    def change_topic(self) -> None:
        id_ = self.history.next_id()
        is_heard = self.chance.random() < 0.7
        if self.topics and self.chance.random() < 0.5:
            name = self.topics.pop()
            self._tell(history.TopicBegun(0, "a", id_, name, "delete"))
        else:
            name = f"made-{id_}"
            self.topics.insert(0, name)
            self._tell(history.TopicBegun(0, "a", id_, name, "create"))
        if is_heard:
            self._tell(history.TopicEnded(0, "a", id_, "acknowledged"))

    # -- the end

    def finish(self) -> None:
        for transaction in (self.transaction, self.in_doubt):
            if transaction is not None:
                self._end_transaction(transaction, transaction == self.in_doubt and self.chance.random() < 0.5)
        self._tell(history.TopicsSeen(0, "f", "1", ["t", *self.topics], is_final=True))
        for partition, log in self.logs.items():
            log.high_watermark = log.end
            for isolation in ("read_uncommitted", "read_committed"):
                records, _ = self._read(partition, log.start, isolation, len(log.entries))
                self._tell(history.FinalRead(0, "f", *partition, log.start, log.end, records, isolation))

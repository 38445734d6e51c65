"""A group that reads the topic while nodes come and go, and tells what it sees.

Invariants
 1. What a member has read is told before it is told that its partitions changed.
 2. A member sends one commit after the other: an old one that is tried again must not come after a newer one.
 3. Where a member begins after an assignment its client does not say; the first record does.
 4. What could not be committed is tried again as long as the partition is the member's: there may be no later record.
"""

import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.checker import history
from tests.checker.history import History, Position, Record, text
from tests.cluster.settings import EAGER, PARTITIONS, POLL_SECONDS, Place, now_ms, until

MEMBERS: Final = 2
RECORDS_MAX: Final = 200
COMMIT_SECONDS_MAX: Final = 30.0
WITNESS_SECONDS: Final = 0.2
MEMBER: Final = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True}
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"session.timeout.ms": 10_000},
    "consumer": {"group.protocol": "consumer"},
}


class Member:
    """Commits what it has read."""

    def __init__(self, bootstrap: str, group: "Group", number: int) -> None:
        self.name = f"{group.name} {number}"
        self.group = group
        self.history = group.history
        own = {"bootstrap.servers": bootstrap, "group.id": group.name, "on_commit": self._committed}
        self.consumer = Consumer({**own, **EAGER, **MEMBER, **group.settings})
        self.consumer.subscribe([group.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        self.read: set[Place] = set()
        self.records: list[Record] = []  # that are not told yet
        self.unsent: dict[int, int] = {}  # offsets that are to be committed
        self.sent: dict[int, int] = {}  # those of the last commit, until it is answered
        self.commits: dict[frozenset[Place], int] = {}  # ids of those that are under way
        self.waits_until_s = 0.0  # for the answer, and not for ever: librdkafka may lose it with its brokers
        self.last_error = ""

    # -- what it is given

    def _positions(self, partitions: list[TopicPartition]) -> list[Position]:
        return [Position(each.topic, each.partition) for each in partitions]

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._tell_records()
        self.history.add(history.Assigned(now_ms(), self.name, self._positions(partitions), [], self.group.name, self.name))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition], is_lost: bool = False) -> None:
        self._tell_records()
        for each in partitions:
            self.unsent.pop(each.partition, None)
            self.sent.pop(each.partition, None)  # whoever has it next reads again
        self.history.add(history.Revoked(now_ms(), self.name, self._positions(partitions), self.group.name, self.name, is_lost))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked(consumer, partitions, is_lost=True)

    # -- what it reads

    def go_on(self) -> None:
        for number in range(RECORDS_MAX):
            message = self.consumer.poll(0 if number else POLL_SECONDS)
            if message is None:
                break
            self._take(message)
        self._tell_records()
        if (self.unsent or self.sent) and time.monotonic() > self.waits_until_s:
            self._commit()

    def _take(self, message: Message) -> None:
        index, offset = message.partition(), message.offset()
        if (error := message.error()) is not None:
            self.last_error = str(error)
            return
        assert index is not None
        assert offset is not None
        self.records.append(Record(self.group.topic, index, offset, text(message.key()), text(message.value())))
        self.unsent[index] = offset + 1

    def _tell_records(self) -> None:
        records, self.records = self.records, []
        if records:
            self.history.add(history.Polled(now_ms(), self.name, records))
            self.read.update((record.partition, record.offset) for record in records)

    # -- what it commits

    def _commit(self) -> None:
        positions = self.sent = self.sent | self.unsent
        self.unsent = {}
        wanted = [TopicPartition(self.group.topic, index, offset) for index, offset in positions.items()]
        id_ = self.commits[frozenset(positions.items())] = self.history.next_id()
        told = [Position(self.group.topic, index, offset) for index, offset in positions.items()]
        self.history.add(history.CommitBegun(now_ms(), self.name, id_, self.group.name, told, self.name))
        self.waits_until_s = time.monotonic() + COMMIT_SECONDS_MAX
        try:
            self.consumer.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            self.last_error = str(error)

    def _committed(self, error: KafkaError | None, done: list[TopicPartition]) -> None:
        self.waits_until_s = 0.0
        id_ = self.commits.pop(frozenset((each.partition, each.offset) for each in done), None)
        if error is not None:
            self.last_error = str(error)  # the first of several attempts may have come through
        elif id_ is not None:
            told = [Position(each.topic, each.partition, each.offset) for each in done if each.error is None]
            for each in told:
                if self.sent.get(each.partition) == each.offset:
                    del self.sent[each.partition]
            self.history.add(history.CommitEnded(now_ms(), self.name, id_, told))
            self.group.note(told)


class Witness:
    """Asks again and again what the group has committed, without being of it."""

    def __init__(self, bootstrap: str, group: "Group") -> None:
        self.name = f"{group.name} witness"
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, **EAGER})
        self.wanted = [TopicPartition(group.topic, index) for index in range(PARTITIONS)]
        self.group = group
        self.seen = 0

    def go_on(self) -> None:
        group, id_ = self.group, self.group.history.next_id()
        group.history.add(history.CommittedAsked(now_ms(), self.name, id_, group.name))
        try:
            found = self.consumer.committed(self.wanted, timeout=5)
        except KafkaException:
            return
        told = [
            Position(each.topic, each.partition, max(each.offset, -1)) for each in found if each.error is None
        ]  # none is below 0
        group.history.add(history.CommittedSeen(now_ms(), self.name, id_, group.name, told))
        self.seen += 1
        group.is_over.wait(WITNESS_SECONDS)


class Group:
    """The members, and how far they are."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, told: History, is_over: threading.Event) -> None:
        self.topic = topic
        self.name = topic if protocol == "classic" else f"{topic}-{protocol}"
        self.settings = PROTOCOLS[protocol]
        self.history = told
        self.is_over = is_over
        self.committed: Counter[int] = Counter()  # the highest that was acknowledged
        self.members = [Member(bootstrap, self, number) for number in range(MEMBERS)]
        self.witness = Witness(bootstrap, self)

    @property
    def parts(self) -> list[Member | Witness]:
        return [*self.members, self.witness]

    def __str__(self) -> str:
        members = [f"{member.name}: {len(member.read)} read, {member.last_error}" for member in self.members]
        return f"{self.name}: committed {dict(self.committed)}, {members}"

    def note(self, committed: list[Position]) -> None:
        for each in committed:
            self.committed[each.partition] = max(each.offset, self.committed[each.partition])

    def begins(self) -> None:
        """Until every member has a share, and all partitions have an offset."""
        until(lambda: len(self.committed) == PARTITIONS, f"the first offsets of {self.name}")
        until(lambda: all(member.read for member in self.members), f"a share for every member of {self.name}")

    def has_read(self, wanted: set[Place]) -> None:
        """Until it has read and committed all this."""
        until(lambda: wanted <= {place for member in self.members for place in list(member.read)}, f"all records at {self.name}")
        ends = {index: max(offset for partition, offset in wanted if partition == index) + 1 for index in range(PARTITIONS)}
        until(lambda: all(self.committed[index] >= end for index, end in ends.items()), f"all offsets of {self.name}")
        seen = self.witness.seen
        until(lambda: self.witness.seen > seen + 1, f"the witness of {self.name}")

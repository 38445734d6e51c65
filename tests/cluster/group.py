"""A group that reads the topic while nodes come and go, and what it must never see.

Invariants
 1. Between assignments a member reads every offset of its partitions in order; it begins where the group had committed or later.
 2. What the witness sees as committed is compared with what was acknowledged before it asked.
 3. Once a partition was given to another member, a commit of the one that had it is refused: nobody owns what another owns.
"""

import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.cluster.settings import EAGER, PARTITIONS, POLL_SECONDS, Place, until

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
    """Commits what it has read, and remembers both."""

    def __init__(self, bootstrap: str, group: "Group", number: int) -> None:
        self.name = f"{group.name} {number}"
        self.group = group
        own = {"bootstrap.servers": bootstrap, "group.id": group.name, "on_commit": self._committed}
        self.consumer = Consumer({**own, **EAGER, **MEMBER, **group.settings})
        self.consumer.subscribe([group.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self.read: list[tuple[Place, bytes]] = []
        self.offset_min: dict[int, int] = {}  # of what may come next, where nothing was read since the assignment
        self.offsets: dict[int, int] = {}  # of what comes next
        self.unsent: dict[int, int] = {}  # offsets that are to be committed
        self.owners: dict[Place, Member] = {}  # of those that are being committed, when they were sent
        self.waits_until_s = 0.0  # for the answer, and not for ever: librdkafka may lose it with its brokers
        self.last_error = ""

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.group.owners[each.partition] = self
            self.offset_min[each.partition] = self.group.committed[each.partition]
            self.offsets.pop(each.partition, None)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.offsets.pop(each.partition, None)
            self.unsent.pop(each.partition, None)
            if self.group.owners.get(each.partition) is self:
                del self.group.owners[each.partition]

    def go_on(self) -> None:
        for number in range(RECORDS_MAX):
            message = self.consumer.poll(0 if number else POLL_SECONDS)
            if message is None:
                break
            self._take(message)
        if self.unsent and time.monotonic() > self.waits_until_s:
            self._commit()

    def _take(self, message: Message) -> None:
        index, offset, value = message.partition(), message.offset(), message.value()
        if (error := message.error()) is not None:
            self.last_error = str(error)
            return
        assert index is not None
        assert offset is not None
        assert value is not None
        wanted = self.offsets.get(index)
        if wanted is None and offset < self.offset_min.get(index, 0):
            self.group.went_back.append(f"{self.name} begins with {index} at {offset} after {self.offset_min[index]}")
        elif wanted is not None and offset != wanted:
            self.group.skipped.append(f"{self.name} reads {offset} of {index} after {wanted - 1}")
        self.offsets[index] = self.unsent[index] = offset + 1
        self.read.append(((index, offset), value))

    def _commit(self) -> None:
        """One commit after the other: an old one that is tried again must not come after a newer one."""
        positions, self.unsent = self.unsent, {}
        self.owners = {place: self.group.owners.get(place[0], self) for place in positions.items()}
        wanted = [TopicPartition(self.group.topic, index, offset) for index, offset in positions.items()]
        self.waits_until_s = time.monotonic() + COMMIT_SECONDS_MAX
        try:
            self.consumer.commit(offsets=wanted, asynchronous=True)
        except KafkaException as error:
            self.last_error = str(error)

    def _committed(self, error: KafkaError | None, done: list[TopicPartition]) -> None:
        """What is not committed, whoever has the partition next reads again."""
        self.waits_until_s = 0.0
        if error is not None:
            self.last_error = str(error)
            return
        group = self.group
        for each in done:
            if each.error is None:
                group.committed[each.partition] = max(each.offset, group.committed[each.partition])
                owner = self.owners.get((each.partition, each.offset), self)
                if owner is not self and group.owners.get(each.partition) is owner:
                    group.owned_twice.append(f"{self.name} commits {each.partition}, which {owner.name} has")


class Witness:
    """Asks again and again what the group has committed, without being of it."""

    def __init__(self, bootstrap: str, group: "Group") -> None:
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, **EAGER})
        self.wanted = [TopicPartition(group.topic, index) for index in range(PARTITIONS)]
        self.group = group
        self.seen = 0

    def go_on(self) -> None:
        before = dict(self.group.committed)
        try:
            found = self.consumer.committed(self.wanted, timeout=5)
        except KafkaException:
            return
        for each in found:
            promised = before.get(each.partition, 0)
            if each.error is None and promised > max(each.offset, 0):  # none is below 0
                self.group.went_back.append(f"{self.group.name} {each.partition}: {each.offset} after {promised}")
        self.seen += 1
        self.group.is_over.wait(WITNESS_SECONDS)


class Group:
    """The members, and what was found wrong with them."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, is_over: threading.Event) -> None:
        self.topic = topic
        self.name = topic if protocol == "classic" else f"{topic}-{protocol}"
        self.settings = PROTOCOLS[protocol]
        self.is_over = is_over
        self.committed: Counter[int] = Counter()  # the highest that was acknowledged
        self.owners: dict[int, Member] = {}
        self.went_back: list[str] = []
        self.skipped: list[str] = []
        self.owned_twice: list[str] = []
        self.members = [Member(bootstrap, self, number) for number in range(MEMBERS)]
        self.witness = Witness(bootstrap, self)

    @property
    def parts(self) -> list[Member | Witness]:
        return [*self.members, self.witness]

    def __str__(self) -> str:
        owned = {index: owner.name for index, owner in self.owners.items()}
        members = [f"{member.name}: {len(member.read)} read, at {member.offsets}, {member.last_error}" for member in self.members]
        return f"{self.name}: owners {owned}, committed {dict(self.committed)}, {members}"

    def begins(self) -> None:
        """Until every member has a share, and all partitions have an offset."""
        until(lambda: len(self.committed) == PARTITIONS, f"the first offsets of {self.name}")
        until(lambda: all(member.read for member in self.members), f"a share for every member of {self.name}")

    def has_read(self, wanted: set[Place]) -> None:
        """Until it has read and committed all this."""
        what = f"all records at {self.name}"
        until(lambda: wanted <= {place for member in self.members for place, _ in list(member.read)}, what)
        ends = {index: max(offset for partition, offset in wanted if partition == index) + 1 for index in range(PARTITIONS)}
        until(lambda: all(self.committed[index] >= end for index, end in ends.items()), f"all offsets of {self.name}")
        seen = self.witness.seen
        until(lambda: self.witness.seen > seen + 1, f"the witness of {self.name}")

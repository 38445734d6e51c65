"""What clients do while nodes come and go, and tell the history of.

Invariants
 1. A value is the writer and its number, so that it says where it has to be: numbers go to the partitions in turn, in order.
 2. A writer never waits for one partition with the others: each has its own limit of records that are not acknowledged yet.
"""

import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.checker.history import UNKNOWN_ATTEMPTS, History, MemberEnded, SendBegun, SendEnded
from tests.cluster.administrator import Administrator
from tests.cluster.bank import Auditor, Bank, Clerk, Customer
from tests.cluster.group import PROTOCOLS, Group, Member, Witness
from tests.cluster.settings import EAGER, PARTITIONS, POLL_SECONDS, Place, now_ms, until

WRITERS: Final = 2
UNSENT_MAX: Final = 10  # of a partition and a writer
PACE_SECONDS: Final = 0.02  # a run is for many faults, not for many records
STUCK_SECONDS: Final = 0.8
JOIN_SECONDS_MAX: Final = 60.0
PATIENT: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "delivery.timeout.ms": 300_000,
    "request.timeout.ms": 5_000,
}


class Writer:
    """An idempotent producer."""

    def __init__(self, bootstrap: str, topic: str, label: str, history: History, is_over: threading.Event) -> None:
        self.is_over = is_over
        self.producer = Producer({"bootstrap.servers": bootstrap, **EAGER, **PATIENT})
        self.topic = topic
        self.label = label
        self.history = history
        self.sent: Counter[int] = Counter()
        self.acknowledged: set[Place] = set()
        self.count: Counter[int] = Counter()  # of what was acknowledged
        self.failed: list[str] = []
        self.last_s = dict.fromkeys(range(PARTITIONS), time.monotonic())
        self.gap_s = 0.0  # the longest between two acknowledgements of a partition

    def __str__(self) -> str:
        return f"{self.label}: {dict(self.sent)} sent, {dict(self.count)} acknowledged, silent {self.stuck(STUCK_SECONDS)}"

    def go_on(self) -> None:
        for index in range(PARTITIONS):
            while self.sent[index] - self.count[index] < UNSENT_MAX and not self.failed:
                value = f"{self.label} {index} {self.sent[index]}"
                event = SendBegun(now_ms(), self.label, self.history.next_id(), self.topic, index, None, value, self.label)
                event.is_idempotent = True
                self.history.add(event)
                self.producer.produce(self.topic, value.encode(), partition=index, on_delivery=partial(self._report, event.id))
                self.sent[index] += 1
        self.producer.poll(POLL_SECONDS)
        self.is_over.wait(PACE_SECONDS)

    def _report(self, id_: int, error: Any, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None:
            self.failed.append(f"{message.value()!r}: {error}")
            self.history.add(SendEnded(now_ms(), self.label, id_, "unknown", attempts=UNKNOWN_ATTEMPTS, error=str(error)))
            return
        assert partition is not None
        assert offset is not None
        self.history.add(SendEnded(now_ms(), self.label, id_, "acknowledged", offset, UNKNOWN_ATTEMPTS))
        self.acknowledged.add((partition, offset))
        self.count[partition] += 1
        now_s = time.monotonic()
        self.gap_s, self.last_s[partition] = max(self.gap_s, now_s - self.last_s[partition]), now_s

    def stuck(self, seconds: float) -> list[int]:
        """The partitions in which nothing was acknowledged for so long."""
        return [index for index, last_s in self.last_s.items() if time.monotonic() - last_s >= seconds]


Part = Writer | Member | Witness | Administrator | Customer | Clerk | Auditor


class Workload:
    """`with Workload(...)`: all of them at work, each in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        client = AdminClient({"bootstrap.servers": bootstrap, **EAGER})
        client.create_topics([NewTopic(topic, PARTITIONS)])[topic].result()
        self.is_over = threading.Event()  # for readers
        self.is_written = threading.Event()  # for writers
        self.errors: list[BaseException] = []
        self.history = told = History()
        self.writers = [Writer(bootstrap, topic, f"writer-{number}", told, self.is_written) for number in range(WRITERS)]
        self.groups = [Group(bootstrap, topic, protocol, told, self.is_over) for protocol in PROTOCOLS]
        self.administrator = Administrator(bootstrap, topic, told, self.is_over)
        self.bank = Bank(bootstrap, topic, self.is_written, self.is_over)
        self.readers: list[Member | Witness] = [part for group in self.groups for part in group.parts]
        writing: list[Part] = [*self.writers, self.bank.customer]
        reading: list[Part] = [*self.readers, self.administrator, *self.bank.readers]
        self.write_threads = [self._thread(part, self.is_written) for part in writing]
        self.read_threads = [self._thread(part, self.is_over) for part in reading]

    def _thread(self, part: Part, end: threading.Event) -> threading.Thread:
        def work() -> None:
            try:
                while not end.is_set():
                    part.go_on()
            except BaseException as error:
                self.errors.append(error)
                raise

        return threading.Thread(target=work)

    def __enter__(self) -> Self:
        for thread in (*self.write_threads, *self.read_threads):
            thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            error.add_note("\n".join(map(str, (*self.writers, *self.groups, self.bank))))
        self.is_written.set()
        self.is_over.set()
        for thread in (*self.write_threads, *self.read_threads):
            thread.join(JOIN_SECONDS_MAX)
        for reader in self.readers:
            self.history.add(MemberEnded(now_ms(), reader.name, reader.group.name, reader.name))
            reader.consumer.close()
        for writer in self.writers:
            with suppress(KafkaException):  # of a writer that could not go on, which is told already
                writer.producer.close()
        self.bank.close()

    # -- waiting

    def begins(self) -> None:
        """Until writers write, and the groups have formed."""
        for group in self.groups:
            group.begins()
        self.bank.begins()
        self.goes_on()

    def goes_on(self) -> None:
        """Until something that is sent from now on is acknowledged, in every partition, to every writer."""
        self._reaches([(writer, index, writer.sent[index] + 1) for writer in self.writers for index in range(PARTITIONS)])

    def _reaches(self, goals: list[tuple[Writer, int, int]]) -> None:
        def look() -> bool:
            assert not self.errors, self.errors
            for writer in self.writers:
                assert not writer.failed, writer.failed[:3]
            return all(writer.count[index] >= goal for writer, index, goal in goals)

        until(look, "acknowledgements in every partition")

    def is_stuck(self, partitions: int = PARTITIONS, seconds: float = STUCK_SECONDS) -> None:
        """Until in so many partitions nothing was acknowledged for so long."""
        until(lambda: all(len(writer.stuck(seconds)) >= partitions for writer in self.writers), "writers that wait")

    def goes_on_for(self, seconds: float) -> None:
        self.is_over.wait(seconds)
        self._reaches([])

    def finish(self) -> None:
        """Until all that was sent is acknowledged, read by the groups and committed."""
        self.is_written.set()
        for thread in self.write_threads:
            thread.join(JOIN_SECONDS_MAX)
        for writer in self.writers:
            assert writer.producer.flush(JOIN_SECONDS_MAX) == 0
        self._reaches([(writer, index, writer.sent[index]) for writer in self.writers for index in range(PARTITIONS)])
        wanted = {place for writer in self.writers for place in writer.acknowledged}
        for group in self.groups:
            group.has_read(wanted)
        self.bank.finish()
        self.is_over.set()

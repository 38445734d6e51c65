"""A process with some members of a group, each a consumer in a thread, that writes down what its members are told and do.

Every line of its journal is an event: when (on the clock that all processes share), who, what, and which partitions or records.
A process that is killed leaves the journal as it was: its members own nothing any more.
"""

import json
import signal
import sys
import threading
import time
from typing import Any, TextIO

from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_SECONDS = 0.05
RECORDS_MAX = 200


class Journal:
    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.lock = threading.Lock()

    def write(self, who: str, what: str, of: list[Any]) -> None:
        with self.lock:
            self.file.write(json.dumps([time.monotonic(), who, what, of]) + "\n")
            self.file.flush()


class Member:
    """Reads, commits what it has read, and tells the journal."""

    def __init__(self, journal: Journal, label: str, topic: str, settings: dict[str, Any]) -> None:
        self.journal = journal
        self.label = label
        self.positions: dict[int, int] = {}  # not committed yet
        self.read: list[list[int]] = []  # not in the journal yet
        self.topic = topic
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.journal.write(self.label, "assigned", [each.partition for each in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """What was read is committed before somebody else goes on from there."""
        self._commit([each.partition for each in partitions])
        self._forget(partitions)
        self.journal.write(self.label, "revoked", [each.partition for each in partitions])

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)
        self.journal.write(self.label, "lost", [each.partition for each in partitions])

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self.positions.pop(each.partition, None)

    def _commit(self, partitions: list[int]) -> None:
        """What was read is written down first: nothing is committed that the journal does not know."""
        if self.read:
            self.journal.write(self.label, "read", self.read)
            self.read = []
        offsets = {index: self.positions.pop(index) for index in partitions if index in self.positions}
        if not offsets:
            return
        try:
            wanted = [TopicPartition(self.topic, index, offset) for index, offset in offsets.items()]
            self.consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self.positions = {**offsets, **self.positions}  # to be tried again, if it is still the member's
            self.journal.write(self.label, "not committed", [error.args[0].name()])
        else:
            self.journal.write(self.label, "committed", list(offsets.items()))

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            message = self.consumer.poll(POLL_SECONDS)
            while message is not None:
                if message.error() is None:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    self.read.append([partition, offset])
                    self.positions[partition] = offset + 1
                message = self.consumer.poll(0) if len(self.read) < RECORDS_MAX else None
            self._commit(list(self.positions))
        self.consumer.close()
        self.journal.write(self.label, "left", [])


def main(path: str, label: str, count: str, topic: str, settings: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open(path, "a") as file:
        journal = Journal(file)
        threads = []
        for number in range(int(count)):
            own = json.loads(settings)
            if "group.instance.id" in own:
                own["group.instance.id"] += f"-{number}"
            member = Member(journal, f"{label}{number}", topic, own)
            threads.append(threading.Thread(target=member.run, args=[stop]))
            threads[-1].start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What becomes of librdkafka's consumers when all nodes of a cluster are stopped and started again, beside Apache Kafka 4.3.1.

python bench/restarts.py [--rounds 8] [--folder PATH]

Three nodes. A third of the readers is assigned its partitions, a third is in classic groups and a third in new ones, each alone;
a producer goes on all the time. A reader is lost when it has nothing of some partition LOST_SECONDS after records are
acknowledged again; another one takes its place.
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.clusters import NODES, Cluster, KafkaCluster, OdradekCluster
from tests.cluster.settings import EAGER, PARTITIONS

TOPIC = "restarts"
READERS = 12
WAYS: dict[str, dict[str, str]] = {"assigned": {}, "classic": {}, "consumer": {"group.protocol": "consumer"}}
READER = {"auto.offset.reset": "latest", "enable.auto.commit": False, "isolation.level": "read_committed"}
WRITER = {"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": 300_000, "request.timeout.ms": 5_000}
DOWN_SECONDS = 1.0
UNSENT_MAX = 60
PACE_SECONDS = 0.005
POLL_SECONDS = 0.1
WELL_RECORDS = 30  # acknowledged: the cluster is there again
WELL_SECONDS_MAX = 120.0
LOST_SECONDS = 40.0


class Reader:
    """In a thread of its own, which is left alone when it is lost."""

    def __init__(self, bootstrap: str, way: str, number: int) -> None:
        self.way = way
        self.read_s = [0.0] * PARTITIONS  # when it had the last record of each
        self.is_over = False
        own = {"bootstrap.servers": bootstrap, "group.id": f"{way}-{number}"}
        self.consumer = Consumer({**own, **READER, **WAYS[way], **EAGER})
        if way == "assigned":
            self.consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        else:
            self.consumer.subscribe([TOPIC])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while not self.is_over:
            with suppress(KafkaException):
                message = self.consumer.poll(POLL_SECONDS)
                if message is not None and message.error() is None:
                    self.read_s[message.partition() or 0] = time.monotonic()


class Writer:
    def __init__(self, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, **WRITER, **EAGER})
        self.acknowledged = 0
        self.is_over = False
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        number = 0
        while not self.is_over:
            if len(self.producer) < UNSENT_MAX:
                self.producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._report)
                number += 1
            self.producer.poll(PACE_SECONDS)

    def _report(self, error: object, _: object) -> None:
        self.acknowledged += error is None

    def goes_on(self) -> None:
        goal, deadline = self.acknowledged + WELL_RECORDS, time.monotonic() + WELL_SECONDS_MAX
        while self.acknowledged < goal:
            assert time.monotonic() < deadline, "nothing is acknowledged"
            time.sleep(POLL_SECONDS)


class Trial:
    """One cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.numbers = iter(range(1_000_000))
        cluster.format()
        cluster.start()
        cluster.create({TOPIC: PARTITIONS})
        self.writer = Writer(cluster.bootstrap)
        self.readers = [self._reader(list(WAYS)[number % len(WAYS)]) for number in range(READERS)]

    def _reader(self, way: str) -> Reader:
        return Reader(self.cluster.bootstrap, way, next(self.numbers))

    def lost(self) -> Counter[str]:
        """By their ways, those that do not read; others take their place."""
        self.writer.goes_on()
        since_s = time.monotonic()
        while behind := [reader for reader in self.readers if min(reader.read_s) < since_s]:
            if time.monotonic() > since_s + LOST_SECONDS:
                break
            time.sleep(POLL_SECONDS)
        for reader in behind:
            reader.is_over = True
            self.readers[self.readers.index(reader)] = self._reader(reader.way)
        return Counter(reader.way for reader in behind)

    def restart(self) -> None:
        for node in NODES:
            self.cluster.end_node(node, signal.SIGTERM)
        for process in self.cluster.processes.values():
            process.wait(WELL_SECONDS_MAX)
        time.sleep(DOWN_SECONDS)
        self.cluster.start()

    def run(self, rounds: int) -> None:
        print(f"{self.cluster.name}: lost before anything happens: {dict(self.lost())}", flush=True)
        while again := self.lost():  # those that took their place, too
            print(f"{self.cluster.name}: and again: {dict(again)}", flush=True)
        total: Counter[str] = Counter()
        for number in range(1, rounds + 1):
            self.restart()
            found = self.lost()
            total += found
            print(f"{self.cluster.name}: restart {number}: lost {dict(found)}", flush=True)
            self.lost()
        print(f"{self.cluster.name}: {total.total()} of {rounds * READERS} lost by restarts: {dict(total)}", flush=True)
        self.writer.is_over = True
        for reader in self.readers:
            reader.is_over = True


def main() -> None:
    parser = argparse.ArgumentParser(description="Stops and starts clusters under librdkafka's consumers.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for kind in (OdradekCluster, KafkaCluster):
            cluster = kind(Path(folder) / kind.name)
            try:
                Trial(cluster).run(given.rounds)
            finally:
                cluster.stop()
    os._exit(0)  # a client that is lost does not let itself be closed


if __name__ == "__main__":
    main()

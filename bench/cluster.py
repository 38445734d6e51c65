"""A cluster of three nodes beside three of Apache Kafka 4.3.1: when a node dies, what copies cost, what many partitions cost.

python bench/cluster.py [--only NAME] [--rounds 3] [--seconds 5] [--folder PATH] [--ours | --theirs]

The clusters run one after the other: six nodes would share the machine's cores otherwise, and each would be measured by what the
other does. Of the gaps the first figure is a producer's of librdkafka, with its own pauses; the second that of a client which
asks again every few milliseconds, so it is the cluster's part. Figures are medians of the rounds, with the worst behind them.
On a machine where others work too, `chrt -r 5` in front of the command measures the nodes and not the neighbours.
"""

import argparse
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.broker import MB, PAGES_BYTES_PER_SECOND, PRODUCE_VERSION, Figure, produce_frame, produced, pump
from bench.clusters import NODES, Cluster, KafkaCluster, OdradekCluster, children, resident_bytes
from bench.servers import ENVIRONMENT, Client, touch_memory
from odradek.wire.messages import ProduceRequest, ProduceResponse
from odradek.wire.records import Record, build

SEND_SECONDS = 0.005
GAP_SECONDS_MAX = 60.0
AFTER_SECONDS = 2.0  # that a producer goes on behind a gap: what follows is a gap too
ASK_SECONDS_MAX = 2.0
PARTITIONS_OF_A_TOPIC = 100
TOPICS_AT_ONCE = 10


# -- gaps


class SteadyProducer:
    """A record every few milliseconds; when each was acknowledged. librdkafka's defaults, but that it looks at metadata often."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
        self.producer = Producer(settings)
        self.topic = topic
        self.times: list[float] = []
        self.errors: list[str] = []
        self.is_ending = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        due = time.perf_counter()
        while not self.is_ending:
            due = max(due + SEND_SECONDS, time.perf_counter() - 1)
            self.producer.produce(self.topic, b"x" * 100, partition=0, on_delivery=self._delivered)
            self.producer.poll(max(due - time.perf_counter(), 0))

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.times.append(time.perf_counter())
        else:
            self.errors.append(str(error))

    def end(self) -> None:
        self.is_ending = True
        self.thread.join()
        self.producer.flush(GAP_SECONDS_MAX)


class Impatient:
    """Asks the leader for one record after the other, and whoever lives for the leader when it has no answer."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.frame = produce_frame(topic, 0, 1)
        self.times: list[float] = []
        self.errors: list[str] = []
        self.is_ending = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_ending:
            for node in NODES:  # one that is about to stop says nothing, or nothing new
                with suppress(OSError, KeyError):
                    leader = self.cluster.partitions([self.topic], node)[self.topic, 0].leader_id
                    if leader in NODES:
                        self._produce(self.cluster.port_of(leader))
            time.sleep(SEND_SECONDS)

    def _produce(self, port: int) -> None:
        """Until something else than success comes back."""
        with Client(port) as client:
            client.socket.settimeout(ASK_SECONDS_MAX)
            while not self.is_ending:
                client.socket.sendall(self.frame)
                answer = ProduceResponse.decode_head(client.frame(), PRODUCE_VERSION, 5)[0]
                if answer.responses[0].partition_responses[0].error_code:
                    return
                self.times.append(time.perf_counter())
                time.sleep(SEND_SECONDS)

    def end(self) -> None:
        self.is_ending = True
        self.thread.join()


Steady = SteadyProducer | Impatient


def longest_gap(producer: Steady, since: float) -> float:
    times = [since, *(each for each in producer.times if each > since)]
    return max(after - before for before, after in pairwise(times))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + GAP_SECONDS_MAX
    while not condition():
        assert time.perf_counter() < deadline, "nothing is acknowledged any more"
        time.sleep(0.01)


def gap(cluster: Cluster, what: str, how: signal.Signals) -> list[Figure]:
    """Ends a node while records go to a partition: the leader of the partition, that of the quorum, or one that is both."""
    active = cluster.quorum_leader()
    other = next(node for node in NODES if node != active)
    leader = active if what == "both" else other
    ended = active if what == "quorum" else leader
    topic = f"gap-{what}-{time.time_ns()}"
    cluster.create({topic: 1}, leader)
    cluster.create({f"{topic}-idle": len(NODES)})  # nobody is alone in a cluster: every node follows every other
    producers: list[Steady] = [SteadyProducer(cluster, topic), Impatient(cluster, topic)]
    wait_for(lambda: all(len(producer.times) > 100 for producer in producers))
    begin = time.perf_counter()
    cluster.end_node(ended, how)
    cluster.processes[ended].wait(GAP_SECONDS_MAX)
    time.sleep(0.5)
    for producer in producers:
        known = len(producer.times)
        wait_for(lambda known=known, producer=producer: len(producer.times) > known + 100)  # type: ignore[misc]
    time.sleep(AFTER_SECONDS)
    gaps = [longest_gap(producer, begin) for producer in producers]
    for producer in producers:
        producer.end()
    assert not producers[0].errors, producers[0].errors
    cluster.start_node(ended)
    cluster.wait(lambda: len(cluster.brokers(ended)) == len(NODES))
    cluster.wait(lambda: cluster.is_in_sync({topic: 1}, ended))
    cluster.delete([topic, f"{topic}-idle"])
    name = {"leader": "the leader", "quorum": "the quorum's leader", "both": "the leader of both"}[what]
    how_name = "kill -9" if how is signal.SIGKILL else "clean stop"
    return [
        Figure(f"{how_name} of {name}, a producer's gap", gaps[0], "s", more_is_better=False),
        Figure(f"{how_name} of {name}, the cluster's part", gaps[1], "s", more_is_better=False),
    ]


# -- copies


def latency(cluster: Cluster, rate: int, seconds: float) -> list[Figure]:
    """So many records a second, one a request; how long until all copies have each."""
    topic = f"latency-{rate}-{time.time_ns()}"
    cluster.create({topic: 1}, 1)
    frame = produce_frame(topic, 0, 1)
    size = produced(cluster.port_of(1), frame)
    pump(cluster.port_of(1), frame, size, 1, 1, 1)
    sent: list[float] = []
    acknowledged: list[float] = []
    total = int(seconds * rate)
    with Client(cluster.port_of(1)) as client, select.epoll() as poll:
        poll.register(client.socket.fileno(), select.EPOLLIN)
        begin = time.perf_counter()
        while len(acknowledged) < total:
            while len(sent) < total and time.perf_counter() >= begin + len(sent) / rate:
                client.socket.sendall(frame)
                sent.append(begin + len(sent) / rate)  # when it was due: a late sender hides nothing
            wait = max(begin + len(sent) / rate - time.perf_counter(), 0) if len(sent) < total else 1
            if poll.poll(wait):
                client.frame()
                acknowledged.append(time.perf_counter())
    cluster.delete([topic])
    delays = sorted((after - before) * 1000 for before, after in zip(sent, acknowledged, strict=True))[: total - 1]
    return [
        Figure(f"{rate:,} records/s, three copies, {label}", delays[int(len(delays) * share)], "ms", more_is_better=False)
        for label, share in (("p50", 0.5), ("p99", 0.99))
    ]


def copies(cluster: Cluster, batch_bytes: int, in_flight: int, seconds: float) -> list[Figure]:
    topic = f"copies-{batch_bytes}-{time.time_ns()}"
    cluster.create({topic: 1}, 1, max_message_bytes="4000000", file_delete_delay_ms="0")
    frame = produce_frame(topic, 0, batch_bytes)
    size = produced(cluster.port_of(1), frame)
    pump(cluster.port_of(1), frame, size, seconds / 2, in_flight, 1)
    touch_memory(int(seconds * PAGES_BYTES_PER_SECOND))
    done, elapsed = pump(cluster.port_of(1), frame, size, seconds, in_flight, 1)
    cluster.delete([topic])
    return [Figure(f"three copies, batches of {batch_bytes // 1000} kB", done * len(frame) / elapsed / MB, "MB/s")]


# -- many partitions


def write_to_each(cluster: Cluster, topics: dict[str, int], only: set[tuple[str, int]] | None = None) -> None:
    """Until each partition has taken a record into all copies in sync."""
    batch = build([Record(0, int(time.time() * 1000), None, b"x")])
    missing = only or {(topic, index) for topic, count in topics.items() for index in range(count)}
    deadline = time.monotonic() + GAP_SECONDS_MAX * 3
    while missing:
        assert time.monotonic() < deadline, f"{len(missing)} partitions take nothing, such as {next(iter(missing))}"
        by_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, index), part in cluster.partitions(list(topics)).items():
            if (topic, index) in missing and part.leader_id in NODES:
                by_leader.setdefault(part.leader_id, {}).setdefault(topic, []).append(index)
        for leader, wanted in by_leader.items():
            with suppress(OSError):
                missing -= taken(cluster.port_of(leader), wanted, batch)
        time.sleep(SEND_SECONDS)


def taken(port: int, wanted: dict[str, list[int]], batch: bytes | bytearray) -> set[tuple[str, int]]:
    data = [
        ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch) for index in indexes]
        )
        for topic, indexes in wanted.items()
    ]
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)
    with Client(port) as client:
        answer = client.ask(request, PRODUCE_VERSION, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    return {(topic.name, part.index) for topic in answer.responses for part in topic.partition_responses if not part.error_code}


def partitions(cluster: Cluster, count: int) -> list[Figure]:
    """Created and written to; a node started anew until it is in sync; the leader of a third killed."""
    topics = {f"many-{count}-{number}": PARTITIONS_OF_A_TOPIC for number in range(count // PARTITIONS_OF_A_TOPIC)}
    begin = time.perf_counter()
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        cluster.create(dict(list(topics.items())[first : first + TOPICS_AT_ONCE]))
    write_to_each(cluster, topics)
    created = time.perf_counter() - begin
    print(f"  {cluster.name} {count:,} partitions created and written to {created:.3g} s", flush=True)
    active = cluster.quorum_leader()
    moved = next(node for node in NODES if node != active)
    begin = time.perf_counter()
    cluster.end_node(moved, signal.SIGTERM)
    cluster.processes[moved].wait(GAP_SECONDS_MAX * 3)
    stopped = time.perf_counter() - begin
    begin = time.perf_counter()
    cluster.start_node(moved)
    cluster.wait(lambda: len(cluster.brokers(active)) == len(NODES) and cluster.is_in_sync(topics, active))
    started = time.perf_counter() - begin
    begin = time.perf_counter()
    killed = next(node for node in NODES if node not in (active, moved))
    led = {key for key, part in cluster.partitions(list(topics), active).items() if part.leader_id == killed}
    cluster.end_node(killed, signal.SIGKILL)
    cluster.processes[killed].wait(GAP_SECONDS_MAX)
    write_to_each(cluster, topics, set(led))
    failed_over = time.perf_counter() - begin
    cluster.start_node(killed)
    cluster.wait(lambda: len(cluster.brokers(active)) == len(NODES) and cluster.is_in_sync(topics, active))
    for first in range(0, len(topics), TOPICS_AT_ONCE):
        cluster.delete(list(topics)[first : first + TOPICS_AT_ONCE])
    return [
        Figure(f"{count:,} partitions created and written to", created, "s", more_is_better=False),
        Figure(f"{count:,} partitions, a node stops", stopped, "s", more_is_better=False),
        Figure(f"{count:,} partitions, from start to in sync", started, "s", more_is_better=False),
        Figure(f"{count:,} partitions, the leader of {len(led)} killed", failed_over, "s", more_is_better=False),
    ]


# -- the beginning


def start(cluster: Cluster) -> list[Figure]:
    """From the start of all nodes to the first record; ours with all of `odradek up`, Kafka's on formatted folders."""
    if isinstance(cluster, OdradekCluster):
        return started_up(cluster)
    begin = time.perf_counter()
    for node in NODES:
        cluster.start_node(node)
    first_record(cluster)
    began = time.perf_counter() - begin
    cluster.wait(lambda: len(cluster.brokers()) == len(NODES))
    time.sleep(2)
    return beginning(began, cluster.memory_bytes())


def started_up(cluster: Cluster) -> list[Figure]:
    folder = cluster.folder / f"up-{time.time_ns()}"
    command = [sys.executable, "-m", "odradek", "up", "--data", str(folder), "--port", str(cluster.port)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    try:
        cluster.processes = dict.fromkeys(NODES, process)
        first_record(cluster)
        began = time.perf_counter() - begin
        time.sleep(2)
        return beginning(began, sum(map(resident_bytes, children(process.pid))))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(GAP_SECONDS_MAX)
        cluster.processes = {}


def first_record(cluster: Cluster) -> None:
    """Into a topic of three copies."""
    cluster.wait(lambda: len(cluster.brokers()) == len(NODES))
    cluster.create({"first": 1}, 1)
    produced(cluster.port_of(1), produce_frame("first", 0, 1))


def beginning(seconds: float, memory_bytes: int) -> list[Figure]:
    return [
        Figure("start to the first record with three copies", seconds, "s", more_is_better=False),
        Figure("memory of three idle nodes", memory_bytes / MB, "MB", more_is_better=False),
    ]


WORKS: dict[str, Callable[[Cluster, float], list[Figure]]] = {
    "kill-leader": lambda cluster, _: gap(cluster, "leader", signal.SIGKILL),
    "kill-quorum": lambda cluster, _: gap(cluster, "quorum", signal.SIGKILL),
    "kill-both": lambda cluster, _: gap(cluster, "both", signal.SIGKILL),
    "stop-leader": lambda cluster, _: gap(cluster, "leader", signal.SIGTERM),
    "latency-200": lambda cluster, seconds: latency(cluster, 200, seconds),
    "latency-1000": lambda cluster, seconds: latency(cluster, 1000, seconds),
    "copies-16k": lambda cluster, seconds: copies(cluster, 16_000, 8, seconds),
    "copies-1m": lambda cluster, seconds: copies(cluster, 1_000_000, 2, seconds),
    "partitions-1k": lambda cluster, _: partitions(cluster, 1_000),
    "partitions-10k": lambda cluster, _: partitions(cluster, 10_000),
}
ONCE = ("partitions-1k", "partitions-10k")
Rows = dict[str, dict[str, list[Figure]]]  # by name of the figure, then of the cluster


def note(rows: Rows, cluster: Cluster, figures: list[Figure]) -> None:
    for figure in figures:
        rows.setdefault(figure.name, {}).setdefault(cluster.name, []).append(figure)


def measure(cluster: Cluster, works: list[str], rounds: int, seconds: float, rows: Rows) -> None:
    cluster.format()
    try:
        if "start" in works:
            for _ in range(rounds if isinstance(cluster, OdradekCluster) else 1):
                note(rows, cluster, start(cluster))
        if not cluster.processes:
            cluster.start()
        for work in works:
            for _ in range(1 if work in ONCE else rounds):
                if work != "start":
                    found = WORKS[work](cluster, seconds)
                    note(rows, cluster, found)
                    print(
                        f"  {cluster.name} " + "; ".join(f"{each.name} {each.value:.3g} {each.unit}" for each in found),
                        flush=True,
                    )
    finally:
        cluster.stop()


def show(name: str, row: dict[str, list[Figure]]) -> None:
    line = f"{name:56}"
    medians = {}
    for cluster, figures in row.items():
        values = [figure.value for figure in figures]
        medians[cluster] = statistics.median(values)
        worst = min(values) if figures[0].more_is_better else max(values)
        line += f"  {cluster} {medians[cluster]:8.3g} (worst {worst:.3g}) {figures[0].unit}"
    if len(medians) == 2:
        line += f"  ratio {medians['odradek'] / medians['kafka']:.2f}"
    print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", choices=["start", *WORKS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--ours", action="store_true", help="our cluster alone")
    parser.add_argument("--theirs", action="store_true", help="Kafka's alone")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing of it stays behind
    rows: Rows = {}
    kinds: list[type[Cluster]] = [OdradekCluster] * (not given.theirs) + [KafkaCluster] * (not given.ours)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for kind in kinds:
            measure(kind(Path(folder) / kind.name), given.only or ["start", *WORKS], given.rounds, given.seconds, rows)
    for name, row in rows.items():
        show(name, row)


if __name__ == "__main__":
    main()

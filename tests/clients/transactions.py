"""What all scenarios of transactions share, whatever the client: who writes, who looks, and what can happen to the servers.

Readers are confluent-kafka's, whoever wrote. The scenarios themselves are in `transaction_scenarios.py`.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, TopicPartition

from odradek.cli import up
from tests.clients.confluent import POLL_SECONDS, consuming, patiently
from tests.clients.server import IS_KAFKA, new_server
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster
from tests.cluster.cluster import running as running_cluster
from tests.kafka.broker import HEAP, Broker
from tools.kafka_jars import class_path

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
SETTINGS = {
    "broker_heartbeat_interval_ms": "500",  # a killed Kafka is let in again soon
    "broker_session_timeout_ms": "3000",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "200",
    "transaction_state_log_num_partitions": "3",
    "offsets_topic_num_partitions": "3",
}


# -- who writes


class Fenced(Exception):
    """Somebody else has the transactional id."""


class MustAbort(Exception):
    """The transaction cannot be committed any more."""


class WrongState(Exception):
    """The transaction has ended otherwise."""


class Transactor(Protocol):
    """A producer with a transactional id, that reads as a member of a group where it transforms. Of what its client says to
    that effect it makes Fenced, MustAbort or WrongState."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, values: list[str]) -> None:
        """Until all are acknowledged."""

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        """The next so many records of the topic, as the group's only member."""

    def send_offsets(self) -> None:
        """Where it is in what it consumes, with the group's metadata."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Client(Protocol):
    """A kind of transactor."""

    @property
    def too_late(self) -> type[Exception]:
        """What it says when the transaction that it commits has been aborted, because it took too long."""

    def open(self, bootstrap: str, transactional_id: str, **settings: Any) -> Transactor:
        """One that has the id from now on."""

    def abandon(self, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
        """Has a process that is killed in the middle of a transaction."""


@contextmanager
def transacting(client: Client, bootstrap: str, transactional_id: str, **settings: Any) -> Iterator[Transactor]:
    transactor = client.open(bootstrap, transactional_id, **settings)
    try:
        yield transactor
    finally:
        transactor.close()


def abandon_in(module: str, bootstrap: str, transactional_id: str, topic: str, values: list[str]) -> None:
    """Runs a module that opens a transaction and says so, and kills it."""
    command = [sys.executable, "-m", module, bootstrap, transactional_id, topic, json.dumps(values)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    assert said == b"open\n", said


def be_abandoned(client: Client) -> None:
    """What that module does."""
    bootstrap, transactional_id, topic, values = sys.argv[1:]
    transactor = client.open(bootstrap, transactional_id)
    transactor.begin()
    transactor.send(topic, 0, json.loads(values))
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.read()


# -- who looks


class Seen(NamedTuple):
    """The values of each partition, and where it ends for who reads so."""

    values: list[list[str]]
    ends: list[int]


def look(bootstrap: str, topic: str, partitions: int, isolation: str = COMMITTED) -> Seen:
    """What a reader finds who goes on until there is no more."""
    values: list[list[str]] = [[] for _ in range(partitions)]
    ends = [-1] * partitions

    def read() -> bool:
        while -1 in ends and (message := consumer.poll(POLL_SECONDS)) is not None:
            index, error = message.partition() or 0, message.error()
            if error is None:
                values[index].append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[index] = message.offset() or 0
        return -1 not in ends

    eager: dict[str, Any] = {"enable_partition_eof": True, "fetch_wait_max_ms": 10, "reconnect_backoff_max_ms": 200}
    with consuming(bootstrap, isolation_level=isolation, **eager) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        until(read, f"the end of {topic}")
    return Seen(values, ends)


def settled(bootstrap: str, topic: str, partitions: int) -> list[list[str]]:
    """What is committed when no transaction is open any more. Who was told of a commit may be ahead of its markers."""

    def done() -> Seen | None:
        found = look(bootstrap, topic, partitions)
        return found if found.ends == look(bootstrap, topic, partitions, UNCOMMITTED).ends else None

    found = until(done, f"an end of the transactions of {topic}")
    assert found is not None
    return found.values


def offset_of(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """Which the group has committed, when no transaction is to decide about it any more; -1001 if there is none."""
    with consuming(bootstrap, group) as consumer:
        (found,) = patiently(lambda: consumer.committed([TopicPartition(topic, partition)], timeout=30))
        offset: int = found.offset
        return offset


# -- what they talk to


class Place(Protocol):
    bootstrap: str
    many: int  # transactions, for a test that has other things to do

    def crash(self, transactional_id: str) -> None:
        """Kills whoever coordinates its transactions; others, or the same anew, take over."""

    def heal(self) -> None:
        """Until all is as it was."""


class One:
    """A single server."""

    many = 300

    def __init__(self, server: Broker) -> None:
        self.server = server
        self.bootstrap = server.bootstrap

    def crash(self, transactional_id: str) -> None:
        self.server.stop(signal.SIGKILL)
        self.server.start()

    def heal(self) -> None:
        pass


class Three:
    """A cluster; a killed node stays down until it is healed."""

    many = 60

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap

    def crash(self, transactional_id: str) -> None:
        self.cluster.kill(self.cluster.coordinator(transactional_id, is_transactional=True))

    def heal(self) -> None:
        self.cluster.heal()


class KafkaNode(up.Node):
    def start(self) -> None:
        with open(Path(self.folder, "node.log"), "ab") as output:
            command = ["java", *HEAP, "-cp", class_path(), "kafka.Kafka", self.properties]
            self.process = subprocess.Popen(command, stdout=output, stderr=output)


class KafkaCluster(Cluster):
    """On folders that we have formatted."""

    node_kind = KafkaNode


@contextmanager
def placed(nodes: str, folder: Path) -> Iterator[Place]:
    """ "one" or "three" nodes, ours or with SERVER=kafka Kafka's."""
    if nodes == "one":
        server = new_server(folder / "server", **SETTINGS)
        with server.running():
            yield One(server)
    else:
        with running_cluster(folder, None, KafkaCluster if IS_KAFKA else Cluster, **SETTINGS) as cluster:
            yield Three(cluster)

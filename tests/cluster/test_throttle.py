"""Replicas that are copied no faster than an operator wants, by hand and by Kafka's own tool: bytes are measured, not time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.clients.confluent import Sender, admin
from tests.clients.test_cluster_tools import CONFIGS, Shell, reassign
from tests.clients.waiting import until
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout
from tests.kafka.oracle import Oracle

BYTES_PER_SECOND_MAX = 500_000
FETCH_BYTES_MAX = 50_000
RECORD_BYTES = 10_000
RECORDS = 400
WATCHED_BYTES = 1_000_000  # for so long it is watched that it is not copied faster
NEW = 3  # who gets a copy
SIDES = ("leader", "follower")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    limits = {"replica_fetch_max_bytes": str(FETCH_BYTES_MAX), "replica_fetch_response_max_bytes": str(FETCH_BYTES_MAX)}
    with running(tmp_path_factory.mktemp("cluster"), Layout(), **limits) as started:
        yield started


@pytest.fixture
def shell(oracle: Oracle, cluster: Cluster) -> Shell:
    return Shell(oracle, cluster)


def fill(cluster: Cluster, topic: str, count: int) -> None:
    """Each record in a batch of its own, so that a fetch can end after any."""
    sender = Sender(cluster.bootstrap, batch_num_messages=1, acks="all")
    for _ in range(count):
        sender.send(topic, b"x" * RECORD_BYTES, partition=0)
    assert len(sender.all_delivered()) == count


def configure(cluster: Cluster, kind: ResourceType, name: str, **values: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    client = admin(cluster.bootstrap)  # must outlive its answer
    for done in client.incremental_alter_configs([resource]).values():
        done.result()


def throttle(cluster: Cluster, side: str, topic: str, bytes_per_second_max: int) -> None:
    for number in cluster.brokers:
        rate = {f"{side}_replication_throttled_rate": str(bytes_per_second_max)}
        configure(cluster, ResourceType.BROKER, str(number), **rate)
    configure(cluster, ResourceType.TOPIC, topic, **{f"{side}_replication_throttled_replicas": "*"})


def copied_bytes(cluster: Cluster, topic: str) -> int:
    folder = Path(cluster.nodes[NEW].folder, f"{topic}-0")
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def watch(cluster: Cluster, topic: str, began_s: float) -> None:
    """That it is not copied faster than the rate allows: for the time that went by, a first sample of a second, and one fetch."""

    def look() -> bool:
        size = copied_bytes(cluster, topic)
        seconds = time.monotonic() - began_s + 1
        assert size <= BYTES_PER_SECOND_MAX * seconds + FETCH_BYTES_MAX, f"{size} bytes in {seconds} s"
        return size >= WATCHED_BYTES

    until(look, "the copy")


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_is_copied_no_faster_than_the_rate(cluster: Cluster, shell: Shell, side: str) -> None:
    name = f"copied-by-{side}"
    shell.create(name, "1:2")
    fill(cluster, name, RECORDS)
    throttle(cluster, side, name, BYTES_PER_SECOND_MAX)
    began_s = time.monotonic()
    reassign(cluster, name, [1, 2, NEW])
    watch(cluster, name, began_s)
    throttle(cluster, side, name, 1_000_000_000)
    until(lambda: sorted(shell.partitions(name)[0][2]) == [1, 2, NEW], "the copy is in sync")


@pytest.mark.parametrize("side", SIDES)
def test_a_replica_in_sync_does_not_wait_for_a_throttle(cluster: Cluster, shell: Shell, side: str) -> None:
    name = f"in-sync-with-{side}"
    shell.create(name, "1:2:3")
    throttle(cluster, side, name, 1)
    fill(cluster, name, 20)
    assert sorted(shell.partitions(name)[0][2]) == [1, 2, 3]
    throttle(cluster, side, name, 1_000_000_000)


def test_the_throttle_of_a_move_ends_with_it(cluster: Cluster, shell: Shell, tmp_path: Path) -> None:
    name = "moved"
    shell.create(name, "1:2")
    fill(cluster, name, RECORDS)
    moves = {(name, 0): [2, NEW]}
    file = tmp_path / "moves.json"
    began_s = time.monotonic()
    started = shell.move(file, moves, "--execute", "--throttle", str(BYTES_PER_SECOND_MAX))
    assert f"The inter-broker throttle limit was set to {BYTES_PER_SECOND_MAX} B/s" in started
    watch(cluster, name, began_s)
    shell.move(file, moves, "--execute", "--additional", "--throttle", "1000000000")
    until(lambda: "is completed" in shell.move(file, moves, "--verify"), "the move")
    for side in SIDES:
        for number in cluster.brokers:
            described = shell.run(CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", str(number))
            assert f"{side}.replication.throttled.rate" not in described
        assert f"{side}.replication.throttled.replicas" not in shell.run(CONFIGS, "--describe", "--topic", name)

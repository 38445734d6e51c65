"""Logs of a cluster that rot: what is broken below the recovery point is not cut off but copied anew from the other replicas, and
leads nothing until then."""

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from odradek.log.checkpoint import CLEAN_SHUTDOWN, RECOVERY_POINTS
from odradek.wire.batch import HEADER_SIZE, headers
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchResponse
from tests.clients.confluent import admin, read
from tests.clients.waiting import SECONDS_MAX, until
from tests.cluster.chaos import SETTINGS
from tests.cluster.checks import check_same
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout
from tests.cluster.settings import EAGER
from tests.node.inside import fetch_request

TOPIC: Final = "things"
RECORDS: Final = 600
LENGTH_AT: Final = 8  # in the header of a batch


def fill(cluster: Cluster, min_insync_replicas: int = 2) -> int:
    """Records in batches of one, in one partition with three copies; gives its leader."""
    client = admin(cluster.bootstrap)
    configs = {"min.insync.replicas": str(min_insync_replicas)}
    client.create_topics([NewTopic(TOPIC, 1, 3, config=configs)])[TOPIC].result()
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **EAGER, **settings})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    producer.close()
    cluster.all_in_sync(TOPIC)
    return cluster.leader(TOPIC)


def check(cluster: Cluster) -> None:
    """Everything is there, on all nodes."""
    cluster.all_in_sync(TOPIC)
    values = [message.value() for message in read(cluster.bootstrap, TOPIC, RECORDS, 1)]
    assert values == [str(number).encode() for number in range(RECORDS)]
    copies = [folder_of(cluster, number) for number in cluster.brokers]
    check_same(copies, TOPIC)


def folder_of(cluster: Cluster, number: int) -> Path:
    return cluster.log_dirs(number)[0] / f"{TOPIC}-0"


def rot(cluster: Cluster, number: int, *, at: int) -> int:
    """Spoils one byte of a batch in the first part of the log; gives its offset."""
    path = folder_of(cluster, number) / f"{0:020d}.log"
    data = path.read_bytes()
    position, header = next((position, header) for position, header in headers(data) if position > len(data) // 10)
    with path.open("r+b") as file:
        file.seek(position + at)
        file.write(bytes([data[position + at] ^ 0x55]))
    return header.base_offset


def pretend_synced(cluster: Cluster, number: int) -> None:
    """As if the whole log had been below the recovery point when the node ended."""
    (cluster.log_dirs(number)[0] / RECOVERY_POINTS).write_text(f"0\n1\n{TOPIC} 0 {RECORDS}\n")


def test_a_replica_that_is_damaged_below_its_recovery_point_is_copied_anew(tmp_path: Path) -> None:
    with running(tmp_path, None, **SETTINGS) as cluster, cluster.explaining():
        victim = fill(cluster)
        cluster.stop(victim)
        rot(cluster, victim, at=HEADER_SIZE)
        (cluster.log_dirs(victim)[0] / CLEAN_SHUTDOWN).unlink()
        cluster.heal()
        check(cluster)
        assert any("is copied anew" in line for line in cluster.lines(victim))


@pytest.mark.parametrize("min_insync_replicas", [2, 3])  # with three it is eligible to lead as soon as it is out of sync
def test_a_leader_whose_log_rots_hands_over_and_is_copied_anew(tmp_path: Path, min_insync_replicas: int) -> None:
    with running(tmp_path, None, **SETTINGS) as cluster, cluster.explaining():
        victim = fill(cluster, min_insync_replicas)
        offset = rot(cluster, victim, at=LENGTH_AT)
        answer = cluster.ask(victim, fetch_request(TOPIC, offset), 12, FetchResponse)
        assert answer is not None
        assert answer.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE
        until(lambda: cluster.leader(TOPIC) != victim, "another leader")
        check(cluster)


def test_a_damaged_replica_that_alone_is_in_sync_is_not_elected(tmp_path: Path) -> None:
    """The others may have what it lost: whether one of them leads is for a person to say, where one replica is enough."""
    with running(tmp_path, Layout(3, 0, 1), **SETTINGS) as cluster, cluster.explaining():
        victim = fill(cluster, min_insync_replicas=1)
        others = [number for number in cluster.brokers if number != victim]
        cluster.stop(*others)
        until(lambda: cluster.partitions(victim, TOPIC)[0].isr_nodes == [victim], "nobody else in sync")
        cluster.kill(victim)
        rot(cluster, victim, at=HEADER_SIZE)
        pretend_synced(cluster, victim)
        cluster.heal()

        def look() -> bool:
            found = cluster.partitions(others[0], TOPIC)
            return bool(found) and found[0].leader_id < 0 and found[0].offline_replicas == [victim]

        until(look, "nobody who leads")
        client = admin(cluster.bootstrap)
        client.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(TOPIC, 0)]).result()
        check(cluster)

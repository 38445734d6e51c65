"""Disks of a cluster under clients that write and read: folders that fail, disks that fill. What was acknowledged is
there in the end, the other nodes go on meanwhile, and a node is well again by itself where nobody has to look at it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from odradek.cli import up
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.clients.confluent import admin
from tests.clients.waiting import SECONDS_MAX, until
from tests.cluster.chaos import SETTINGS
from tests.cluster.checks import check_same, suffer
from tests.cluster.cluster import Cluster, running
from tests.cluster.settings import EAGER
from tests.cluster.workload import Workload

VICTIM: Final = 2
DISK_MB: Final = 120
LAG_MS: Final = {"replica_lag_time_max_ms": "600000"}  # nobody waits for that: who cannot write leaves at once


class WrappedNode(up.Node):
    """A node whose command has something before it."""

    wrapping: list[str]

    def start(self) -> None:
        with (Path(self.folder) / "node.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*self.wrapping, "odradek", "start", "--config", self.properties],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started_s, self.due_s = time.monotonic(), None


def wrap(cluster: Cluster, number: int, *wrapping: str) -> None:
    """Before it is started."""
    node = cluster.nodes[number]
    wrapped = cluster.nodes[number] = WrappedNode(node.number, node.folder, node.properties, node.address)
    wrapped.wrapping = list(wrapping)


@contextmanager
def with_folders(folder: Path, **settings: str) -> Iterator[Cluster]:
    """Each node has two, of which the first has the metadata."""
    log_dirs = f"{folder}/node-{{node}},{folder}/more-{{node}}"
    of_folders = {"log_dirs": log_dirs, "metadata_log_dir": f"{folder}/node-{{node}}"}
    with running(folder, None, **SETTINGS | of_folders | settings) as cluster:
        yield cluster


def offline(cluster: Cluster, number: int) -> list[str]:
    """The folders that a node says are offline."""
    answer = cluster.ask(number, DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
    assert answer is not None
    return [Path(each.log_dir).name for each in answer.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_folder_that_fails_loses_nothing_and_is_back_after_a_restart(tmp_path: Path, call: str) -> None:
    trigger = tmp_path / "broken"
    with with_folders(tmp_path, log_flush_interval_messages="50", **LAG_MS) as cluster:
        cluster.stop(VICTIM)
        wrap(cluster, VICTIM, sys.executable, "-m", "tests.node.failing_node", call, f"/more-{VICTIM}/", str(trigger))
        cluster.start(VICTIM)

        def fault(workload: Workload) -> None:
            trigger.touch()
            until(lambda: offline(cluster, VICTIM) == [f"more-{VICTIM}"], "a folder offline")
            workload.goes_on()
            assert cluster.is_running(VICTIM)
            trigger.unlink()
            cluster.stop(VICTIM)
            cluster.start(VICTIM)

        found = suffer(cluster, "failing", fault)
        assert found.acknowledged > 0
        assert not found.wrong
        assert offline(cluster, VICTIM) == []


def test_a_slow_disk_leaves_the_isr_and_holds_up_nothing_else(tmp_path: Path) -> None:
    trigger = tmp_path / "slow"
    with running(tmp_path, None, **SETTINGS | {"replica_lag_time_max_ms": "2000"}) as cluster, cluster.explaining():
        cluster.stop(VICTIM)
        wrap(cluster, VICTIM, sys.executable, "-m", "tests.node.failing_node", "slow-pwrite", "/followed-0/", str(trigger))
        cluster.heal()
        client = admin(cluster.bootstrap)
        topics = {"followed": [1, VICTIM, 3], "led": [VICTIM, 1, 3]}
        for created in client.create_topics(
            [NewTopic(topic, 1, replica_assignment=[replicas]) for topic, replicas in topics.items()]
        ).values():
            created.result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **EAGER, "acks": "all"})

        def is_left() -> bool:
            for topic in topics:
                producer.produce(topic, b"value")
            assert producer.flush(SECONDS_MAX) == 0
            return VICTIM not in cluster.partitions(VICTIM, "followed")[0].isr_nodes

        assert not is_left()
        trigger.touch()
        until(is_left, "a slow replica out of the ISR")
        assert is_left()
        trigger.unlink()
        producer.close()
        cluster.all_in_sync("followed")
        copies = [cluster.log_dirs(number)[0] / "followed-0" for number in cluster.brokers]
        check_same(copies, "followed-0")


def can_mount() -> bool:
    return subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0


def small_disk(folder: str, megabytes: int) -> list[str]:
    """A command in front of a node's: its folder is a file system of this size, with what is in the folder."""
    mounted = (
        f'mkdir -p "$0.small" && mount -t tmpfs -o size={megabytes}m tmpfs "$0.small" && cp -a "$0/." "$0.small" && '
        'mount --move "$0.small" "$0" && exec "$@"'
    )
    return ["unshare", "-rm", "sh", "-c", mounted, folder, sys.executable, "-m"]


def test_a_full_disk_on_one_node_loses_nothing_and_is_well_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no file system can be mounted, one file cannot be written from some time on."""
    settings = {"log_segment_delete_delay_ms": "0", "log_retention_check_interval_ms": "500", **LAG_MS}
    trigger = tmp_path / "full"
    is_mounted = can_mount()
    with running(tmp_path, None, **SETTINGS | settings) as cluster:
        cluster.stop(VICTIM)
        calls = ("full-pwrite,full-posix_fallocate", "/ballast-0/,room.tmp", str(trigger))
        small = small_disk(cluster.nodes[VICTIM].folder, DISK_MB)
        wrap(cluster, VICTIM, *(small if is_mounted else (sys.executable, "-m", "tests.node.failing_node", *calls)))
        cluster.start(VICTIM)
        if is_mounted:
            log_dirs = {number: cluster.log_dirs(number) for number in cluster.brokers}
            log_dirs[VICTIM] = [Path(f"/proc/{cluster.process(VICTIM).pid}/root{path}") for path in log_dirs[VICTIM]]
            monkeypatch.setattr(cluster, "log_dirs", log_dirs.__getitem__)

        def fault(workload: Workload) -> None:
            client = admin(cluster.bootstrap)
            client.create_topics([NewTopic("ballast", 1, 3)])["ballast"].result()
            producer = Producer({"bootstrap.servers": cluster.bootstrap, **EAGER, "acks": "all"})

            def fill_more() -> bool:
                producer.produce("ballast", bytes(500_000))
                assert producer.flush(SECONDS_MAX) == 0
                return any("is full" in line for line in cluster.lines(VICTIM))

            def look() -> bool:
                found = cluster.partitions(1, workload.topic)
                return all(VICTIM not in each.isr_nodes and each.leader_id not in (VICTIM, -1) for each in found)

            trigger.touch()
            until(fill_more, "a full disk")
            until(look, "others who lead")
            workload.goes_on()
            fill_more()
            producer.close()
            assert cluster.is_running(VICTIM)
            client.delete_topics(["ballast"])["ballast"].result()
            trigger.unlink()
            until(lambda: any("has room again" in line for line in cluster.lines(VICTIM)), "room again")

        found = suffer(cluster, "filling", fault)
        assert found.acknowledged > 0
        assert not found.wrong

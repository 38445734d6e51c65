"""Disks of a cluster under clients that write and read: folders that fail, disks that fill, logs that rot. What was acknowledged
is there in the end, the other nodes go on meanwhile, and a node is well again by itself where nobody has to look at it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from odradek.cli import up
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.clients.waiting import until
from tests.cluster.chaos import SETTINGS
from tests.cluster.checks import suffer
from tests.cluster.cluster import Cluster, running
from tests.cluster.workload import Workload

VICTIM: Final = 2
RECORDS: Final = 600
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

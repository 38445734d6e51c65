"""A disk that fails: the process ends at once, says why in a line, and leaves no mark of a clean stop. What was acknowledged and
synced before is there when it starts again on a sound disk."""

import errno
import os
import sys
from pathlib import Path

import pytest

from odradek.log.checkpoint import CLEAN_SHUTDOWN
from odradek.log.disk import DiskFailed, RealDisk
from odradek.wire.messages import CreateTopicsRequest, CreateTopicsResponse, FetchResponse, ProduceResponse
from tests.clients.server import Node
from tests.node.inside import fetch_request, produce_request, values_in
from tests.node.socket_client import Closed, SocketClient

END_SECONDS_MAX = 30


class FailingNode(Node):
    """A node in a process of its own, with one call of the operating system that fails when `break_disk` is called."""

    def __init__(self, folder: Path, call: str, part: str) -> None:
        self.failing = [call, part, str(folder / "broken")]
        super().__init__(folder)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.node.failing_node", *self.failing, *super()._command()]

    def break_disk(self) -> None:
        (self.folder / "broken").touch()


def create(client: SocketClient, topic: str, **configs: str) -> int:
    entries = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=entries)
    return client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse).topics[0].error_code


def produce(client: SocketClient, value: bytes) -> int:
    answer = client.ask(produce_request("things", value), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def fetch(client: SocketClient) -> list[bytes]:
    answer = client.ask(fetch_request("things"), 12, FetchResponse)
    return values_in(bytes(answer.responses[0].partitions[0].records or b""))


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("fdatasync", "/things-0/"),
        ("pwrite", "/things-0/"),
        ("fdatasync", "/__cluster_metadata-0/"),
        ("pwrite", "/__cluster_metadata-0/"),
    ],
)
def test_a_failed_disk_ends_the_process(tmp_path: Path, call: str, part: str) -> None:
    node = FailingNode(tmp_path, call, part)
    node.start()
    assert node.process is not None
    with SocketClient(node.port) as client:
        assert not create(client, "things", flush_messages="1")
        assert not produce(client, b"first")
        node.break_disk()
        try:
            refused = produce(client, b"second") if "things" in part else create(client, "others")
            assert refused
        except Closed:
            pass  # it may end before it answers
        assert node.process.wait(END_SECONDS_MAX) == 1
    node.process = None
    said = node.output()
    assert "Traceback" not in said, said
    (last,) = [line for line in said.splitlines() if line.startswith("odradek: the node has ended")]
    assert "Input/output error" in last
    assert "look at the disk" in last
    assert not (node.data / CLEAN_SHUTDOWN).exists()
    sound = Node(tmp_path)
    with sound.running(), SocketClient(sound.port) as client:
        assert fetch(client)[0] == b"first"
        assert not produce(client, b"third")


def test_a_disk_that_fails_in_the_last_moment_leaves_no_mark_of_a_clean_stop(tmp_path: Path) -> None:
    node = FailingNode(tmp_path, "fdatasync", "/things-0/")
    node.start()
    assert node.process is not None
    with SocketClient(node.port) as client:
        assert not create(client, "things")
        assert not produce(client, b"first")
    node.break_disk()
    node.process.terminate()
    assert node.process.wait(END_SECONDS_MAX) == 1
    node.process = None
    assert "Traceback" not in node.output()
    assert not (node.data / CLEAN_SHUTDOWN).exists()
    sound = Node(tmp_path)
    with sound.running(), SocketClient(sound.port) as client:
        assert fetch(client) == [b"first"]


def test_a_read_that_fails_ends_the_disk_on_whichever_thread_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = RealDisk()
    file = disk.open(str(tmp_path / "file"), create=True)
    file.append([b"content"])
    monkeypatch.setattr(os, "pread", fail)
    file.warm(0, 7)
    assert disk.failure is not None
    with pytest.raises(DiskFailed):
        file.read(0, 7)
    other = RealDisk()
    with pytest.raises(DiskFailed):
        other.open(str(tmp_path / "file")).read(0, 7)
    assert other.failure is not None

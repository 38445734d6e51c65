"""The two clusters that are measured side by side: three nodes of ours, and three of Apache Kafka 4.3.1 with a heap of 512 MB.

Both get the settings of `odradek up`: each node is broker and controller, everything has three copies and needs two in sync.

Invariants
 1. A node that was killed stays down until `start_node`: nobody starts it again behind the back of a measurement.
 2. What is waited for has a deadline, and a process that ended meanwhile is an error with what it said last.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.servers import ENVIRONMENT, Client
from odradek.core.config.local_cluster import local_cluster
from odradek.core.config.single_node import controller_port, file_text
from odradek.wire.message import Message
from odradek.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.kafka.broker import CLUSTER_ID
from tools.kafka_jars import class_path

NODES = (1, 2, 3)
FIRST_PORTS = range(20_000, 22_000)  # with the controllers' below what the system gives to others
WAIT_SECONDS_MAX = 180.0
LOOK_SECONDS = 0.005
DIRECTORY_IDS = {
    1: "QAAAAAAAAAAAAAAAAAAAAQ",
    2: "QAAAAAAAAAAAAAAAAAAAAg",
    3: "QAAAAAAAAAAAAAAAAAAAAw",
}  # the smallest ones are reserved
PartitionState = MetadataResponse.MetadataResponsePartition


def first_port() -> int:
    """Of three that are free, with their controllers'."""
    while True:
        port = random.choice(FIRST_PORTS)
        with suppress(OSError):
            for each in range(port, port + len(NODES)):
                socket.create_server(("127.0.0.1", each)).close()
                socket.create_server(("127.0.0.1", controller_port(each))).close()
            return port


class Cluster(ABC):
    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = first_port()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True)

    def port_of(self, node: int) -> int:
        return self.port + node - 1

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port_of(node)}" for node in NODES)

    def properties(self, node: int) -> Path:
        return self.folder / f"node-{node}" / "server.properties"

    @abstractmethod
    def command(self, node: int) -> list[str]:
        """What starts a node."""

    @abstractmethod
    def format(self) -> None:
        """Makes the folders of a new cluster."""

    def start(self) -> None:
        """Until all nodes may lead."""
        for node in NODES:
            self.start_node(node)
        self.wait(lambda: len(self.brokers()) == len(NODES))

    def start_node(self, node: int) -> None:
        with (self.folder / f"out-{node}.txt").open("ab") as out:
            self.processes[node] = subprocess.Popen(self.command(node), stdout=out, stderr=out, env=ENVIRONMENT)

    def end_node(self, node: int, how: signal.Signals) -> None:
        self.processes[node].send_signal(how)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(WAIT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()

    def memory_bytes(self) -> int:
        return sum(resident_bytes(process.pid) for process in self.processes.values())

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while True:
            with suppress(OSError):
                if condition():
                    return
            assert time.monotonic() < deadline, f"{self.name}: too late; {self.said()}"
            time.sleep(LOOK_SECONDS)

    def said(self) -> str:
        return "\n".join(f"node {node}: {(self.folder / f'out-{node}.txt').read_text()[-1500:]}" for node in self.processes)

    # -- what the cluster says

    def ask(self, request: Message, version: int, response: type[Message], node: int | None = None) -> Message:
        """Of one node, or of the first that runs."""
        running = [node] if node else [each for each in NODES if self.processes[each].poll() is None]
        assert running, f"all nodes of {self.name} have ended; {self.said()}"
        with Client(self.port_of(running[0])) as client:
            return client.ask(request, version, response)

    def brokers(self, node: int | None = None) -> list[int]:
        answer = self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12, MetadataResponse, node)
        assert isinstance(answer, MetadataResponse)
        return [broker.node_id for broker in answer.brokers]

    def partitions(self, topics: list[str], node: int | None = None) -> dict[tuple[str, int], PartitionState]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse, node)
        assert isinstance(answer, MetadataResponse)
        return {(topic.name or "", part.partition_index): part for topic in answer.topics for part in topic.partitions}

    def quorum_leader(self) -> int:
        topic = DescribeQuorumRequest.TopicData(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
        )
        answer = self.ask(DescribeQuorumRequest(topics=[topic]), 1, DescribeQuorumResponse)
        assert isinstance(answer, DescribeQuorumResponse)
        return answer.topics[0].partitions[0].leader_id if not answer.error_code else -1

    def is_in_sync(self, topics: dict[str, int], node: int) -> bool:
        """Whether all copies of the topics' partitions are in sync, by what a node knows."""
        found = self.partitions(list(topics), node)
        return len(found) == sum(topics.values()) and all(len(part.isr_nodes) == len(NODES) for part in found.values())

    def create(self, topics: dict[str, int], leader: int | None = None, **configs: str) -> None:
        """Three copies of each partition, led by one node or by all in turn; until every node knows the leaders."""
        wanted = []
        for name, count in topics.items():
            assignments = [
                CreateTopicsRequest.CreatableReplicaAssignment(
                    partition_index=index, broker_ids=turned((leader or index % len(NODES) + 1) - 1)
                )
                for index in range(count)
            ]
            entries = [
                CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ]
            wanted.append(
                CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=entries
                )
            )
        answer = self.ask(CreateTopicsRequest(topics=wanted, timeout_ms=60_000), 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert all(topic.error_code == 0 for topic in answer.topics), [topic.error_message for topic in answer.topics]
        for node in NODES:
            self.wait(lambda node=node: self.is_in_sync(topics, node))  # type: ignore[misc]

    def delete(self, topics: list[str]) -> None:
        answer = self.ask(DeleteTopicsRequest(topic_names=topics, timeout_ms=60_000), 5, DeleteTopicsResponse)
        assert isinstance(answer, DeleteTopicsResponse)


class OdradekCluster(Cluster):
    name = "odradek"

    def format(self) -> None:
        from odradek.cli.up import prepare

        prepare(str(self.folder), len(NODES), self.port)

    def command(self, node: int) -> list[str]:
        return [sys.executable, "-m", "odradek", "start", "--config", str(self.properties(node))]


class KafkaCluster(Cluster):
    name = "kafka"

    def format(self) -> None:
        folders = [str(self.folder / f"node-{node}") for node in NODES]
        voters = ",".join(f"{node}@127.0.0.1:{controller_port(self.port_of(node))}:{DIRECTORY_IDS[node]}" for node in NODES)
        for node, settings in zip(NODES, local_cluster([f"{folder}/data" for folder in folders], self.port), strict=True):
            self.properties(node).parent.mkdir()
            self.properties(node).write_text(file_text(settings))
            arguments = ("format", "-t", CLUSTER_ID, "--initial-controllers", voters, "-c", str(self.properties(node)))
            subprocess.run(self._java("kafka.tools.StorageTool", *arguments), check=True, capture_output=True)

    def _java(self, *arguments: str) -> list[str]:
        return ["java", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-cp", class_path(), *arguments]

    def command(self, node: int) -> list[str]:
        return self._java("kafka.Kafka", str(self.properties(node)))


def turned(first: int) -> list[int]:
    """The nodes, from one of them on."""
    return [NODES[(first + step) % len(NODES)] for step in range(len(NODES))]


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    found.append(int(entry))
    return found

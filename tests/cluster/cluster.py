"""A cluster of real processes on this machine, and what can be done to them.

Invariants
 1. Whatever happens, no process outlives the `with` block: a paused one neither.
 2. What fails in `explaining` has in its message what the nodes said last.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Final, TypeVar

from odradek.cli.start import FILE, SCREEN, write
from odradek.cli.up import Node, prepare
from odradek.core.config.local_cluster import local_cluster
from odradek.core.config.single_node import CONTROLLER_PORT_DISTANCE
from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.wire.message import Message
from odradek.wire.messages import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.clients.waiting import until
from tests.cluster.links import Links
from tests.node.socket_client import Closed, SocketClient

NODES: Final = 3
PORT_MIN: Final = 11_000  # below the ports that the system gives to whoever asks for any
PORTS: Final = 9_000
STOP_SECONDS_MAX: Final = 60
LOG_LINES_MAX: Final = 40
SETTINGS: Final = {"offsets.topic.num.partitions": "3"}

Answer = TypeVar("Answer", bound=Message)


def free_ports(count: int) -> int:
    """The first of so many in a row that are free, as are those of their controllers."""
    for number in range(PORTS // count):
        port = PORT_MIN + (os.getpid() * 31 + number * count) % PORTS
        try:
            for each in range(port, port + count):
                for wanted in (each, each + CONTROLLER_PORT_DISTANCE):
                    socket.create_server(("127.0.0.1", wanted)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no free ports for a cluster")


class Cluster:
    def __init__(self, folder: Path, count: int = NODES, has_links: bool = False, **settings: str) -> None:
        """With links, the nodes reach each other through this process alone."""
        self.count = count
        self.first_port = free_ports(3 * count)
        self.links = Links(self._routes() if has_links else {})
        folders = [str(folder / f"node-{number}") for number in range(1, count + 1)]
        more = SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        for number, values in enumerate(local_cluster(folders, self.first_port)):
            write(os.path.join(folders[number], FILE), values | more | (self._places(number) if has_links else {}))
        self.nodes = prepare(str(folder), count, self.first_port)
        self.paused: set[Node] = set()

    def _ports(self, number: int) -> tuple[int, int, int]:
        """For clients, for the other brokers, and where these are told to go; the same for controllers, further up."""
        return self.first_port + number, self.first_port + self.count + number, self.first_port + 2 * self.count + number

    def _routes(self) -> dict[int, tuple[int, int]]:
        routes = {}
        for number in range(self.count):
            client, inner, outer = self._ports(number)
            routes[outer] = (number + 1, inner)
            routes[outer + CONTROLLER_PORT_DISTANCE] = (number + 1, client + CONTROLLER_PORT_DISTANCE)
        return routes

    def _places(self, number: int) -> dict[str, str]:
        client, inner, outer = self._ports(number)
        outers = [self._ports(each)[2] + CONTROLLER_PORT_DISTANCE for each in range(self.count)]
        return {
            "listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in (("PLAINTEXT", client), ("LINK", inner), ("CONTROLLER", client + CONTROLLER_PORT_DISTANCE))
            ),
            "advertised.listeners": ",".join(
                f"{name}://127.0.0.1:{port}"
                for name, port in (("PLAINTEXT", client), ("LINK", outer), ("CONTROLLER", outer + CONTROLLER_PORT_DISTANCE))
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "LINK",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in outers),
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    # -- what can be done to a node

    def start(self, *nodes: Node) -> None:
        for node in nodes:
            assert not is_running(node)
            node.start()

    def kill(self, *nodes: Node) -> None:
        for node in nodes:
            process_of(node).send_signal(signal.SIGKILL)
        for node in nodes:
            process_of(node).wait(STOP_SECONDS_MAX)

    def stop(self, *nodes: Node) -> None:
        """Cleanly, all of them at once."""
        for node in nodes:
            process_of(node).send_signal(signal.SIGTERM)
        for node in nodes:
            status = process_of(node).wait(STOP_SECONDS_MAX)
            assert status == 0, f"node {node.number} ended with {status}"

    def pause(self, *nodes: Node) -> None:
        for node in nodes:
            process_of(node).send_signal(signal.SIGSTOP)
            self.paused.add(node)

    def go_on(self, *nodes: Node) -> None:
        for node in nodes:
            process_of(node).send_signal(signal.SIGCONT)
            self.paused.discard(node)

    # -- who is who

    def by_number(self, number: int) -> Node:
        return self.nodes[number - 1]

    def serving(self) -> list[Node]:
        return [node for node in self.nodes if is_running(node) and node not in self.paused]

    def ask(self, node: Node, request: Message, version: int, response: type[Answer]) -> Answer | None:
        """None when it does not answer."""
        try:
            with SocketClient(self.first_port + node.number - 1) as client:
                return client.ask(request, version, response)
        except (OSError, Closed):
            return None

    def _known(self, look: Callable[[Node], int | None], what: str) -> Node:
        """The node whose number any of those that serve knows."""

        def ask_all() -> list[int]:
            return [number for node in self.serving() if (number := look(node)) is not None and number > 0][:1]

        return self.by_number(until(ask_all, what)[0])

    def leader(self, topic: str, index: int = 0) -> Node:
        return self._known(lambda node: self.leaders(node, topic).get(index), f"the leader of {topic}-{index}")

    def leaders(self, node: Node, topic: str) -> dict[int, int]:
        return {each.partition_index: each.leader_id for each in self.partitions(node, topic)}

    def partitions(self, node: Node, topic: str) -> list[MetadataResponse.MetadataResponsePartition]:
        """As this node knows them."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = self.ask(node, request, 12, MetadataResponse)
        return [] if answer is None or answer.topics is None else answer.topics[0].partitions

    def controller(self) -> Node:
        """Who leads the quorum."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])

        def look(node: Node) -> int | None:
            answer = self.ask(node, DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
            return answer.topics[0].partitions[0].leader_id if answer is not None and answer.topics else None

        return self._known(look, "the leader of the quorum")

    def coordinator(self, group: str) -> Node:
        def look(node: Node) -> int | None:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            answer = self.ask(node, request, 4, FindCoordinatorResponse)
            return answer.coordinators[0].node_id if answer is not None and answer.coordinators else None

        return self._known(look, f"the coordinator of {group}")

    # -- waiting

    def heal(self) -> None:
        """Ends whatever was done to it, until every node knows all of them."""
        self.links.heal()
        self.go_on(*self.paused.copy())
        self.start(*(node for node in self.nodes if not is_running(node)))

        def look() -> bool:
            found = [self.ask(node, MetadataRequest(topics=[]), 12, MetadataResponse) for node in self.nodes]
            return all(seen is not None and len(seen.brokers) == self.count for seen in found)

        until(look, "all nodes there")

    def all_in_sync(self, topic: str, copies: int = NODES) -> None:
        """Until every node is there, and knows that every copy of the topic is in sync."""

        def look() -> bool:
            found = [self.partitions(node, topic) for node in self.nodes]
            return all(seen and all(len(each.isr_nodes) == copies for each in seen) for seen in found)

        until(look, f"all replicas of {topic} in sync")

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Adds what the nodes said to whatever fails in it."""
        try:
            yield
        except BaseException as error:
            error.add_note(self.said())
            raise

    def said(self) -> str:
        """The last lines of each node's log."""
        parts: list[str] = []
        for node in self.nodes:
            screen = SCREEN.format(address=node.address, data=node.folder, settings=node.properties).splitlines()
            with open(os.path.join(node.folder, "node.log"), errors="replace") as file:
                lines = [line for line in file.read().splitlines() if line not in screen]
            parts += [f"-- node {node.number}", *lines[-LOG_LINES_MAX:]]
        return "\n".join(parts)


def process_of(node: Node) -> Popen[bytes]:
    assert node.process is not None
    return node.process


def is_running(node: Node) -> bool:
    return node.process is not None and node.process.poll() is None


@contextmanager
def running(folder: Path, count: int = NODES, has_links: bool = False, **settings: str) -> Iterator[Cluster]:
    cluster = Cluster(folder, count, has_links, **settings)
    with cluster.links:
        try:
            with cluster.explaining():
                cluster.heal()
            yield cluster
        finally:
            for node in cluster.nodes:
                if is_running(node):
                    process_of(node).kill()
                    process_of(node).wait()

"""A cluster of ours on this machine: the nodes that `odradek up` prepares, in processes that a scenario starts and stops."""

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.cli.up import Node, prepare, stop
from odradek.core.config.single_node import CONTROLLER_PORT_DISTANCE
from tests.clients.waiting import until

PORTS = range(12_000, 22_000)  # which, and whose controllers' ports, no client is given for a connection of its own


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def free_block(count: int) -> int:
    """The first of several ports that are free, and whose controllers' ports are."""
    while True:
        first = random.choice(PORTS)
        if all(is_free(port) and is_free(port + CONTROLLER_PORT_DISTANCE) for port in range(first, first + count)):
            return first


class Cluster:
    def __init__(self, folder: Path, count: int, **settings: str) -> None:
        """`settings` go to all nodes; `{node}` in a value is the node's number."""
        self.folder = folder
        self.nodes: dict[int, Node] = {node.number: node for node in prepare(str(folder), count, free_block(count))}
        for node in self.nodes.values():
            lines = [f"{key.replace('_', '.')}={value.format(node=node.number)}\n" for key, value in settings.items()]
            with open(node.properties, "a") as file:
                file.writelines(lines)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def logs(self, topic: str) -> dict[int, set[str]]:
        """The folders of a topic's partitions, by node, with those that are about to be removed."""
        return {number: {path.name for path in Path(node.folder).glob(f"{topic}-*")} for number, node in self.nodes.items()}

    def start(self, number: int) -> None:
        node = self.nodes[number]
        node.start()
        until(lambda: self.is_listening(number), f"node {number} is there: {self.output()}")

    def is_listening(self, number: int) -> bool:
        process = self.nodes[number].process
        assert process is not None
        assert process.poll() is None, self.output()
        host, port = self.nodes[number].address.split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return True
        return False

    def stop(self, number: int) -> None:
        stop([self.nodes[number]])

    def output(self) -> str:
        return "\n".join(Path(node.folder, "node.log").read_text() for node in self.nodes.values() if node.process is not None)

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            for node in self.nodes.values():
                node.start()
            for number in self.nodes:
                until(lambda number=number: self.is_listening(number), f"node {number} is there")  # type: ignore[misc]
            yield
        finally:
            stop(list(self.nodes.values()))

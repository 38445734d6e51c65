"""What a cluster of the tests is made of: which node is broker, controller or both, where each listens, and its settings.

Invariants
 1. Brokers are the nodes from 1 on. The first of them vote, or nodes of their own do, which come after the brokers.
 2. With links the nodes are told ports of this process for each other; clients go to the nodes directly.
"""

import random
import socket
from typing import Final

import msgspec

from odradek.core.config.local_cluster import local_cluster
from odradek.core.config.single_node import CONTROLLER_PORT_DISTANCE

PORTS: Final = range(12_000, 20_000)  # which, and whose controllers' ports, nobody else is given
HOST: Final = "127.0.0.1"
CLIENTS, LINK, CONTROLLER = "PLAINTEXT", "LINK", "CONTROLLER"


class Layout(msgspec.Struct, frozen=True):
    brokers: int = 3
    voters: int = 3  # brokers that are controllers too
    controllers: int = 0  # nodes of their own
    has_links: bool = False

    @property
    def nodes(self) -> range:
        return range(1, self.brokers + self.controllers + 1)

    @property
    def broker_numbers(self) -> range:
        return range(1, self.brokers + 1)

    @property
    def voter_numbers(self) -> list[int]:
        return [number for number in self.nodes if self.is_controller(number)]

    def is_broker(self, number: int) -> bool:
        return number <= self.brokers

    def is_controller(self, number: int) -> bool:
        return number <= self.voters if not self.controllers else number > self.brokers

    @property
    def ports(self) -> int:
        """How many it needs: for clients, for the other brokers, and where these are told to go."""
        return 3 * len(self.nodes) if self.has_links else len(self.nodes)


def is_free(port: int) -> bool:
    try:
        with socket.create_server((HOST, port)):
            return True
    except OSError:
        return False


def free_block(count: int) -> int:
    """The first of several ports that are free, and whose controllers' ports are."""
    while True:
        first = random.choice(PORTS)
        if all(is_free(port) and is_free(port + CONTROLLER_PORT_DISTANCE) for port in range(first, first + count)):
            return first


class Places:
    """Where the nodes of a layout listen, and where others are told to look for them."""

    def __init__(self, layout: Layout, first_port: int) -> None:
        self.layout = layout
        self.first_port = first_port

    def client_port(self, number: int) -> int:
        return self.first_port + number - 1

    def _inner(self, number: int) -> int:
        return self.client_port(number) + len(self.layout.nodes)

    def _outer(self, number: int) -> int:
        return self.client_port(number) + 2 * len(self.layout.nodes)

    def controller_address(self, number: int) -> str:
        """As the other nodes know it."""
        port = self._outer(number) if self.layout.has_links else self.client_port(number)
        return f"{HOST}:{port + CONTROLLER_PORT_DISTANCE}"

    def address(self, number: int) -> str:
        """For clients; of a mere controller, its own."""
        port = self.client_port(number)
        return f"{HOST}:{port if self.layout.is_broker(number) else port + CONTROLLER_PORT_DISTANCE}"

    def routes(self) -> dict[int, tuple[int, int]]:
        """By the port of this process: the node, and its own port."""
        found = {}
        for number in self.layout.nodes if self.layout.has_links else ():
            found[self._outer(number)] = (number, self._inner(number))
            found[self._outer(number) + CONTROLLER_PORT_DISTANCE] = (number, self.client_port(number) + CONTROLLER_PORT_DISTANCE)
        return found

    def settings(self, number: int, folder: str) -> dict[str, str]:
        layout = self.layout
        listeners, advertised = {}, {}
        if layout.is_broker(number):
            listeners[CLIENTS] = advertised[CLIENTS] = f"{HOST}:{self.client_port(number)}"
            if layout.has_links:
                listeners[LINK], advertised[LINK] = f"{HOST}:{self._inner(number)}", f"{HOST}:{self._outer(number)}"
        if layout.is_controller(number):
            listeners[CONTROLLER] = f"{HOST}:{self.client_port(number) + CONTROLLER_PORT_DISTANCE}"
            advertised[CONTROLLER] = self.controller_address(number)
        roles = {"broker": layout.is_broker(number), "controller": layout.is_controller(number)}
        (settings, *_) = local_cluster([folder] * layout.brokers, self.first_port)
        settings |= {
            "process.roles": ",".join(role for role, is_played in roles.items() if is_played),
            "node.id": str(number),
            "listeners": joined(listeners),
            "advertised.listeners": joined(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (CLIENTS, LINK, CONTROLLER)),
            "controller.quorum.bootstrap.servers": ",".join(map(self.controller_address, layout.voter_numbers)),
        }
        if LINK in listeners:
            settings["inter.broker.listener.name"] = LINK
        return settings


def joined(addresses: dict[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())

"""The configuration that one node needs when nobody has written one: broker and controller in one, one copy of everything.

Invariants
 1. Apache Kafka starts with it unchanged, on the folder that the node left.
"""

import re
from collections.abc import Mapping
from typing import Final

from odradek.core.config.key import InvalidConfig
from odradek.core.config.properties import write
from odradek.core.config.validity import PORT_MAX

LISTEN: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[0-9a-zA-Z\-._]*)):(?P<port>[0-9]{1,5})")
EVERYWHERE: Final = ("", "0.0.0.0", "::")
LOOPBACK: Final = "127.0.0.1"
CONTROLLER_PORT_DISTANCE: Final = 10_000

HEADER: Final = """\
# Written by `odradek start` for a single node; it is yours to edit, and Apache Kafka takes it too.
# Every key of a Kafka server.properties may stand here.
"""


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; an empty host is every address of the machine."""
    parts = LISTEN.fullmatch(text)
    if parts is None or int(parts["port"]) > PORT_MAX:
        raise InvalidConfig(f"--listen: {text!r} is not valid; it takes HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092")
    return parts["ipv6"] or parts["host"], int(parts["port"])


def listening(host: str, port: int, machine: str) -> dict[str, str]:
    """The keys that say where a single node listens; `machine` is the name under which others find it.

    The controller of a single node is spoken to by nobody else: where clients may come from everywhere, it stays at home.
    """
    reached = machine if host in EVERYWHERE else host
    controller = f"{bracketed(LOOPBACK if host in EVERYWHERE else host)}:{controller_port(port)}"
    return {
        "listeners": f"PLAINTEXT://{bracketed(host)}:{port},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{bracketed(reached)}:{port},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
    }


def controller_port(port: int) -> int:
    if port == 0:  # any free one, and another for the controller
        return 0
    return port + CONTROLLER_PORT_DISTANCE if port + CONTROLLER_PORT_DISTANCE <= PORT_MAX else port - CONTROLLER_PORT_DISTANCE


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def single_node(folder: str, where: Mapping[str, str]) -> dict[str, str]:
    """Everything that a single node needs, with its data in `folder`; `where` is what `listening` gave."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        **where,
        "log.dirs": folder,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "socket.receive.buffer.bytes": "-1",  # the system knows better than 100 kB
        "socket.send.buffer.bytes": "-1",
    }


def file_text(values: Mapping[str, str]) -> str:
    return HEADER + write(values)

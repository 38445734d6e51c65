"""The addresses of a node: where it listens, and where others are told to find it.

Invariants
 1. Names of listeners are in capitals, and each stands once.
 2. Two listeners share a port only where one is an IPv4 and the other an IPv6 address.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from odradek.core.config.key import InvalidConfig
from odradek.core.config.validity import PORT_MAX

LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*?)\]?:(-?[0-9]+)")
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Listener(msgspec.Struct, frozen=True):
    """`host` is empty where the node listens on all its addresses; `protocol` is one of PROTOCOLS."""

    name: str
    host: str
    port: int
    protocol: str


def parse_listeners(
    key: str, texts: Sequence[str], protocols: Mapping[str, str], *, distinct_ports: bool = True
) -> list[Listener]:
    """The listeners of a list such as `PLAINTEXT://host:9092`, or InvalidConfig that names the key."""
    listeners = [parse_listener(key, text, protocols) for text in texts]
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise InvalidConfig(f"{key}: the listener {name} stands twice; give each listener a name of its own")
    if distinct_ports:
        check_ports(key, listeners)
    return listeners


def parse_listener(key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    parts = LISTENER.fullmatch(text)
    if parts is None or int(parts[3]) > PORT_MAX:
        raise InvalidConfig(f"{key}: {text!r} is no listener; write it as NAME://host:port, such as PLAINTEXT://127.0.0.1:9092")
    name = parts[1].upper()
    if name not in protocols:
        raise InvalidConfig(
            f"{key}: no security protocol is known for the listener {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map, or use one of {', '.join(protocols)}"
        )
    return Listener(name, parts[2], int(parts[3]), protocols[name])


def check_ports(key: str, listeners: Sequence[Listener]) -> None:
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port != 0:  # any free one: never the same
            by_port.setdefault(listener.port, []).append(listener)
    for port, sharing in by_port.items():
        if len(sharing) > 1 and sorted(ip_version(listener.host) for listener in sharing) != [4, 6]:
            names = " and ".join(listener.name for listener in sharing)
            raise InvalidConfig(f"{key}: {names} have the same port {port}; give each listener a port of its own")


def ip_version(host: str) -> int:
    """4 or 6, or 0 when the host is a name."""
    from ipaddress import ip_address  # rarely needed, and it takes a while to import

    try:
        return ip_address(host).version
    except ValueError:
        return 0


def protocol_map(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the protocol of each listener's name."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in text.split(","):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not entry.strip():
            continue
        if not colon or protocol.upper() not in PROTOCOLS:
            raise InvalidConfig(f"{key}: {entry.strip()!r} is not valid; write NAME:protocol, with one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol.upper()
    return protocols

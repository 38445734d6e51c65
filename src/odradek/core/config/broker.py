"""A node's configuration: the typed values of all broker keys, checked as a whole.

Invariants
 1. A BrokerConfig that exists is valid: Apache Kafka would start with it too, or odradek says why it does not (yet).
 2. It does not change; dynamic values make a new one.
"""

from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import Final, Self

import msgspec

from odradek.core.config.advice import advice
from odradek.core.config.bounds import clamped
from odradek.core.config.checks import EVERY_ADDRESS, check
from odradek.core.config.key import InvalidConfig
from odradek.core.config.layers import Layers, known_key
from odradek.core.config.listeners import PLAINTEXT, PROTOCOLS, Listener, parse_listeners, protocol_map
from odradek.core.config.validity import ADDRESS

NO_VALUES: Final[Mapping[str, str]] = {}


class BrokerConfig(Layers):
    def __init__(
        self,
        static: Mapping[str, str],
        cluster_wide: Mapping[str, str] = NO_VALUES,
        per_broker: Mapping[str, str] = NO_VALUES,
    ) -> None:
        """InvalidConfig says what is wrong with the file; what is wrong with dynamic values is left out, with a warning."""
        super().__init__(static, clamped(static, cluster_wide), clamped(static, per_broker))
        for name, text in static.items():
            if key := known_key(name):
                key.parse(text)
        check(self)

    def with_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> Self:
        """With other dynamic values; when these do not go with the file, it stays as it is, with a warning."""
        try:
            return type(self)(self.static, cluster_wide, per_broker)
        except InvalidConfig as error:
            unchanged = copy(self)
            unchanged.ignored = [*self.ignored, f"{error}; the dynamic values are not used"]
            return unchanged

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know of this configuration, a line each."""
        return (*advice(self), *self.ignored)

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def is_broker(self) -> bool:
        return "broker" in self.names("process.roles")

    @property
    def is_controller(self) -> bool:
        return "controller" in self.names("process.roles")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.names("log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        return self.text_or_none("metadata.log.dir") or self.log_dirs[0]

    @property
    def retention_ms(self) -> int:
        """`log.retention.ms` and what stands in for it, where every negative number is without end."""
        return max(self.integer("log.retention.ms"), -1)

    @cached_property
    def protocols(self) -> dict[str, str]:
        """The security protocol of each listener's name."""
        protocols = protocol_map(self.text("listener.security.protocol.map"))
        if self.given("listener.security.protocol.map") is not None:
            return protocols
        names = [
            *self.names("controller.listener.names"),
            *(text.partition("://")[0].upper() for text in self.names("listeners")),
        ]
        if any(name in PROTOCOLS and name != PLAINTEXT for name in names):
            return protocols
        return protocols | dict.fromkeys(self.names("controller.listener.names"), PLAINTEXT)

    @cached_property
    def listeners(self) -> list[Listener]:
        return parse_listeners("listeners", self.names("listeners"), self.protocols)

    @cached_property
    def advertised_listeners(self) -> list[Listener]:
        """What others are told; an empty host stands for the name of this machine."""
        key = "advertised.listeners" if self.value("advertised.listeners") is not None else "listeners"
        return parse_listeners(key, self.names(key), self.protocols, distinct_ports=key == "listeners")

    def is_for_controllers(self, listener: Listener) -> bool:
        return listener.name in self.names("controller.listener.names")

    @property
    def controller_listeners(self) -> list[Listener]:
        return [listener for listener in self.listeners if self.is_for_controllers(listener)]

    @property
    def broker_listeners(self) -> list[Listener]:
        return [listener for listener in self.listeners if not self.is_for_controllers(listener)]

    @property
    def advertised_broker_listeners(self) -> list[Listener]:
        return [listener for listener in self.advertised_listeners if not self.is_for_controllers(listener)]

    @property
    def advertised_controller_listeners(self) -> list[Listener]:
        """In the order of controller.listener.names: as advertised, otherwise as it listens."""
        known = {listener.name: listener for listener in map(of_this_machine, self.controller_listeners)}
        if self.value("advertised.listeners") is not None:
            known |= {listener.name: listener for listener in self.advertised_listeners}
        names = [name.upper() for name in self.names("controller.listener.names")]
        return [known[name] for name in names if name in known]

    @property
    def inter_broker_listener_name(self) -> str:
        return (self.text_or_none("inter.broker.listener.name") or self.text("security.inter.broker.protocol")).upper()

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """`controller.quorum.voters`: host and port of each voter, by node id."""
        parts = [entry.partition("@") for entry in self.names("controller.quorum.voters")]
        return {int(node): address_of(address) for node, _, address in parts}

    @property
    def bootstrap_servers(self) -> tuple[tuple[str, int], ...]:
        return tuple(address_of(address) for address in self.names("controller.quorum.bootstrap.servers"))


def of_this_machine(listener: Listener) -> Listener:
    return msgspec.structs.replace(listener, host="") if listener.host == EVERY_ADDRESS else listener


def address_of(text: str) -> tuple[str, int]:
    parts = ADDRESS.fullmatch(text)
    assert parts is not None, text  # the key's validity
    return parts[1], int(parts[2])

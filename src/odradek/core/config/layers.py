"""The values of a broker's keys, from the layers that give them: its own dynamic values, the cluster's, the file, the defaults.

Invariants
 1. A value is parsed once. What cannot be parsed is refused when it is in the file, left out with a warning when it is dynamic.
 2. A key that has no value falls back as in Apache Kafka: log.retention.ms to minutes, those to hours.
 3. A dynamic layer holds only keys that may change while running, and the cluster's none that belong to one broker.
"""

from collections.abc import Mapping
from typing import Final

from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.table import broker_keys
from odradek.core.config.validity import Value

FALLBACKS: Final = {
    "advertised.listeners": "listeners",
    "log.dirs": "log.dir",
    "log.flush.interval.ms": "log.flush.scheduler.interval.ms",
    "log.retention.minutes": "log.retention.hours",
    "log.retention.ms": "log.retention.minutes",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
    "log.roll.ms": "log.roll.hours",
}
FAMILIES: Final = {  # keys that say the same; a dynamic value of the first takes all of them out of the file
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
}
UNIT_MS: Final = {"hours": 3_600_000, "minutes": 60_000}
SAME: Final = (("node.id", "broker.id"), ("broker.id", "node.id"))  # either may be given
LISTENER_PREFIX: Final = "listener.name."


class Layers:
    def __init__(self, static: Mapping[str, str], cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        self.static = dict(static)
        for name, other in SAME:
            if name not in static and other in static:
                self.static[name] = static[other]
        self.ignored: list[str] = []
        self.cluster_wide = self._dynamic(cluster_wide, ("cluster-wide",))
        self.per_broker = self._dynamic(per_broker, ("cluster-wide", "per-broker"))
        self._replaced = {name for key in (*self.cluster_wide, *self.per_broker) for name in FAMILIES.get(key, ())}
        self._values: dict[str, Value | None] = {}

    def _dynamic(self, values: Mapping[str, str], modes: tuple[str, ...]) -> dict[str, str]:
        sound: dict[str, str] = {}
        for name, text in values.items():
            key = known_key(name)
            if key is None:  # nobody asks for it here
                sound[name] = text
                continue
            if key.mode not in modes:
                self.ignored.append(f"{name}: the dynamic value is not used, because the key cannot change while running")
                continue
            try:
                key.parse(text)
                sound[name] = text
            except InvalidConfig as error:
                self.ignored.append(f"{error}; the dynamic value is not used")
        return sound

    def given(self, name: str) -> str | None:
        """What the first layer that has it says; None when only the default is left."""
        for layer in (self.per_broker, self.cluster_wide):
            if name in layer:
                return layer[name]
        return None if name in self._replaced else self.static.get(name)

    def value(self, name: str) -> Value | None:
        """The key's own value, without a fallback."""
        if name not in self._values:
            key, text = broker_keys()[name], self.given(name)
            if text is None and key.is_required:
                raise InvalidConfig(f"{name}: it must be given; add it to the configuration file")
            self._values[name] = key.default_value if text is None else key.parse(text)
        return self._values[name]

    def resolved(self, name: str) -> Value | None:
        """The key's value, or that of the key that stands in for it, in this key's unit."""
        value = self.value(name)
        fallback = FALLBACKS.get(name)
        if value is not None or fallback is None:
            return value
        value = self.resolved(fallback)
        if isinstance(value, int):
            return value * unit_ms(fallback) // unit_ms(name)
        return value

    def integer(self, name: str) -> int:
        value = self._values.get(name)
        if type(value) is int:  # asked before, and its own: nearly always
            return value
        value = self.resolved(name)
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    def integer_or_none(self, name: str) -> int | None:
        return None if self.resolved(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        value = self.resolved(name)
        assert isinstance(value, float), f"{name} is {value!r}"
        return value

    def text(self, name: str) -> str:
        value = self.resolved(name)
        assert isinstance(value, str), f"{name} is {value!r}"
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.resolved(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        value = self.resolved(name)
        assert isinstance(value, bool), f"{name} is {value!r}"
        return value

    def names(self, name: str) -> tuple[str, ...]:
        value = self.resolved(name)
        assert value is None or isinstance(value, tuple), f"{name} is {value!r}"
        return value or ()


def unit_ms(name: str) -> int:
    return UNIT_MS.get(name.rpartition(".")[2], 1)


def known_key(name: str) -> Key | None:
    """The key of a name; a security key may be given for one listener: `listener.name.internal.ssl.client.auth`."""
    keys = broker_keys()
    if name in keys:
        return keys[name]
    if name.startswith(LISTENER_PREFIX):
        base = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        for candidate in (base, base.partition(".")[2]):  # with the name of a SASL mechanism before it, or without
            if candidate in keys:
                return keys[candidate]
    return None

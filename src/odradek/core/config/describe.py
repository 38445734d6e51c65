"""Configurations as DescribeConfigs shows them: every key with its value, where it comes from, and what would stand in for it.

Invariants
 1. A secret is never shown, nor is a value whose key is not known: it may be one.
 2. The first synonym is the one that gives the value; it names the source of the entry.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.group import value_of
from odradek.core.config.key import Key
from odradek.core.config.layers import FAMILIES, LISTENER_PREFIX, known_key
from odradek.core.config.table import broker_keys, client_metrics_keys, group_keys, topic_keys
from odradek.core.config.topic import broker_value
from odradek.core.config.validity import Value


class Source(IntEnum):
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


SCHEDULER: Final = "log.flush.scheduler.interval.ms"
UNKNOWN_TYPE: Final = 0
TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


class Synonym(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: Source


class Entry(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    source: Source
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[Synonym, ...]
    type: int
    documentation: str


def describe_topic(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    entries = []
    for name, key in shown(topic_keys(), overrides):
        value = key.parse(overrides[name]) if name in overrides else broker_value(broker, key)
        behind = synonyms_of(broker, key.synonyms[0]) if key.synonyms else ()
        entries.append(overridden(key, value, Source.DYNAMIC_TOPIC_CONFIG if name in overrides else None, behind))
    return entries


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[Entry]:
    entries = []
    for name, key in shown(group_keys(), overrides):
        behind = synonyms_of(broker, key.synonyms[0]) if key.synonyms else default_of(key)
        source = Source.GROUP_CONFIG if name in overrides else None
        entries.append(overridden(key, value_of(broker, key, overrides), source, behind))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[Entry]:
    entries = []
    for name, key in shown(client_metrics_keys(), overrides):
        value = key.parse(overrides[name]) if name in overrides else key.default_value
        source = Source.CLIENT_METRICS_CONFIG if name in overrides else None
        entries.append(overridden(key, value, source, ()))
    return entries


def describe_broker(broker: BrokerConfig) -> list[Entry]:
    """All keys of this broker, and those of its file that nobody knows."""
    names = [name for name, key in broker_keys().items() if not key.is_internal and not key.is_dynamic_only]
    given = [*broker.static, *broker.cluster_wide, *broker.per_broker]
    return [broker_entry(broker, name, broker_value_text(broker, name)) for name in dict.fromkeys([*names, *given])]


def describe_cluster(broker: BrokerConfig) -> list[Entry]:
    """What is set for all brokers, while they run."""
    return [broker_entry(broker, name, text, Source.DYNAMIC_DEFAULT_BROKER_CONFIG) for name, text in broker.cluster_wide.items()]


def shown(keys: Mapping[str, Key], overrides: Mapping[str, str]) -> Iterator[tuple[str, Key]]:
    return ((name, key) for name, key in keys.items() if not key.is_internal or name in overrides)


def overridden(key: Key, value: Value | None, source: Source | None, behind: Iterable[Synonym]) -> Entry:
    """The entry of a key whose own value, when there is a source for it, stands before those of the broker."""
    text = None if key.is_sensitive else key.format(value)
    synonyms = (*((Synonym(key.name, text, source),) if source else ()), *behind)
    first = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
    return Entry(key.name, text, first, key.is_sensitive, False, synonyms, TYPES[key.type], key.documentation)


def default_of(key: Key) -> tuple[Synonym, ...]:
    return (Synonym(key.name, key.format(key.default_value), Source.DEFAULT_CONFIG),)


def broker_value_text(broker: BrokerConfig, name: str) -> str | None:
    if name in broker_keys():
        return broker_keys()[name].format(broker.value(name))
    return broker.given(name)


def broker_entry(broker: BrokerConfig, name: str, text: str | None, only: Source | None = None) -> Entry:
    key = known_key(name)
    is_sensitive = key is None or key.is_sensitive
    synonyms = tuple(synonym for synonym in synonyms_of(broker, name) if only in (None, synonym.source))
    source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
    type_ = TYPES[key.type] if key else UNKNOWN_TYPE
    is_read_only = key is None or key.mode == "read-only" or name.startswith(LISTENER_PREFIX)
    documentation = key.documentation if key else ""
    return Entry(name, None if is_sensitive else text, source, is_sensitive, is_read_only, synonyms, type_, documentation)


def synonyms_of(broker: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    """Who gives the value of a broker's key, and who would if that one did not; from the first that has the key's own name."""
    keys = broker_keys()
    defaults = {other: keys[other].default for other in family(name) if other in keys and not keys[other].is_dynamic_only}
    layers: tuple[tuple[Mapping[str, str | None], Source], ...] = (
        (broker.per_broker, Source.DYNAMIC_BROKER_CONFIG),
        (broker.cluster_wide, Source.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, Source.STATIC_BROKER_CONFIG),
        ({other: text for other, text in defaults.items() if text is not None}, Source.DEFAULT_CONFIG),
    )
    found = [(other, values[other], source) for values, source in layers for other in family(name) if other in values]
    names = [other for other, _, _ in found]
    first = names.index(name) if name in names else len(names)
    return tuple(Synonym(other, hidden(other, text), source) for other, text, source in found[first:])


def hidden(name: str, text: str | None) -> str | None:
    key = known_key(name)
    return None if key is None or key.is_sensitive else text


def family(name: str) -> tuple[str, ...]:
    """The keys that can give the value of a key; the one of a listener stands before that of all."""
    if name.startswith(LISTENER_PREFIX) and (key := known_key(name)):
        return (name, key.name)
    if name == SCHEDULER:  # it gives the value of another key, and takes from none
        return (name,)
    return next((names for names in FAMILIES.values() if name in names), (name,))

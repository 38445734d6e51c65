"""The settings of a group: what it overrides, on top of what its broker says, within the broker's bounds.

Invariants
 1. A GroupConfig has a field for every group key.
 2. `check_group` refuses what lies outside the bounds; `group_config` moves it to the nearest bound, because the bounds may have
    changed since it was set.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from odradek.core.config.bounds import BOUNDED, KINDS, bounds
from odradek.core.config.broker import BrokerConfig
from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.table import group_keys
from odradek.core.config.validity import Value


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    consumer_assignment_interval_ms: int
    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int
    share_assignment_interval_ms: int
    share_auto_offset_reset: str  # validity.duration_ms reads by_duration:...
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool
    share_session_timeout_ms: int
    streams_assignment_interval_ms: int
    streams_heartbeat_interval_ms: int
    streams_initial_rebalance_delay_ms: int
    streams_num_standby_replicas: int
    streams_session_timeout_ms: int


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    fields: dict[str, Any] = {}
    for name, key in group_keys().items():
        fields[name.replace(".", "_")] = within(broker, name, value_of(broker, key, overrides))
    return GroupConfig(**fields)


def value_of(broker: BrokerConfig, key: Key, overrides: Mapping[str, str]) -> Value:
    if key.name in overrides:
        return key.parse(overrides[key.name])
    value = broker.resolved(key.synonyms[0]) if key.synonyms else key.default_value
    assert value is not None, key.name
    return value


def limits(broker: BrokerConfig, name: str) -> tuple[int, int]:
    low, high = bounds(name)
    return (broker.integer(low) if low else 0), broker.integer(high)


def within(broker: BrokerConfig, name: str, value: Value) -> Value:
    if name not in BOUNDED:
        return value
    assert isinstance(value, int)
    low, high = limits(broker, name)
    return max(low, min(high, value))


def check_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """InvalidConfig when a group may not have these overrides."""
    for name in overrides:
        if name not in group_keys():
            raise InvalidConfig(f"{name}: no group config has this name; it takes {', '.join(group_keys())}")
    values = {name: value_of(broker, key, overrides) for name, key in group_keys().items()}
    for name in BOUNDED:
        value, (low, high) = values[name], limits(broker, name)
        assert isinstance(value, int)
        if not low <= value <= high:
            raise InvalidConfig(
                f"{name}: {value} is not between {low} and {high}, which the broker's {bounds(name)[1]} and the like allow"
            )
    for kind in KINDS:
        session, heartbeat = values[f"{kind}.session.timeout.ms"], values[f"{kind}.heartbeat.interval.ms"]
        assert isinstance(session, int)
        assert isinstance(heartbeat, int)
        if session <= heartbeat:
            raise InvalidConfig(f"{kind}.session.timeout.ms: {session} is not above {kind}.heartbeat.interval.ms, {heartbeat}")

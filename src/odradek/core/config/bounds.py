"""The broker's bounds for the settings of groups: what a group may set, and what its default may be.

Apache Kafka names them alike: group.consumer.session.timeout.ms lies between group.consumer.min.session.timeout.ms and
group.consumer.max.session.timeout.ms, and so does consumer.session.timeout.ms of a group.
"""

from collections.abc import Mapping
from typing import Final

from odradek.core.config.key import InvalidConfig
from odradek.core.config.table import broker_keys

KINDS: Final = ("consumer", "share", "streams")
BOUNDED: Final = (
    *(f"{kind}.{what}" for kind in KINDS for what in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")),
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "streams.num.standby.replicas",
)
CLAMPED: Final = tuple(
    f"group.{kind}.assignment.interval.ms" for kind in KINDS
)  # bounded broker keys that may change while running


def bounds(name: str) -> tuple[str | None, str]:
    """The broker keys with the least and the greatest value of a group's key; some have no least."""
    kind, _, what = name.partition(".")
    low, high = f"group.{kind}.min.{what}", f"group.{kind}.max.{what.removeprefix('num.')}"
    return (low if low in broker_keys() else None), high


def clamped(static: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """Dynamic values moved to the nearest bound, because the bounds may have changed since they were set."""
    values = dict(dynamic)
    for name in CLAMPED:
        if name in values:
            low, high = bounds(name.removeprefix("group."))
            assert low is not None
            values[name] = clamp(name, values[name], bound(static, low), bound(static, high))
    return values


def bound(static: Mapping[str, str], name: str) -> int:
    key = broker_keys()[name]
    value = key.parse(static[name]) if name in static else key.default_value
    assert isinstance(value, int)
    return value


def clamp(name: str, text: str, low: int, high: int) -> str:
    try:
        value = broker_keys()[name].parse(text)
    except InvalidConfig:
        return text  # it is refused later, with a warning
    assert isinstance(value, int)
    return str(max(low, min(high, value)))

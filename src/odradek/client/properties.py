"""Options by the names that librdkafka and Java have for them: `linger.ms`, `group.id`.

Invariants
 1. A name that is not known is refused, with the nearest one that is: a setting that does nothing is worse than none.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from odradek.client.errors import InvalidOption

Table = Mapping[str, tuple[str, Callable[[Any], Any]]]


def boolean(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return text == "true"


def number(value: Any) -> int:
    return int(value)


def text(value: Any) -> str:
    return str(value)


SHARED: Table = {
    "bootstrap.servers": ("bootstrap", text),
    "metadata.broker.list": ("bootstrap", text),
    "client.id": ("client_id", text),
    "request.timeout.ms": ("request_timeout_ms", number),
    "default.api.timeout.ms": ("default_timeout_ms", number),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", number),
    "retry.backoff.ms": ("retry_backoff_ms", number),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", number),
    "metadata.max.age.ms": ("metadata_max_age_ms", number),
    "topic.metadata.refresh.interval.ms": ("metadata_max_age_ms", number),
}


def options(properties: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """The keyword arguments that properties stand for, by the table of a class beside what all have."""
    known = {**SHARED, **table}
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise InvalidOption(f"there is no property {name!r} here" + (f"; did you mean {near[0]!r}?" if near else ""))
        option, convert = known[name]
        try:
            found[option] = convert(value)
        except (TypeError, ValueError) as error:
            raise InvalidOption(f"{name}={value!r}: {error}") from error
    return found

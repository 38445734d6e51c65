"""A subscription to the metrics of clients: which metrics of which clients, how often."""

import re
from collections.abc import Mapping
from typing import Final

from odradek.core.config.key import InvalidConfig
from odradek.core.config.table import client_metrics_keys
from odradek.wire.errors import ErrorCode, Refused

INTERVAL_MS: Final = range(100, 3_600_001)
MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


def check_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """InvalidConfig or Refused, as Apache Kafka answers, when a subscription of this name may not have these settings."""
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, "a client metrics subscription needs a name")
    for key in overrides:
        if key not in client_metrics_keys():
            known = ", ".join(client_metrics_keys())
            raise Refused(ErrorCode.INVALID_REQUEST, f"{key}: no client metrics config has this name; there are {known}")
    values = {key: client_metrics_keys()[key].parse(text) for key, text in overrides.items()}
    interval = values.get("interval.ms")
    if isinstance(interval, int) and interval not in INTERVAL_MS:
        valid = f"{INTERVAL_MS.start} to {INTERVAL_MS.stop - 1}"
        raise Refused(ErrorCode.INVALID_REQUEST, f"interval.ms: {interval} is not valid; it takes {valid}")
    patterns = values.get("match", ())
    assert isinstance(patterns, tuple)
    match_patterns(patterns)


def match_patterns(entries: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    """`client_id=app-.*` and the like: the pattern that each of a client's names has to match as a whole."""
    patterns = {}
    for entry in entries:
        name, equals, pattern = (part.strip() for part in entry.partition("="))
        if not equals or not pattern or "=" in pattern or name not in MATCHED:
            raise InvalidConfig(f"match: {entry!r} is not valid; write name=pattern, with one of {', '.join(MATCHED)}")
        try:
            patterns[name] = re.compile(pattern)
        except re.error as error:
            raise InvalidConfig(f"match: {pattern!r} is no regular expression: {error}") from None
    return patterns

"""Broker loggers: the levels of a node's loggers as a resource that can be described and altered, but is stored nowhere.

Invariants
 1. Either all changes of a resource are made or none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.core.config.alteration import Change, Operation
from odradek.core.config.describe import UNKNOWN_TYPE, Entry, Source
from odradek.wire.errors import ErrorCode, Refused

BROKER_LOGGER_RESOURCE: Final = 8
ROOT: Final = "root"
LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


def describe_loggers(levels: Mapping[str, str]) -> list[Entry]:
    source = Source.DYNAMIC_BROKER_LOGGER_CONFIG
    return [Entry(name, level, source, False, False, (), UNKNOWN_TYPE, "") for name, level in levels.items()]


def altered_levels(levels: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str | None]:
    """The new level of each logger that is named; None where it is left to its parent. Refused says why not."""
    for name, operation, level in changes:
        if operation not in (Operation.SET, Operation.DELETE):
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name}: a level is no list, so that nothing can be appended or subtracted")
        if name not in levels:
            raise Refused(ErrorCode.INVALID_CONFIG, f"there is no logger {name!r}; describe the loggers to see which there are")
        if operation == Operation.SET and level not in LEVELS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: there is no level {level!r}; use one of {', '.join(LEVELS)}")
        if operation == Operation.DELETE and name == ROOT:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{ROOT}: it has no parent to take a level from; set one instead")
    return {name: level if operation == Operation.SET else None for name, operation, level in changes}

"""The loggers of the process, with their levels under Apache Kafka's names, so that they can change while the node runs.

Invariants
 1. A logger without a level of its own shows the one it takes over, in the end that of `root`.
 2. What is changed here lasts until the process ends; nothing is stored.
"""

import logging
from collections.abc import Mapping
from typing import Final

from odradek.api.broker_loggers import LEVELS, ROOT

TRACE: Final = logging.DEBUG - 5  # Python has none: it lets everything through that DEBUG does
NUMBERS: Final = dict(
    zip(LEVELS, (TRACE, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL), strict=True)
)

logger = logging.getLogger("odradek")  # the parent of all others of the node: one level for all of them


class Loggers:
    def levels(self) -> Mapping[str, str]:
        """Every logger there is, and the level from which on it writes."""
        known = logging.root.manager.loggerDict.items()
        loggers = {ROOT: logging.root} | {name: each for name, each in known if isinstance(each, logging.Logger)}
        return {name: level_name(each.getEffectiveLevel()) for name, each in loggers.items()}

    def set_level(self, name: str, level: str | None) -> None:
        """None leaves it to the parent."""
        logging.getLogger(None if name == ROOT else name).setLevel(NUMBERS[level] if level else logging.NOTSET)
        logger.warning("the log level of %s was %s", name, f"set to {level}" if level else "unset")


def level_name(level: int) -> str:
    """The least of Apache Kafka's levels that passes."""
    return next((name for name, least in NUMBERS.items() if level <= least), "FATAL")

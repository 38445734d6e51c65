"""Waiting for a condition, with a deadline: the one way in which a scenario waits."""

import time
from collections.abc import Callable
from typing import TypeVar

SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.02

Found = TypeVar("Found")


def until(look: Callable[[], Found], what: str, seconds_max: float = SECONDS_MAX) -> Found:
    """Looks until it gives something that is true, and gives that."""
    deadline = time.monotonic() + seconds_max
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds_max} s, last seen {found!r}"
        time.sleep(PAUSE_SECONDS)
    return found

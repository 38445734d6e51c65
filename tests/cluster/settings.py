"""What all clients of the chaos have in common."""

import time
from functools import partial
from typing import Any, Final

from tests.clients import waiting

PARTITIONS: Final = 3
POLL_SECONDS: Final = 0.02
EAGER: Final[dict[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "metadata.recovery.rebootstrap.trigger.ms": 3_000,  # of who was told of no broker, while all of them were fenced
    "socket.timeout.ms": 6_000,  # a paused node keeps its connections: nothing else tells a client to look elsewhere
}

until = partial(waiting.until, seconds_max=180.0)  # also on a machine that has much else to do

Place = tuple[int, int]  # partition and offset


def now_ms() -> float:
    """When something happens, for the history."""
    return time.monotonic() * 1_000

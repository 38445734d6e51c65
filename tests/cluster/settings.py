"""What all clients of the chaos have in common."""

from typing import Any, Final

PARTITIONS: Final = 3
POLL_SECONDS: Final = 0.02
EAGER: Final[dict[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "socket.timeout.ms": 6_000,  # a paused node keeps its connections: nothing else tells a client to look elsewhere
}

Place = tuple[int, int]  # partition and offset

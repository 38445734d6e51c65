"""Which segments of a log have had their time: they are too old, the log is too large, or it begins behind them.

Invariants
 1. Only whole segments from the beginning of the log go, and nothing at or past the high watermark.
 2. `retention.ms` and `retention.bytes` count where the policy has `delete`; a start that was moved counts always.
"""

from typing import TYPE_CHECKING

from odradek.log.segment import Segment

if TYPE_CHECKING:
    from odradek.log.log import Log


def expired_segments(log: "Log", now_ms: int) -> list[Segment]:
    """All that may go, the oldest first; perhaps the active one too."""
    config, surplus = log.config, log.size - log.config.retention_bytes
    expired: list[Segment] = []
    for number, segment in enumerate(log.segments):
        is_active = number + 1 == len(log.segments)
        next_base = log.end_offset if is_active else log.bases[number + 1]
        if next_base > log.high_watermark or (is_active and segment.size == 0):
            break
        surplus -= segment.size
        below_start = not is_active and next_base <= log.start_offset
        too_large = config.deletes and config.retention_bytes >= 0 and surplus >= 0
        if not (below_start or too_large or is_too_old(log, segment, now_ms)):
            break
        expired.append(segment)
    return expired


def is_too_old(log: "Log", segment: Segment, now_ms: int) -> bool:
    config = log.config
    return config.deletes and 0 <= config.retention_ms < now_ms - segment.largest_timestamp()

"""Times, sizes and texts of others, as a person reads them in a terminal."""

from datetime import UTC, datetime
from functools import lru_cache

KIB = 1024


def time(timestamp_ms: int) -> str:
    """A time as a person reads it, in UTC; the number where it is none."""
    if timestamp_ms < 0:
        return "" if timestamp_ms == -1 else str(timestamp_ms)
    second = time_of_second(timestamp_ms // 1000)
    return f"{second}.{timestamp_ms % 1000:03d}" if second else str(timestamp_ms)


@lru_cache(maxsize=1024)  # neighbours share their second, and formatting one takes longer than all else of a row
def time_of_second(second: int) -> str:
    try:
        return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return ""


def escaped(value: str) -> str:
    """Text that stays in its line and does nothing to the terminal."""
    return value if value.isprintable() else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in value)


def bytes_text(size: int) -> str:
    value, units = float(size), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= KIB and len(units) > 1:
        value /= KIB
        units.pop(0)
    return f"{value:.1f} {units[0]}" if units[0] != "B" else f"{size} B"


def many(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

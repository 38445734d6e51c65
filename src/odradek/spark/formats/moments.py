"""Dates and times in text, as Spark reads them: ISO 8601, with some freedom.

    2024-03-01   2024-3-1   2024-03   2024-03-01T12:30   2024-03-01 12:30:05.123456   2024-03-01T12:30:05Z   ...+02:00

Without a zone a time is in UTC. Digits after the sixth of a second are cut off. Names of zones are not read.

Invariants
 1. whatever Arrow's reader of JSON takes for a time is taken here, and is the same
"""

import re
from datetime import date
from typing import Final

MICROSECONDS: Final = 1_000_000  # in a second
DAY: Final = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
TIME: Final = re.compile(
    r"[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?|(\d{2})(?:(\d{2})(?:\.(\d*))?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?",
    re.ASCII,
)
EPOCH: Final = date(1970, 1, 1).toordinal()
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097  # after which the calendar repeats: Python's begins with the year 1
ZONE_HOURS_MAX: Final = 18


def days(text: str) -> int:
    """Days since 1970 of a date; of a time, those of its date."""
    text = text.strip()
    found = DAY.match(text)
    rest = text[found.end() :] if found else ""
    if found is None or (rest and (found[3] is None or rest[0] not in "T ")):
        raise ValueError(f"{text!r} is no date such as 2024-03-01")
    return _days(found)


def microseconds(text: str, *, may_have_zone: bool) -> int:
    """Microseconds since 1970."""
    text = text.strip()
    found = DAY.match(text)
    time = TIME.fullmatch(text, found.end()) if found and found[3] else None
    if found is None or (time is None and found.end() < len(text)):
        raise ValueError(f"{text!r} is no time such as 2024-03-01T12:30:05Z")
    seconds, micros = _days(found) * 86_400, 0
    if time is not None:
        hour, minute, second = int(time[1]), int(time[2] or time[5] or 0), int(time[3] or time[6] or 0)
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError(f"{text!r} has a time that no clock shows")
        if time[8] and not may_have_zone:
            raise ValueError(f"{text!r} has a zone, which a timestamp_ntz has not")
        seconds += hour * 3600 + minute * 60 + second - _zone_seconds(time[8])
        micros = int(((time[4] or time[7] or "") + "000000")[:6])
    return seconds * MICROSECONDS + micros


def _days(found: re.Match[str]) -> int:
    year = int(found[1])
    cycles = 1 if year == 0 else 0
    day = date(year + cycles * CYCLE_YEARS, int(found[2] or 1), int(found[3] or 1))
    return day.toordinal() - cycles * CYCLE_DAYS - EPOCH


def _zone_seconds(zone: str | None) -> int:
    if not zone or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    if minutes > 59 or hours * 60 + minutes > ZONE_HOURS_MAX * 60:
        raise ValueError(f"{zone!r} is no zone that there is")
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)

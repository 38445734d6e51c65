"""Which values of a key are valid: the notation of keys.txt, understood.

Invariants
 1. `fault` refuses exactly what Apache Kafka's validator of that key refuses.
 2. What is said of a fault ends the sentence "it takes ...", so that whoever reads it knows what to write instead.
"""

import re
from collections.abc import Callable
from typing import Final

Value = bool | int | float | str | tuple[str, ...]

RANGE: Final = re.compile(r"(?:(?P<or>-?[\d.]+) or )?(?P<low>-?[\d.]+?)\.\.(?P<high>-?[\d.]*)")
WORDS: Final = re.compile(r"\{(?P<words>[^}]*)\}(?P<any_case> any case)?(?P<not_empty> not empty)?")
ADDRESS: Final = re.compile(r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*?)\]?:([0-9]+)")
THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?")
DURATION: Final = (  # compiled when it is needed, which is rare
    r"(?P<sign>[+-])?P(?P<days>[+-]?\d+D)?"
    r"(?P<time>T(?P<hours>[+-]?\d+H)?(?P<minutes>[+-]?\d+M)?(?P<seconds>[+-]?\d+(\.\d{0,9})?S)?)?"
)
UNIT_MS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
BY_DURATION: Final = "by_duration:"
PORT_MAX: Final = 65535


def fault(validity: str, value: Value) -> str | None:
    """None when the value is valid, otherwise what would be."""
    if special := SPECIAL.get(validity):
        holds, words = special
        return None if holds(value) else words
    if isinstance(value, tuple):
        return list_fault(validity, value)
    if isinstance(value, str):
        return text_fault(validity, value)
    return range_fault(validity, value)


def range_fault(validity: str, value: float) -> str | None:
    bounds = RANGE.fullmatch(validity)
    if bounds is None:
        assert not validity, validity
        return None
    low, high = float(bounds["low"]), float(bounds["high"] or "inf")
    outside = value < low or value > high  # not the other way round: NaN is outside of nothing, as in Java
    if not outside or (bounds["or"] and value == float(bounds["or"])):
        return None
    words = f"a number from {bounds['low']} to {bounds['high']}" if bounds["high"] else f"a number of at least {bounds['low']}"
    return f"{words}, or {bounds['or']}" if bounds["or"] else words


def text_fault(validity: str, value: str) -> str | None:
    if validity == "not empty":
        return None if value else "a text that is not empty"
    words = WORDS.fullmatch(validity)
    if words is None:
        assert not validity, validity
        return None
    choices = words["words"].split(", ")
    if words["any_case"]:
        valid = value.upper() in [choice.upper() for choice in choices]
    else:
        valid = value in choices
    return None if valid else "one of " + ", ".join(choices)


def list_fault(validity: str, value: tuple[str, ...]) -> str | None:
    if not value:
        return "a list that is not empty" if validity.endswith("not empty") else None
    words = WORDS.fullmatch(validity)
    if words is None:
        return None if all(value) else "a list without empty entries"
    choices = words["words"].split(", ")
    return None if set(value) <= set(choices) else "a list of " + ", ".join(choices)


def is_address(text: str) -> bool:
    address = ADDRESS.fullmatch(text)
    return address is not None and int(address[2]) <= PORT_MAX


def are_addresses(value: Value) -> bool:
    assert isinstance(value, tuple)
    return all(is_address(entry) for entry in value)


def are_voters(value: Value) -> bool:
    assert isinstance(value, tuple)
    parts = [entry.partition("@") for entry in value]
    return all(re.fullmatch(r"[+-]?\d+", voter) and is_address(address) for voter, _, address in parts)


def are_throttled(value: Value) -> bool:
    assert isinstance(value, tuple)
    return "".join(value) == "*" or all(THROTTLED.fullmatch(entry) for entry in value)


def is_offset_reset(value: Value) -> bool:
    assert isinstance(value, str)
    return value in ("latest", "earliest") or duration_ms(value) is not None


def duration_ms(reset: str) -> int | None:
    """How far back `by_duration:PT1H` goes; None when the text is of another form."""
    if not reset.startswith(BY_DURATION):
        return None
    parts = re.fullmatch(DURATION, reset.removeprefix(BY_DURATION), re.ASCII | re.IGNORECASE)
    if parts is None or not any(parts[unit] for unit in UNIT_MS) or parts["time"] in ("T", "t"):
        return None
    total = sum(float(parts[unit][:-1]) * scale for unit, scale in UNIT_MS.items() if parts[unit])
    total = -total if parts["sign"] == "-" else total
    return None if total < 0 else int(total)


SPECIAL: Final[dict[str, tuple[Callable[[Value], bool], str]]] = {
    "addresses": (are_addresses, "a list of host:port"),
    "voters": (are_voters, "a list of id@host:port"),
    "throttled replicas": (are_throttled, "* or a list of partition:broker"),
    "offset reset": (is_offset_reset, "latest, earliest, or by_duration: and an ISO 8601 duration such as PT1H"),
}

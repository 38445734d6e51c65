"""One configuration key: its text becomes a value, its value a text, both as Apache Kafka does it.

Invariants
 1. `format(parse(text))` is what Apache Kafka shows for that text.
 2. A value that came out of `parse` is valid by itself; how keys go together is checked in checks.py, topic.py and group.py.
 3. The message of an InvalidConfig names the key, shows what was given unless it is secret, and says what would be valid.
"""

import re
from typing import Final, Literal

import msgspec

from odradek.core.config.validity import SPECIAL, Value, fault

Type = Literal["boolean", "int", "long", "short", "double", "string", "list", "class", "password"]
Mode = Literal["read-only", "per-broker", "cluster-wide"]

INTEGER_BITS: Final = {"short": 16, "int": 32, "long": 64}
JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java's trim takes away: not all that Python calls white
COMMA: Final = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")
INTEGER: Final = re.compile(r"[+-]?\d+")
DOUBLE: Final = r"([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?"  # compiled when it is needed
HEX_DOUBLE: Final = r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?"
DECIMAL_MIN: Final = 1e-3  # from the one to the other Java writes a double without an exponent
DECIMAL_MAX: Final = 1e7
DIGITS_MAX: Final = 100  # no number has so many, and Python converts no more than some thousand
SHOWN_CHARACTERS_MAX: Final = 200


class InvalidConfig(Exception):
    """A value that a key does not take, or values that do not go together."""


class Key(msgspec.Struct, frozen=True):
    """`default` is the text of the default, None where there is none. `synonyms` are broker keys that give the default."""

    name: str
    type: Type
    default: str | None
    is_required: bool = False
    validity: str = ""
    mode: Mode = "read-only"
    is_internal: bool = False
    is_dynamic_only: bool = False
    synonyms: tuple[str, ...] = ()
    documentation: str = ""

    @property
    def is_sensitive(self) -> bool:
        return self.type == "password"

    @property
    def default_value(self) -> Value | None:
        return None if self.default is None else self.parse(self.default)

    def parse(self, text: str) -> Value:
        """The value, or InvalidConfig."""
        try:
            value = read(self.type, text.strip(JAVA_BLANKS))
        except ValueError as error:
            raise self.invalid(text, str(error)) from None
        if isinstance(value, tuple) and self.validity not in SPECIAL:
            value = tuple(dict.fromkeys(value))
        if wanted := fault(self.validity, value):
            raise self.invalid(text, wanted)
        return value

    def invalid(self, text: str, wanted: str) -> InvalidConfig:
        shown = "the value that was given" if self.is_sensitive else repr(text[:SHOWN_CHARACTERS_MAX])
        return InvalidConfig(f"{self.name}: {shown} is not valid; it takes {wanted}")

    def format(self, value: Value | None) -> str | None:
        """A value as Apache Kafka writes it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return java_double(value)
        return ",".join(value) if isinstance(value, tuple) else str(value)


def read(type_: Type, text: str) -> Value:
    """The value of a trimmed text; ValueError says what the type takes."""
    match type_:
        case "short" | "int" | "long":
            return read_integer(text, INTEGER_BITS[type_])
        case "boolean":
            if text.lower() not in ("true", "false"):
                raise ValueError("true or false")
            return text.lower() == "true"
        case "double":
            return read_double(text)
        case "list":
            return tuple(COMMA.split(text)) if text else ()
        case _:
            return text


def read_integer(text: str, bits: int) -> int:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if not INTEGER.fullmatch(text) or len(text) > DIGITS_MAX or not low <= int(text) <= high:
        raise ValueError(f"a whole number from {low} to {high}")
    return int(text)


def read_double(text: str) -> float:
    if number := re.fullmatch(DOUBLE, text, re.ASCII):
        return float(number[1])
    if number := re.fullmatch(HEX_DOUBLE, text, re.ASCII):
        return float.fromhex(number[1])
    raise ValueError("a decimal number")


def java_double(value: float) -> str:
    """As Double.toString writes it: 0.5, 1.0E10, 1.7976931348623157E308."""
    if value == 0 or DECIMAL_MIN <= abs(value) < DECIMAL_MAX:
        return repr(value)
    from decimal import Decimal  # rarely needed, and it takes a while to import

    number = Decimal(repr(value))
    if not number.is_finite():
        return "NaN" if number.is_nan() else "Infinity" if value > 0 else "-Infinity"
    sign, digits, _ = number.as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{number.adjusted()}"

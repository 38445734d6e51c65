"""One JSON document as a row: what a schema makes of it. This decides what is bad; `json_decoder` only is faster.

As Spark's from_json: a field that is missing is null, one that is not in the schema is ignored, of one that is there twice
the last counts; whatever stands where a string should is that string; a timestamp may be seconds in a whole number; a
double may be "NaN", "INF" or "-INF" in quotes; bytes are base64; a value with nothing in it is null.
Unlike it: a field of another type makes the whole record bad; `null` is null, and no row of nulls; a value is one document
and nothing after it; quotes are double, and NaN stands in them; names of zones are not read; a tinyint ends at 127; what
stands for a string is as it was written, where Spark writes it anew.

Invariants
 1. the rows of a struct are tuples in the order of its fields, and nothing else: pyarrow takes them by place
"""

import base64
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pyspark.sql import types

from odradek.client.errors import InvalidOption
from odradek.spark.formats.moments import MICROSECONDS, days, microseconds

BLANKS: Final = b" \t\r\n"
NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
DIGITS: Final = Context(prec=60, rounding=ROUND_HALF_UP)  # a decimal of Spark has 38
INFINITE: Final = {
    "NaN": float("nan"),
    **dict.fromkeys(("INF", "+INF", "Infinity", "+Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
INTEGER_BITS: Final = {types.ByteType: 8, types.ShortType: 16, types.IntegerType: 32, types.LongType: 64}
MISSING: Final = msgspec.Raw(b"null")

Convert = Callable[[Any], Any]


class Part(NamedTuple):
    """What msgspec reads a type as, what that is where it is missing, and what is made of it if it is not what it should be."""

    shape: Any
    missing: msgspec.Raw | None = None
    convert: Convert | None = None


def row_reader(kind: types.DataType) -> Callable[[bytes], Any]:
    """What reads one document; it raises one of `rows.REFUSALS` where that is bad."""
    strict, lenient = (_reader(_part(kind, "$", is_lenient=is_lenient)) for is_lenient in (False, True))

    def row(value: bytes) -> Any:
        if not value.strip(BLANKS):
            return None
        value.decode()  # msgspec does not look into what it skips
        try:
            return strict(value)
        except msgspec.ValidationError:  # rarer than not, and slower: something else where a string should be
            return lenient(value)

    return row


def _reader(part: Part) -> Callable[[bytes], Any]:
    read = msgspec.json.Decoder(part.shape).decode
    return lambda value: _made(part.convert, read(value))


def _made(convert: Convert | None, found: Any) -> Any:
    return found if convert is None or found is None else convert(found)


def _part(kind: types.DataType, path: str, *, is_lenient: bool) -> Part:
    inner = partial(_part, is_lenient=is_lenient)
    match kind:
        case types.StructType():
            return _struct(kind, path, inner)
        case types.ArrayType():
            return _array(inner(kind.elementType, f"{path}[...]"))
        case types.MapType():
            if not isinstance(kind.keyType, types.StringType):
                raise InvalidOption(f"the map at {path} has keys of {kind.keyType.simpleString()}: in JSON they are strings")
            return _map(inner(kind.valueType, f"{path}[...]"))
        case types.BooleanType():
            return Part(bool | None)
        case types.ByteType() | types.ShortType() | types.IntegerType() | types.LongType():
            half = 1 << INTEGER_BITS[type(kind)] - 1
            return Part(Annotated[int, msgspec.Meta(ge=-half, le=half - 1)] | None)
        case types.FloatType() | types.DoubleType():
            return Part(float | str | None, None, _located(_float, path))
        case types.StringType() if type(kind) is types.StringType:
            return Part(msgspec.Raw, MISSING, _located(_text, path)) if is_lenient else Part(str | None)
        case types.BinaryType():
            return Part(str | None, None, _located(partial(base64.b64decode, validate=True), path))
        case types.DateType():
            return Part(str | None, None, _located(days, path))
        case types.TimestampType():
            return Part(str | int | None, None, _located(_timestamp, path))
        case types.TimestampNTZType():
            return Part(str | None, None, _located(partial(microseconds, may_have_zone=False), path))
        case types.DecimalType():
            return Part(msgspec.Raw, MISSING, _located(partial(_decimal, kind.scale), path))
    raise InvalidOption(f"the type {kind.simpleString()} at {path} is not read from JSON: use string, and cast it")


def _struct(kind: types.StructType, path: str, inner: Callable[[types.DataType, str], Part]) -> Part:
    names = kind.fieldNames()
    if not names or len(set(names)) != len(names):
        raise InvalidOption(f"the struct at {path} has fields {names}: it needs one at least, and each once")
    parts = [inner(field.dataType, f"{path}.{field.name}") for field in kind.fields]
    fields = [(f"f{place}", part.shape, part.missing) for place, part in enumerate(parts)]
    shape = msgspec.defstruct("Row", fields, rename={f"f{place}": name for place, name in enumerate(names)}, gc=False)
    converts = [part.convert for part in parts]
    return Part(shape | None, None, lambda found: tuple(map(_made, converts, msgspec.structs.astuple(found))))


def _array(part: Part) -> Part:
    convert = part.convert
    return Part(list[part.shape] | None, None, convert and (lambda items: [_made(convert, item) for item in items]))  # type: ignore[name-defined]


def _map(part: Part) -> Part:
    convert = part.convert
    return Part(dict[str, part.shape] | None, None, lambda items: [(key, _made(convert, item)) for key, item in items.items()])  # type: ignore[name-defined]


def _located(convert: Convert, path: str) -> Convert:
    """The same, with the place in its errors."""

    def made(found: Any) -> Any:
        try:
            return convert(found)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"{error} - at `{path}`") from error

    return made


def _text(found: msgspec.Raw) -> str | None:
    raw = bytes(found)
    if raw[:1] == b'"':
        return msgspec.json.decode(raw, type=str)
    return None if raw == b"null" else raw.decode()


def _timestamp(found: str | int) -> int:
    return found * MICROSECONDS if isinstance(found, int) else microseconds(found, may_have_zone=True)


def _decimal(scale: int, found: msgspec.Raw) -> Decimal | None:
    text = _text(found)
    if text is None:
        return None
    if not NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no number")
    try:
        return Decimal(text).quantize(Decimal(1).scaleb(-scale), context=DIGITS)
    except InvalidOperation:
        raise ValueError(f"{text[:40]!r} has too many digits") from None


def _float(found: float | str) -> float:
    if isinstance(found, str):
        if found not in INFINITE:
            raise ValueError("Expected `float`, got `str`")
        return INFINITE[found]
    return found

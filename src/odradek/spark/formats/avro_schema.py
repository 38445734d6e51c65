"""Avro's schemas as Spark's types, as Spark's own Avro reader maps them.

fastavro gets a schema that is the same on the wire, and simpler: no logical types, so that times stay numbers; and each
branch of a union that is not just "null or this" within a record of one field, which has no bytes of its own, and whose
name says which branch it was.

Invariants
 1. every item of an array or map takes a byte at least, so no value can claim more of them than it has bytes
"""

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

from pyspark.sql import types

from odradek.client.errors import InvalidOption

Convert = Callable[[Any], Any]
DECIMAL_DIGITS_MAX: Final = 38
EXACT: Final = Context(prec=100)

PRIMITIVES: Final[dict[str, types.DataType]] = {
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "bytes": types.BinaryType(),
}
TIMES: Final[dict[tuple[str, str], tuple[types.DataType, int]]] = {  # and microseconds, or days, in one
    ("int", "date"): (types.DateType(), 1),
    ("long", "timestamp-millis"): (types.TimestampType(), 1000),
    ("long", "timestamp-micros"): (types.TimestampType(), 1),
    ("long", "local-timestamp-millis"): (types.TimestampNTZType(), 1000),
    ("long", "local-timestamp-micros"): (types.TimestampNTZType(), 1),
}
WIDER: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


class Read(NamedTuple):
    """A type, how fastavro reads it, and what is then made of it, None if nothing is."""

    data_type: types.DataType
    wire: Any
    convert: Convert | None = None


def read_schema(text: str) -> Read:
    try:
        schema = json.loads(text)
    except ValueError:
        if text.strip() not in PRIMITIVES:
            raise InvalidOption(
                f"schema {text[:60]!r} is not JSON: give Avro's JSON, or @ and the path of a file with it"
            ) from None
        schema = text.strip()
    return _Reader().read(schema, "")


def _fail(problem: str) -> InvalidOption:
    return InvalidOption(f"the Avro schema cannot be used: {problem}")


class _Reader:
    def __init__(self) -> None:
        self.named: dict[str, Any] = {}
        self.open: list[str] = []  # the records that are being read
        self.count = 0

    def read(self, schema: Any, space: str) -> Read:
        if isinstance(schema, list):
            return self.union(schema, space)
        if isinstance(schema, str):
            schema = {"type": schema}
        if not isinstance(schema, dict) or "type" not in schema:
            raise _fail(f"{json.dumps(schema)[:60]} is no type")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.read(kind, space)
        match kind:
            case "record" | "error":
                return self.record(schema, space)
            case "array":
                item = self.read(schema.get("items"), space)
                data_type: types.DataType = types.ArrayType(item.data_type, True)
                return Read(data_type, {"type": "array", "items": item.wire}, _each(item.convert))
            case "map":
                item = self.read(schema.get("values"), space)
                data_type = types.MapType(types.StringType(), item.data_type, True)
                return Read(data_type, {"type": "map", "values": item.wire}, _each_value(item.convert))
            case "enum":
                full, _ = self.name(schema, space)
                symbols = schema.get("symbols")
                if not isinstance(symbols, list) or not symbols or not all(isinstance(symbol, str) for symbol in symbols):
                    raise _fail(f"enum {full} has no symbols")
                return Read(types.StringType(), {"type": "enum", "name": self.wire_name(), "symbols": symbols})
            case "fixed":
                return self.fixed(schema, space)
        return self.primitive(schema, kind, space)

    def primitive(self, schema: Any, kind: Any, space: str) -> Read:
        if kind not in PRIMITIVES:
            return self.again(kind, space)
        logical = schema.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema, "bytes")
        if (kind, logical) in TIMES:
            data_type, factor = TIMES[kind, logical]
            return Read(data_type, kind, None if factor == 1 else lambda number: number * factor)
        return Read(PRIMITIVES[kind], kind)

    def again(self, kind: Any, space: str) -> Read:
        """A type that was named before. It is read anew: fastavro knows each by another name each time."""
        if kind == "null":
            raise _fail("null stands alone, where only a union may have it")
        names = [name for name in (f"{space}.{kind}", kind) if name in self.named]
        if not names:
            raise _fail(f"type {kind!r} is not known")
        if names[0] in self.open:
            raise _fail(f"{names[0]} holds itself, and a type in Spark cannot")
        schema, schema_space = self.named[names[0]]
        return self.read(schema, schema_space)

    def name(self, schema: Any, space: str) -> tuple[str, str]:
        """A named type's full name, and the namespace in it."""
        short = schema.get("name")
        if not isinstance(short, str) or not short:
            raise _fail(f"{json.dumps(schema)[:60]} has no name")
        space = schema.get("namespace", space) or ""
        full = short if "." in short or not space else f"{space}.{short}"
        self.named[full] = (schema, space)
        return full, full.rpartition(".")[0]

    def wire_name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def record(self, schema: Any, space: str) -> Read:
        full, space = self.name(schema, space)
        if full in self.open:
            raise _fail(f"{full} holds itself, and a type in Spark cannot")
        self.open.append(full)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not fields or not all(isinstance(field, dict) and "name" in field for field in fields):
            raise _fail(f"record {full} has no fields")
        names = [field["name"] for field in fields]
        if len(set(names)) != len(names):
            raise _fail(f"record {full} has fields {names}, where each is there once")
        reads = [self.read(field.get("type"), space) for field in fields]
        self.open.pop()
        wire = {
            "type": "record",
            "name": self.wire_name(),
            "fields": [{"name": name, "type": read.wire} for name, read in zip(names, reads)],
        }
        data_type = types.StructType([types.StructField(name, read.data_type, True) for name, read in zip(names, reads)])
        return Read(data_type, wire, _each_field({name: read.convert for name, read in zip(names, reads) if read.convert}))

    def fixed(self, schema: Any, space: str) -> Read:
        full, _ = self.name(schema, space)
        size = schema.get("size")
        if not isinstance(size, int) or size < 1:
            raise _fail(f"fixed {full} has size {size}, where it is 1 at least")
        wire = {"type": "fixed", "name": self.wire_name(), "size": size}
        if schema.get("logicalType") == "decimal":
            return _decimal(schema, wire)
        return Read(types.BinaryType(), wire)

    def union(self, branches: list[Any], space: str) -> Read:
        others = [branch for branch in branches if branch != "null"]
        if not others:
            raise _fail(f"union {json.dumps(branches)} has nothing but null")
        plain = frozenset(branch for branch in others if isinstance(branch, str))
        if len(others) == 1 or (len(plain) == len(others) and plain in WIDER):
            reads = [self.read(branch, space) for branch in others]
            wire = iter([read.wire for read in reads])
            data_type = PRIMITIVES[WIDER[plain]] if len(others) > 1 else reads[0].data_type
            return Read(data_type, [branch if branch == "null" else next(wire) for branch in branches], reads[0].convert)
        return self.members(branches, space)

    def members(self, branches: list[Any], space: str) -> Read:
        fields: list[types.StructField] = []
        wires: list[Any] = []
        converts: dict[str, Convert] = {}
        for branch in branches:
            if branch == "null":
                wires.append("null")
                continue
            member, read = f"member{len(fields)}", self.read(branch, space)
            fields.append(types.StructField(member, read.data_type, True))
            wires.append({"type": "record", "name": self.wire_name(), "fields": [{"name": member, "type": read.wire}]})
            if read.convert:
                converts[member] = read.convert
        return Read(types.StructType(fields), wires, _each_field(converts))


def _decimal(schema: Any, wire: Any) -> Read:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        raise _fail(f"decimal({precision}, {scale}) is none")
    if precision > DECIMAL_DIGITS_MAX:
        raise _fail(f"a decimal has {precision} digits, and {DECIMAL_DIGITS_MAX} at most in Spark")

    def made(number: bytes) -> Decimal:
        return Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-scale, EXACT)

    return Read(types.DecimalType(precision, scale), wire, made)


def _each(convert: Convert | None) -> Convert | None:
    return convert and (lambda items: [None if item is None else convert(item) for item in items])


def _each_value(convert: Convert | None) -> Convert:
    if convert is None:
        return lambda items: list(items.items())
    return lambda items: [(key, None if item is None else convert(item)) for key, item in items.items()]


def _each_field(converts: dict[str, Convert]) -> Convert | None:
    """A record whose fields are made into something, in place; a union's record has one of them alone."""

    def made(record: dict[str, Any]) -> dict[str, Any]:
        for name, convert in converts.items():
            if record.get(name) is not None:
                record[name] = convert(record[name])
        return record

    return made if converts else None

"""Spark's DDL for types, read in Python: pyspark asks the JVM, which the process that plans a Python source has not.

    order_id string, amount decimal(10, 2) NOT NULL COMMENT 'in euros', tags array<string>, place struct<x: int, y: int>

A text that is one type alone, `array<int>` or `struct<...>`, is that type; names with other characters stand in backquotes.
"""

import re
from typing import Final, NoReturn

from pyspark.sql import types

from odradek.client.errors import InvalidOption

TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))", re.UNICODE)
DEPTH_MAX: Final = 100
DECIMAL_PRECISION, DECIMAL_SCALE = 10, 0  # of a decimal that does not say
DECIMAL_PRECISION_MAX: Final = 38

ATOMS: Final[dict[str, types.DataType]] = {
    "boolean": types.BooleanType(),
    "byte": types.ByteType(),
    "tinyint": types.ByteType(),
    "short": types.ShortType(),
    "smallint": types.ShortType(),
    "int": types.IntegerType(),
    "integer": types.IntegerType(),
    "long": types.LongType(),
    "bigint": types.LongType(),
    "float": types.FloatType(),
    "real": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ltz": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
}
NESTED: Final = ("array", "map", "struct")


def parse(text: str) -> types.DataType:
    """The type that a text describes: a list of columns is a struct."""
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, bool]] = []  # and whether it may be a keyword: a name in backquotes may not
        self.index = 0
        self.depth = 0
        position = 0
        while text[position:].strip():
            found = TOKEN.match(text, position)
            if found is None:
                self.fail(f"cannot be read from {text[position : position + 20]!r} on")
            quoted, *others = found.groups()
            self.tokens.append((quoted.replace("``", "`"), False) if quoted else (next(filter(None, others)), True))
            position = found.end()

    def fail(self, problem: str) -> NoReturn:
        raise InvalidOption(f"schema {self.text!r} {problem}: it is like 'id string, amount decimal(10,2), tags array<string>'")

    def whole(self) -> types.DataType:
        if self._is_type_alone():
            kind = self.type()
        else:
            kind = types.StructType(self.fields(None))
        if self.index < len(self.tokens):
            self.fail(f"has {self.tokens[self.index][0]!r} where it should end")
        return kind

    def _is_type_alone(self) -> bool:
        words = [word.lower() for word, _ in self.tokens[:2]]
        return len(words) == 1 or (len(words) == 2 and words[1] in "<(")

    def peek(self, *words: str) -> bool:
        if self.index >= len(self.tokens):
            return False
        word, is_plain = self.tokens[self.index]
        return is_plain and word.lower() in words

    def take(self, *words: str) -> bool:
        found = self.peek(*words)
        self.index += found
        return found

    def need(self, word: str) -> None:
        if not self.take(word):
            self.fail(f"lacks {word!r} {self.place()}")

    def place(self) -> str:
        return f"before {self.tokens[self.index][0]!r}" if self.index < len(self.tokens) else "at its end"

    def name(self) -> str:
        if self.index >= len(self.tokens) or self.peek(*"<>(),:"):
            self.fail(f"lacks a name {self.place()}")
        self.index += 1
        return self.tokens[self.index - 1][0]

    def fields(self, end: str | None) -> list[types.StructField]:
        found: list[types.StructField] = []
        while not (end and not found and self.peek(end)):
            name = self.name()
            self.take(":")
            kind = self.type()
            is_nullable = True
            if self.take("not"):
                self.need("null")
                is_nullable = False
            if self.take("comment"):
                self.name()
            found.append(types.StructField(name, kind, is_nullable))
            if not self.take(","):
                break
        return found

    def type(self) -> types.DataType:
        word = self.name().lower()
        if word in NESTED:
            return self.nested(word)
        if word in ("decimal", "dec", "numeric"):
            return self.decimal()
        if word not in ATOMS:
            self.fail(f"has type {word!r}, which is none of {', '.join([*ATOMS, 'decimal', *NESTED])}")
        return ATOMS[word]

    def nested(self, word: str) -> types.DataType:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.fail(f"is nested deeper than {DEPTH_MAX}")
        self.need("<")
        kind: types.DataType
        if word == "array":
            kind = types.ArrayType(self.type())
        elif word == "map":
            key = self.type()
            self.need(",")
            kind = types.MapType(key, self.type())
        else:
            kind = types.StructType(self.fields(">"))
        self.need(">")
        self.depth -= 1
        return kind

    def decimal(self) -> types.DataType:
        precision, scale = DECIMAL_PRECISION, DECIMAL_SCALE
        if self.take("("):
            precision = self.number()
            scale = self.number() if self.take(",") else 0
            self.need(")")
        if not 0 < precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
            self.fail(f"has decimal({precision},{scale}), where 1 to 38 digits can be, and no more of them after the point")
        return types.DecimalType(precision, scale)

    def number(self) -> int:
        word = self.name()
        if not (word.isascii() and word.isdecimal()):
            self.fail(f"has {word!r} where a number is needed")
        return int(word)

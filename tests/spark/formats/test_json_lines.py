"""Many documents at once: the same as one by one, and each at its place, whatever stands beside it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.spark.formats import decoder
from odradek.spark.formats.ddl import parse
from odradek.spark.formats.json_kernel import DEPTH_MAX
from odradek.spark.formats.json_lines import lines_type, read_lines
from odradek.spark.formats.json_rows import row_reader
from odradek.spark.formats.rows import decode_rows
from odradek.spark.formats.schema import arrow_type
from tests.spark.formats.columns import column, decoded

FIELDS = {
    "b": "boolean",
    "y": "tinyint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "s": "string",
    "t": "timestamp",
    "z": "timestamp_ntz",
    "a": "date",
    "m": "decimal(10,2)",
    "r": "array<date>",
    "o": "struct<i: int, s: string>",
}
DDL = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
KIND = arrow_type(parse(DDL))
READ_AS = lines_type(KIND)
READ = row_reader(parse(DDL))

TIMES = st.from_regex(
    r"[1-8]\d{3}-[01]\d-[0-3]\d([T ][0-2]\d(:?[0-6]\d(:?[0-6]\d(\.\d{0,7})?)?)?)?(Z|[+-]\d\d(:?\d\d)?)?", fullmatch=True
)
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.integers(-200, 200).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9]\d{0,11})(\.\d{1,4})?([eE][+-]?\d{1,3})?", fullmatch=True).filter(str.isascii),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "-", "01", "1.", "-0", "1e400", "0x1"]),
)
TEXTS = st.one_of(
    st.text().map(json.dumps),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    TIMES.filter(str.isascii).map(json.dumps),
    NUMBERS.map(lambda number: f'"{number}"'),
    st.sampled_from(
        ['"\\ud800"', '"\\u0000"', '"\t"', '"\\x"', '"', "'a'", '"\x7f"', '" 1"', '"+1"', '"1_0"', '".5"', '"5."', '""']
    ),
)
SCALARS = st.one_of(NUMBERS, TEXTS, st.sampled_from(["null", "true", "false", "nul", "True", "{}", "[]"]))
SPACES = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\x01", "\x0b", "\xa0", "\ufeff", "//c\n", ","])


def texts_of(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    keys = st.one_of(st.sampled_from(list(FIELDS)).map(json.dumps), st.sampled_from(['"x"', '"\\u0069"', '""', "i"]))
    members = st.lists(st.tuples(SPACES, keys, values, SPACES), max_size=5)
    objects = members.map(lambda found: "{" + ",".join(f"{a}{key}:{value}{b}" for a, key, value, b in found) + "}")
    return objects | st.lists(values, max_size=4).map(lambda items: f"[{','.join(items)}]")


DOCUMENTS = texts_of(st.recursive(SCALARS, texts_of, max_leaves=6)).map(str.encode)
FITTING = {
    "b": st.sampled_from(["true", "false"]),
    "y": st.integers(-128, 127).map(str),
    "i": NUMBERS,
    "l": NUMBERS,
    "f": NUMBERS,
    "d": NUMBERS,
    "s": TEXTS,
    "t": TIMES.map(json.dumps),
    "z": TIMES.map(json.dumps),
    "a": TIMES.map(json.dumps),
    "m": NUMBERS | TEXTS,
    "r": st.lists(TIMES.map(json.dumps) | st.just("null"), max_size=3).map(lambda items: f"[{','.join(items)}]"),
    "o": st.tuples(NUMBERS, TEXTS).map(lambda pair: f'{{"i":{pair[0]},"s":{pair[1]}}}'),
}
FITTING_DOCUMENTS = st.one_of(
    [values.map(lambda value, name=name: f'{{"{name}":{value}}}'.encode()) for name, values in FITTING.items()]  # type: ignore[misc]
)


def same_as_alone(value: bytes) -> bool:
    """Whether Arrow's reader takes a document, which then must be what the other reader makes of it."""
    lines = read_lines(column([value]), KIND, READ_AS)
    if lines is None or lines.odd:
        return False
    rows, bad = decode_rows([value], READ, KIND)
    assert not bad, bad
    assert lines.array.equals(rows)
    return True


@given(FITTING_DOCUMENTS | DOCUMENTS)
@settings(max_examples=1500, deadline=None)
def test_what_arrow_takes_is_what_it_is_alone(value: bytes) -> None:
    same_as_alone(value)


@given(st.data(), FITTING_DOCUMENTS | DOCUMENTS)
@settings(max_examples=800, deadline=None)
def test_what_arrow_takes_of_broken_documents_is_what_it_is_alone(drawn: st.DataObject, value: bytes) -> None:
    changed = bytearray(value)
    for _ in range(drawn.draw(st.integers(1, 3))):
        place = drawn.draw(st.integers(0, len(changed)))
        size = drawn.draw(st.integers(0, 2))
        changed[place : place + size] = drawn.draw(
            st.sampled_from([b"", *(bytes([n]) for n in b'{}[]",:\\\n 0-.eNIn\x00\xff\xc3'), b"null"])
        )
    same_as_alone(bytes(changed))


@pytest.mark.parametrize(
    "value",
    [
        b'{"i":1}',
        b' {"s":"\\u00e9\\n"}\r\n',
        b'{"t":"2024-03-01T12:30:05.5+02:00"}',
        b'{\n"x":[{"]":"}"}],\n"a":"2024-03-01"}',
        b'{"t":"0000-01-01T00:00:00+01:00"}',
        b'{"t":"9999-12-31T23:59:59-01:00"}',
        b'{"a":"0000-02-29"}',
        b'{"m":99999999.99}',
    ],
)
def test_arrow_takes_what_is_usual(value: bytes) -> None:
    assert same_as_alone(value)


def document(number: int) -> bytes:
    return b'{"n": %d, "s": "row %d", "more": {"x": [1, "}{"]}}' % (number, number)


TRAPS: list[Callable[[int], bytes]] = [
    lambda n: document(n) + document(n + 1),
    lambda n: document(n) + b"\n" + document(n),
    lambda n: b'{"n": %d,' % n,
    lambda n: b'"s": "rest"}',
    lambda n: b'{"n": %d, "s": "' % n,
    lambda n: b'"}',
    lambda n: b'{"n": %d, "more": [' % n,
    lambda n: b"]}",
    lambda n: b'{"n": %d}}{"n": %d' % (n, n + 1),
    lambda n: b'{"n": %d]' % n,
    lambda n: b"}" + document(n) + b"{",
    lambda n: b"",
    lambda n: b" \n ",
    lambda n: b"null",
    lambda n: b"[" + document(n) + b"]",
    lambda n: b"%d" % n,
    lambda n: b"\xff" + document(n),
    lambda n: b'{"n": %d, "x": "\xc3"}' % n,
    lambda n: b'{"n": "%d"}' % n,
    lambda n: b'{"n": 3000000000}',
    lambda n: b'{"x": ' + b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1) + b', "n": %d}' % n,
    lambda n: b"[" * 100_000,
    lambda n: b'{"n": 0, "n": %d}' % n,
    lambda n: b'{"n": %d, "s": 5}' % n,
    lambda n: b'{"n": %d, "s": "\\' % n,
]
LINED = decoder("json", "n int, s string")


def judged(value: bytes | None) -> Any:
    """The number that a value has by Python's own reader; None if there is none to have."""
    try:
        found = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    number = found.get("n") if isinstance(found, dict) else None
    return number if isinstance(number, int) and abs(number) < 1 << 31 else None


@given(st.data(), st.integers(65, 300), st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_rows_stay_at_their_places_among_halves_and_doubles(drawn: st.DataObject, count: int, trap_count: int) -> None:
    values: list[bytes | None] = [document(n) for n in range(count)]
    for place in drawn.draw(st.lists(st.integers(0, count - 1), min_size=trap_count, max_size=trap_count)):
        trap = drawn.draw(st.sampled_from(TRAPS))
        values[place] = drawn.draw(st.sampled_from([None, trap(place), trap(place)]))
        if place + 1 < count and drawn.draw(st.booleans()):
            values[place + 1] = drawn.draw(st.sampled_from(TRAPS))(place + 1)
    rows, bad = decoded(LINED, values)
    assert [row and row["n"] for row in rows] == [judged(value) for value in values]
    quiet = [None, b"", b" \n ", b"null"]
    assert set(bad) == {row for row, found in enumerate(rows) if found is None and values[row] not in quiet}


def shown(rows: list[Any]) -> str:
    """As text, where NaN is NaN; zero has no sign, for -0 may be a whole number before it is a double."""
    return re.sub(r"-0\.0(?!\d)", "0.0", str(rows))


@given(st.lists(DOCUMENTS | st.none() | st.sampled_from(TRAPS).map(lambda trap: trap(1)), min_size=65, max_size=90))
@settings(max_examples=60, deadline=None)
def test_a_row_is_the_same_in_any_company(values: list[bytes | None]) -> None:
    each = decoder("json", DDL)
    rows, bad = decoded(each, values)
    alone = [decoded(each, [value]) for value in values]
    assert shown(rows) == shown([found for [found], _ in alone])
    assert bad == {row: errors[0] for row, (_, errors) in enumerate(alone) if errors}


def test_one_bad_record_among_very_many_costs_no_other() -> None:
    values = [document(n) for n in range(40_000)]
    values[23_456] = b'{"n": "no"}'
    rows, bad = decoded(LINED, values)
    assert [row and row["n"] for row in rows] == [None if n == 23_456 else n for n in range(40_000)]
    assert list(bad) == [23_456]
    assert "$.n" in bad[23_456]


def test_a_column_of_nothing_but_nulls_or_odd_rows_is_null() -> None:
    assert decoded(LINED, [None] * 100) == ([None] * 100, {})
    rows, bad = decoded(LINED, [b"nonsense"] * 100)
    assert (rows, list(bad)) == ([None] * 100, list(range(100)))
    assert decoded(LINED, []) == ([], {})


def test_an_array_has_no_more_than_its_rows() -> None:
    """A slice of a large column is decoded, and nothing around it."""
    values = pa.array([b"{", *[document(n) for n in range(100)], b"}"], pa.binary())
    array, bad = LINED.decode(values.slice(11, 70))
    assert [row["n"] for row in array.to_pylist()] == list(range(10, 80))
    assert not bad

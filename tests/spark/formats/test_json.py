"""JSON: what a document means, type by type, and what makes it bad."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StructType

from odradek.client.errors import InvalidOption
from odradek.spark.formats import decoder
from tests.spark.formats.columns import decoded


def field(kind: str, value: str, *, copies: int = 1) -> tuple[Any, str | None]:
    """What becomes of a field of a type, and what is said of it. Of many copies of it, at once; of one, alone."""
    rows, bad = decoded(decoder("json", f"v {kind}"), [b'{"v": %s}' % value.encode()] * copies)
    assert all(row == rows[0] or kind in ("double", "float") for row in rows)
    assert len(bad) in (0, copies)
    return rows[0] and rows[0]["v"], bad.get(0)


@pytest.fixture(params=[1, 100], ids=["alone", "at once"])
def copies(request: pytest.FixtureRequest) -> int:
    return int(request.param)


NOON = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("boolean", "true", True),
        ("tinyint", "-128", -128),
        ("smallint", "32767", 32767),
        ("int", "-2147483648", -(2**31)),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("float", "0.1", 0.10000000149011612),
        ("double", "1", 1.0),
        ("double", "1.5e3", 1500.0),
        ("double", '"-INF"', float("-inf")),
        ("string", '"a\\u00e9\\n\\ud83d\\ude00"', "aé\n😀"),
        ("string", "1.10", "1.10"),
        ("string", '{"a": [1, 2]}', '{"a": [1, 2]}'),
        ("string", "true", "true"),
        ("string", "null", None),
        ("binary", '"AAEC"', b"\0\1\2"),
        ("date", '"2024-03-01"', date(2024, 3, 1)),
        ("date", '"2024-3-1"', date(2024, 3, 1)),
        ("date", '"2024-03-01T12:00:00Z"', date(2024, 3, 1)),
        ("timestamp", '"2024-03-01T12:00:00Z"', NOON),
        ("timestamp", '"2024-03-01T12:00:00"', NOON),
        ("timestamp", '"2024-03-01 12:00"', NOON),
        ("timestamp", '"2024-03-01T14:00:00+02:00"', NOON),
        ("timestamp", '"2024-03-01T06:30:00.000-0530"', NOON),
        ("timestamp", '"2024-03-01T12:00:00.123456789Z"', NOON.replace(microsecond=123456)),
        ("timestamp", "1709294400", NOON),
        ("timestamp", '"1950-01-01"', datetime(1950, 1, 1, tzinfo=UTC)),
        ("timestamp_ntz", '"2024-03-01T12:00:00.5"', datetime(2024, 3, 1, 12, 0, 0, 500000)),  # noqa: DTZ001
        ("decimal(10,2)", "12.3", Decimal("12.30")),
        ("decimal(10,2)", '"12.3"', Decimal("12.30")),
        ("decimal(10,2)", "12.345", Decimal("12.35")),
        ("decimal(38,10)", "1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
        ("array<int>", "[1, null, 3]", [1, None, 3]),
        ("array<array<string>>", '[["a"], [], null]', [["a"], [], None]),
        ("array<decimal(3,1)>", "[1, null]", [Decimal("1.0"), None]),
        ("struct<x: int, y: struct<z: string>>", '{"y": {"z": "a"}}', {"x": None, "y": {"z": "a"}}),
        ("struct<x: int>", "null", None),
        ("map<string,int>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("map<string,struct<d: date>>", '{"a": {"d": "2024-03-01"}}', [("a", {"d": date(2024, 3, 1)})]),
        ("array<map<string,binary>>", '[{"a": "AA=="}]', [[("a", b"\0")]]),
    ],
)
def test_a_value_is_read_as_its_type(kind: str, value: str, wanted: Any, copies: int) -> None:
    assert field(kind, value, copies=copies) == (wanted, None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("boolean", '"true"'),
        ("boolean", "1"),
        ("tinyint", "128"),
        ("int", "2147483648"),
        ("int", "1.0"),
        ("int", '"1"'),
        ("bigint", "9223372036854775808"),
        ("double", '"1.5"'),
        ("double", "1e400"),
        ("double", "NaN"),
        ("string", '"\\ud800"'),
        ("binary", '"A"'),
        ("binary", "5"),
        ("date", "5"),
        ("date", '"2024-02-30"'),
        ("date", '"2024-03-01x"'),
        ("timestamp", '"noon"'),
        ("timestamp", "1.5"),
        ("timestamp", '"2024-03-01T25:00:00Z"'),
        ("timestamp", '"2024-03-01T12:00:00+99:00"'),
        ("timestamp", "99999999999999999999"),
        ("timestamp_ntz", '"2024-03-01T12:00:00Z"'),
        ("decimal(10,2)", "123456789"),
        ("decimal(10,2)", '"NaN"'),
        ("decimal(10,2)", '"1_0"'),
        ("decimal(10,2)", "1e999999"),
        ("array<int>", "1"),
        ("array<int>", '[1, "2"]'),
        ("struct<x: int>", "[]"),
        ("map<string,int>", '{"a": "1"}'),
    ],
)
def test_what_is_of_another_type_makes_the_record_bad_and_says_where(kind: str, value: str, copies: int) -> None:
    found, error = field(kind, value, copies=copies)
    assert found is None
    assert error


def test_errors_say_where() -> None:
    assert "$.v" in (field("date", '"x"')[1] or "")
    assert "$.v.x" in (field("struct<x: int>", '{"x": "1"}')[1] or "")


@pytest.mark.parametrize("copies", [1, 100])
def test_fields_may_be_missing_unknown_or_there_twice(copies: int) -> None:
    each = decoder("json", "a int, `b c` string NOT NULL")
    assert not [field for field in each.data_type if not field.nullable]  # type: ignore[attr-defined]
    rows, bad = decoded(each, [b'{"x": {"a": 7}, "b c": "s", "a": 1, "a": 2}', b"{}", b'{"A": 1}'] * copies)
    assert rows == [{"a": 2, "b c": "s"}, {"a": None, "b c": None}, {"a": None, "b c": None}] * copies
    assert not bad


@pytest.mark.parametrize(
    "value",
    [
        b"[1]",
        b'[{"a": 1}]',
        b"1",
        b'"a"',
        b"{",
        b'{"a": 1}}',
        b'{"a": 1} {"a": 2}',
        b'{"a": 1} x',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"x": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"x": NaN}',
        b'{"x": "\n"}',
        b"[" * 1000000,
        b'{"x":' * 1000000,
    ],
    ids=lambda value: repr(value[:20]),
)
@pytest.mark.parametrize("ddl", ["a int", "a int, m map<string,int>"], ids=["at once", "alone"])
def test_what_is_not_one_object_is_bad(value: bytes, ddl: str) -> None:
    good = [b'{"a": %d}' % n for n in range(50)]
    rows, bad = decoded(decoder("json", ddl), [*good, value, *good])
    assert [row and row["a"] for row in rows] == [*range(50), None, *range(50)]
    assert list(bad) == [50]


@pytest.mark.parametrize("copies", [1, 100])
def test_null_and_nothing_at_all_are_null_as_with_spark(copies: int) -> None:
    assert decoded(decoder("json", "a int"), [b"null", b"", b" \n", None] * copies) == ([None] * 4 * copies, {})


def test_a_schema_may_be_the_json_of_a_type_or_no_struct_at_all() -> None:
    kind = StructType().add("a", ArrayType(IntegerType(), False), False)
    rows, bad = decoded(decoder("json", json.dumps(kind.jsonValue())), [b'{"a": [1, null]}'])
    assert (rows, bad) == ([{"a": [1, None]}], {})
    assert decoded(decoder("json", "array<int>"), [b"[1]", b"{}"])[0] == [[1], None]
    assert decoded(decoder("json", "map<string,int>"), [b'{"a": 1}'])[0] == [[("a", 1)]]


@pytest.mark.parametrize(
    "schema",
    [
        "a map<int,int>",
        "a int, a string",
        "a struct<>",
        "a void",
        "a varchar(3)",
        "a",
        '{"type": "struct"}',
        '{"a": 1}',
        '{"type"',
        '"what"',
        json.dumps(StructType().jsonValue()),
        '{"type":"struct","fields":[{"name":"a","type":"variant","nullable":true,"metadata":{}}]}',
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(InvalidOption):
        decoder("json", schema)

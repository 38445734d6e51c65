"""Avro: fastavro writes, the schema's types are Spark's."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.errors import InvalidOption
from odradek.spark.formats import decoder
from tests.spark.formats.columns import decoded

FIXED: Any = {"type": "fixed", "name": "Four", "size": 4}
ENUM: Any = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
MOMENT = datetime(2024, 3, 1, 12, 0, 5, 123000, tzinfo=UTC)
PLAIN = MOMENT.replace(tzinfo=None)


def record(*types: Any) -> Any:
    fields = [{"name": f"f{place}", "type": kind} for place, kind in enumerate(types)]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


def written(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


@pytest.mark.parametrize(
    ("schema", "datum", "wanted", "kind"),
    [
        ("boolean", True, True, "boolean"),
        ("int", -5, -5, "int"),
        ("long", -(2**63), -(2**63), "bigint"),
        ("float", 0.5, 0.5, "float"),
        ("double", 0.1, 0.1, "double"),
        ("string", "é", "é", "string"),
        ("bytes", b"\xff", b"\xff", "binary"),
        (FIXED, b"abcd", b"abcd", "binary"),
        (ENUM, "GREEN", "GREEN", "string"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=5), str(UUID(int=5)), "string"),
        ({"type": "int", "logicalType": "date"}, date(1960, 3, 1), date(1960, 3, 1), "date"),
        ({"type": "int", "logicalType": "time-millis"}, 5, 5, "int"),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, MOMENT, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, MOMENT, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, PLAIN, PLAIN, "timestamp_ntz"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, PLAIN, PLAIN, "timestamp_ntz"),
        ({"type": "long", "logicalType": "made-up"}, 5, 5, "bigint"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-1.25"),
            Decimal("-1.25"),
            "decimal(9,2)",
        ),
        ({**FIXED, "logicalType": "decimal", "precision": 9}, Decimal(-7), Decimal(-7), "decimal(9,0)"),
        (["null", "string"], None, None, "string"),
        (["string", "null"], "a", "a", "string"),
        (["null", {"type": "long", "logicalType": "timestamp-millis"}], MOMENT, MOMENT, "timestamp"),
        (["int", "long"], 2**40, 2**40, "bigint"),
        (["null", "float", "double"], 0.1, 0.1, "double"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None], "array<int>"),
        ({"type": "map", "values": "int"}, {"a": 1}, [("a", 1)], "map<string,int>"),
        (
            {"type": "map", "values": {"type": "map", "values": "int"}},
            {"a": {"b": 1}},
            [("a", [("b", 1)])],
            "map<string,map<string,int>>",
        ),
        (
            {"type": "array", "items": {"type": "int", "logicalType": "date"}},
            [date(2024, 3, 1)],
            [date(2024, 3, 1)],
            "array<date>",
        ),
        (["int", "string"], 5, {"member0": 5, "member1": None}, "struct<member0:int,member1:string>"),
        (["null", "int", "string"], "a", {"member0": None, "member1": "a"}, "struct<member0:int,member1:string>"),
        (["null", "int", "string"], None, None, "struct<member0:int,member1:string>"),
    ],
)
def test_a_type_is_what_spark_makes_of_it(schema: Any, datum: Any, wanted: Any, kind: str) -> None:
    plain = decoder("avro", json.dumps(schema))
    assert plain.data_type.simpleString() == kind
    assert decoded(plain, [written(schema, datum), None]) == ([wanted, None], {})
    within = decoder("avro", json.dumps(record("int", schema)))
    value = written(record("int", schema), {"f0": 1, "f1": datum})
    assert decoded(within, [value] * 3) == ([{"f0": 1, "f1": wanted}] * 3, {})


def test_branches_of_a_union_that_look_alike_are_told_apart() -> None:
    schema = record(["int", "long", "string", ENUM, record("int") | {"name": "A"}, record("int") | {"name": "B"}])
    each = decoder("avro", json.dumps(schema))
    value = b"\x02\x0a", b"\x06\x02", b"\x0a\x0e"  # the long 5, GREEN, a B with 7: what fastavro's values do not tell
    rows, bad = decoded(each, value)
    assert [{key: found for key, found in row["f0"].items() if found is not None} for row in rows] == [
        {"member1": 5},
        {"member3": "GREEN"},
        {"member5": {"f0": 7}},
    ]
    assert not bad


def test_a_name_stands_for_what_it_was_given_to() -> None:
    schema = record({**record("int"), "name": "Line"}, "Line", {"type": "array", "items": "shop.Line"}, ENUM, "Colour")
    each = decoder("avro", json.dumps(schema))
    row = {"f0": {"f0": 1}, "f1": {"f0": 2}, "f2": [{"f0": 3}], "f3": "RED", "f4": "GREEN"}
    assert decoded(each, [written(schema, row)]) == ([row], {})


def test_bad_records_cost_no_others() -> None:
    schema = record("string", "int", {"type": "bytes", "logicalType": "decimal", "precision": 4})
    good = written(schema, {"f0": "abc", "f1": 1, "f2": Decimal(12)})
    too_long = written(record("string", "int", "bytes"), {"f0": "", "f1": 1, "f2": b"\x7f" * 9})
    too_large = written(record("string", "long", "bytes"), {"f0": "", "f1": 2**40, "f2": b""})
    values = [good, good[:-1], b"", good + b"\0", b"\x06\xff\xff\xff\x02\x02\x0c", too_long, too_large, None, good, b"\xff" * 20]
    rows, bad = decoded(decoder("avro", json.dumps(schema)), values)
    assert [row is not None for row in rows] == [value is good for value in values]
    assert set(bad) == {row for row, value in enumerate(values) if value not in (good, None)}
    assert "another schema" in bad[3]


@given(st.lists(st.binary(max_size=40), max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_record_or_bad(values: list[bytes]) -> None:
    schema = record(
        ["null", "string", "int"], {"type": "array", "items": ENUM}, {"type": "map", "values": FIXED}, "double", "boolean"
    )
    decoded(decoder("avro", json.dumps(schema)), values)


def test_a_registrys_header_is_taken_off_where_the_format_says_so() -> None:
    each = decoder("avro-confluent", '"string"')
    rows, bad = decoded(each, [b"\0\0\0\0\x07\x02a", b"\x02a", b"\0\0\0", b"\0\0\0\0\x07"])
    assert rows == ["a", None, None, None]
    assert list(bad) == [1, 2, 3]


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(record("int")))
    assert decoded(decoder("avro", f"@{tmp_path}/order.avsc"), [b"\x02"]) == ([{"f0": 1}], {})
    with pytest.raises(InvalidOption, match=r"none\.avsc.*driver"):
        decoder("avro", f"@{tmp_path}/none.avsc")


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "5",
        '"null"',
        '"what"',
        '["null"]',
        '{"type": "array"}',
        '{"type": "record", "name": "A"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "A", "fields": []}',
        '{"type": "fixed", "name": "A", "size": 0}',
        '{"type": "enum", "name": "A"}',
        '{"type": "bytes", "logicalType": "decimal", "precision": 39}',
        '{"type": "bytes", "logicalType": "decimal"}',
        '{"type": "record", "name": "A", "fields": [{"name": "next", "type": ["null", "A"]}]}',
        '{"type": "record", "name": "A", "fields": [{"name": "a b", "type": "int"}, {"name": "a b", "type": "int"}]}',
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(InvalidOption):
        decoder("avro", schema)

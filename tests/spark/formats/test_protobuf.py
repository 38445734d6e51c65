"""Protocol Buffers: the types and rows are those of Spark's from_protobuf."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.errors import InvalidOption
from odradek.spark.formats import decoder
from tests.spark.formats.columns import decoded

F = FieldDescriptorProto
SCALARS = {
    "double": (F.TYPE_DOUBLE, 0.1, "double"),
    "float": (F.TYPE_FLOAT, 0.5, "float"),
    "int64": (F.TYPE_INT64, -(2**63), "bigint"),
    "uint64": (F.TYPE_UINT64, 5, "bigint"),
    "int32": (F.TYPE_INT32, -5, "int"),
    "fixed64": (F.TYPE_FIXED64, 5, "bigint"),
    "fixed32": (F.TYPE_FIXED32, 5, "int"),
    "bool": (F.TYPE_BOOL, True, "boolean"),
    "string": (F.TYPE_STRING, "é", "string"),
    "bytes": (F.TYPE_BYTES, b"\xff", "binary"),
    "uint32": (F.TYPE_UINT32, 5, "int"),
    "sfixed32": (F.TYPE_SFIXED32, -5, "int"),
    "sfixed64": (F.TYPE_SFIXED64, -5, "bigint"),
    "sint32": (F.TYPE_SINT32, -5, "int"),
    "sint64": (F.TYPE_SINT64, -5, "bigint"),
}


def add(
    message: DescriptorProto, name: str, kind: Any, type_name: str | None = None, *, repeated: bool = False, **more: Any
) -> None:
    label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
    message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label, type_name=type_name, **more)


def add_map(message: DescriptorProto, name: str, kind: Any, type_name: str | None = None) -> None:
    entry = message.nested_type.add(name=f"{name.title()}Entry")
    entry.options.map_entry = True
    add(entry, "key", F.TYPE_STRING)
    add(entry, "value", kind, type_name)
    add(message, name, F.TYPE_MESSAGE, f".shop.{message.name}.{entry.name}", repeated=True)


def shop() -> FileDescriptorProto:
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="GREEN", number=1)
    file.message_type.add(name="Empty")
    line = file.message_type.add(name="Line")
    add(line, "sku", F.TYPE_STRING)
    order = file.message_type.add(name="Order")
    for name, (kind, _, _) in SCALARS.items():
        add(order, name, kind)
    add(order, "colour", F.TYPE_ENUM, ".shop.Colour")
    add(order, "line", F.TYPE_MESSAGE, ".shop.Line")
    add(order, "lines", F.TYPE_MESSAGE, ".shop.Line", repeated=True)
    add(order, "numbers", F.TYPE_INT32, repeated=True)
    add(order, "colours", F.TYPE_ENUM, ".shop.Colour", repeated=True)
    add_map(order, "counts", F.TYPE_INT64)
    add_map(order, "stock", F.TYPE_MESSAGE, ".shop.Line")
    add(order, "at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, "took", F.TYPE_MESSAGE, ".google.protobuf.Duration")
    add(order, "empty", F.TYPE_MESSAGE, ".shop.Empty")
    order.oneof_decl.add(name="_maybe")
    add(order, "maybe", F.TYPE_INT32, oneof_index=0, proto3_optional=True)
    tree = file.message_type.add(name="Tree")
    add(tree, "children", F.TYPE_MESSAGE, ".shop.Tree", repeated=True)
    return file


def descriptor_set(*files: FileDescriptorProto) -> bytes:
    found = FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2):
        module.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.extend(files)
    return found.SerializeToString()


SET = descriptor_set(shop())
SCHEMA = base64.b64encode(SET).decode()


def new(name: str) -> Any:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(SET).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))()


ORDER = decoder("protobuf", SCHEMA, "shop.Order")


def test_types_are_sparks() -> None:
    fields = {field.name: field.dataType.simpleString() for field in ORDER.data_type}  # type: ignore[attr-defined]
    assert fields == {name: kind for name, (_, _, kind) in SCALARS.items()} | {
        "colour": "string",
        "line": "struct<sku:string>",
        "lines": "array<struct<sku:string>>",
        "numbers": "array<int>",
        "colours": "array<string>",
        "counts": "map<string,bigint>",
        "stock": "map<string,struct<sku:string>>",
        "at": "timestamp",
        "took": "interval day to second",
        "maybe": "int",
    }


def test_a_message_is_a_row() -> None:
    order = new("shop.Order")
    for name, (_, value, _) in SCALARS.items():
        setattr(order, name, value)
    order.colour = 1
    order.line.sku = "a"
    order.lines.add(sku="b")
    order.lines.add()
    order.numbers.extend([1, 0])
    order.colours.extend([0, 1, 7])
    order.counts["x"] = 0
    order.stock["y"].sku = "c"
    order.at.FromDatetime(datetime(2024, 3, 1, 12, 0, 0, 5, tzinfo=UTC))
    order.took.FromTimedelta(timedelta(seconds=-1, microseconds=-5))
    order.maybe = 0
    [row, null], bad = decoded(ORDER, [order.SerializeToString(), None])
    assert not bad
    assert null is None
    assert row == {name: value for name, (_, value, _) in SCALARS.items()} | {
        "colour": "GREEN",
        "line": {"sku": "a"},
        "lines": [{"sku": "b"}, {"sku": None}],
        "numbers": [1, 0],
        "colours": ["RED", "GREEN", "UNKNOWN_ENUM_VALUE_Colour_7"],
        "counts": [("x", 0)],
        "stock": [("y", {"sku": "c"})],
        "at": datetime(2024, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
        "took": timedelta(seconds=-1, microseconds=-5),
        "maybe": 0,
    }


def test_what_is_not_set_is_null_and_lists_are_empty() -> None:
    [row], bad = decoded(ORDER, [b""])
    assert not bad
    assert {name for name, value in row.items() if value is not None} == {"lines", "numbers", "colours", "counts", "stock"}
    assert not any(row.values())


def test_unsigned_numbers_are_those_of_the_same_bits() -> None:
    order = new("shop.Order")
    order.uint32, order.fixed32, order.uint64, order.fixed64 = 2**32 - 1, 2**31, 2**64 - 1, 2**63
    [row], _ = decoded(ORDER, [order.SerializeToString()])
    assert [row[name] for name in ("uint32", "fixed32", "uint64", "fixed64")] == [-1, -(2**31), -1, -(2**63)]


def test_bad_records_cost_no_others() -> None:
    good = new("shop.Order")
    good.string = "a"
    value = good.SerializeToString()
    late = new("shop.Order")
    late.at.seconds = 2**62
    text = value.replace(b"a", b"\xff")
    rows, bad = decoded(ORDER, [value, value[:-1], text, b"\xff\xff", late.SerializeToString(), None, value])
    assert [row and row["string"] for row in rows] == ["a", None, None, None, None, None, "a"]
    assert list(bad) == [1, 2, 3, 4]


@given(st.lists(st.binary(max_size=40), max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_message_or_bad(values: list[bytes]) -> None:
    decoded(ORDER, values)


def test_proto2_has_defaults_and_fields_that_must_be() -> None:
    file = FileDescriptorProto(name="old.proto", package="old")
    message = file.message_type.add(name="M")
    message.field.add(name="must", number=1, type=F.TYPE_INT32, label=F.LABEL_REQUIRED)
    add(message, "may", F.TYPE_INT32, default_value="7")
    each = decoder("protobuf", base64.b64encode(descriptor_set(file)).decode(), "old.M")
    rows, bad = decoded(each, [b"\x08\x00", b"\x08\x01\x10\x02", b"\x10\x01"])
    assert rows == [{"must": 0, "may": 7}, {"must": 1, "may": 2}, None]
    assert "required" in bad[2]


def test_a_set_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(SET)
    assert decoded(decoder("protobuf", f"@{tmp_path}/shop.desc", "shop.Line"), [b"\x0a\x01a"]) == ([{"sku": "a"}], {})


def test_what_cannot_be_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    alone = base64.b64encode(FileDescriptorSet(file=[shop()]).SerializeToString()).decode()
    for schema, message, said in [
        (SCHEMA, "shop.Tree", "holds itself"),
        (SCHEMA, "shop.Empty", "no fields"),
        (SCHEMA, "Order", r"shop\.Order"),
        (alone, "shop.Order", "--include_imports"),
        ("syntax = proto3;", "shop.Order", "base64"),
        (base64.b64encode(b"\xff\xff").decode(), "shop.Order", "descriptor_set_out"),
        (f"@{tmp_path}/none", "shop.Order", "none"),
    ]:
        with pytest.raises(InvalidOption, match=said):
            decoder("protobuf", schema, message)

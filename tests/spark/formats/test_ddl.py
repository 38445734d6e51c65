"""Spark's DDL, read in Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from odradek.client.errors import InvalidOption
from odradek.spark.formats.ddl import ATOMS, DEPTH_MAX, parse

ANY_TYPE = st.recursive(
    st.sampled_from(list(ATOMS.values()))
    | st.tuples(st.integers(1, 38), st.integers(0, 38)).map(lambda p: t.DecimalType(p[0], min(p))),
    lambda inner: st.one_of(
        inner.map(t.ArrayType),
        st.tuples(inner, inner).map(lambda pair: t.MapType(*pair)),
        st.lists(st.tuples(st.text("aé_ `:<1", min_size=1), inner), min_size=1, max_size=3).map(
            lambda fields: t.StructType([t.StructField(name, kind) for name, kind in fields])
        ),
    ),
    max_leaves=8,
)


def text_of(kind: t.DataType) -> str:
    match kind:
        case t.StructType():
            fields = ", ".join("`{}`: {}".format(f.name.replace("`", "``"), text_of(f.dataType)) for f in kind)
            return f"struct<{fields}>"
        case t.ArrayType():
            return f"ARRAY< {text_of(kind.elementType)}>"
        case t.MapType():
            return f"map<{text_of(kind.keyType)},{text_of(kind.valueType)} >"
    return kind.simpleString()


@given(ANY_TYPE)
def test_a_type_is_read_from_its_text(kind: t.DataType) -> None:
    assert parse(text_of(kind)) == kind


def test_columns_make_a_struct() -> None:
    wanted = t.StructType(
        [
            t.StructField("id", t.LongType(), False),
            t.StructField("the amount", t.DecimalType(12, 2)),
            t.StructField("decimal", t.DecimalType(10, 0)),
            t.StructField("not", t.StructType([t.StructField("x", t.IntegerType(), False), t.StructField("y", t.StringType())])),
        ]
    )
    text = (
        "id BIGINT NOT NULL COMMENT 'its', `the amount`: decimal( 12,2 ),\n decimal dec, `not` struct<x int NOT NULL, y: string>"
    )
    assert parse(text) == wanted
    assert parse(" a  int ") == t.StructType([t.StructField("a", t.IntegerType())])
    assert parse("decimal(3)") == t.DecimalType(3, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "a int,",
        "a int b",
        "a int b string",
        "a: array<int",
        "a array<int>>",
        "a decimal(39,1)",
        "a decimal(2,3)",
        "a decimal(x)",
        "a map<int>",
        "a int NOT",
        "a $ int",
        "`a int",
        "a array",
        "array<" * 10000,
        f"a {'array<' * (DEPTH_MAX + 1)}int",
        "a interval",
        "<",
        ", a int",
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidOption, match=r"(?s)schema .*'id string") as refused:
        parse(text)
    assert isinstance(refused.value, ValueError)

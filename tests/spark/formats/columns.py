"""Columns of bytes for decoders, and what comes of them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.spark.formats import Decoder


def column(values: Sequence[bytes | None]) -> pa.Array:
    """A column that is a part of a larger one, as a column may be."""
    return pa.array([b"{", *values, b"}"], pa.binary()).slice(1, len(values))


def decoded(decoder: Decoder, values: Sequence[bytes | None]) -> tuple[list[Any], dict[int, str]]:
    """The rows, and what is said of the bad ones; with everything that holds for every column."""
    array, bad = decoder.decode(column(values))
    assert isinstance(array, pa.Array)
    array.validate(full=True)
    assert len(array) == len(values)
    wanted = to_arrow_schema(StructType().add("value", decoder.data_type), timezone="UTC")
    assert pa.schema([("value", array.type)]).equals(wanted)
    rows = array.to_pylist()
    numbers = [row for row, _ in bad]
    assert numbers == sorted(set(numbers))
    assert all(rows[row] is None and error for row, error in bad)
    assert all(found is None for found, value in zip(rows, values) if value is None)
    return rows, dict(bad)

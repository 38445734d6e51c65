"""Schemas as options give them, and the types that come of them.

Invariants
 1. whatever is wrong with a schema is an InvalidOption that says where, before a record is read
"""

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from odradek.client.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa


def content(option: str) -> bytes:
    """What an option says: its text, or, after an @, the file at that path."""
    if not option.startswith("@"):
        return option.encode()
    try:
        return Path(option[1:]).read_bytes()
    except OSError as error:
        raise InvalidOption(f"schema {option}: {error.strerror}: the path after @ is read on the driver") from error


def nullable(kind: DataType) -> DataType:
    """The same type, with everything in it nullable, as Spark's own from_json, from_avro and from_protobuf give it."""
    match kind:
        case StructType():
            return StructType([StructField(field.name, nullable(field.dataType), True) for field in kind.fields])
        case ArrayType():
            return ArrayType(nullable(kind.elementType), True)
        case MapType():
            return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
        case _:
            return kind


def arrow_type(kind: DataType) -> "pa.DataType":
    """The type that pyspark's worker wants of a source; times are in UTC there."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, timezone="UTC")

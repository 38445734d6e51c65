"""Avro without a container: each value is one datum of the same schema, read by fastavro.

Invariants
 1. a datum takes all of its value: what is left over makes it bad, for then it was written with another schema
 2. a registry's header is taken off only where the format says that there is one; its schema id is not looked up
"""

import io
from collections.abc import Callable
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from odradek.client.errors import InvalidOption
from odradek.spark.formats import Bad
from odradek.spark.formats.avro_schema import Convert, read_schema
from odradek.spark.formats.rows import REFUSALS, decode_rows, said
from odradek.spark.formats.schema import arrow_type, content

HEADER_SIZE: Final = 5  # a zero, and the schema's id in four bytes


class AvroDecoder:
    def __init__(self, schema: str, has_header: bool) -> None:
        self.schema = schema
        self.has_header = has_header
        read = read_schema(schema)
        self.data_type = read.data_type
        try:
            self._wire: Any = fastavro.parse_schema(read.wire)
        except (SchemaParseException, *REFUSALS) as error:
            raise InvalidOption(f"the Avro schema cannot be used: {said(error)}") from error
        self._convert: Convert | None = read.convert

    @classmethod
    def of(cls, option: str, *, has_header: bool) -> "AvroDecoder":
        return cls(content(option).decode(errors="replace"), has_header)

    def __reduce__(self) -> tuple[Callable[..., "AvroDecoder"], tuple[str, bool]]:
        return AvroDecoder, (self.schema, self.has_header)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        return decode_rows(values.to_pylist(), self._read, arrow_type(self.data_type))

    def _read(self, value: bytes) -> Any:
        data = io.BytesIO(value)
        if self.has_header and data.read(HEADER_SIZE)[:1] != b"\0":
            raise ValueError("no zero at the start, where a registry's header begins: format avro reads values without one")
        found = fastavro.schemaless_reader(data, self._wire, None)
        if data.tell() != len(value):
            raise ValueError(f"{len(value) - data.tell()} bytes are left over: it was written with another schema")
        return found if self._convert is None or found is None else self._convert(found)

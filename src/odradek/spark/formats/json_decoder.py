"""JSON, many rows at once: Arrow's reader gets them as lines, and only what it does not take is read row by row.

`json_rows` says what a document means. Arrow's reader is several times as fast, knows no maps and no base64, takes less,
and falls over a bare null; what it takes, it reads the same. So rows are first made lines that cannot be anything but one
object each (`json_kernel`). Where a piece of a column has something that Arrow does not take, it is parted, and so on
until a few rows around that are left for `json_rows`.

Invariants
 1. a row's outcome is what `json_rows` makes of it, whichever way it was read
 2. Arrow's reader sees valid UTF-8 and lines that are one object each; as many rows come back as lines went in
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from odradek.client.errors import InvalidOption
from odradek.spark.formats import Bad
from odradek.spark.formats.ddl import parse
from odradek.spark.formats.json_rows import row_reader
from odradek.spark.formats.rows import REFUSALS, decode_rows, said
from odradek.spark.formats.schema import arrow_type, nullable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

PIECE_ROWS_MAX: Final = 16 * 1024
PIECE_BYTES: Final = 2 * 1024 * 1024  # about, where rows are of a size
PARTS: Final = 8
ROWS_ALONE: Final = 64  # so few are read row by row

Decoded = tuple[pa.Array, list[Bad]]


class JsonDecoder:
    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.data_type = nullable(_parsed(schema))
        self._read = row_reader(self.data_type)
        self._kind: pa.DataType | None = None

    def __reduce__(self) -> tuple[Callable[[str], "JsonDecoder"], tuple[str]]:
        return JsonDecoder, (self.schema,)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[Bad]]:
        kind = self._kind = self._kind or arrow_type(self.data_type)
        read_as = _read_as(kind) if len(values) > ROWS_ALONE else None
        if read_as is None:
            return decode_rows(values.to_pylist(), self._read, kind)
        arrays: list[pa.Array] = []
        bad: list[Bad] = []
        start = 0
        for array, found in self._pieces(values, _piece_rows(values), kind, read_as):
            arrays.append(array)
            bad += [Bad(start + row, error) for row, error in found]
            start += len(array)
        assert start == len(values)
        return (arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)), bad

    def _pieces(self, values: pa.Array, rows_max: int, kind: pa.DataType, read_as: pa.DataType) -> Iterator[Decoded]:
        """A column in pieces, each with its own numbers of rows."""
        for start in range(0, len(values), rows_max):
            piece = values.slice(start, rows_max)
            if len(piece) <= ROWS_ALONE:
                yield decode_rows(piece.to_pylist(), self._read, kind)
            elif (decoded := self._at_once(piece, kind, read_as)) is not None:
                yield decoded
            else:
                yield from self._pieces(piece, -(-len(piece) // PARTS), kind, read_as)

    def _at_once(self, values: pa.Array, kind: pa.DataType, read_as: pa.DataType) -> Decoded | None:
        """A piece by Arrow's reader; None if that does not take all of it."""
        from odradek.spark.formats.json_lines import read_lines

        lines = read_lines(values, kind, read_as)
        if lines is None:
            return None
        bad: list[Bad] = []
        for row in lines.odd:
            try:
                if self._read(values[row].as_py()) is not None:
                    return None
            except REFUSALS as error:
                bad.append(Bad(row, said(error)))
        return lines.array, bad


def _parsed(schema: str) -> "DataType":
    if not schema.lstrip().startswith(("{", '"')):
        return parse(schema)
    from pyspark.sql.types import _parse_datatype_json_string

    try:
        return _parse_datatype_json_string(schema)
    except (*REFUSALS, AssertionError, AttributeError) as error:
        raise InvalidOption(f"schema {schema!r} is not the JSON of a Spark type ({error!r}): write it as DDL") from error


def _read_as(kind: pa.DataType) -> pa.DataType | None:
    if not pa.types.is_struct(kind):
        return None
    from odradek.spark.formats.json_lines import lines_type

    return lines_type(kind)


def _piece_rows(values: pa.Array) -> int:
    row_bytes: int = max(values.nbytes // len(values), 1)
    return min(max(PIECE_BYTES // row_bytes, ROWS_ALONE + 1), PIECE_ROWS_MAX)

"""What is to be produced: the columns of an Arrow table, as kernels take them.

Bytes may come as strings or binary, large or not, as views, of a fixed size, or in dictionaries; a column may be chunked
and sliced. All become one array of large binary, whose offsets have 64 bits; the bytes are copied only where a column has
several chunks or a dictionary. A column of headers is a list of structs with a key and a value, or a map.

Invariants
 1. an address is good as long as the arrays live that are given with it
 2. a column that is not there is a column of nulls
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.record_writer import NO_BYTES, NO_LISTS, BinarySource, ListSource, Sources
from odradek.wire.batch import NO_TIMESTAMP

INT64_SIZE: Final = 8
NAMES: Final = ("key", "value", "headers", "timestamp", "partition")


def read_sources(table: pa.Table, now_ms: int) -> tuple[Sources, list[pa.Array]]:
    """The columns of records, and the arrays that own their memory; a null timestamp is now."""
    if "value" not in table.column_names:
        raise ValueError(f"a table to produce has a column value, and may have {', '.join(NAMES)}")
    owners: list[pa.Array] = []
    keys, values = _binary(table, "key", owners), _binary(table, "value", owners)
    headers, header_keys, header_values = NO_LISTS, NO_BYTES, NO_BYTES
    if (column := _whole(table, "headers")) is not None:
        headers, header_keys, header_values = _headers(column, owners)
    timestamps = 0
    if (column := _whole(table, "timestamp")) is not None:
        timestamps = _numbers(_milliseconds(column, now_ms), owners)
    return Sources(keys, values, headers, header_keys, header_values, timestamps), owners


def read_partitions(table: pa.Table, partition_count: int) -> pa.Array:
    """The partitions that rows ask for, int32; -1 for those that ask for none."""
    column = _whole(table, "partition")
    if column is None:
        return pa.repeat(pa.scalar(-1, pa.int32()), table.num_rows)
    if not pa.types.is_integer(column.type):
        raise TypeError(f"column partition is {column.type}, where it is a number")
    ends = pc.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is not None and not 0 <= low <= high < partition_count:
        raise ValueError(f"partitions {low} to {high} are asked for, of a topic that has 0 to {partition_count - 1}")
    return column.cast(pa.int32()).fill_null(-1)


def _whole(table: pa.Table, name: str) -> pa.Array | None:
    """A column in one piece; None where it is not there, or holds nothing but nulls by its type."""
    if name not in table.column_names or pa.types.is_null(table.schema.field(name).type):
        return None
    return _joined(table.column(name))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _binary(table: pa.Table, name: str, owners: list[pa.Array]) -> BinarySource:
    if name not in table.column_names:
        return NO_BYTES
    return _source(_joined(_large(table.column(name), f"column {name}")), owners)


def _large(column: pa.ChunkedArray | pa.Array, name: str) -> pa.ChunkedArray | pa.Array:
    try:
        return column.cast(pa.large_binary())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise TypeError(f"{name} is {column.type}, where it is a string or binary") from None


def _source(array: pa.Array, owners: list[pa.Array]) -> BinarySource:
    if len(array) == 0:
        return NO_BYTES
    data = array.buffers()[2]
    return BinarySource(_numbers(array, owners), 0 if data is None else data.address, _validity(array), array.offset)


def _validity(array: pa.Array) -> int:
    return int(array.buffers()[0].address) if array.null_count else 0


def _numbers(array: pa.Array, owners: list[pa.Array]) -> int:
    """The address of an array's first number, or first offset, int64."""
    if len(array) == 0:
        return 0
    owners.append(array)
    start: int = array.buffers()[1].address
    return start + INT64_SIZE * int(array.offset)


def _headers(array: pa.Array, owners: list[pa.Array]) -> tuple[ListSource, BinarySource, BinarySource]:
    kind = array.type
    if pa.types.is_map(kind):
        names, contents = array.keys, array.items
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        fields = {field.name: part for field, part in zip(kind.value_type, array.values.flatten())}
        if set(fields) != {"key", "value"}:
            raise TypeError(f"column headers is {kind}, where its structs have a key and a value")
        names, contents = fields["key"], fields["value"]
    else:
        raise TypeError(f"column headers is {kind}, where it is a list of structs with a key and a value, or a map")
    owners.append(array)
    lists = ListSource(_numbers(array.offsets.cast(pa.int64()), owners), _validity(array), array.offset)
    return lists, _source(_large(names, "the key of headers"), owners), _source(_large(contents, "the value of headers"), owners)


def _milliseconds(column: pa.Array, now_ms: int) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise TypeError(f"column timestamp is {column.type}, where it is a timestamp, or milliseconds in a number")
    times = column.cast(pa.int64()).fill_null(now_ms)
    low = pc.min(times).as_py()
    if low is not None and low < NO_TIMESTAMP:
        raise ValueError(f"a timestamp is {low} ms, before 1970, where no record can be")
    return times

"""Lines of JSON through Arrow's reader: see `json_decoder`, which imports this once there is something to decode."""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from odradek.spark.formats.json_kernel import NULL, ODD, PLAIN, join_lines, room_size

LINES_BYTES_MAX: Final = (1 << 31) - 2  # a block of Arrow's reader counts in 32 bits


class Lines(NamedTuple):
    """Rows that were read at once, null where they are null or odd, and the numbers of the odd ones."""

    array: pa.Array
    odd: list[int]


def lines_type(kind: pa.DataType) -> pa.DataType | None:
    """As what Arrow's reader should read a type, to be cast afterwards; None for what it cannot read as `json_rows` does."""
    if pa.types.is_struct(kind):
        fields = [(field.name, lines_type(field.type)) for field in kind]
        return None if any(part is None for _, part in fields) else pa.struct(fields)
    if pa.types.is_list(kind):
        item = lines_type(kind.value_type)
        return item and pa.list_(pa.field("element", item))
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return pa.string()  # it has no dates, and takes zones where there should be none
    if pa.types.is_decimal(kind):
        return pa.decimal256(kind.precision, kind.scale)  # it lets too many digits pass, which the cast then finds
    return pa.float64() if pa.types.is_float32(kind) else kind  # rounded once more, as Python's floats are


def read_lines(values: pa.Array, kind: pa.DataType, read_as: pa.DataType) -> Lines | None:
    """A piece of a column as structs; None if Arrow's reader does not take a row of it that is not odd."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    joined, states = _joined(values)
    if joined.size > LINES_BYTES_MAX:
        return None
    reading = pj.ReadOptions(use_threads=False, block_size=joined.size + 1)
    parsing = pj.ParseOptions(explicit_schema=pa.schema(list(read_as)), unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(joined), reading, parsing)
        rows = table.to_struct_array().combine_chunks()
        if read_as != kind:
            rows = rows.cast(kind)
    except pa.ArrowInvalid:
        return None
    assert len(rows) == len(values), f"{len(values)} lines became {len(rows)} rows"
    if states.any():
        rows = pa.StructArray.from_arrays(rows.flatten(), fields=list(kind), mask=pa.array(states != PLAIN))
    return Lines(rows, np.flatnonzero(states == ODD).tolist())


def _joined(values: pa.Array) -> tuple[pa.Buffer, Any]:
    """The lines of a column's rows, and the states of these."""
    count = len(values)
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    states = np.where(values.is_valid().to_numpy(zero_copy_only=False), PLAIN, NULL).astype(np.int64)
    room = pa.allocate_buffer(room_size(int(offsets[-1] - offsets[0]), count))
    end = join_lines(offsets, data.address if data is not None else 0, states, room.address)
    return room.slice(0, end - room.address), states

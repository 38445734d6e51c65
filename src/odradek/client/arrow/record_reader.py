"""The records of many payloads into columns, in one pass: the kernel of `decode`.

A payload is the decompressed bytes of one batch's records. Everything of a record is checked before anything of it is
written, as `odradek.wire.records.scan` does, and nothing is said of what is wrong but the batch: `scan` tells it then.

Invariants
 1. no byte outside a payload is read: `varint` looks at none at or after the end, and once it met the end the cursor is
    past it, where it stays; a record whose cursor does not come out at its own last byte is refused before it is copied
 2. no byte outside a column is written: a payload's records, keys and values are no more than its count and its size,
    for which the caller made room
 3. what `scan` takes is taken, what it refuses is refused
"""

from typing import Final, NamedTuple

from numba import types

from odradek.client.arrow.kernel import INT64_TABLE, INT64S, Int64s, aside, kernel, named, part
from odradek.client.arrow.memory import byte_at, copy, int64_at, put_byte, put_int32, put_int64

# The fields of a batch, in the order of its row in the table of batches. ROW_END is written here: the rows up to its end.
ADDRESS, SIZE, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, APPEND_TIMESTAMP, TIMESTAMP_TYPE, ROW_END = range(9)
BATCH_FIELDS: Final = 9

# What was read in all.
ROWS, KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, HEADER_VALUE_NULLS = range(9)
TOTALS: Final = 9

RECORD_SIZE_MIN: Final = 7  # length, attributes, two deltas, key, value and header count, a byte each
BYTES_MAX_INT32, LAST_BYTE_MAX_INT32 = 5, 0x0F
BYTES_MAX_INT64, LAST_BYTE_MAX_INT64 = 10, 0x01
INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
MILLISECONDS_MAX: Final = INT64_MAX // 1000


class BinaryPlace(NamedTuple):
    """Where a column of bytes goes, as Arrow lays it out. Validity comes with all bits set; all 0 if it is not wanted."""

    offsets: int
    data: int
    validity: int


class Places(NamedTuple):
    """Where the columns of records go; 0 for those that are not wanted. Of headers only the addresses are kept."""

    offsets: int
    timestamps: int
    timestamp_types: int
    headers: int


BINARY_PLACE: Final = named(BinaryPlace)
PLACES: Final = named(Places)


@aside
def long_varint(cursor: int, end: int, bytes_max: int, last_byte_max: int) -> tuple[int, int]:
    number = shift = 0
    stop = min(end, cursor + bytes_max)
    while cursor < stop:
        byte = byte_at(cursor)
        number |= (byte & 0x7F) << shift
        cursor += 1
        if byte < 0x80:
            if shift == 7 * (bytes_max - 1) and byte > last_byte_max:
                break
            return ((number >> 1) & INT64_MAX) ^ -(number & 1), cursor
        shift += 7
    return 0, end + 1


@part
def varint(cursor: int, end: int, bytes_max: int, last_byte_max: int) -> tuple[int, int]:
    """The zigzag number at the cursor, and the cursor after it: past the end where there is no such number.

    Numbers of one and two bytes are written out: nearly all are, and a loop takes twice as long.
    """
    if cursor + 1 < end:
        byte = byte_at(cursor)
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), cursor + 1
        second = byte_at(cursor + 1)
        if second < 0x80:
            return ((byte & 0x7F) >> 1 | second << 6) ^ -(byte & 1), cursor + 2
    return long_varint(cursor, end, bytes_max, last_byte_max)


@part
def varint32(cursor: int, end: int) -> tuple[int, int]:
    return varint(cursor, end, BYTES_MAX_INT32, LAST_BYTE_MAX_INT32)


@aside
def skip_headers(cursor: int, end: int, totals: Int64s) -> int:
    """The cursor after a record's headers, which are counted."""
    count, cursor = varint32(cursor, end)
    if count < 0:
        return end + 1
    for _ in range(count):
        key_size, cursor = varint32(cursor, end)
        if key_size < 0:
            return end + 1
        value_size, cursor = varint32(cursor + key_size, end)
        if value_size < -1 or cursor > end:  # also what stops a count of billions
            return end + 1
        cursor += max(value_size, 0)
        totals[HEADER_KEY_BYTES] += key_size
        totals[HEADER_VALUE_BYTES] += max(value_size, 0)
    totals[HEADERS] += count
    return cursor


@part
def read_record(
    start: int, end: int, base_timestamp: int, append_time: bool, totals: Int64s
) -> tuple[int, int, int, int, int, int, int]:
    """The cursor after a record, its deltas, and where key and value lie; a cursor past the end where it is not sound."""
    size, cursor = varint32(start, end)
    record_end = cursor + size
    timestamp_delta, cursor = varint(cursor + 1, end, BYTES_MAX_INT64, LAST_BYTE_MAX_INT64)
    offset_delta, cursor = varint32(cursor, end)
    key_size, key_start = varint32(cursor, end)
    value_size, value_start = varint32(key_start + max(key_size, 0), end)
    cursor = value_start + max(value_size, 0)
    if cursor < end and byte_at(cursor) == 0:
        cursor += 1
    else:
        cursor = skip_headers(cursor, end, totals)
    timestamp = base_timestamp + timestamp_delta
    over = ((base_timestamp ^ timestamp) & (timestamp_delta ^ timestamp)) < 0  # what an int64 holds
    if cursor != record_end or key_size < -1 or value_size < -1 or (over and not append_time):
        cursor = end + 1
    return cursor, offset_delta, timestamp, key_start, key_size, value_start, value_size


@part
def clear_bit(bits: int, index: int) -> None:
    address = bits + (index >> 3)
    put_byte(address, byte_at(address) & ~(1 << (index & 7)))


@part
def put(place: BinaryPlace, row: int, position: int, address: int, size: int) -> int:
    """A row's bytes, or null for a negative size; gives the position after them."""
    if size > 0:
        copy(place.data + position, address, size)
        position += size
    elif size < 0:
        clear_bit(place.validity, row)
    put_int32(place.offsets, row + 1, position)
    return position


@part
def microseconds(milliseconds: int) -> int:
    if milliseconds > MILLISECONDS_MAX:
        return INT64_MAX
    if milliseconds < -MILLISECONDS_MAX:
        return INT64_MIN
    return milliseconds * 1000


@kernel(types.int64(INT64_TABLE, types.int64, types.int64, BINARY_PLACE, BINARY_PLACE, PLACES, INT64S))
def read_records(
    batches: Int64s, fetch_offset: int, end_offset: int, keys: BinaryPlace, values: BinaryPlace, places: Places, totals: Int64s
) -> int:
    """The records of all batches in a range of offsets; gives the number of the first unsound batch, or that of all.

    Of headers it counts at least as many and as long ones as there are.
    """
    row = key_position = key_nulls = value_position = value_nulls = 0
    for number in range(len(batches)):
        cursor, size, count, base_offset, last_delta, base_timestamp, append_timestamp, timestamp_type, _ = batches[number]
        end = cursor + size
        append_time = timestamp_type == 1
        previous = -1
        for _ in range(count):
            cursor, offset_delta, timestamp, key_start, key_size, value_start, value_size = read_record(
                cursor, end, base_timestamp, append_time, totals
            )
            if cursor > end or offset_delta <= previous or offset_delta > last_delta:
                return number
            previous = offset_delta
            if not fetch_offset <= base_offset + offset_delta < end_offset:
                continue
            if keys.offsets:
                key_position = put(keys, row, key_position, key_start, key_size)
                key_nulls += key_size < 0
            if values.offsets:
                value_position = put(values, row, value_position, value_start, value_size)
                value_nulls += value_size < 0
            if places.offsets:
                put_int64(places.offsets, row, base_offset + offset_delta)
            if places.timestamps:
                put_int64(places.timestamps, row, microseconds(append_timestamp if append_time else timestamp))
            if places.timestamp_types:
                put_int32(places.timestamp_types, row, timestamp_type)
            if places.headers:
                put_int64(places.headers, row, value_start + max(value_size, 0))
            row += 1
        if cursor != end:
            return number
        batches[number, ROW_END] = row
    totals[ROWS], totals[KEY_BYTES], totals[KEY_NULLS] = row, key_position, key_nulls
    totals[VALUE_BYTES], totals[VALUE_NULLS] = value_position, value_nulls
    return len(batches)


@kernel(types.void(INT64_TABLE, types.int64, types.int64, types.int64, BINARY_PLACE, BINARY_PLACE, INT64S))
def read_headers(
    batches: Int64s,
    addresses: int,
    list_offsets: int,
    list_validity: int,
    keys: BinaryPlace,
    values: BinaryPlace,
    totals: Int64s,
) -> None:
    """The headers of rows, which `read_records` has checked and found the addresses of."""
    row = entry = key_position = value_position = nulls = 0
    for number in range(len(batches)):
        end = batches[number, ADDRESS] + batches[number, SIZE]
        while row < batches[number, ROW_END]:
            count, cursor = varint32(int64_at(addresses, row), end)
            if count == 0:
                clear_bit(list_validity, row)
            for _ in range(count):
                size, cursor = varint32(cursor, end)
                key_position = put(keys, entry, key_position, cursor, size)
                size, cursor = varint32(cursor + size, end)
                value_position = put(values, entry, value_position, cursor, size)
                cursor += max(size, 0)
                nulls += size < 0
                entry += 1
            row += 1
            put_int32(list_offsets, row, entry)
    totals[HEADERS], totals[HEADER_KEY_BYTES], totals[HEADER_VALUE_BYTES] = entry, key_position, value_position
    totals[HEADER_VALUE_NULLS] = nulls

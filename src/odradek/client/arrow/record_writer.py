"""Rows of columns into the records of batches, in two passes: the kernels of `encode`.

The first pass gives every row a batch, the open one of its partition, or a new one where that is full; it counts what
every record takes, so that the second can write each batch's records where they stay. Both go through the rows in order.

Invariants
 1. the rows of a partition keep their order, in its batches and among them
 2. a batch is no larger than its limit with its header, unless it holds one record alone
 3. the second pass writes as many bytes of a batch as the first has counted
"""

from typing import Final, NamedTuple

from numba import types

from odradek.client.arrow.kernel import INT32S, INT64_TABLE, INT64S, Int32s, Int64s, aside, kernel, named, part
from odradek.client.arrow.memory import byte_at, copy, int64_at, put_byte
from odradek.wire.batch import HEADER_SIZE

# The fields of a batch that is planned, in the order of its row in the table.
PARTITION, COUNT, SIZE, BASE_TIMESTAMP, MAX_TIMESTAMP = range(5)
BATCH_FIELDS: Final = 5
NO_BATCH: Final = -1

RECORD_CONTENT_MAX: Final = (1 << 31) - 1 - HEADER_SIZE - 20  # what a batch's length can say, less deltas


class BinarySource(NamedTuple):
    """Where a column of large binary is: offsets from its first row on, all bytes, and bits that say which rows are not
    null, of which its first row's is the one with the number `shift`; no validity if none is, no offsets if all are."""

    offsets: int
    data: int
    validity: int
    shift: int


class ListSource(NamedTuple):
    """Where a column of lists is: offsets into other columns, and its own nulls."""

    offsets: int
    validity: int
    shift: int


class Sources(NamedTuple):
    """Where the columns of records are; timestamps, in milliseconds, are 0 where all records are of now."""

    keys: BinarySource
    values: BinarySource
    headers: ListSource
    header_keys: BinarySource
    header_values: BinarySource
    timestamps: int


NO_BYTES: Final = BinarySource(0, 0, 0, 0)
NO_LISTS: Final = ListSource(0, 0, 0)
BINARY_SOURCE: Final = named(BinarySource)
LIST_SOURCE: Final = named(ListSource)
SOURCES: Final = named(Sources, BINARY_SOURCE, BINARY_SOURCE, LIST_SOURCE, BINARY_SOURCE, BINARY_SOURCE, types.int64)


@part
def is_null(validity: int, index: int) -> bool:
    return validity != 0 and (byte_at(validity + (index >> 3)) >> (index & 7)) & 1 == 0


@part
def size_at(source: BinarySource, row: int) -> int:
    """The size of a row's bytes, -1 for null."""
    if source.offsets == 0 or is_null(source.validity, row + source.shift):
        return -1
    return int64_at(source.offsets, row + 1) - int64_at(source.offsets, row)


@part
def varint_size(number: int) -> int:
    """The bytes of a zigzag number, which is not the lowest that there is."""
    rest = number if number >= 0 else -number - 1
    size = 1
    while rest > 0x3F:
        rest >>= 7
        size += 1
    return size


@part
def put_varint(cursor: int, number: int) -> int:
    """Write a number, and give the address after it."""
    sign = 0 if number >= 0 else 1
    rest = number if sign == 0 else -number - 1
    byte = (rest & 0x3F) << 1 | sign
    rest >>= 6
    while rest:
        put_byte(cursor, byte | 0x80)
        cursor += 1
        byte = rest & 0x7F
        rest >>= 7
    put_byte(cursor, byte)
    return cursor + 1


@part
def put_bytes(cursor: int, source: BinarySource, row: int) -> int:
    """Write a row's bytes with their length, -1 for null, and give the address after them."""
    size = size_at(source, row)
    cursor = put_varint(cursor, size)
    if size > 0:
        copy(cursor, source.data + int64_at(source.offsets, row), size)
        cursor += size
    return cursor


@part
def bytes_size(source: BinarySource, row: int) -> int:
    """What `put_bytes` takes."""
    size = size_at(source, row)
    return varint_size(size) + max(size, 0)


@part
def header_range(headers: ListSource, row: int) -> tuple[int, int]:
    """The first and the end of a row's headers."""
    if headers.offsets == 0 or is_null(headers.validity, row + headers.shift):
        return 0, 0
    return int64_at(headers.offsets, row), int64_at(headers.offsets, row + 1)


@aside
def headers_size(sources: Sources, start: int, end: int) -> int:
    """What a row's headers take after their count; -1 where one has no key."""
    size = 0
    for entry in range(start, end):
        if size_at(sources.header_keys, entry) < 0:
            return -1
        size += bytes_size(sources.header_keys, entry) + bytes_size(sources.header_values, entry)
    return size


@aside
def put_headers(cursor: int, sources: Sources, start: int, end: int) -> int:
    for entry in range(start, end):
        cursor = put_bytes(cursor, sources.header_keys, entry)
        cursor = put_bytes(cursor, sources.header_values, entry)
    return cursor


@part
def content_size(sources: Sources, row: int) -> int:
    """What a record takes besides its length and deltas; -1 where that cannot be written."""
    start, end = header_range(sources.headers, row)
    headers = headers_size(sources, start, end) if start < end else 0
    if headers < 0:
        return -1
    return 1 + bytes_size(sources.keys, row) + bytes_size(sources.values, row) + varint_size(end - start) + headers


@part
def timestamp_at(sources: Sources, row: int, now_ms: int) -> int:
    return int64_at(sources.timestamps, row) if sources.timestamps else now_ms


@kernel(types.int64(SOURCES, types.int64, INT32S, types.int64, INT64S, INT32S, INT64S, INT64_TABLE))
def plan_batches(
    sources: Sources,
    now_ms: int,
    partitions: Int32s,
    batch_size: int,
    open_batches: Int64s,
    numbers: Int32s,
    sizes: Int64s,
    batches: Int64s,
) -> int:
    """Every row's batch and size; gives how many batches there are, or, negative, the row after which no more can be."""
    count = 0
    for row in range(len(partitions)):
        content = content_size(sources, row)
        if not 0 < content <= RECORD_CONTENT_MAX:
            return -1 - row
        timestamp = timestamp_at(sources, row, now_ms)
        partition = partitions[row]
        number = open_batches[partition]
        size = 0
        if number != NO_BATCH:
            delta = timestamp - batches[number, BASE_TIMESTAMP]
            size = content + varint_size(delta) + varint_size(batches[number, COUNT])
            if HEADER_SIZE + batches[number, SIZE] + varint_size(size) + size > batch_size:
                number = NO_BATCH
        if number == NO_BATCH:
            number = open_batches[partition] = count
            count += 1
            batches[number, PARTITION] = partition
            batches[number, COUNT] = batches[number, SIZE] = 0
            batches[number, BASE_TIMESTAMP] = batches[number, MAX_TIMESTAMP] = timestamp
            size = content + 2
        numbers[row] = number
        sizes[row] = size
        batches[number, COUNT] += 1
        batches[number, SIZE] += varint_size(size) + size
        batches[number, MAX_TIMESTAMP] = max(batches[number, MAX_TIMESTAMP], timestamp)
    return count


@kernel(types.void(SOURCES, types.int64, INT32S, INT64S, INT64_TABLE, INT64S, INT64S))
def write_records(
    sources: Sources, now_ms: int, numbers: Int32s, sizes: Int64s, batches: Int64s, cursors: Int64s, counts: Int64s
) -> None:
    """All rows as records, each where its batch's cursor stands; counts, which come as 0, are the offsets."""
    for row in range(len(numbers)):
        number = numbers[row]
        delta = timestamp_at(sources, row, now_ms) - batches[number, BASE_TIMESTAMP]
        cursor = put_varint(cursors[number], sizes[row])
        put_byte(cursor, 0)
        cursor = put_varint(cursor + 1, delta)
        cursor = put_varint(cursor, counts[number])
        cursor = put_bytes(cursor, sources.keys, row)
        cursor = put_bytes(cursor, sources.values, row)
        start, end = header_range(sources.headers, row)
        cursor = put_varint(cursor, end - start)
        if start < end:
            cursor = put_headers(cursor, sources, start, end)
        cursors[number] = cursor
        counts[number] += 1

"""Batches of the log that are read together: their payloads, and the columns that come of them.

Room is made for as many rows as the headers say and as many bytes as the payloads have, which no column can go over; what
was not used is given up (`buffers`).

Invariants
 1. a batch whose header says more records than its bytes can hold is refused before any room is made for it
 2. the payloads live as long as their addresses are used, and no longer: what columns keep was copied
"""

from collections.abc import Collection
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa

from odradek.client.arrow.buffers import NOWHERE, BinaryRoom, offset_room, room, used, validity_room
from odradek.client.arrow.columns import HEADERS, TYPES
from odradek.client.arrow.kernel import Int64s
from odradek.client.arrow.record_reader import (
    BATCH_FIELDS,
    HEADER_KEY_BYTES,
    HEADER_VALUE_BYTES,
    RECORD_SIZE_MIN,
    ROWS,
    TOTALS,
    Places,
    read_headers,
    read_records,
)
from odradek.client.arrow.record_reader import HEADERS as HEADER_COUNT
from odradek.wire.batch import BatchHeader
from odradek.wire.records import records

# The columns of numbers, in the order of `Places`, and the bytes of one; headers are addresses at first.
NUMBER_SIZES: Final = {"offset": 8, "timestamp": 8, "timestampType": 4, "headers": 8}


class Chunk:
    """Payloads to be read in one call of the kernel."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.table: list[tuple[int, ...]] = []
        self.payloads: list[pa.Buffer] = []  # they hold what the addresses in the table point to
        self.places: list[tuple[int, BatchHeader]] = []
        self.row_count = 0
        self.byte_count = 0

    def add(self, position: int, header: BatchHeader, payload: pa.Buffer) -> None:
        if header.record_count * RECORD_SIZE_MIN > payload.size:
            self._explain(position, header, payload.size)
        self.table.append(
            (
                payload.address,
                payload.size,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                header.base_timestamp,
                header.max_timestamp,
                1 if header.is_log_append_time else 0,
                0,
            )
        )
        self.payloads.append(payload)
        self.places.append((position, header))
        self.row_count += header.record_count
        self.byte_count += payload.size

    def read(self, wanted: Collection[str], fetch_offset: int, end_offset: int) -> tuple[int, dict[str, pa.Array]]:
        """How many records lie in a range of offsets, and those of their columns that are wanted and differ among them."""
        binaries = {name: BinaryRoom(self.row_count, self.byte_count) for name in ("key", "value") if name in wanted}
        numbers = {name: room(size, self.row_count) for name, size in NUMBER_SIZES.items() if name in wanted}
        keys, values = (binaries[name].place if name in wanted else NOWHERE for name in ("key", "value"))
        places = Places(*(numbers[name].address if name in wanted else 0 for name in NUMBER_SIZES))
        table = np.array(self.table, np.int64).reshape(-1, BATCH_FIELDS)
        totals = np.zeros(TOTALS, np.int64)
        number = read_records(table, fetch_offset, end_offset, keys, values, places, totals)
        if number < len(table):
            position, header = self.places[number]
            self._explain(position, header, self.payloads[number].size)
        rows, key_bytes, key_nulls, value_bytes, value_nulls = map(int, totals[:HEADER_COUNT])
        columns: dict[str, pa.Array] = {}
        for name, buffer in numbers.items():
            if name == "headers":
                columns[name] = _headers(table, buffer, totals)
            else:
                columns[name] = pa.Array.from_buffers(TYPES[name], rows, [None, used(buffer, NUMBER_SIZES[name], rows)], 0)
        if "key" in wanted:
            columns["key"] = binaries["key"].array(rows, key_bytes, key_nulls)
        if "value" in wanted:
            columns["value"] = binaries["value"].array(rows, value_bytes, value_nulls)
        return rows, columns

    def _explain(self, position: int, header: BatchHeader, size: int) -> NoReturn:
        """Say what is wrong with a batch, record by record: the kernel only knows that something is."""
        for _ in records(self.view, position, header, size):
            pass
        raise AssertionError(f"the batch with base offset {header.base_offset} is sound, and was refused")


def _headers(table: Int64s, addresses: pa.Buffer, totals: Int64s) -> pa.Array:
    """The lists of headers; null for a record that has none."""
    rows, count = int(totals[ROWS]), int(totals[HEADER_COUNT])
    offsets, validity = offset_room(rows), validity_room(rows)
    keys = BinaryRoom(count, int(totals[HEADER_KEY_BYTES]))
    values = BinaryRoom(count, int(totals[HEADER_VALUE_BYTES]))
    read_headers(table, addresses.address, offsets.address, validity.address, keys.place, values.place, totals)
    count, key_bytes, value_bytes, value_nulls = map(int, totals[HEADER_COUNT:])
    parts = [_text(keys.array(count, key_bytes, 0)), values.array(count, value_bytes, value_nulls)]
    entries = pa.StructArray.from_arrays(parts, fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(HEADERS, rows, [validity, offsets], children=[entries])


def _text(keys: pa.Array) -> pa.Array:
    """Keys of headers as strings. Bad UTF-8 is replaced, as Kafka's client does; only where there is some, one by one."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())

"""Logs for the tests of the Arrow codec: bytes of a Fetch answer, what the plain decoder reads in them, and rows to compare."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from odradek.client.arrow.columns import COLUMNS_WITH_HEADERS
from odradek.client.arrow.decode import Decoded
from odradek.client.arrow.fetched import check_ranges
from odradek.wire.batch import BatchHeader, check, headers
from odradek.wire.compression import Codec
from odradek.wire.records import Record, build, records
from tests.wire.samples import BYTES, HEADERS, TIMESTAMPS

TOPIC = "events"
PARTITION = 3
Row = dict[str, Any]


@st.composite
def logs(draw: st.DrawFn, codecs: Iterable[Codec] = tuple(Codec), batches_max: int = 4) -> bytes:
    """Batches with growing offsets, gaps in and between them, of any codec and kind of timestamp."""
    log = bytearray()
    offset = draw(st.integers(0, 1000))
    for _ in range(draw(st.integers(0, batches_max))):
        base_offset = offset
        batch = []
        for _ in range(draw(st.integers(1, 6))):
            offset += draw(st.integers(0, 3))
            batch.append(Record(offset, draw(TIMESTAMPS), draw(BYTES), draw(BYTES), draw(HEADERS)))
            offset += 1
        offset += draw(st.integers(0, 3))
        log += build(
            batch,
            base_offset=base_offset,
            last_offset=offset - 1,
            codec=draw(st.sampled_from(list(codecs))),
            log_append_time=draw(st.sampled_from([None, None, 1_700_000_000_000])),
            delete_horizon_ms=draw(st.sampled_from([None, None, 1_600_000_000_000])),
        )
    return bytes(log)


def read_plain(data: bytes | bytearray, check_crcs: bool = True) -> list[Row]:
    """All records, by the decoder that has no Arrow; control batches are not records."""
    found: list[Row] = []
    for position, header in headers(data):
        if check_crcs:
            check(data, position, header)
        else:
            check_ranges(position, header)
        if not header.is_control:
            found += [row(record, header) for record in records(data, position, header)]
    return found


def row(record: Record, header: BatchHeader) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "topic": TOPIC,
        "partition": PARTITION,
        "offset": record.offset,
        "timestamp": min(max(1000 * record.timestamp, -(1 << 63)), (1 << 63) - 1),
        "timestampType": int(header.is_log_append_time),
        "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
    }


def rows(decoded: Decoded) -> list[Row]:
    """All rows, with timestamps in microseconds; every batch must be sound to Arrow itself."""
    found: list[Row] = []
    for batch in decoded.batches:
        batch.validate(full=True)
        assert batch.num_rows
        if "timestamp" in batch.schema.names:
            index = batch.schema.get_field_index("timestamp")
            batch = batch.set_column(index, "timestamp", batch.column(index).cast(pa.int64()))
        found += batch.to_pylist()
    return found


def only(found: list[Row], columns: Iterable[str]) -> list[Row]:
    return [{name: row[name] for name in columns} for row in found]


def next_offset(data: bytes | bytearray) -> int:
    return max((header.next_offset for _, header in headers(data)), default=0)


ALL = COLUMNS_WITH_HEADERS

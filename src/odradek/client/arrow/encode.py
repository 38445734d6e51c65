"""An Arrow table as record batches, ready to be produced: `encode`.

Rows get their partitions, then their batches, then all records are written at once; a batch is compressed when it is
taken, so that the first can be on its way while later ones are made. Producer id, epoch and sequence are left open:
`odradek.wire.batch.set_producer` writes them.

Invariants
 1. a batch passes `odradek.wire.batch.check_produced`
 2. for the same rows the bytes are those of `odradek.wire.records.build`
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.client.arrow.kernel import Int32s, Int64s
from odradek.client.arrow.partitioner import choose
from odradek.client.arrow.record_writer import (
    BATCH_FIELDS,
    NO_BATCH,
    SIZE,
    Sources,
    plan_batches,
    write_records,
)
from odradek.client.arrow.table import read_partitions, read_sources
from odradek.client.batches import Compression
from odradek.wire.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    assemble,
)
from odradek.wire.compression import Codec

BATCH_SIZE: Final = 1_000_000  # a little less than a topic takes, unless it is told otherwise
SAMPLE_ROWS: Final = 256
BATCH_SIZE_MAX: Final = (1 << 31) - 1
TURN_ROWS: Final = 1024


class EncodedBatch(NamedTuple):
    """One batch, and the partition that it is for."""

    partition: int
    record_count: int
    data: bytearray


class Encoded(NamedTuple):
    """The batches of a table, those of one partition in the order of its rows; and the keyless rows so far."""

    batches: Iterator[EncodedBatch]
    keyless_rows: int


def encode(
    table: pa.Table | pa.RecordBatch,
    partition_count: int,
    *,
    now_ms: int,
    batch_size: int = BATCH_SIZE,
    codec: int = Codec.NONE,
    level: int | None = None,
    turns: Sequence[int] | None = None,
    turn_rows: int = TURN_ROWS,
    keyless_rows: int = 0,
) -> Encoded:
    """The rows of a table as batches for a topic's partitions.

    The table has a column `value`, and may have `key`, `headers`, `timestamp` (of now_ms where it is null) and `partition`.
    A row goes to the partition that it asks for, else to that of its key; rows without a key go to the partitions `turns`
    (all, if None), `turn_rows` to each before the next, where `keyless_rows` went before. A batch has `batch_size` bytes
    at most before it is compressed, or one record.
    """
    if partition_count < 1 or turn_rows < 1 or keyless_rows < 0 or not 0 < batch_size <= BATCH_SIZE_MAX:
        raise ValueError(
            f"{partition_count} partitions, turns of {turn_rows} rows after {keyless_rows}, batches of {batch_size} bytes"
        )
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    sources, owners = read_sources(table, now_ms)
    asked = read_partitions(table, partition_count)
    partitions, keyless_rows = choose(sources.keys, asked, partition_count, turns, turn_rows, keyless_rows)

    row_count = table.num_rows
    numbers, sizes = np.empty(row_count, np.int32), np.empty(row_count, np.int64)
    batches = np.empty((row_count, BATCH_FIELDS), np.int64)
    open_batches = np.full(partition_count, NO_BATCH, np.int64)
    count = plan_batches(sources, now_ms, partitions, batch_size, open_batches, numbers, sizes, batches)
    if count < 0:
        raise ValueError(f"row {-1 - count} has a header without a key, or more bytes than a batch can have")
    batches = batches[:count].copy()
    payloads = _write(sources, now_ms, numbers, sizes, batches)
    del owners  # the addresses in the sources are good up to here
    return Encoded(_assembled(batches, payloads, codec, level), keyless_rows)


def codec_that_pays(table: pa.Table | pa.RecordBatch, partition_count: int, compression: Compression) -> Codec:
    """What was asked for, or whether lz4 pays for the first rows."""
    if compression.codec is not None:
        return compression.codec
    sample = next(encode(table[:SAMPLE_ROWS], partition_count, now_ms=0).batches, None)
    return Codec.NONE if sample is None else Codec(compression.choose(bytes(sample.data))[0])


def _write(sources: Sources, now_ms: int, numbers: Int32s, sizes: Int64s, batches: Int64s) -> pa.Buffer:
    """The records of all batches, one batch's after the other's."""
    ends = np.cumsum(batches[:, SIZE])
    payloads = pa.allocate_buffer(int(ends[-1]) if len(ends) else 0)
    ends += payloads.address
    cursors = ends - batches[:, SIZE]
    write_records(sources, now_ms, numbers, sizes, batches, cursors, np.zeros(len(batches), np.int64))
    assert np.array_equal(cursors, ends)
    return payloads


def _assembled(batches: Int64s, payloads: pa.Buffer, codec: int, level: int | None) -> Iterator[EncodedBatch]:
    view = memoryview(payloads).cast("B")
    start = 0
    for partition, count, size, base_timestamp, max_timestamp in batches.tolist():
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=int(codec),
            last_offset_delta=count - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=count,
        )
        yield EncodedBatch(partition, count, assemble(header, view[start : start + size], level))
        start += size

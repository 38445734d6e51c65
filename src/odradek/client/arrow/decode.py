"""A partition's records in a Fetch answer, as Arrow: `decode`.

The walk finds the batches, their payloads are decompressed, and a kernel reads the records of many batches in one call,
straight into buffers that Arrow keeps. What the kernel refuses is read again by `odradek.wire.records`, which says why.

Invariants
 1. a record batch has `chunk_bytes_max` bytes of a column at most, or else what one batch of the log has; never has it
    more than Arrow's offsets of 32 bits can count, for no payload may be longer
 2. the payloads in memory are those of one chunk
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from odradek.client.arrow.buffers import same_number, same_text
from odradek.client.arrow.chunk import Chunk
from odradek.client.arrow.columns import COLUMNS, schema
from odradek.client.arrow.fetched import Walk
from odradek.wire.batch import HEADER_SIZE, OFFSET_MAX
from odradek.wire.compression import Codec
from odradek.wire.records import PAYLOAD_SIZE_MAX, payload
from odradek.wire.varint import Buffer

ARROW_BYTES_MAX: Final = (1 << 31) - 1
CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024


class Decoded(NamedTuple):
    """What came out of an answer: record batches, none if no record did; where to fetch next; how many bytes were read."""

    batches: list[pa.RecordBatch]
    next_offset: int
    byte_count: int


def decode(
    data: Buffer,
    topic: str,
    partition: int,
    *,
    columns: Sequence[str] = COLUMNS,
    fetch_offset: int = 0,
    end_offset: int = OFFSET_MAX,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crcs: bool = True,
    payload_size_max: int = PAYLOAD_SIZE_MAX,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Decoded:
    """The records of one partition from `fetch_offset` up to `end_offset`, out of the `records` of a Fetch answer.

    `aborted` is the answer's list of aborted transactions, producer id and first offset of each, for a reader of committed
    records; None reads all. What is not sound is a ProtocolError. All record batches of the same `columns` have the same
    schema, `odradek.client.arrow.columns.schema(columns)`: those of many partitions make one table without a copy.
    """
    if not 0 < payload_size_max <= ARROW_BYTES_MAX or not 0 < chunk_bytes_max <= ARROW_BYTES_MAX:
        raise ValueError(f"payloads of {payload_size_max}, chunks of {chunk_bytes_max} bytes: 1 to {ARROW_BYTES_MAX} can be")
    kinds = schema(columns)
    view, data_buffer = memoryview(data), pa.py_buffer(data)
    walk = Walk(view, fetch_offset, end_offset, aborted, check_crcs)
    batches: list[pa.RecordBatch] = []
    chunk = Chunk(view)

    def read() -> None:
        rows, found = chunk.read(columns, fetch_offset, end_offset)
        batches.extend(_batches(kinds, rows, found, topic, partition, chunk_bytes_max))

    for position, header in walk:
        if header.codec == Codec.NONE and header.size <= payload_size_max:
            part = data_buffer.slice(position + HEADER_SIZE, header.size - HEADER_SIZE)
        else:
            part = pa.py_buffer(payload(view, position, header, payload_size_max))
        if chunk.table and chunk.byte_count + part.size > chunk_bytes_max:
            read()
            chunk = Chunk(view)
        chunk.add(position, header, part)
    read()
    return Decoded(batches, walk.next_offset, walk.position)


def _batches(
    kinds: pa.Schema, rows: int, found: dict[str, pa.Array], topic: str, partition: int, chunk_bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """A chunk's rows with the columns that are the same in all of them; a long topic's name may be what has to be split."""
    rows_max = max(chunk_bytes_max // max(len(topic.encode()), 1), 1) if "topic" in kinds.names else max(rows, 1)
    for start in range(0, rows, rows_max):
        count = min(rows - start, rows_max)
        arrays = {name: array.slice(start, count) for name, array in found.items()}
        if "topic" in kinds.names:
            arrays["topic"] = same_text(topic, count)
        if "partition" in kinds.names:
            arrays["partition"] = same_number(partition, count)
        yield pa.RecordBatch.from_arrays([arrays[name] for name in kinds.names], schema=kinds)

"""The batches and records of a segment, of a metadata snapshot, or of any file that holds batches one after another.

Invariants
 1. Nothing is given that is not whole and has its CRC; where that ends, `Damaged` says at which byte.
 2. No more than one batch and one chunk of the file is in memory.
"""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.log.disk import File
from odradek.log.dump.damage import Damaged
from odradek.log.dump.rows import Batch, Record, Row
from odradek.log.dump.values import Holds, control, shown, understood
from odradek.wire.batch import HEADER_SIZE, BatchHeader, check, read_header
from odradek.wire.compression import CODECS, Codec
from odradek.wire.errors import ProtocolError
from odradek.wire.records import PAYLOAD_SIZE_MAX, records

CHUNK_BYTES = 1024 * 1024


class Selection(NamedTuple):
    """What of a file is wanted: from an offset on, at most so many rows, records as well as batches."""

    offset: int = 0
    limit: int | None = None
    records: bool = False


def segment_rows(file: File, holds: Holds, base_offset: int, wanted: Selection) -> Iterator[Row]:
    """The batches, and after each its records if they are wanted."""
    left = wanted.limit
    for position, header, batch in whole_batches(file, base_offset, wanted.offset):
        if left == 0:
            return
        yield batch_row(file.path, position, header)
        if wanted.records:
            for row in record_rows(file.path, position, header, batch, holds):
                if row.offset < wanted.offset:
                    continue
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield row
        elif left is not None:
            left -= 1


def whole_batches(file: File, base_offset: int, from_offset: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The batches that end at or past an offset. Those before are stepped over by their headers."""
    position, next_offset, chunk, start = 0, base_offset, memoryview(b""), 0
    while position < file.size:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk, start, at = memoryview(file.read(position, CHUNK_BYTES)), position, 0
        header = _header(file, chunk, at, position)
        if header.base_offset < next_offset:
            raise Damaged(position, f"a batch with offset {header.base_offset}, where {next_offset} or more is due")
        if not header.base_offset <= header.last_offset < from_offset:
            if at + header.size > len(chunk):
                chunk, start, at = memoryview(file.read(position, max(CHUNK_BYTES, header.size))), position, 0
            _check(chunk, at, header, position)
            yield position, header, chunk[at : at + header.size]
        next_offset = header.next_offset
        position += header.size


def _header(file: File, chunk: memoryview, at: int, position: int) -> BatchHeader:
    try:
        header = read_header(chunk, at)
    except ProtocolError as error:
        if is_zero(file, position):
            count = file.size - position
            reason = f"{count} zero bytes up to the end: room that was never written to, or whose content was lost in a crash"
            raise Damaged(position, reason) from None
        raise Damaged(position + error.position - at, f"{error.field}: {error.reason}") from None
    if position + header.size > file.size:
        left = file.size - position
        raise Damaged(position, f"the batch at offset {header.base_offset} has {header.size} bytes, of which {left} are there")
    return header


def _check(chunk: memoryview, at: int, header: BatchHeader, position: int) -> None:
    try:
        check(chunk, at, header)
    except ProtocolError as error:
        raise Damaged(position + error.position - at, f"{error.field}: {error.reason}") from None


def is_zero(file: File, position: int) -> bool:
    """Whether a file has nothing but zeros from a position on."""
    while position < file.size:
        chunk = file.read(position, CHUNK_BYTES)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def batch_row(path: str, position: int, header: BatchHeader) -> Batch:
    return Batch(
        file=path,
        position=position,
        size=header.size,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        leader_epoch=header.leader_epoch,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        timestamp_type="LogAppendTime" if header.is_log_append_time else "CreateTime",
        codec=Codec(header.codec).name.lower() if header.codec in CODECS else str(header.codec),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        crc=header.crc,
    )


def record_rows(path: str, position: int, header: BatchHeader, batch: memoryview, holds: Holds) -> Iterator[Record]:
    try:
        for record in records(batch, 0, header, max(PAYLOAD_SIZE_MAX, header.size)):
            kind: str | None = None
            if header.is_control:
                kind, value, problem = control(record)
                key = shown(record.key)
            else:
                key, value, problem = understood(record, holds)
            yield Record(
                file=path,
                batch=header.base_offset,
                offset=record.offset,
                timestamp=record.timestamp,
                key=key,
                value=value,
                headers=[(name, shown(content)) for name, content in record.headers],
                control=kind,
                problem=problem,
            )
    except ProtocolError as error:
        reason = f"the batch at offset {header.base_offset} has its CRC, but byte {error.position} of its records is wrong"
        raise Damaged(position, f"{reason}: {error.field}: {error.reason}") from None

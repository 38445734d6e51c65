"""The records inside a batch: read, scanned for compaction and deep validation, and built as Kafka builds them.

A record is length · attributes · timestamp delta · offset delta · key · value · headers, all numbers but the attributes
in zigzag varints, null written as length -1. One loop, `scan`, walks them all with the decoding of short numbers
written out, for a call costs more than the work; when it meets anything wrong, `_fault` walks that one record again,
slowly, to name the field.

Invariants
 1. `scan` and `records` give a record only after all of it was checked: its fields end at its last byte, and as many
    records as the header says end at the batch's last byte
 2. offsets grow from record to record and lie in the header's range; gaps are what compaction left
 3. for the same records `build` gives the bytes that Kafka's builder gives, but for the compressor's own output
 4. positions in errors and in what `scan` gives count from the first byte of the decompressed records
"""

from collections.abc import Iterable, Iterator
from typing import Final, NoReturn

import msgspec

from odradek.wire import varint
from odradek.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    assemble,
)
from odradek.wire.compression import Codec, decompress
from odradek.wire.errors import ProtocolError
from odradek.wire.varint import BYTES_MAX_INT64, Buffer, encode

# What one batch may decompress to where the caller has no better number: as much as one request may bring uncompressed.
PAYLOAD_SIZE_MAX: Final = 100 * 1024 * 1024

TIMESTAMP_MIN: Final = -(1 << 63)
TIMESTAMP_MAX: Final = (1 << 63) - 1
OFFSET_DELTA_MAX: Final = (1 << 31) - 1

RecordHeader = tuple[str, bytes | None]


class Record(msgspec.Struct, gc=False):
    """One record. It holds no containers but the tuple of its headers, so the garbage collector need not look at it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


# What the lowest seven bits of a varint say in zigzag. A second byte is `^= byte << 6` away, whatever the sign.
ZIGZAG: Final = tuple((number & 0x7F) >> 1 ^ -(number & 1) for number in range(0x100))

# start, end, offset delta, timestamp delta, key start, key end, value start, value end; an end of -1 says null
Span = tuple[int, int, int, int, int, int, int, int]


def payload(view: Buffer, position: int, header: BatchHeader, size_max: int = PAYLOAD_SIZE_MAX) -> Buffer:
    """The bytes of a batch's records, decompressed; a slice of the view where there is no codec."""
    end = position + header.size
    if end > len(view):
        raise CorruptBatch(f"{len(view) - position} of the batch's {header.size} bytes are there", "record batch", position)
    return decompress(header.codec, memoryview(view)[position + HEADER_SIZE : end], size_max)


def scan(payload: Buffer, header: BatchHeader) -> Iterator[Span]:
    """Where every record and its key and value lie in the decompressed bytes, without making them."""
    data = payload if type(payload) is bytes else bytes(payload)  # bytes index twice as fast as a view
    end_all = len(data)
    last_delta = header.last_offset_delta
    zigzag = ZIGZAG
    previous = -1
    start = 0
    whole = False
    try:
        for _ in range(header.record_count):
            number = data[start]
            size = zigzag[number]
            if number < 0x80:
                cursor = start + 2  # the byte of the attributes, of which none are defined, is stepped over
            elif (byte := data[start + 1]) < 0x80:
                size ^= byte << 6
                cursor = start + 3
            else:
                size, cursor = varint.decode(data, start)
                cursor += 1
            end = cursor + size - 1

            number = data[cursor]
            timestamp_delta = zigzag[number]
            if number < 0x80:
                cursor += 1
            elif (byte := data[cursor + 1]) < 0x80:
                timestamp_delta ^= byte << 6
                cursor += 2
            else:
                timestamp_delta, cursor = varint.decode(data, cursor, BYTES_MAX_INT64)

            number = data[cursor]
            offset_delta = zigzag[number]
            if number < 0x80:
                cursor += 1
            elif (byte := data[cursor + 1]) < 0x80:
                offset_delta ^= byte << 6
                cursor += 2
            else:
                offset_delta, cursor = varint.decode(data, cursor)

            number = data[cursor]
            size = zigzag[number]
            if number < 0x80:
                key_start = cursor + 1
            elif (byte := data[cursor + 1]) < 0x80:
                size ^= byte << 6
                key_start = cursor + 2
            else:
                size, key_start = varint.decode(data, cursor)
            if size >= 0:
                cursor = key_end = key_start + size
            elif size == -1:
                cursor, key_end = key_start, -1
            else:
                break

            number = data[cursor]
            size = zigzag[number]
            if number < 0x80:
                value_start = cursor + 1
            elif (byte := data[cursor + 1]) < 0x80:
                size ^= byte << 6
                value_start = cursor + 2
            else:
                size, value_start = varint.decode(data, cursor)
            if size >= 0:
                cursor = value_end = value_start + size
            elif size == -1:
                cursor, value_end = value_start, -1
            else:
                break

            if data[cursor]:  # zero is no headers, and the record's last byte
                cursor = _skip_headers(data, cursor)
            else:
                cursor += 1
            if cursor != end or end > end_all or not previous < offset_delta <= last_delta:
                break
            yield start, end, offset_delta, timestamp_delta, key_start, key_end, value_start, value_end
            previous = offset_delta
            start = end
        else:
            whole = True
    except (IndexError, ProtocolError):
        pass
    if not whole:
        _fault(data, start, previous, header)
    if start != end_all:
        count = header.record_count
        raise ProtocolError(f"{end_all - start} bytes after the {count} records that the header says", "records", start)


def _skip_headers(data: bytes, position: int) -> int:
    """The position after a record's headers, of which it looks at the lengths only; a part of `scan`'s fast loop."""
    count, cursor = varint.decode(data, position)
    if count < 0:
        raise ProtocolError(f"a count of {count}", "header count", position)
    for _ in range(count):
        number = data[cursor]
        if number < 0x80:
            size = ZIGZAG[number]
            cursor += 1
        else:
            size, cursor = varint.decode(data, cursor)
        if size < 0:
            raise ProtocolError(f"a length of {size}", "header key", cursor)
        cursor += size
        number = data[cursor]
        if number < 0x80:
            size = ZIGZAG[number]
            cursor += 1
        else:
            size, cursor = varint.decode(data, cursor)
        if size > 0:
            cursor += size
        elif size < -1:
            raise ProtocolError(f"a length of {size}", "header value", cursor)
    return cursor


def _fault(data: bytes, start: int, previous: int, header: BatchHeader) -> NoReturn:
    """Say what is wrong with the record at a position, field by field: the fast loop only knows that something is."""
    if start == len(data):
        raise ProtocolError(f"the bytes end before the {header.record_count} records that the header says", "records", start)
    size, body = varint.decode(data, start, field="record length")
    if not 0 <= size <= len(data) - body:
        raise ProtocolError(f"a record of {size} bytes where {len(data) - body} are left", "record length", start)
    record = data[: body + size]
    _, cursor = varint.decode(record, body + 1, BYTES_MAX_INT64, field="timestamp delta")
    delta_position = cursor
    delta, cursor = varint.decode(record, cursor, field="offset delta")
    if not previous < delta <= header.last_offset_delta:
        reason = f"{delta}, after {previous} and in a batch whose last is {header.last_offset_delta}"
        raise ProtocolError(reason, "offset delta", delta_position)
    for field, size_min in (("key length", -1), ("value length", -1)):
        cursor = _fault_bytes(record, cursor, field, size_min)
    count_position = cursor
    count, cursor = varint.decode(record, cursor, field="header count")
    if not 0 <= count <= len(record) - cursor:
        raise ProtocolError(f"{count} headers in {len(record) - cursor} bytes", "header count", count_position)
    for _ in range(count):
        cursor = _fault_bytes(record, cursor, "header key length", 0)
        cursor = _fault_bytes(record, cursor, "header value length", -1)
    reason = f"a record of {size} bytes, whose fields take {cursor - body}"
    raise ProtocolError(reason, "record length", start)


def _fault_bytes(record: bytes, position: int, field: str, size_min: int) -> int:
    size, cursor = varint.decode(record, position, field=field)
    if not size_min <= size <= len(record) - cursor:
        raise ProtocolError(f"{size}, where {len(record) - cursor} bytes of the record are left", field, position)
    return cursor + max(size, 0)


def records(view: Buffer, position: int, header: BatchHeader, size_max: int = PAYLOAD_SIZE_MAX) -> Iterator[Record]:
    """Every record of a batch. A record's own timestamp does not count where the log wrote the time of the append."""
    data = bytes(payload(view, position, header, size_max))
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in scan(data, header):
        _, end, offset_delta, timestamp_delta, key_start, key_end, value_start, value_end = span
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
            raise ProtocolError(f"{timestamp_delta} after {base_timestamp} is no int64", "timestamp delta", span[0])
        headers_start = value_start if value_end < 0 else value_end
        yield Record(
            base_offset + offset_delta,
            timestamp,
            None if key_end < 0 else data[key_start:key_end],
            None if value_end < 0 else data[value_start:value_end],
            () if headers_start == end - 1 else read_headers(data, headers_start),
        )


def read_headers(data: bytes, position: int) -> tuple[RecordHeader, ...]:
    """The headers of a record that `scan` has checked. Bad UTF-8 in a key is replaced, as Kafka's client does."""
    headers: list[RecordHeader] = []
    count, cursor = varint.decode(data, position)
    for _ in range(count):
        number = data[cursor]
        if number < 0x80:
            start = cursor + 1
            cursor = start + ZIGZAG[number]
        else:
            size, start = varint.decode(data, cursor)
            cursor = start + size
        key = data[start:cursor].decode(errors="replace")
        size, start = varint.decode(data, cursor)
        cursor = start + size if size > 0 else start
        headers.append((key, None if size < 0 else data[start:cursor]))
    return tuple(headers)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[RecordHeader] = (),
) -> bytes:
    """The bytes of one record."""
    body = b"".join(
        (
            b"\x00",
            encode(timestamp_delta),
            encode(offset_delta),
            NULL if key is None else encode(len(key)),
            key or b"",
            NULL if value is None else encode(len(value)),
            value or b"",
            encode_headers(headers) if headers else b"\x00",
        )
    )
    return encode(len(body)) + body


NULL: Final = encode(-1)


def encode_headers(headers: Iterable[RecordHeader]) -> bytes:
    parts = []
    for name, value in headers:
        key = name.encode()
        parts.append(encode(len(key)) + key + (NULL if value is None else encode(len(value)) + value))
    return encode(len(parts)) + b"".join(parts)


def with_timestamp_delta(data: Buffer, start: int, timestamp_delta: int) -> bytes:
    """The record at a position with another timestamp delta, as a new base timestamp or delete horizon asks for."""
    size, body = varint.decode(data, start)
    _, cursor = varint.decode(data, body + 1, BYTES_MAX_INT64)
    rest = b"".join((data[body : body + 1], encode(timestamp_delta), data[cursor : body + size]))
    return encode(len(rest)) + rest


def build_payload(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The bytes of records, uncompressed, with their deltas to a base."""
    return b"".join(
        [
            encode_record(
                record.offset - base_offset, record.timestamp - base_timestamp, record.key, record.value, record.headers
            )
            for record in records
        ]
    )


def build(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A batch of records whose offsets grow from `base_offset`; `last_offset` if the batch ends after its last record.

    Base timestamp is the first record's or the delete horizon, max timestamp the records' or the time of the append.
    """
    records = list(records)
    assert records, "a batch without records is made by empty_batch"
    if last_offset is None:
        last_offset = records[-1].offset
    assert base_offset <= records[0].offset
    assert records[-1].offset <= last_offset <= base_offset + OFFSET_DELTA_MAX
    base_timestamp = records[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = max(NO_TIMESTAMP, *[record.timestamp for record in records])
    attributes = int(codec)
    attributes |= (LOG_APPEND_TIME if log_append_time is not None else 0) | (TRANSACTIONAL if transactional else 0)
    attributes |= (CONTROL if control else 0) | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, build_payload(records, base_offset, base_timestamp), level)

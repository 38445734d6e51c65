"""The header of a record batch (format v2): 61 bytes before the records of what is appended, kept and fetched as one.

A node never looks further than this header on the way of a batch, so reading one is one struct call. What a batch
holds is in records.py; the batches that Kafka writes for itself are in control.py.

    base offset 8 · length 4 · leader epoch 4 · magic 1 · CRC-32C 4 · attributes 2 · last offset delta 4
    · base timestamp 8 · max timestamp 8 · producer id 8 · producer epoch 2 · base sequence 4 · record count 4 · records

Invariants
 1. the CRC covers the bytes from the attributes to the end: base offset and leader epoch may change in place without it
 2. a header that `read_header` gave has magic 2 and a length of 61 bytes at least; nothing else of it is checked yet
 3. a batch that passed `check` lies whole in its view, has the CRC that it says, and offsets that only grow
 4. the last offset stays when compaction takes records away: in a log the count may be less than the offsets, even 0
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.wire.checksum import crc32c
from odradek.wire.compression import CODECS, Codec, compress
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.varint import Buffer

OVERHEAD: Final = 12  # base offset and length: what the length field does not count
HEADER_SIZE: Final = 61
BATCH_LENGTH_MIN: Final = HEADER_SIZE - OVERHEAD
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21  # where the CRC begins to count
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
ATTRIBUTES_PRODUCED: Final = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL  # what a client may set, and the topic's own stamp

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

SEQUENCE_MASK: Final = 0x7FFFFFFF
OFFSET_MAX: Final = 0x7FFFFFFFFFFFFFFF

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE
_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_PRODUCER: Final = struct.Struct(">qhi")


class CorruptBatch(ProtocolError):
    """Bytes that are not the batch that was written: cut, or changed on their way or on disk."""

    error = ErrorCode.CORRUPT_MESSAGE


class InvalidBatch(ProtocolError):
    """A whole batch that breaks a rule; `error` is what its sender is answered with."""

    def __init__(self, reason: str, field: str, position: int, error: ErrorCode = ErrorCode.INVALID_RECORD) -> None:
        super().__init__(reason, field, position)
        self.error = error


class BatchHeader(NamedTuple):
    """The header's fields, in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """All bytes of the batch."""
        return self.batch_length + OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """A number of Codec, or 5 to 7, which are none."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which compaction may take tombstones and markers away."""
        return self.attributes & DELETE_HORIZON != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)

    def placed(self, base_offset: int, leader_epoch: int) -> "BatchHeader":
        """The header of the same batch where a leader has put it."""
        return _header(BatchHeader, (base_offset, self[1], leader_epoch, *self[3:]))


def sequence_after(sequence: int, count: int) -> int:
    """Sequences run from 0 to 2^31 - 1, then from 0 again."""
    return (sequence + count) & SEQUENCE_MASK


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position, by one struct call and without a copy."""
    try:
        header = _header(BatchHeader, _fields(view, position))
    except struct.error:
        raise _cut_header(view, position) from None
    if header[3] != MAGIC:
        raise _old_magic(header[3], position)
    if header[1] < BATCH_LENGTH_MIN:
        raise CorruptBatch(
            f"a length of {header[1]}, where a batch has {BATCH_LENGTH_MIN} at least", "batch length", position + 8
        )
    return header


_fields: Final = HEADER.unpack_from
_header: Final = tuple.__new__  # the constructor of a NamedTuple is Python code, and takes longer than the struct call


def _cut_header(view: Buffer, position: int) -> ProtocolError:
    left = max(len(view) - position, 0)
    if left > MAGIC_POSITION and (magic := view[position + MAGIC_POSITION]) in (0, 1):
        return _old_magic(magic, position)
    return CorruptBatch(f"{left} bytes, where the header of a batch has {HEADER_SIZE}", "record batch", position)


def _old_magic(magic: int, position: int) -> ProtocolError:
    if magic in (0, 1):
        reason = (
            f"message format v{magic} (magic {magic}) is no longer supported, by Apache Kafka since 4.0 neither: "
            "only record batches (magic 2, of Kafka 0.11 and later) are"
        )
        return InvalidBatch(reason, "magic", position + MAGIC_POSITION)
    return CorruptBatch(f"magic {magic}, where a record batch has {MAGIC}", "magic", position + MAGIC_POSITION)


def headers(view: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Every batch's position and header; the last batch too must be whole."""
    position = 0
    end = len(view)
    while position < end:
        header = read_header(view, position)
        if position + header.size > end:
            raise _cut_batch(end - position, position, header)
        yield position, header
        position += header.size


def _cut_batch(left: int, position: int, header: BatchHeader) -> CorruptBatch:
    reason = f"the batch with base offset {header.base_offset} has {header.size} bytes, of which {left} are there"
    return CorruptBatch(reason, "record batch", position)


def check(view: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse what no log may hold: a cut batch, a wrong CRC, offsets that do not grow."""
    end = position + header.batch_length + OVERHEAD
    if end > len(view):
        raise _cut_batch(len(view) - position, position, header)
    crc = crc32c(memoryview(view)[position + ATTRIBUTES_POSITION : end])
    if crc != header.crc:
        reason = f"the batch with base offset {header.base_offset} says {header.crc:#010x}, its bytes give {crc:#010x}"
        raise CorruptBatch(reason, "CRC", position + CRC_POSITION)
    if header.record_count < 0:
        raise CorruptBatch(f"a count of {header.record_count} records", "record count", position + 57)
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"a last offset {header.last_offset_delta} after the base", "last offset delta", position + 23)
    if not 0 <= header.base_offset <= OFFSET_MAX - header.last_offset_delta:
        raise CorruptBatch(f"a base offset of {header.base_offset}", "base offset", position)


def check_produced(view: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse what `check` does, and what a client may not send. Timestamps are the topic's to judge."""
    check(view, position, header)
    attributes = header.attributes
    if header.base_offset != 0:
        raise InvalidBatch(f"{header.base_offset}, where a producer sends 0", "base offset", position)
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        reason = f"{header.record_count} records, where the offsets are those of {header.last_offset_delta + 1}"
        raise InvalidBatch(reason, "record count", position + 57)
    if attributes & ~ATTRIBUTES_PRODUCED or attributes & CODEC_MASK not in CODECS:
        raise _invalid_attributes(header, position + ATTRIBUTES_POSITION)
    if header.producer_id > NO_PRODUCER_ID:
        if header.base_sequence < 0:
            raise InvalidBatch(f"{header.base_sequence} of an idempotent producer", "base sequence", position + 53)
        if header.producer_epoch < 0:
            raise InvalidBatch(f"{header.producer_epoch} of an idempotent producer", "producer epoch", position + 51)
    elif attributes & TRANSACTIONAL:
        raise InvalidBatch("a transactional batch without a producer id", "producer id", position + 43)


def _invalid_attributes(header: BatchHeader, position: int) -> InvalidBatch:
    if header.is_control:
        return InvalidBatch("a client may not write control records", "attributes", position)
    if header.codec not in CODECS:
        reason = f"there is no codec {header.codec}"
        return InvalidBatch(reason, "attributes", position, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    return InvalidBatch(f"{header.attributes & 0xFFFF:#06x} has bits that no producer sets", "attributes", position)


def assemble(header: BatchHeader, payload: Buffer, level: int | None = None) -> bytearray:
    """The batch of a header and its records' bytes, which come uncompressed and leave as the header's codec says.

    Length, magic and CRC of the given header do not matter: they are made anew.
    """
    return enclose(header, payload if header.codec == Codec.NONE else compress(header.codec, payload, level))


def enclose(header: BatchHeader, payload: Buffer) -> bytearray:
    """The batch of a header and its records' bytes, which are as the header's codec says."""
    batch = bytearray(HEADER_SIZE)
    batch += payload
    HEADER.pack_into(batch, 0, header[0], len(batch) - OVERHEAD, header[2], MAGIC, 0, *header[5:])
    _write_crc(batch, 0, len(batch))
    return batch


def empty_batch(header: BatchHeader) -> bytearray:
    """The 61 bytes that stay where compaction took all records: offsets, producer state and max timestamp."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return assemble(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def set_offset_and_epoch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """What a leader writes into a batch that it appends; the CRC does not cover it."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + OVERHEAD, leader_epoch)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, max_timestamp: int, log_append_time: bool) -> None:
    """Another max timestamp and timestamp type, and the CRC anew; the records stay as they are, compressed or not."""
    header = read_header(buffer, position)
    attributes = header.attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if log_append_time else 0)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    _write_crc(buffer, position, position + header.size)


def set_producer(
    buffer: bytearray | memoryview, position: int, producer_id: int, epoch: int, sequence: int, *, transactional: bool
) -> None:
    """Another producer, epoch and sequence, in a transaction or not, and the CRC anew."""
    header = read_header(buffer, position)
    attributes = header.attributes & ~TRANSACTIONAL | (TRANSACTIONAL if transactional else 0)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(buffer, position + PRODUCER_POSITION, producer_id, epoch, sequence)
    _write_crc(buffer, position, position + header.size)


def _write_crc(buffer: bytearray | memoryview, position: int, end: int) -> None:
    with memoryview(buffer) as view:
        crc = crc32c(view[position + ATTRIBUTES_POSITION : end])
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)

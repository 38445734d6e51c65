"""One idempotent producer as a log knows it, and the bytes in which a snapshot keeps it.

    snapshot  int16 version 1, uint32 CRC-32C of what follows, int32 count, entries
    entry     int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp,
              int32 coordinator epoch, int64 first offset of the open transaction, -1 for none

Invariants
 1. The batches are of the current epoch, oldest first, five at most.
 2. A snapshot keeps the last batch only, as Kafka's does. What it tells of is partial: the log itself is asked for the four
    batches before it when a producer repeats one of them after a restart.
"""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from odradek.wire.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, SEQUENCE_MASK, BatchHeader
from odradek.wire.checksum import crc32c

BATCHES_MAX = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

SNAPSHOT_VERSION = 1
HEAD = Struct(">hI")
COUNT = Struct(">i")
ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that is not what was written: an older one has to do."""


class BatchMetadata(NamedTuple):
    """A batch that was appended: what a repetition of it is known by, and answered with."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_batch = tuple.__new__  # the constructor of a NamedTuple is Python code, and this is called for every batch


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "is_partial",
        "last_timestamp",
        "producer_id",
        "silent_since_ms",
        "transaction_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_first_offset: int = NO_OFFSET,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self.is_partial = False
        self.silent_since_ms: int | None = None  # by the clock of who looks; None when it was heard since the last look
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_MAX)

    @property
    def has_transaction(self) -> bool:
        return self.transaction_first_offset >= 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of its last data; -1 when only markers of this epoch are known."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.is_partial = False  # of this epoch there is nothing else

    def add_batch(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        first_sequence = (last_sequence - offset_delta) & SEQUENCE_MASK
        self.batches.append(_batch(BatchMetadata, (first_sequence, last_sequence, last_offset, offset_delta, timestamp)))
        self.heard(timestamp)

    def heard(self, timestamp: int) -> None:
        self.last_timestamp = timestamp
        self.silent_since_ms = None

    def remember(self, headers: Iterable[BatchHeader]) -> None:
        """Puts older batches, the newest first, before those that are known."""
        for header in headers:
            if len(self.batches) < BATCHES_MAX:
                last_sequence, delta = header.last_sequence, header.last_offset_delta
                batch = (header.base_sequence, last_sequence, header.last_offset, delta, header.max_timestamp)
                self.batches.appendleft(_batch(BatchMetadata, batch))
        self.is_partial = False


def encode_snapshot(producers: Iterable[Producer]) -> bytes:
    entries = [_encode(producer) for producer in producers]
    body = b"".join([COUNT.pack(len(entries)), *entries])
    return HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def _encode(producer: Producer) -> bytes:
    batch = producer.batches[-1] if producer.batches else None
    return ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        NO_SEQUENCE if batch is None else batch.last_sequence,
        NO_OFFSET if batch is None else batch.last_offset,
        0 if batch is None else batch.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def decode_snapshot(path: str, content: bytes) -> list[Producer]:
    """CorruptSnapshot unless every byte is as it was written."""
    if len(content) < HEAD.size + COUNT.size:
        raise CorruptSnapshot(f"{path} has {len(content)} bytes, {HEAD.size + COUNT.size} at least are due")
    version, crc = HEAD.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"{path} has version {version}, where only {SNAPSHOT_VERSION} is known")
    body = memoryview(content)[HEAD.size :]
    if crc != crc32c(body):
        raise CorruptSnapshot(f"{path} says CRC {crc:#010x}, and has {crc32c(body):#010x}")
    (count,) = COUNT.unpack_from(body)
    if len(body) != COUNT.size + count * ENTRY.size:
        raise CorruptSnapshot(f"{path} announces {count} producers in {len(content)} bytes")
    return [_decode(*fields) for fields in ENTRY.iter_unpack(body[COUNT.size :])]


def _decode(
    producer_id: int, epoch: int, sequence: int, offset: int, delta: int, timestamp: int, coordinator_epoch: int, first: int
) -> Producer:
    producer = Producer(producer_id, epoch, coordinator_epoch, timestamp, max(first, NO_OFFSET))
    if offset >= 0:
        producer.add_batch(sequence, offset, delta, timestamp)
        producer.is_partial = True
    return producer

"""A batch of records on their way into a partition, and what their senders wait for.

Invariants
 1. A batch is built once; what changes when it is sent again under another epoch is stamped into it.
 2. All its records succeed or fail together, and each waiter hears of it, whatever becomes of the others.
"""

import asyncio
from collections.abc import Generator
from typing import Final

from odradek.client.errors import KafkaError
from odradek.client.records import NO_OFFSET, NO_TIMESTAMP, Delivered, DeliveredBatch, Headers, TopicPartition
from odradek.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    enclose,
    read_header,
    set_producer,
)
from odradek.wire.compression import Codec, compress
from odradek.wire.records import encode_headers, records
from odradek.wire.varint import SMALL, SMALL_END, encode

RECORD_OVERHEAD: Final = 25  # at most: five numbers of up to five bytes; what is usual takes 7 to 9
PAYS_FROM_BYTES: Final = 1024  # what is smaller is not compressed on our own account
PAYS_BELOW: Final = 0.9  # of the size
LOOK_AGAIN_AFTER: Final = 64  # batches that were not worth compressing

Entry = tuple[bytes | None, bytes | None, int, Headers]  # key, value, timestamp, headers


class Compression:
    """How the batches of a topic are compressed: with a codec, or, where none was named, with lz4 as long as that pays."""

    def __init__(self, codec: Codec | None, level: int | None = None) -> None:
        self.codec = codec
        self.level = level
        self.in_vain = 0  # batches since the last try, where it was not worth it

    def choose(self, payload: bytes) -> tuple[int, bytes]:
        if self.codec is not None:
            return self.codec, payload if self.codec is Codec.NONE else compress(self.codec, payload, self.level)
        if len(payload) < PAYS_FROM_BYTES:
            return Codec.NONE, payload
        if self.in_vain:
            self.in_vain = (self.in_vain + 1) % LOOK_AGAIN_AFTER
            return Codec.NONE, payload
        compressed = compress(Codec.LZ4, payload, 1)
        if len(compressed) < len(payload) * PAYS_BELOW:
            return Codec.LZ4, compressed
        self.in_vain = 1
        return Codec.NONE, payload


class Batch:
    __slots__ = (
        "attempts",
        "base_offset",
        "begun_s",
        "count",
        "data",
        "entries",
        "error",
        "identity",
        "is_done",
        "is_uncertain",
        "parent",
        "parts",
        "place",
        "size",
        "timestamp_ms",
        "waiters",
        "was_seen",
    )

    def __init__(self, place: TopicPartition, begun_s: float) -> None:
        self.place = place
        self.begun_s = begun_s
        self.entries: list[Entry] = []
        self.count = 0  # of the records, where it came built
        self.size = HEADER_SIZE  # at most, before it is compressed
        self.data: bytearray | None = None
        self.identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        self.attempts = 0
        self.is_uncertain = False  # it was sent, and nobody knows what became of it
        self.is_done = False
        self.base_offset = NO_OFFSET
        self.timestamp_ms = NO_TIMESTAMP  # where the broker decides it
        self.error: KafkaError | None = None
        self.was_seen = False  # somebody has heard of the error
        self.waiters: list[asyncio.Future[None]] = []
        self.parts: tuple[Batch, Batch] | None = None  # that took its place
        self.parent: Batch | None = None

    @classmethod
    def built(cls, place: TopicPartition, begun_s: float, data: bytearray, count: int) -> "Batch":
        """One whose records are encoded already."""
        batch = cls(place, begun_s)
        batch.data, batch.count, batch.size = data, count, len(data)
        return batch

    def __len__(self) -> int:
        return self.count or len(self.entries)

    # -- its bytes

    def stamp(self, producer_id: int, epoch: int, sequence: int, compression: Compression, *, is_transactional: bool) -> None:
        """Makes it ready to be sent by a producer."""
        self.identity = (producer_id, epoch, sequence)
        if self.data is not None:
            set_producer(self.data, 0, producer_id, epoch, sequence, transactional=is_transactional)
            return
        entries = self.entries
        base_timestamp = entries[0][2]
        codec, data = compression.choose(payload(entries, base_timestamp))
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=codec | (TRANSACTIONAL if is_transactional else 0),
            last_offset_delta=len(entries) - 1,
            base_timestamp=base_timestamp,
            max_timestamp=max([entry[2] for entry in entries]),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            record_count=len(entries),
        )
        self.data = enclose(header, data)

    def split(self) -> "tuple[Batch, Batch]":
        """Two in its place, for a broker that does not take as much at once. It ends when both have."""
        if not self.entries:
            assert self.data is not None
            self.entries = [
                (each.key, each.value, each.timestamp, each.headers) for each in records(self.data, 0, read_header(self.data))
            ]
        middle = len(self.entries) // 2
        assert middle
        parts = (Batch(self.place, self.begun_s), Batch(self.place, self.begun_s))
        for part, entries in zip(parts, (self.entries[:middle], self.entries[middle:])):
            part.entries = entries
            part.size = HEADER_SIZE + sum(map(size_of, entries))
            part.parent = self
        self.parts, self.data = parts, None
        return parts

    # -- its end

    def succeed(self, base_offset: int, timestamp_ms: int) -> None:
        self.base_offset, self.timestamp_ms = base_offset, timestamp_ms
        self._end()

    def fail(self, error: KafkaError) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        assert not self.is_done
        self.is_done = True
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.data = None
        whole = self.parent
        if whole is not None and whole.parts is not None and all(part.is_done for part in whole.parts):
            whole.error = next((part.error for part in whole.parts if part.error is not None), None)
            whole._end()

    def see(self) -> None:
        """Somebody hears why it failed; so it is known of what it was a part of."""
        self.was_seen = True
        if self.parent is not None:
            self.parent.see()

    async def wait(self) -> None:
        """Until it is known what became of it."""
        if not self.is_done:
            waiter = asyncio.get_running_loop().create_future()
            self.waiters.append(waiter)
            await waiter


class Delivery:
    """A record on its way. Awaited, it gives where the record is, or raises why it is not there."""

    __slots__ = ("batch", "index")

    def __init__(self, batch: Batch, index: int) -> None:
        self.batch = batch
        self.index = index

    def __await__(self) -> Generator[object, None, Delivered]:
        yield from self.batch.wait().__await__()
        return self.result()

    @property
    def is_done(self) -> bool:
        return self.batch.is_done

    def result(self) -> Delivered:
        """Of one that is done."""
        batch, index = self.batch, self.index
        assert batch.is_done, "the record is still on its way"
        while batch.parts is not None:
            first, second = batch.parts
            batch, index = (first, index) if index < len(first) else (second, index - len(first))
        if batch.error is not None:
            batch.see()
            raise batch.error
        offset = batch.base_offset + index if batch.base_offset != NO_OFFSET else NO_OFFSET
        timestamp_ms = batch.timestamp_ms if batch.timestamp_ms != NO_TIMESTAMP else batch.entries[index][2]
        return Delivered(batch.place.topic, batch.place.partition, offset, timestamp_ms)


class TableDelivery:
    """The batches of a table on their way. Awaited, it gives where each is, or raises why the first of them is not there."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def __await__(self) -> Generator[object, None, list[DeliveredBatch]]:
        for batch in self.batches:
            yield from batch.wait().__await__()
        return [each for batch in self.batches for each in delivered(batch)]


def delivered(batch: Batch) -> list[DeliveredBatch]:
    """Where a batch is that has ended, or the parts that it was sent in."""
    batch.was_seen = True
    if batch.parts is not None:
        return [each for part in batch.parts for each in delivered(part)]
    if batch.error is not None:
        raise batch.error
    return [DeliveredBatch(batch.place.topic, batch.place.partition, batch.base_offset, len(batch))]


def size_of(entry: Entry) -> int:
    """What a record takes in a batch, at most."""
    key, value, _, headers = entry
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    return size + len(encode_headers(headers)) if headers else size


def payload(entries: list[Entry], base_timestamp: int) -> bytes:
    """The records of a batch. One loop with the numbers from a table, for a call costs more than the work."""
    pieces: list[bytes] = []
    extend, small, end = pieces.extend, SMALL, SMALL_END
    for delta, (key, value, timestamp, headers) in enumerate(entries):
        moment = timestamp - base_timestamp
        time_part = small[moment] if -1 <= moment < end else encode(moment)
        place_part = small[delta] if delta < end else encode(delta)
        size = 1 + len(time_part) + len(place_part)
        if key is None:
            key_part, key = NULL, b""
            size += 1
        else:
            length = len(key)
            key_part = small[length] if length < end else encode(length)
            size += len(key_part) + length
        if value is None:
            value_part, value = NULL, b""
            size += 1
        else:
            length = len(value)
            value_part = small[length] if length < end else encode(length)
            size += len(value_part) + length
        header_part = encode_headers(headers) if headers else NO_HEADERS
        size += len(header_part)
        size_part = small[size] if size < end else encode(size)
        extend((size_part, ATTRIBUTES, time_part, place_part, key_part, key, value_part, value, header_part))
    return b"".join(pieces)


NULL: Final = encode(-1)
NO_HEADERS: Final = encode(0)
ATTRIBUTES: Final = b"\0"

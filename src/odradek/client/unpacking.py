"""What one partition's part of a fetch answer holds: batch after batch made into records, when the program gets there.

Invariants
 1. Nothing below the offset that is wanted is given, nothing from `until` on, and nothing of a batch that is cut off.
 2. Control batches are stepped over; so are, for who reads what is committed, those of transactions that were aborted.
 3. `next_offset` is after the last batch that was unpacked, whatever was in it; a batch is decompressed once.
 4. What `take` gives at once was written in one leader epoch: `last_epoch`.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from odradek.client.errors import Corrupt
from odradek.client.records import NO_EPOCH, Batches, Record, TopicPartition
from odradek.wire import varint
from odradek.wire.batch import HEADER_SIZE, OFFSET_MAX, BatchHeader, check, read_header
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.errors import ProtocolError
from odradek.wire.records import PAYLOAD_SIZE_MAX, ZIGZAG, payload, read_headers, records
from odradek.wire.varint import BYTES_MAX_INT64

PRODUCER, FIRST_OFFSET = 0, 1
Aborted = tuple[int, int]  # producer id, and the first offset of its transaction here


class Unpacking:
    def __init__(
        self,
        place: TopicPartition,
        data: memoryview,
        offset: int,
        aborted: Iterable[Aborted] = (),
        *,
        checks_crcs: bool = True,
        until: int = OFFSET_MAX,
    ) -> None:
        self.place = place
        self.until = until
        self.next_offset = offset
        self.last_epoch = NO_EPOCH
        self._data = data
        self._at = 0
        self._checks_crcs = checks_crcs
        self._coming = sorted(aborted, key=lambda each: each[FIRST_OFFSET], reverse=True)
        self._aborting: dict[int, int] = {}  # first offsets of those that were begun, by producer id

    @property
    def is_done(self) -> bool:
        return len(self._data) - self._at < HEADER_SIZE

    def take(self, count_min: int) -> list[Record]:
        """At least so many records, where there are so many in one epoch; none: there is nothing left but what is not given."""
        taken: list[Record] = []
        while len(taken) < count_min and not self.is_done:
            header = self._header()
            if header is None or (taken and header.leader_epoch != self.last_epoch):
                break
            if self._is_given(header):
                self._unpack(header, taken)
            self._pass(header)
        return taken

    def rest(self) -> Batches:
        """All that is left, as it came."""
        start, offset, aborted = self._at, self.next_offset, [*self._aborting.items(), *reversed(self._coming)]
        while not self.is_done:
            header = self._header()
            if header is None:
                break
            self._is_given(header)
            self._pass(header)
        return Batches(self.place, self._data[start : self._at], offset, self.next_offset, tuple(aborted))

    # -- one batch

    def _header(self) -> BatchHeader | None:
        """Of the batch that is next; None when it is cut off, as the last of an answer may be, or not wanted."""
        try:
            header = read_header(self._data, self._at)
            if header.base_offset >= self.until:
                self.next_offset = self.until
            if self._at + header.size > len(self._data) or header.base_offset >= self.until:
                self._at = len(self._data)
                return None
            if self._checks_crcs:
                check(self._data, self._at, header)
        except ProtocolError as error:
            raise self._corrupt(error) from error
        return header

    def _is_given(self, header: BatchHeader) -> bool:
        last_offset = header.base_offset + header.last_offset_delta
        while self._coming and self._coming[-1][FIRST_OFFSET] <= last_offset:
            producer_id, first_offset = self._coming.pop()
            self._aborting[producer_id] = first_offset
        if header.is_control:
            if self._aborting and header.producer_id in self._aborting and self._is_abort(header):
                del self._aborting[header.producer_id]
            return False
        if header.is_transactional and header.producer_id in self._aborting:
            return False
        return last_offset >= self.next_offset

    def _is_abort(self, header: BatchHeader) -> bool:
        try:
            return any(read_control_type(each.key) == ControlType.ABORT for each in records(self._data, self._at, header))
        except ProtocolError as error:
            raise self._corrupt(error) from error

    def _unpack(self, header: BatchHeader, into: list[Record]) -> None:
        count = len(into)
        try:
            if header.record_count == header.last_offset_delta + 1:
                unpack(bytes(payload(self._data, self._at, header, PAYLOAD_SIZE_MAX)), header, self.place, into)
            else:
                into += unpack_sparse(self._data, self._at, header, self.place)
        except (ProtocolError, IndexError) as error:
            raise self._corrupt(error) from error
        if header.base_offset < self.next_offset:
            into[count:] = [record for record in into[count:] if record.offset >= self.next_offset]
        if header.next_offset > self.until:
            into[count:] = [record for record in into[count:] if record.offset < self.until]

    def _pass(self, header: BatchHeader) -> None:
        self._at += header.size
        self.next_offset = max(self.next_offset, min(header.next_offset, self.until))
        self.last_epoch = header.leader_epoch

    def _corrupt(self, error: Exception) -> Corrupt:
        topic, partition = self.place
        return Corrupt(str(error), topic=topic, partition=partition, offset=self.next_offset)


LONG: Final = 0x80  # a byte of a number that has more bytes after it
WIDTHS: Final = ((0, 1), (1 << 6, 2), (1 << 13, 3), (1 << 20, 4), (1 << 27, 5), (1 << 31, 0))  # of offset deltas from each on


def unpack(data: bytes, header: BatchHeader, place: TopicPartition, into: list[Record]) -> None:
    """All records of a batch that nothing was taken out of, so that their offsets are known without a look.

    One loop with the decoding of short numbers written out: a call costs more than the work."""
    topic, partition = place
    give, zigzag, start = into.append, ZIGZAG, 0
    base_offset, count = header.base_offset, header.record_count
    base_timestamp, appended = header.base_timestamp, header.max_timestamp if header.is_log_append_time else None
    for (first, width), (end, _) in pairwise(WIDTHS):
        for offset in range(base_offset + first, base_offset + min(end, count)):
            if data[start] < LONG:  # the record's length; the byte of its attributes is stepped over
                cursor = start + 2
            elif data[start + 1] < LONG:
                cursor = start + 3
            else:
                cursor = varint.decode(data, start)[1] + 1
            if (number := data[cursor]) < LONG:
                timestamp = base_timestamp + zigzag[number]
                cursor += 1 + width
            elif (byte := data[cursor + 1]) < LONG:
                timestamp = base_timestamp + (zigzag[number] ^ byte << 6)
                cursor += 2 + width
            else:
                number, cursor = varint.decode(data, cursor, BYTES_MAX_INT64)
                timestamp = base_timestamp + number
                cursor += width
            if (number := data[cursor]) == NULL:
                key = None
                cursor += 1
            elif number < LONG:
                cursor += 1
                key = data[cursor : (cursor := cursor + zigzag[number])]
            else:
                number, cursor = varint.decode(data, cursor)
                key = data[cursor : (cursor := cursor + number)]
            if (number := data[cursor]) < LONG:
                cursor += 1
                value = None if number == NULL else data[cursor : (cursor := cursor + zigzag[number])]
            elif (byte := data[cursor + 1]) < LONG:
                cursor += 2
                value = data[cursor : (cursor := cursor + (zigzag[number] ^ byte << 6))]
            else:
                number, cursor = varint.decode(data, cursor)
                value = data[cursor : (cursor := cursor + number)]
            if appended is not None:
                timestamp = appended
            if data[cursor]:
                give(Record(topic, partition, offset, timestamp, key, value, read_headers(data, cursor)))
                number, cursor = varint.decode(data, start)
                start = cursor + number
            else:
                give(Record(topic, partition, offset, timestamp, key, value))
                start = cursor + 1
        if end >= count:
            break
    if start != len(data):
        raise ProtocolError(f"{count} records of {len(data)} bytes end at {start}", "records", start)


NULL: Final = 1  # a length of -1


def unpack_sparse(data: memoryview, position: int, header: BatchHeader, place: TopicPartition) -> list[Record]:
    """All records of a batch that compaction has been at."""
    topic, partition = place
    return [
        Record(topic, partition, each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in records(data, position, header)
    ]

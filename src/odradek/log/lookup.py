"""Finding something in a log: offsets by time, for consumers that start from a moment instead of an offset, and the transactions
that were aborted in what a consumer reads.

By time, only batches that may hold the answer are decoded. That can take long, for a client decides what a batch becomes when
it is decompressed: so finding a batch is apart from looking into it, which may happen on any thread.
"""

from bisect import bisect_right
from typing import NamedTuple

from odradek.log.log import Log
from odradek.log.segment import FileRange, Segment, Slice
from odradek.log.transaction_index import AbortedTransaction
from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.records import payload, scan


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Candidate(NamedTuple):
    """A batch that may hold the first record at or past a timestamp."""

    timestamp: int
    offset_min: int
    batch: bytes
    header: BatchHeader

    def first(self) -> TimestampOffset | None:
        """That record, on any thread. Refused when the batch cannot be read."""
        header = self.header
        stamped = header.max_timestamp if header.is_log_append_time else None
        try:
            for _, _, offset_delta, timestamp_delta, *_ in scan(payload(self.batch, 0, header), header):
                timestamp = header.base_timestamp + timestamp_delta if stamped is None else stamped
                offset = header.base_offset + offset_delta
                if timestamp >= self.timestamp and offset >= self.offset_min:
                    return TimestampOffset(timestamp, offset, header.leader_epoch)
        except ProtocolError as error:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset}: {error}") from error
        return None


def candidate_for_timestamp(log: Log, timestamp: int, offset_min: int) -> Candidate | None:
    """The first batch from an offset on that says it has a record at or past a timestamp."""
    offset_min = max(offset_min, log.start_offset)
    for segment in log.segments:
        if segment.max_timestamp()[0] < timestamp:
            continue
        for position, header in segment.batches_from_timestamp(timestamp, offset_min):
            if header.max_timestamp >= timestamp and header.last_offset >= offset_min:
                return candidate(segment, position, header, timestamp, offset_min)
    return None


def candidate_of_max_timestamp(log: Log) -> Candidate | None:
    """The batch that has the greatest timestamp of all; None in an empty log."""
    segment = max(log.segments, key=lambda candidate: candidate.max_timestamp()[0])
    timestamp, offset = segment.max_timestamp()
    found = segment.locate(offset) if timestamp >= 0 else None
    return None if found is None else candidate(segment, *found, timestamp, 0)


def candidate(segment: Segment, position: int, header: BatchHeader, timestamp: int, offset_min: int) -> Candidate:
    return Candidate(timestamp, offset_min, segment.file.read(position, header.size), header)


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record at or past a timestamp; None when all are older."""
    offset_min = log.start_offset
    while (candidate := candidate_for_timestamp(log, timestamp, offset_min)) is not None:
        found = candidate.first()
        if found is not None:
            return found
        offset_min = candidate.header.next_offset
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of all; None in an empty log."""
    candidate = candidate_of_max_timestamp(log)
    return None if candidate is None else candidate.first()


def aborted(log: Log, offset: int, found: Slice) -> list[AbortedTransaction]:
    """The aborted transactions that have records in what a read from an offset found."""
    return aborted_between(log, offset, _offset_after(log, found.ranges[-1])) if found.ranges else []


def aborted_between(log: Log, offset: int, upper_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records from an offset up to another."""
    transactions: list[AbortedTransaction] = []
    for segment in log.segments[max(bisect_right(log.bases, offset) - 1, 0) :]:
        some, complete = segment.transactions.collect(offset, upper_offset)
        transactions += some
        if complete:
            break
    return transactions


def _offset_after(log: Log, last: FileRange) -> int:
    """An offset that no batch of a range reaches, found without reading all its batches."""
    bound = last.segment.offset_after(last.position + last.size)
    if bound is not None:
        return bound
    following = bisect_right(log.bases, last.segment.base_offset)
    return log.bases[following] if following < len(log.bases) else log.end_offset

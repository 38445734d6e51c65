"""Finding offsets by time, for consumers that start from a moment instead of an offset.

Only the batch that holds the answer is decoded.
"""

from typing import NamedTuple

from odradek.log.log import Log
from odradek.log.segment import Segment
from odradek.wire.batch import BatchHeader
from odradek.wire.records import Record, records


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampOffset | None:
    """The first record at or past a timestamp; None when all are older."""
    for segment in log.segments:
        if segment.max_timestamp()[0] < timestamp:
            continue
        for position, header in segment.batches_from_timestamp(timestamp, log.start_offset):
            if header.max_timestamp >= timestamp and header.last_offset >= log.start_offset:
                for record in _records(segment, position, header):
                    if record.timestamp >= timestamp and record.offset >= log.start_offset:
                        return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def offset_of_max_timestamp(log: Log) -> TimestampOffset | None:
    """The first record that has the greatest timestamp of all; None in an empty log."""
    segment = max(log.segments, key=lambda candidate: candidate.max_timestamp()[0])
    timestamp, offset = segment.max_timestamp()
    found = segment.locate(offset) if timestamp >= 0 else None
    if found is None:
        return None
    position, header = found
    for record in _records(segment, position, header):
        if record.timestamp == timestamp:
            return TimestampOffset(timestamp, record.offset, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return list(records(segment.file.read(position, header.size), 0, header))

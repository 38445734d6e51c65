"""What a log should hold, as a plain list of batches, and how to look at all of a real log beside it."""

from dataclasses import dataclass, field

from odradek.log.log import Log
from odradek.log.lookup import aborted
from odradek.log.segment import Segment
from odradek.wire.batch import BatchHeader, headers
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.records import Record, records


@dataclass
class Batch:
    """One appended batch. `records` are (offset, timestamp, key, value); `end` is set on markers: commit or abort."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    records: list[tuple[int, int, bytes | None, bytes | None]]
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    end: str = ""


@dataclass
class Known:
    """What is known of one producer."""

    epoch: int
    next_sequence: int = 0
    recent: list[tuple[int, int, int, int]] = field(default_factory=list)  # first and last sequence, first and last offset
    open_since: int = -1


def batches_of(data: bytes) -> list[Batch]:
    """All batches in some bytes that hold whole ones."""
    return [parsed(data, position, header) for position, header in headers(data)]


def parsed(data: bytes, position: int, header: BatchHeader) -> Batch:
    found = list(records(data, position, header))
    end = ""
    if header.is_control and found:
        end = "commit" if read_control_type(found[0].key) == ControlType.COMMIT else "abort"
    return Batch(
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        [] if header.is_control else [(record.offset, record.timestamp, record.key, record.value) for record in found],
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        end,
    )


def committed(batches: list[Batch], stable_offset: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What a read_committed consumer sees of the model: it knows the end of every transaction."""
    seen = []
    for number, batch in enumerate(batches):
        if batch.base_offset >= stable_offset or batch.end:
            continue
        if batch.is_transactional:
            ends = [other.end for other in batches[number:] if other.end and other.producer_id == batch.producer_id]
            if not ends or ends[0] == "abort":
                continue
        seen += [record for record in batch.records if record[0] < stable_offset]
    return seen


def consumed(log: Log) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """What a read_committed consumer sees of the log: it goes by the aborted transactions that come with each read."""
    seen = []
    offset, upper = log.start_offset, log.last_stable_offset
    while offset < upper:
        found = log.read(offset, 700, upper)
        if not len(found):
            break
        starting = sorted(aborted(log, offset, found), key=lambda transaction: transaction.first_offset)
        aborting: set[int] = set()
        data = found.read()
        for position, header in whole_batches(data):
            while starting and starting[0].first_offset <= header.last_offset:
                aborting.add(starting.pop(0).producer_id)
            batch = parsed(data, position, header)
            if batch.end == "abort":
                aborting.discard(batch.producer_id)
            elif not batch.end and not (batch.is_transactional and batch.producer_id in aborting):
                seen += [record for record in batch.records if record[0] >= log.start_offset]
            offset = header.next_offset
    return seen


def whole_batches(data: bytes) -> list[tuple[int, BatchHeader]]:
    """The batches of a read, but for the last when it is cut off."""
    found = []
    position = 0
    while position + 61 <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if position + size > len(data):
            break
        found += [(position, header) for _, header in headers(memoryview(data)[position : position + size])]
        position += size
    return found


def check_indexes(log: Log) -> None:
    """Every entry of every index says what the batches say."""
    for segment in log.segments:
        batches = list(segment.batches())
        check_offset_index(segment, batches)
        check_time_index(segment, batches)


def check_offset_index(segment: Segment, batches: list[tuple[int, BatchHeader]]) -> None:
    positions = {header.last_offset: position for position, header in batches}
    entries = [segment.index.entry(number) for number in range(len(segment.index))]
    for relative, position in entries:
        assert positions[segment.base_offset + relative] == position
    assert entries == sorted(set(entries))


def check_time_index(segment: Segment, batches: list[tuple[int, BatchHeader]]) -> None:
    entries = [segment.time_index.entry(number) for number in range(len(segment.time_index))]
    for timestamp, relative in entries:
        offset = segment.base_offset + relative
        up_to_here = [header for _, header in batches if header.last_offset <= offset]
        assert up_to_here, f"entry {timestamp} at {offset} is before every batch"
        assert up_to_here[-1].last_offset == offset
        assert up_to_here[-1].max_timestamp == timestamp == max(header.max_timestamp for header in up_to_here)
    assert entries == sorted(set(entries))


def all_records(log: Log) -> list[Record]:
    """Every record of the data batches, as it stands on disk."""
    found = []
    for segment, position, header in log.batches(log.bases[0]):
        if not header.is_control:
            found += list(records(segment.file.read(position, header.size), 0, header))
    return found

"""What a reader makes of the bytes that it fetched.

Invariants
 1. Nothing below the position is given, and nothing of a batch that is cut off at the end or whose CRC is wrong.
 2. Control batches are passed over; so are, for who reads what is committed, batches of transactions that were aborted.
"""

import msgspec

from odradek.wire.batch import HEADER_SIZE, BatchHeader, CorruptBatch, InvalidBatch, check, read_header
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.messages import FetchResponse
from odradek.wire.records import Record, records


class Taken(msgspec.Struct):
    """The records, and where to go on: past the last whole batch, whatever was in it."""

    records: list[Record]
    offset: int
    last_epoch: int
    is_corrupt: bool = False


def take(
    data: memoryview | bytes, offset: int, last_epoch: int, aborted: list[FetchResponse.AbortedTransaction] | None = None
) -> Taken:
    """The records from an offset on. `aborted` is given by who reads what is committed."""
    taken = Taken([], offset, last_epoch)
    open_aborts: dict[int, bool] = {}
    coming = sorted(aborted or (), key=lambda each: each.first_offset)
    position = 0
    while position + HEADER_SIZE <= len(data):
        try:
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            check(data, position, header)
        except (CorruptBatch, InvalidBatch):
            taken.is_corrupt = True
            break
        while coming and coming[0].first_offset <= header.last_offset:
            open_aborts[coming.pop(0).producer_id] = True
        if header.next_offset > offset:
            if header.is_control:
                _end_abort(data, position, header, open_aborts)
            elif not (header.is_transactional and open_aborts.get(header.producer_id)):
                taken.records += [each for each in records(data, position, header) if each.offset >= offset]
            taken.offset, taken.last_epoch = header.next_offset, header.leader_epoch
        position += header.size
    return taken


def _end_abort(data: memoryview | bytes, position: int, header: BatchHeader, open_aborts: dict[int, bool]) -> None:
    for record in records(data, position, header):
        if read_control_type(record.key) == ControlType.ABORT:
            open_aborts.pop(header.producer_id, None)

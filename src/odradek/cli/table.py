"""Rows of a dump as tables for a person.

Bytes that are no text are shown as 0x and hexadecimal digits; --json is the form that is never ambiguous.
"""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from odradek.cli.columns import Columns
from odradek.cli.texts import escaped, time
from odradek.log.dump.rows import (
    Aborted,
    Batch,
    Encoded,
    File,
    IndexEntry,
    LeaderEpoch,
    Named,
    Offset,
    Producer,
    Properties,
    Record,
    Row,
    TimeIndexEntry,
    Zeros,
)

HEADINGS: dict[type[Row], tuple[str, ...]] = {
    Batch: ("offsets", "position", "bytes", "records", "greatest time", "epoch", "producer", "codec", "kind"),
    Record: ("offset", "time", "key", "headers", "value"),
    IndexEntry: ("offset", "position"),
    TimeIndexEntry: ("time", "offset"),
    Aborted: ("producer", "first offset", "last offset", "last stable offset"),
    Producer: ("producer", "epoch", "sequences", "last offset", "time", "coordinator epoch", "transaction from"),
    Offset: ("topic", "partition", "offset"),
    LeaderEpoch: ("epoch", "start offset"),
    Properties: ("name", "value"),
}


class Tables:
    """Writes rows as they come. Batches are left out where records are wanted, which say which batch they are of."""

    def __init__(self, write: Callable[[str], object], *, records: bool) -> None:
        self.write = write
        self.records = records
        self.columns = Columns(write)
        self.kind: type[Row] | None = None
        self.is_first = True

    def add(self, row: Row) -> None:
        if isinstance(row, File):
            self.flush()
            self.write(f"{'' if self.is_first else chr(10)}{heading(row)}\n")
            self.kind, self.is_first = None, False
        elif isinstance(row, Zeros):
            self.flush()
            self.write(f"from byte {row.position} on {row.size} zero bytes: room set aside that is not used yet\n")
        elif not (isinstance(row, Batch) and self.records):
            if type(row) is not self.kind:
                self.kind = type(row)
                self.columns.begin(HEADINGS[self.kind])
            self.columns.add(*cells(row))

    def flush(self) -> None:
        """Writes what is held."""
        self.columns.flush()


def heading(file: File) -> str:
    parts = [file.kind.replace("_", " ") + (f" ({file.state})" if file.state else ""), f"{file.size} bytes"]
    if file.holds not in (None, "records"):
        parts.append(f"holds {file.holds}")
    return f"{file.file}: {', '.join(parts)}"


def cells(row: Row) -> list[tuple[str, ...]]:
    match row:
        case Batch():
            return [batch_cells(row)]
        case Record():
            return [record_cells(row)]
        case IndexEntry(offset=offset, position=position):
            return [(str(offset), str(position))]
        case TimeIndexEntry(timestamp=timestamp, offset=offset):
            return [(time(timestamp), str(offset))]
        case Aborted():
            return [tuple(map(str, (row.producer_id, row.first_offset, row.last_offset, row.last_stable_offset)))]
        case Producer():
            return [producer_cells(row)]
        case Offset():
            return [(row.topic, str(row.partition), str(row.offset))]
        case LeaderEpoch():
            return [(str(row.epoch), str(row.start_offset))]
        case Properties(properties=properties):
            return [(escaped(name), text(value)) for name, value in properties.items()]
        case _:
            raise AssertionError(f"no table shows {row}")


def batch_cells(row: Batch) -> tuple[str, ...]:
    producer = "" if row.producer_id < 0 else f"{row.producer_id} epoch {row.producer_epoch}"
    if row.base_sequence >= 0:
        producer += f" sequence {span(row.base_sequence, row.last_sequence)}"
    kinds = ["transactional"] if row.is_transactional else []
    kinds += ["control"] if row.is_control else []
    kinds += ["append time"] if row.timestamp_type == "LogAppendTime" else []
    kinds += [] if row.delete_horizon_ms is None else [f"deletions until {time(row.delete_horizon_ms)}"]
    numbers = (row.position, row.size, row.record_count)
    return (
        span(row.base_offset, row.last_offset),
        *map(str, numbers),
        time(row.max_timestamp),
        str(row.leader_epoch),
        producer,
        "" if row.codec == "none" else row.codec,
        ", ".join(kinds),
    )


def record_cells(row: Record) -> tuple[str, ...]:
    headers = ", ".join(f"{escaped(name)}={text(value)}" for name, value in row.headers)
    key = text(row.key) if row.control is None else row.control
    value = text(row.value) + (f" (not understood: {row.problem})" if row.problem else "")
    return str(row.offset), time(row.timestamp), key, headers, value


def producer_cells(row: Producer) -> tuple[str, ...]:
    return (
        str(row.producer_id),
        str(row.producer_epoch),
        "" if row.last_sequence < 0 else span(row.first_sequence, row.last_sequence),
        str(row.last_offset),
        time(row.timestamp),
        str(row.coordinator_epoch),
        "" if row.transaction_first_offset < 0 else str(row.transaction_first_offset),
    )


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case str():
            return escaped(value)
        case Encoded(base64=encoded):
            return "0x" + base64.b64decode(encoded).hex()
        case Named(name=name, version=version, fields=fields):
            return " ".join([name, f"v{version}", *[f"{field}={text(content)}" for field, content in fields.items()]])
        case _:
            return msgspec.json.encode(value).decode()

"""What a dump gives: one row for each thing in a file. As JSON, each is an object whose `type` is its name here.

These fields are what `odradek log dump --json` promises; more may be added, none renamed. Numbers are Kafka's: -1 where it
has no value, timestamps in milliseconds since 1970. Every row says in `file` which file it is from.

A `Value` is unambiguous: text is what the bytes say in UTF-8, `{"base64": …}` is what no person could read, null is null.
A `Named` is one that was understood: a record of one of Kafka's own logs, with its fields.
"""

from typing import Any, Literal

import msgspec


class Encoded(msgspec.Struct, frozen=True):
    """Bytes that are no printable text."""

    base64: str


class Named(msgspec.Struct, frozen=True):
    """A message of the protocol's tables, the fields that its version has."""

    name: str
    version: int
    fields: dict[str, Any]


Value = str | Encoded | Named | None


class Row(msgspec.Struct, kw_only=True, tag_field="type", tag=str.lower):
    file: str


class File(Row, tag="file"):
    """Comes before all rows of a file. `base_offset` is the one in its name; `holds` says how its records are decoded."""

    kind: str
    size: int
    base_offset: int | None = None
    state: str = ""  # cleaned, swap, deleted, part, tmp: what the end of its name says
    holds: str | None = None


class Batch(Row, tag="batch"):
    """A whole batch whose CRC is right."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    codec: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    crc: int


class Record(Row, tag="record"):
    """`batch` is the base offset of its batch. `control` is its type, where Kafka wrote it for itself. `problem` says why key and
    value are shown as they are, where the log should hold something that can be understood."""

    batch: int
    offset: int
    timestamp: int
    key: Value
    value: Value
    headers: list[tuple[str, Value]]
    control: str | None = None
    problem: str | None = None


class IndexEntry(Row, tag="index_entry"):
    offset: int
    position: int


class TimeIndexEntry(Row, tag="time_index_entry"):
    timestamp: int
    offset: int


class Aborted(Row, tag="aborted_transaction"):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Producer(Row, tag="producer"):
    """What a snapshot knows of a producer; offsets and sequences are those of its last batch."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class Offset(Row, tag="offset"):
    """A row of one of the checkpoints of a log folder."""

    topic: str
    partition: int
    offset: int


class LeaderEpoch(Row, tag="leader_epoch"):
    epoch: int
    start_offset: int


class Properties(Row, tag="properties"):
    """The content of partition.metadata, meta.properties, .kafka_cleanshutdown or quorum-state, under its own names."""

    properties: dict[str, Any]


class Zeros(Row, tag="zeros"):
    """The file ends in room that was set aside and is not used yet: a running node does that to its indexes."""

    position: int
    size: int


class Damage(Row, tag="damage"):
    """The last row of a file that cannot be read on: what is wrong, and at which byte."""

    position: int
    damage: str

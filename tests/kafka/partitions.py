"""What a partition holds, as Kafka's clients see it on a running broker, and as Odradek's log sees it on disk.

Both are told in the same words, so that a test can hold them side by side.
"""

from itertools import chain
from typing import Any

import msgspec

from odradek.log.log import Log
from odradek.log.lookup import TimestampOffset, offset_for_timestamp, offset_of_max_timestamp
from odradek.log.names import TopicPartition
from odradek.wire.records import Record
from tests.kafka.oracle import Oracle
from tests.log.model import all_records, consumed

TIMESTAMPS_MAX = 24
NOT_FOUND = -1


class Seen(msgspec.Struct):
    """`stable` is the last stable offset, `found` what a look-up by each of some timestamps gives, `latest` the first record
    with the greatest one."""

    start: int
    end: int
    stable: int
    records: list[Record]
    committed: list[Record]
    found: list[TimestampOffset | None]
    latest: TimestampOffset | None


def timestamps_of(records: list[Record]) -> list[int]:
    """Some timestamps worth looking for: those of records, and those between them."""
    timestamps = sorted(set(chain.from_iterable((record.timestamp, record.timestamp + 1) for record in records)))
    step = -(-len(timestamps) // TIMESTAMPS_MAX) or 1
    return [0, *timestamps[::step], *timestamps[-1:]]


def seen_by_kafka(oracle: Oracle, bootstrap: str, partition: TopicPartition) -> Seen:
    of: dict[str, Any] = {"bootstrap": bootstrap, **partition._asdict()}
    records = [record_of(row) for row in oracle.call("Partitions.read", **of, isolation="read_uncommitted")]
    committed = [record_of(row) for row in oracle.call("Partitions.read", **of, isolation="read_committed")]
    answer = oracle.call("Partitions.offsets", **of, timestamps=timestamps_of(records))
    return Seen(
        answer["start"][0],
        answer["end"][0],
        answer["stable"][0],
        records,
        committed,
        [found_of(row) for row in answer["found"]],
        found_of(answer["latest"]),
    )


def record_of(row: list[Any]) -> Record:
    offset, timestamp, key, value, headers = row
    return Record(offset, timestamp, unhex(key), unhex(value), tuple((name, unhex(content)) for name, content in headers))


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def found_of(row: list[int]) -> TimestampOffset | None:
    offset, timestamp, leader_epoch = row
    return None if offset == NOT_FOUND else TimestampOffset(timestamp, offset, leader_epoch)


def seen_by_odradek(log: Log) -> Seen:
    records = [record for record in all_records(log) if record.offset >= log.start_offset]
    committed = {row[0] for row in consumed(log)}
    return Seen(
        log.start_offset,
        log.end_offset,
        log.last_stable_offset,
        records,
        [record for record in records if record.offset in committed],
        [offset_for_timestamp(log, timestamp) for timestamp in timestamps_of(records)],
        offset_of_max_timestamp(log),
    )

"""Batches of the metadata log and of its snapshots: metadata records, and control records of the quorum.

A snapshot is a file of batches: a header with the time of the last record that it holds, the voters where kraft.version is 1,
the records, a footer.

Invariants
 1. A snapshot without its footer, or with a batch that is not sound, is no snapshot: nothing of it is taken.
 2. The records of one decision are one batch.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from odradek.core.raft.voters import VoterSet
from odradek.wire.batch import BatchHeader, check, headers
from odradek.wire.control import ControlType
from odradek.wire.errors import ProtocolError
from odradek.wire.log_records import (
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)
from odradek.wire.message import Message
from odradek.wire.messages import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from odradek.wire.records import Record, build, records
from odradek.wire.varint import Buffer

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024  # what Kafka's voters fetch at once
SNAPSHOT_BATCH_BYTES: Final = 1024 * 1024  # a snapshot's batches are closed when they reach it
BATCH_RECORDS_MAX: Final = 100_000

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint(|\.part|\.deleted)")


class CorruptSnapshot(Exception):
    """A snapshot that is not what was written."""


class SnapshotId(NamedTuple):
    """The end of what a snapshot holds: the offset after its last record, and that record's epoch."""

    offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> tuple[SnapshotId, str] | None:
    """The id of a snapshot's file, and what follows the name; None for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else (SnapshotId(int(match[1]), int(match[2])), match[3])


class Entries(NamedTuple):
    """What a batch holds: records with their offsets, either of metadata or of the quorum."""

    header: BatchHeader
    records: list[tuple[int, Message]]

    @property
    def is_control(self) -> bool:
        return self.header.is_control


class Snapshot(NamedTuple):
    timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None
    records: list[Message]


def metadata_batch(decided: Iterable[tuple[Message, int]], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of metadata records."""
    values = [encode_metadata_record(record, version) for record, version in decided]
    rows = [Record(base_offset + delta, now_ms, None, value) for delta, value in enumerate(values)]
    return build(rows, base_offset=base_offset, leader_epoch=epoch)


def control_batch(messages: Iterable[tuple[ControlType, Message]], *, base_offset: int, epoch: int, now_ms: int) -> bytearray:
    """One batch of control records."""
    pairs = [encode_control_record(kind, message) for kind, message in messages]
    rows = [Record(base_offset + delta, now_ms, key, value) for delta, (key, value) in enumerate(pairs)]
    return build(rows, base_offset=base_offset, leader_epoch=epoch, control=True)


def voters_messages(kraft_version: int, voters: VoterSet) -> list[tuple[ControlType, Message]]:
    """What says who votes, where that stands in the log."""
    return [
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, kraft_version=kraft_version)),
        (ControlType.KRAFT_VOTERS, voters.to_record()),
    ]


def leader_change(leader_id: int, voter_ids: list[int], granting_ids: Iterable[int] = ()) -> tuple[ControlType, Message]:
    """The first record of an epoch. Where one votes, it granted its own vote."""
    voters = [LeaderChangeMessage.Voter(voter_id=voter) for voter in voter_ids]
    granting = [LeaderChangeMessage.Voter(voter_id=voter) for voter in granting_ids or [leader_id]]
    message = LeaderChangeMessage(version=0, leader_id=leader_id, voters=voters, granting_voters=granting)
    return ControlType.LEADER_CHANGE, message


def read_batches(view: Buffer) -> Iterator[Entries]:
    """All batches, each checked and decoded. ProtocolError where they are not sound."""
    for position, header in headers(view):
        check(view, position, header)
        yield read_batch(view, position, header)


def read_batch(view: Buffer, position: int, header: BatchHeader) -> Entries:
    found: list[tuple[int, Message]] = []
    for record in records(view, position, header):
        if header.is_control:
            if record.key is None or record.value is None:
                raise ProtocolError("a control record without key or value", "record", position)
            found.append((record.offset, decode_control_record(record.key, record.value)[1]))
        elif record.value is not None:
            found.append((record.offset, decode_metadata_record(record.value)[0]))
    return Entries(header, found)


def encode_snapshot(
    decided: Iterable[tuple[Message, int]],
    *,
    epoch: int,
    now_ms: int,
    timestamp_ms: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """The batches of a snapshot, one after another."""
    offset = 0
    head: list[tuple[ControlType, Message]] = [
        (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp_ms))
    ]
    if kraft_version and voters is not None:
        head += voters_messages(kraft_version, voters)
    yield control_batch(head, base_offset=offset, epoch=epoch, now_ms=now_ms)
    offset += len(head)
    rows: list[Record] = []
    size = 0
    for record, version in decided:
        value = encode_metadata_record(record, version)
        if rows and (size + len(value) > SNAPSHOT_BATCH_BYTES or len(rows) >= BATCH_RECORDS_MAX):
            yield build(rows, base_offset=rows[0].offset, leader_epoch=epoch)
            rows, size = [], 0
        rows.append(Record(offset, now_ms, None, value))
        size += len(value)
        offset += 1
    if rows:
        yield build(rows, base_offset=rows[0].offset, leader_epoch=epoch)
    foot = [(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))]
    yield control_batch(foot, base_offset=offset, epoch=epoch, now_ms=now_ms)


def snapshot_timestamp_ms(view: Buffer) -> int:
    """The time of the last record that a snapshot holds; it stands in the first batch, and no other is looked at."""
    try:
        position, header = next(headers(view))
        check(view, position, header)
        for _, message in read_batch(view, position, header).records:
            if isinstance(message, SnapshotHeaderRecord):
                return message.last_contained_log_timestamp
    except (ProtocolError, StopIteration) as error:
        raise CorruptSnapshot(str(error)) from error
    raise CorruptSnapshot("the header is missing")


def decode_snapshot(view: Buffer) -> Snapshot:
    """All of a snapshot. CorruptSnapshot when it is not whole."""
    timestamp_ms: int | None = None
    kraft_version, voters = 0, None
    found: list[Message] = []
    is_ended = False
    try:
        for entries in read_batches(view):
            if is_ended:
                raise CorruptSnapshot("records after the footer")
            for _, message in entries.records:
                match message:
                    case SnapshotHeaderRecord():
                        timestamp_ms = message.last_contained_log_timestamp
                    case SnapshotFooterRecord():
                        is_ended = True
                    case KRaftVersionRecord():
                        kraft_version = message.kraft_version
                    case VotersRecord():
                        voters = VoterSet.of(message)
                    case _ if not entries.is_control:
                        found.append(message)
    except ProtocolError as error:
        raise CorruptSnapshot(str(error)) from error
    if timestamp_ms is None or not is_ended:
        raise CorruptSnapshot("the header is missing" if timestamp_ms is None else "the footer is missing")
    return Snapshot(timestamp_ms, kraft_version, voters, found)

"""Control records: what Kafka writes into its logs for itself, ends of transactions and marks of the metadata quorum.

A control batch holds records whose key is a version and a type; the value depends on the type. Consumers never see
them. Only the end of a transaction has its value here; those of the quorum are messages of the schema.

Invariants
 1. a control type that is not known is no error: newer nodes may write it, readers step over it
 2. an end marker is a batch of its own, transactional and control, without a sequence
"""

import struct
from enum import IntEnum
from typing import Final

from odradek.wire.batch import NO_LEADER_EPOCH
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, build

KEY_VERSION: Final = 0
END_MARKER_VERSION: Final = 0

_KEY: Final = struct.Struct(">hh")
_END_MARKER: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """The types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(control_type: ControlType) -> bytes:
    return _KEY.pack(KEY_VERSION, control_type)


def read_control_type(key: bytes | None) -> int:
    """The number of a control record's type, of ControlType or not."""
    if key is None or len(key) < _KEY.size:
        raise ProtocolError(f"{0 if key is None else len(key)} bytes, where it has {_KEY.size}", "control record key", 0)
    version, control_type = _KEY.unpack_from(key)
    if version < KEY_VERSION:
        raise ProtocolError(f"version {version}", "control record key", 0)
    return int(control_type)


def end_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that ends a producer's transaction in one partition."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    value = _END_MARKER.pack(END_MARKER_VERSION, coordinator_epoch)
    return build(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_marker(record: Record) -> tuple[ControlType, int]:
    """How a transaction ended, and the epoch of the coordinator that ended it."""
    control_type = read_control_type(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ProtocolError(f"type {control_type} does not end a transaction", "control record key", 2)
    value = record.value
    if value is None or len(value) < _END_MARKER.size:
        raise ProtocolError(f"{0 if value is None else len(value)} bytes, where it has {_END_MARKER.size}", "end marker", 0)
    version, coordinator_epoch = _END_MARKER.unpack_from(value)
    if version < END_MARKER_VERSION:  # a later version may have more after the epoch
        raise ProtocolError(f"version {version}", "end marker", 0)
    return ControlType(control_type), coordinator_epoch

"""What stands in the logs of Kafka itself: metadata, coordinators' state, control records, and other data with a version.

Each kind has its own way to say which message it is and in which version:
  metadata records   three unsigned varints: 1 (the version of this frame), key, version
  coordinators       the key begins with an int16 that says what both are, the value with an int16 version
  control records    the key is int16 0 and an int16 type; the markers of transactions begin with an int16 version, the
                     records of raft with a field `version`, which is the version of their own encoding
  plug-in data       an int16 version first (groups' subscriptions and assignments, principals, producer snapshots)

Invariants
 1. What decodes encodes again to the same bytes, with the version that the decoder gave.
 2. Positions in errors are bytes of the key or of the value.
"""

from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from odradek.wire.control import ControlType, control_key, read_control_type
from odradek.wire.errors import ProtocolError, UnknownRecord
from odradek.wire.message import Buffer, Message
from odradek.wire.messages import message_class
from odradek.wire.table import names, schema
from odradek.wire.varint import decode_unsigned, encode_unsigned

if TYPE_CHECKING:
    from odradek.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription

METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_TOPIC: Final = "__remote_log_metadata"
FRAME_VERSION: Final = 1
VERSION: Final = Struct(">h")

Some = TypeVar("Some", bound=Message)
Plugged = TypeVar("Plugged", "ConsumerProtocolSubscription", "ConsumerProtocolAssignment")


CONTROL_VALUES: Final[dict[int, str]] = {
    ControlType.ABORT: "EndTxnMarker",
    ControlType.COMMIT: "EndTxnMarker",
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's log. Without a value it deletes what has the key."""

    key: Message
    value: Message | None
    version: int  # of the value; -1 when there is none


@cache
def by_key(kind: str, topic: str) -> dict[int, str]:
    """The names of the records of that kind in that topic."""
    return {found.key: found.name for found in map(schema, names(kind)) if found.topic == topic}


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record in the metadata log, or in that of the remote storage."""
    found = record.schema
    assert found.kind == "metadata"
    frame = (FRAME_VERSION, found.key, version)
    return b"".join(map(encode_unsigned, frame)) + record.to_bytes(version)


def decode_metadata_record(data: Buffer, topic: str = METADATA_TOPIC) -> tuple[Message, int]:
    """A metadata record and its version."""
    frame, position = decode_unsigned(data, 0, field="frame_version")
    if frame != FRAME_VERSION:
        raise UnknownRecord(f"frame version {frame}, and only {FRAME_VERSION} is known", "frame_version", 0)
    start = position
    key, position = decode_unsigned(data, position, field="key")
    name = by_key("metadata", topic).get(key)
    if name is None:
        raise UnknownRecord(f"{topic} has no record {key}", "key", start)
    start = position
    version, position = decode_unsigned(data, position, field="version")
    message = message_class(name)
    if version not in message.schema.versions:
        raise UnknownRecord(f"version {version} is unknown", name, start)
    return message.decode_from(data, version, position), version


def encode_versioned(message: Message, version: int) -> bytes:
    """A message behind an int16, its version."""
    return VERSION.pack(version) + message.to_bytes(version)


def read_version(data: Buffer, name: str) -> int:
    if len(data) < VERSION.size:
        raise ProtocolError(f"{len(data)} bytes hold no version", name, 0)
    (version,) = VERSION.unpack_from(data)
    return int(version)


def decode_versioned(message: type[Some], data: Buffer) -> tuple[Some, int]:
    """What `encode_versioned` made, and its version."""
    version = read_version(data, message.schema.name)
    if version not in message.schema.versions:
        raise UnknownRecord(f"version {version} is unknown", message.schema.name, 0)
    return message.decode_from(data, version, VERSION.size), version


def decode_consumer_protocol(message: type[Plugged], data: Buffer) -> Plugged:
    """A member's subscription or assignment. Newer versions only add fields at the end: they are read as the newest known."""
    version = read_version(data, message.schema.name)
    newest = message.schema.versions[-1]
    if version <= newest:
        return decode_versioned(message, data)[0]
    return message.decode_head(data, newest, VERSION.size)[0]


def encode_coordinator_record(key: Message, value: Message | None, version: int) -> tuple[bytes, bytes | None]:
    """Key and value of a record in a coordinator's log; `version` is that of the value."""
    assert key.schema.kind == "coordinator-key"
    encoded = VERSION.pack(key.schema.key) + key.to_bytes(0)
    if value is None:
        return encoded, None
    assert (value.schema.kind, value.schema.topic, value.schema.key) == (
        "coordinator-value",
        key.schema.topic,
        key.schema.key,
    )
    return encoded, encode_versioned(value, version)


def decode_coordinator_record(topic: str, key: Buffer, value: Buffer | None) -> CoordinatorRecord:
    """A record of `__consumer_offsets`, `__transaction_state` or `__share_group_state`."""
    number = read_version(key, "key")
    name = by_key("coordinator-key", topic).get(number)
    if name is None:
        raise UnknownRecord(f"{topic} has no record {number}", "key", 0)
    decoded = message_class(name).decode_from(key, 0, VERSION.size)
    if value is None:
        return CoordinatorRecord(decoded, None, -1)
    return CoordinatorRecord(decoded, *decode_versioned(message_class(by_key("coordinator-value", topic)[number]), value))


def encode_control_record(kind: ControlType, value: Message) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    assert value.schema.name == CONTROL_VALUES[kind]
    if kind <= ControlType.COMMIT:
        return control_key(kind), encode_versioned(value, value.schema.versions[-1])
    return control_key(kind), encode_self_versioned(value)


def decode_control_record(key: bytes, value: Buffer) -> tuple[ControlType, Message]:
    """Type and value of a control record."""
    number = read_control_type(key)
    if number not in CONTROL_VALUES:
        raise UnknownRecord(f"there is no control record of type {number}", "control record key", VERSION.size)
    kind = ControlType(number)
    message = message_class(CONTROL_VALUES[kind])
    if kind <= ControlType.COMMIT:
        return kind, decode_versioned(message, value)[0]
    return kind, decode_self_versioned(message, value)


def encode_self_versioned(message: Message) -> bytes:
    """A message whose own field `version` says in which version it is written."""
    return message.to_bytes(message.version)  # type: ignore[attr-defined]


def decode_self_versioned(message: type[Some], data: Buffer) -> Some:
    """What `encode_self_versioned` made."""
    first = message.schema.fields[0]
    assert first.attribute == "version"
    size = {"int16": 2, "int32": 4}[first.type]
    version = int.from_bytes(data[:size], "big", signed=True)
    if len(data) < size or version not in message.schema.versions:
        raise UnknownRecord(f"version {version} is unknown", f"{message.schema.name}.version", 0)
    return message.decode(data, version)

"""Bytes of records as a person reads them: text, named fields, or base64.

Kafka's own logs are understood by what they hold. Which that is follows from the topic, or is said by the caller.

    offsets       __consumer_offsets      groups, their members and committed offsets
    transactions  __transaction_state     transactions
    share         __share_group_state     share groups
    metadata      __cluster_metadata      the cluster's metadata
    remote        __remote_log_metadata   segments in remote storage
    records       any other               whatever the clients wrote
"""

import base64
from enum import StrEnum
from functools import cache
from typing import Any

from odradek.log.dump.rows import Encoded, Named, Value
from odradek.wire.control import ControlType
from odradek.wire.errors import ProtocolError
from odradek.wire.log_records import (
    decode_consumer_protocol,
    decode_control_record,
    decode_coordinator_record,
    decode_metadata_record,
)
from odradek.wire.message import Message
from odradek.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.wire.records import Record
from odradek.wire.table import Field, Schema


class Holds(StrEnum):
    """What a log holds."""

    RECORDS = "records"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"
    METADATA = "metadata"
    SHARE = "share"
    REMOTE = "remote"


TOPICS = {
    Holds.OFFSETS: "__consumer_offsets",
    Holds.TRANSACTIONS: "__transaction_state",
    Holds.METADATA: "__cluster_metadata",
    Holds.SHARE: "__share_group_state",
    Holds.REMOTE: "__remote_log_metadata",
}
BY_TOPIC = {topic: holds for holds, topic in TOPICS.items()}

CONSUMER = "consumer"  # the protocol type of groups whose members are Kafka's own consumers


def shown(data: bytes | None) -> Value:
    """Bytes as text where they are printable UTF-8."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Encoded(base64.b64encode(data).decode())
    if text.isprintable() or all(sign.isprintable() or sign in "\n\t" for sign in text):
        return text
    return Encoded(base64.b64encode(data).decode())


def understood(record: Record, holds: Holds) -> tuple[Value, Value, str | None]:
    """Key and value of a record, named where the log holds Kafka's own; and why they could not be, where they could not."""
    if holds is Holds.RECORDS:
        return shown(record.key), shown(record.value), None
    try:
        if holds in (Holds.METADATA, Holds.REMOTE):
            return shown(record.key), _metadata(record, holds), None
        return *_coordinator(record, holds), None
    except ProtocolError as error:
        return shown(record.key), shown(record.value), str(error)


def _metadata(record: Record, holds: Holds) -> Value:
    if record.value is None:
        return None
    message, version = decode_metadata_record(record.value, TOPICS[holds])
    return named(message, version)


def _coordinator(record: Record, holds: Holds) -> tuple[Value, Value]:
    found = decode_coordinator_record(TOPICS[holds], record.key or b"", record.value)
    key = named(found.key, 0)
    if found.value is None:
        return key, None
    value = named(found.value, found.version)
    if value.name == "GroupMetadataValue" and value.fields["protocol_type"] == CONSUMER:
        for member, raw in zip(value.fields["members"], found.value.members):  # type: ignore[attr-defined]
            member["subscription"] = _plugged(ConsumerProtocolSubscription, raw.subscription)
            member["assignment"] = _plugged(ConsumerProtocolAssignment, raw.assignment)
    return key, value


def _plugged(message: type[Message], data: bytes) -> Any:
    """What a member wrote into the group's metadata; it may be anything."""
    try:
        found = decode_consumer_protocol(message, data)  # type: ignore[type-var]
    except ProtocolError:
        return shown(data)
    return plain(found, message.schema, message.schema.versions[-1])


def control(record: Record) -> tuple[str, Value, str | None]:
    """The type and value of a control record, and why they could not be understood, where they could not."""
    try:
        kind, message = decode_control_record(record.key or b"", record.value or b"")
    except ProtocolError as error:
        return "UNKNOWN", shown(record.value), str(error)
    version = 0 if kind <= ControlType.COMMIT else message.version  # type: ignore[attr-defined]
    return kind.name, named(message, version), None


def named(message: Message, version: int) -> Named:
    return Named(message.schema.name, version, plain(message, message.schema, version))


def plain(part: Any, schema: Schema, version: int, structs: dict[str, Schema] | None = None) -> dict[str, Any]:
    """The fields that a version has, by name, as what JSON knows."""
    structs = schema.structs if structs is None else structs
    fields: dict[str, Any] = {}
    for field in schema.fields:
        if version not in field.versions:
            continue
        value = getattr(part, field.attribute)
        if field.is_array and value is not None:
            fields[field.attribute] = [_plain(one, field, version, structs) for one in value]
        else:
            fields[field.attribute] = _plain(value, field, version, structs)
    if part.unknown_tags:
        fields["unknown_tags"] = {str(tag): shown(bytes(data)) for tag, data in part.unknown_tags.items()}
    return fields


def _plain(value: Any, field: Field, version: int, structs: dict[str, Schema]) -> Any:
    if value is None:
        return None
    if field.is_struct:
        return plain(value, structs[field.type], version, structs)
    if field.type == "uuid":
        return uuid_text(value)
    return shown(bytes(value)) if field.type in ("bytes", "records") else value


@cache
def uuid_text(value: bytes) -> str:
    """An id as Kafka prints it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

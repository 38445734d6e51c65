"""Messages as the JSON that Apache Kafka's own converters read, and what of our table 4.3.1 does not know."""

import base64
from typing import Any

from odradek.wire.message import Message
from odradek.wire.table import Field, Schema

# What only 4.4 has, or what has no class in the jars of the broker, and so cannot be held against Kafka's classes.
NOT_IN_4_3_1 = {
    "StreamsGroupTopologyDescriptionUpdateRequest",
    "StreamsGroupTopologyDescriptionUpdateResponse",
    "UnregisterControllerRequest",
    "UnregisterControllerResponse",
    "UnregisterControllerRecord",
    "AbortedTxn",  # a class written by hand: the log's tests have it
    "SubscriptionInfoData",  # in the jar of Kafka Streams
}
NEWEST_IN_4_3_1 = {
    "ApiVersionsRequest": 4,
    "ApiVersionsResponse": 4,
    "TxnOffsetCommitRequest": 5,
    "TxnOffsetCommitResponse": 5,
    "DeleteGroupsRequest": 2,
    "DeleteGroupsResponse": 2,
    "StreamsGroupHeartbeatRequest": 0,
    "StreamsGroupHeartbeatResponse": 0,
    "StreamsGroupDescribeRequest": 0,
    "StreamsGroupDescribeResponse": 0,
}
# Fields of versions that 4.3.1 does have, and which 4.4 added as tagged ones.
FIELDS_NOT_IN_4_3_1 = {
    ("StreamsGroupMetadataValue", "StoredDescriptionTopologyEpoch"),
    ("StreamsGroupMetadataValue", "FailedDescriptionTopologyEpoch"),
}
OLD_NAMES = {
    ("TxnOffsetCommitRequest", "GenerationIdOrMemberEpoch"): "GenerationId",
    ("StreamsGroupHeartbeatResponse", "AcceptableRecoveryLagLegacy"): "AcceptableRecoveryLag",
}


def to_kafka(value: Message, version: int) -> dict[str, Any]:
    """The message as JSON, with the fields that the version has."""
    table = value.schema

    def struct(part: Schema, mine: Any) -> dict[str, Any]:
        made = {}
        for field in part.fields:
            if version in field.versions and (part.name, field.name) not in FIELDS_NOT_IN_4_3_1:
                name = OLD_NAMES.get((part.name, field.name), field.name)
                made[name[0].lower() + name[1:]] = content(field, getattr(mine, field.attribute))
        return made

    def content(field: Field, mine: Any) -> Any:
        if mine is None:
            return None
        if field.is_array:
            return [element(field, each) for each in mine]
        return element(field, mine)

    def element(field: Field, mine: Any) -> Any:
        if field.is_struct:
            return struct(table.structs[field.type], mine)
        if field.type == "uuid":
            return base64.urlsafe_b64encode(mine).decode().rstrip("=")
        if field.type in ("bytes", "records"):
            return base64.b64encode(mine).decode()
        return mine

    return struct(table, value)

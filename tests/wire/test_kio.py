"""kio is the oracle: for every message and version that it knows, we write the bytes that it writes, and read them back.

Left out is what only Kafka 4.4 has, which kio does not know; see ONLY_OURS. The records of the logs are not in kio either:
test_kafka_classes.py holds those.
"""

import io
import uuid
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from odradek.wire.message import Message
from odradek.wire.messages import message_class
from odradek.wire.table import Field, Schema, schema
from tests.wire.values import all_versions, values

ONLY_OURS = {
    ("ApiVersionsRequest", 5),
    ("ApiVersionsResponse", 5),
    ("DeleteGroupsRequest", 3),
    ("DeleteGroupsResponse", 3),
    ("StreamsGroupDescribeRequest", 1),
    ("StreamsGroupDescribeResponse", 1),
    ("StreamsGroupHeartbeatRequest", 1),
    ("StreamsGroupHeartbeatResponse", 1),
    ("StreamsGroupTopologyDescriptionUpdateRequest", 0),
    ("StreamsGroupTopologyDescriptionUpdateResponse", 0),
    ("TxnOffsetCommitRequest", 6),
    ("TxnOffsetCommitResponse", 6),
    ("UnregisterControllerRequest", 0),
    ("UnregisterControllerResponse", 0),
}
PATHS = {
    (path.rpartition(":")[2], version): path
    for versions in schema_name_map.values()
    for version, kinds in versions.items()
    for path in kinds.values()
}
MILLISECOND = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# kio makes these of plain integers, and not of all of them: an int64 of milliseconds may be more than a datetime holds
KIO_RANGES: dict[str, st.SearchStrategy[int]] = {
    "error_code": st.sampled_from([error.value for error in KioError]),
    "datetime_i64": st.integers(0, 253_402_300_799_999),
    "timedelta_i64": st.integers(-(10**15), 10**15),
}


def test_kio_knows_every_request_and_response_but_those_of_4_4() -> None:
    ours = {pair for pair in all_versions() if schema(pair[0]).kind in ("request", "response", "header")}
    assert ours - PATHS.keys() == ONLY_OURS
    assert PATHS.keys() <= set(all_versions())
    assert len(PATHS) == 625


def present(part: Schema, version: int) -> list[Field]:
    return [field for field in part.fields if version in field.versions]


def kio_struct(kio_class: Any, field: Any) -> Any:
    """The class of a struct, in an annotation such as `tuple[Topic, ...] | None`."""
    found = [member for member in field_members(field.type) if hasattr(member, "__dataclass_fields__")]
    assert len(found) == 1, (kio_class, field)
    return found[0]


def field_members(annotation: Any) -> list[Any]:
    arguments = getattr(annotation, "__args__", ())
    return [annotation, *(member for argument in arguments for member in field_members(argument))]


def kio_kinds(name: str, version: int) -> dict[tuple[str, str], str]:
    """What kio calls the type of each field, by struct and field."""
    table = schema(name)
    found: dict[tuple[str, str], str] = {}

    def visit(part: Schema, kio_class: Any) -> None:
        for ours, theirs in zip(present(part, version), fields(kio_class), strict=True):
            if ours.is_struct:
                visit(table.structs[ours.type], kio_struct(kio_class, theirs))
            else:
                found[part.name, ours.name] = theirs.metadata["kafka_type"]

    visit(table, resolve_name(PATHS[name, version]))
    return found


def to_kio(value: Message, version: int) -> Any:
    """The same value as kio's class. Fields are matched by their order: kio renames some."""
    table = value.schema
    kinds = kio_kinds(table.name, version)

    def struct(part: Schema, mine: Any, kio_class: Any) -> Any:
        made: dict[str, Any] = {}
        for ours, theirs in zip(present(part, version), fields(kio_class), strict=True):
            content = getattr(mine, ours.attribute)
            if content is None:
                made[theirs.name] = None
            elif ours.is_struct:
                cls = kio_struct(kio_class, theirs)
                inner = table.structs[ours.type]
                made[theirs.name] = (
                    tuple(struct(inner, e, cls) for e in content) if ours.is_array else struct(inner, content, cls)
                )
            else:
                kind = kinds[part.name, ours.name]
                made[theirs.name] = tuple(scalar(kind, e) for e in content) if ours.is_array else scalar(kind, content)
        return kio_class(**made)

    return struct(table, value, resolve_name(PATHS[table.name, version]))


def scalar(kind: str, value: Any) -> Any:
    match kind:
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case "error_code":
            return KioError(value)
        case "timedelta_i32" | "timedelta_i64":
            return value * MILLISECOND
        case "datetime_i64":
            return EPOCH + value * MILLISECOND
        case _:
            return value


@pytest.mark.parametrize(("name", "version"), sorted(PATHS))
@settings(max_examples=4)
@given(data=st.data())
def test_we_write_the_bytes_that_kio_writes_and_read_them_back(name: str, version: int, data: st.DataObject) -> None:
    kinds = kio_kinds(name, version)
    value = data.draw(values(name, version, narrow=lambda part, field: KIO_RANGES.get(kinds[part.name, field.name])))
    theirs = to_kio(value, version)
    stream = io.BytesIO()
    entity_writer(type(theirs))(stream, theirs)
    expected = stream.getvalue()
    assert value.to_bytes(version) == expected
    assert message_class(name).decode(expected, version) == value

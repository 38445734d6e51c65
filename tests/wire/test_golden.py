"""The bytes of all records, as Apache Kafka 4.3.1's own classes wrote them, kept in golden/records.txt.

They hold the format still on machines without Java, and show a reviewer what changes. `python -m tests.wire.test_golden` writes
the file anew with Kafka's classes.
"""

from pathlib import Path
from typing import Any

from odradek.wire.message import Message
from odradek.wire.messages import message_class
from odradek.wire.table import Field, Schema, names, schema
from tests.kafka.oracle import Oracle
from tests.wire.kafka_json import FIELDS_NOT_IN_4_3_1, NOT_IN_4_3_1, to_kafka

GOLDEN = Path(__file__).parent / "golden" / "records.txt"
KINDS = ("metadata", "coordinator-key", "coordinator-value", "data", "header")
HEAD = (
    "# Written by `python -m tests.wire.test_golden`: record, version, bare (nobody set a field) or full (every field), bytes\n"
)


def full(name: str, version: int) -> Message:
    """The record with a value in every field that the version has, each another one."""
    table, message = schema(name), message_class(name)
    numbers = iter(range(1, 1000))

    def struct(part: Schema, cls: Any) -> Any:
        fields = [
            field for field in part.fields if version in field.versions and (part.name, field.name) not in FIELDS_NOT_IN_4_3_1
        ]
        return cls(**{field.attribute: content(field) for field in fields})

    def content(field: Field) -> Any:
        return [element(field), element(field)] if field.is_array else element(field)

    def element(field: Field) -> Any:
        number = next(numbers)
        match field.type:
            case "bool":
                return True
            case "float64":
                return number + 0.5
            case "uuid":
                return bytes([number]) * 16
            case "string":
                return f"{field.attribute} ü{number}"
            case "bytes":
                return bytes([number] * number)
            case kind if field.is_struct:
                return struct(table.structs[kind], getattr(message, kind))
            case _:
                return number

    return struct(table, message)  # type: ignore[no-any-return]


def samples() -> dict[tuple[str, int, str], Message]:
    found: dict[tuple[str, int, str], Message] = {}
    for name in sorted(name for kind in KINDS for name in names(kind) if name not in NOT_IN_4_3_1):
        for version in schema(name).versions:
            found[name, version, "bare"] = message_class(name)()
            found[name, version, "full"] = full(name, version)
    return found


def golden() -> dict[tuple[str, int, str], bytes]:
    lines = (line.split() for line in GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {(name, int(version), extent): bytes.fromhex(data) for name, version, extent, data in lines}


def test_every_record_has_its_golden_bytes() -> None:
    assert golden().keys() == samples().keys()
    assert len(golden()) == 248


def test_records_are_written_and_read_as_the_golden_bytes() -> None:
    kept = golden()
    for (name, version, extent), record in samples().items():
        assert record.to_bytes(version) == kept[name, version, extent], (name, version, extent)
        assert message_class(name).decode(kept[name, version, extent], version) == record


def write(oracle: Oracle) -> None:
    lines = [HEAD]
    for (name, version, extent), record in samples().items():
        data = oracle.call("Messages.encode", message=name, version=version, value=to_kafka(record, version))
        lines.append(f"{name} {version} {extent} {data}\n")
    GOLDEN.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    kafka = Oracle()
    write(kafka)
    kafka.close()

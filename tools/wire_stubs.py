"""Writes src/odradek/wire/messages.pyi: the classes of all messages as an editor and mypy know them, from the table."""

import sys
from pathlib import Path

from odradek.wire.table import Field, Schema, blocks, may_be_null, schema

STUBS = Path(__file__).parent.parent / "src" / "odradek" / "wire" / "messages.pyi"
TYPES = {"bool": "bool", "float64": "float", "uuid": "bytes", "string": "str", "bytes": "bytes"}

HEAD = """# Written by `python -m tools.wire_stubs` from the table in schema/.

from collections.abc import Sized
from typing import overload

from odradek.wire.message import Message, Struct

# Decoded it is a memoryview; anything with a length can be put there to be encoded.
class _Records:
    @overload
    def __get__(self, instance: None, owner: type) -> _Records: ...
    @overload
    def __get__(self, instance: object, owner: type) -> memoryview: ...
    def __set__(self, instance: object, value: Sized) -> None: ...

class _NullableRecords:
    @overload
    def __get__(self, instance: None, owner: type) -> _NullableRecords: ...
    @overload
    def __get__(self, instance: object, owner: type) -> memoryview | None: ...
    def __set__(self, instance: object, value: Sized | None) -> None: ...

def message_class(name: str) -> type[Message]: ...
"""


def annotation(field: Field, message: Schema) -> str:
    null = " | None" if may_be_null(message, field) else ""
    if field.type == "records":
        return "_NullableRecords" if null else "_Records"
    kind = f"{message.name}.{field.type}" if field.is_struct else TYPES.get(field.type, "int")
    return (f"list[{kind}]" if field.is_array else kind) + null


def class_lines(part: Schema, message: Schema, base: str, indent: str) -> list[str]:
    lines = [f"{indent}class {part.name}({base}, kw_only=True):"]
    if part is message:
        for struct in message.structs.values():
            lines += [*class_lines(struct, message, "Struct", indent + "    "), ""]
    lines += [f"{indent}    {field.attribute}: {annotation(field, message)} = ..." for field in part.fields]
    lines.append(f"{indent}    unknown_tags: dict[int, bytes] | None = ...")
    return lines


def stubs() -> str:
    """The whole file."""
    lines = [HEAD]
    for name in sorted(blocks()):
        message = schema(name)
        lines += [*class_lines(message, message, "Message", ""), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    STUBS.write_text(stubs(), encoding="utf-8")
    sys.stdout.write(f"{STUBS}\n")

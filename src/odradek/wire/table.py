"""The table of all messages: reads schema/api.txt and schema/records.txt, which explain their own notation.

Everything of the wire is said once, in those two texts; the compilers, the classes and the tests all start here.

Invariants
 1. Nothing is read at import; the texts are read and cut into blocks once; a block is parsed when its message is first used.
 2. A struct's name is unique in its message, and no struct contains itself: nesting is bounded by the table.
"""

import re
from functools import cache
from struct import calcsize
from typing import Final

import msgspec

VERSION_END: Final = 1 << 15  # versions are int16: what `3+` runs up to
NO_VERSIONS: Final = range(0)
NIL_UUID: Final = bytes(16)
FILES: Final = ("api.txt", "records.txt")

# struct's format character of every type that has a fixed size, and the value it has when nothing is said
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}
EMPTY: Final[dict[str, object]] = {
    "bool": False,
    "float64": 0.0,
    "uuid": NIL_UUID,
    "string": "",
    "bytes": b"",
    "records": b"",
}


class Field(msgspec.Struct, frozen=True):
    """One field. `default` is what its class has: None for null, () for an empty array, `...` for a struct's own defaults."""

    name: str
    type: str  # of one element, when it is an array
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: object
    ignorable: bool
    may_be_compact: bool

    @property
    def attribute(self) -> str:
        return attribute(self.name)

    @property
    def is_struct(self) -> bool:
        return self.type[0].isupper()

    def element(self) -> "Field":
        """One element of the array, as a field."""
        return msgspec.structs.replace(self, is_array=False)


class Schema(msgspec.Struct, gc=False):
    """One message, or one of its structs: what the first line of its block says, and its fields."""

    name: str
    kind: str
    fields: tuple[Field, ...]
    versions: range
    flexible: range = NO_VERSIONS
    key: int = -1
    topic: str = ""  # of the log that holds it
    listeners: frozenset[str] = frozenset()
    advertised: range = NO_VERSIONS
    structs: dict[str, "Schema"] = msgspec.field(default_factory=dict)  # those of the message, in the order of the table

    @property
    def has_records(self) -> bool:
        return any(f.type == "records" for part in (self, *self.structs.values()) for f in part.fields)


def may_be_null(message: Schema, field: Field) -> bool:
    """Whether any version of the message has a null there."""
    return field.default is None or any(version in field.nullable for version in message.versions)


def attribute(name: str) -> str:
    """The Python name of a field: `KRaftVersion` is `kraft_version`, `TopicId` is `topic_id`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace("KRaft", "Kraft")).lower()


def versions_of(text: str) -> range:
    """`0-3`, `4`, `9+` or `none`."""
    if text == "none":
        return NO_VERSIONS
    first, dash, last = text.partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), VERSION_END)
    return range(int(first), int(last if dash else first) + 1)


@cache
def blocks() -> dict[str, str]:
    """The block of every message by its name, as text."""
    folder = __file__.rpartition("table.py")[0] + "schema/"
    found: dict[str, str] = {}
    for file in FILES:
        with open(folder + file, encoding="utf-8") as text:
            for block in text.read().split("\n\n"):
                if block and not block.startswith("#"):
                    words = block.split(None, 3)
                    name = words[2] if words[0] in ("request", "response") else words[1]
                    assert name not in found, name
                    found[name] = block.rstrip()
    return found


@cache
def schema(name: str) -> Schema:
    """The message of that name; KeyError when there is none."""
    head, *lines = blocks()[name].split("\n")
    message = parse_head(head)
    fields, end = parse_fields(lines, 0, 2, message.structs)
    assert end == len(lines), lines[end]
    message.fields = fields
    return message


@cache
def names(kind: str) -> tuple[str, ...]:
    """The names of all messages of that kind, in the order of the table."""
    return tuple(name for name, block in blocks().items() if block.startswith(f"{kind} "))


def parse_head(line: str) -> Schema:
    first, *clauses = line.split("  ")
    kind, *words = first.split(" ")
    head = Schema(name=words[-1], kind=kind, fields=(), versions=NO_VERSIONS)
    if kind in ("request", "response"):
        head.key = int(words[0])
    advertised: range | None = None
    for clause in clauses:
        match clause.split(" "):
            case "versions", text:
                head.versions = versions_of(text)
            case "flexible", text:
                head.flexible = versions_of(text)
            case "key", text:
                head.key = int(text)
            case "in", text:
                head.topic = text
            case "on", text:
                head.listeners = frozenset(text.split("+"))
            case "advertise", text:
                advertised = versions_of(text)
            case _:
                raise AssertionError(line)
    if kind == "request":
        head.advertised = head.versions if advertised is None else advertised
    return head


def parse_fields(lines: list[str], start: int, indent: int, structs: dict[str, Schema]) -> tuple[tuple[Field, ...], int]:
    """The fields at that indentation, and the line where they end; puts the structs found on the way into `structs`."""
    fields: list[Field] = []
    position = start
    while position < len(lines):
        line = lines[position]
        depth = len(line) - len(line.lstrip(" "))
        if depth < indent:
            break
        assert depth == indent, line
        position += 1
        if line.lstrip().startswith("struct "):
            name, _, versions = line.strip().removeprefix("struct ").partition("  ")
            position = parse_struct(lines, position, indent + 2, name, versions_of(versions), structs)
            continue
        fields.append(found := parse_field(line.strip()))
        if position < len(lines) and lines[position].startswith(" " * (indent + 2)):
            position = parse_struct(lines, position, indent + 2, found.type, found.versions, structs)
    return tuple(fields), position


def parse_struct(lines: list[str], start: int, indent: int, name: str, versions: range, structs: dict[str, Schema]) -> int:
    assert name not in structs, name
    structs[name] = part = Schema(name=name, kind="struct", fields=(), versions=versions)
    part.fields, position = parse_fields(lines, start, indent, structs)
    return position


def parse_field(line: str) -> Field:
    name, kind, *clauses = line.split("  ")
    versions = nullable = tagged = NO_VERSIONS
    tag: int | None = None
    given: str | None = None
    ignorable, may_be_compact = False, True
    for clause in clauses:
        match clause.split(" "):
            case "null", text:
                nullable = versions_of(text)
            case "tag", number, text:
                tag, tagged = int(number), versions_of(text)
            case "=", text:
                given = text
            case ("ignorable",):
                ignorable = True
            case "flexible", "none":
                may_be_compact = False
            case (text,):
                versions = versions_of(text)
            case _:
                raise AssertionError(line)
    is_array = kind.startswith("[]")
    element = kind.removeprefix("[]")
    return Field(
        name=name,
        type=element,
        is_array=is_array,
        versions=versions,
        nullable=nullable,
        tag=tag,
        tagged=tagged,
        default=default_of(element, is_array, given, nullable),
        ignorable=ignorable,
        may_be_compact=may_be_compact,
    )


def default_of(element: str, is_array: bool, given: str | None, nullable: range) -> object:
    if given == "null" or (element == "records" and nullable.stop == VERSION_END):
        return None  # no records are null ones, wherever the newest version has a null for them
    if is_array:
        assert given is None
        return ()
    if element[0].isupper():
        assert given is None
        return ...
    if given is None:
        return EMPTY.get(element, 0)
    if element == "bool":
        return {"true": True, "false": False}[given]
    return float(given) if element == "float64" else int(given, 0)


def size_min(schema: Schema, field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of the field can have."""
    if field.is_struct:
        return struct_size_min(schema, schema.structs[field.type], version, flexible)
    if field.type in FIXED:
        return calcsize(f">{FIXED[field.type]}")
    return 1 if flexible else {"string": 2, "bytes": 4}[field.type]


def struct_size_min(schema: Schema, part: Schema, version: int, flexible: bool) -> int:
    size = 1 if flexible else 0
    for field in part.fields:
        if version not in field.versions or version in field.tagged:
            continue
        if field.is_array or field.type == "records":
            size += 1 if flexible else 4
        elif field.is_struct and version in field.nullable:
            size += 1
        else:
            size += size_min(schema, field, version, flexible and field.may_be_compact)
    return size

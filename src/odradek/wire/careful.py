"""The slow codec: reads the table field by field, and knows at every byte which field it is at.

The compiled codecs only notice that something is wrong; then the same bytes or the same value go through here, and the
`ProtocolError` names the field and the byte. It says the same things as the compilers in another way, so tests hold the two
against each other.

Invariants
 1. What the compiled codecs refuse is refused here, and the other way round.
 2. The position of an error is where the value begins that may not be: of its length, when the length is wrong.
"""

import struct
from typing import Any

from odradek.wire.errors import ProtocolError
from odradek.wire.source import STRING_BYTES_MAX, UINT32_END
from odradek.wire.table import FIXED, Field, Schema, size_min
from odradek.wire.varint import Buffer, decode_unsigned, encode_unsigned


def is_default(field: Field, value: object, message: Any) -> bool:
    if field.default == ():
        return value is not None and len(value) == 0  # type: ignore[arg-type]
    if field.default is ...:
        return bool(value == getattr(message, field.type)())
    return value == field.default


class CarefulDecoder:
    """Decodes one message from `position` on."""

    def __init__(self, message: Any, version: int, data: Buffer, position: int = 0) -> None:
        self.message = message
        self.schema: Schema = message.schema
        self.version = version
        self.flexible = version in self.schema.flexible
        self.data = data
        self.position = position
        self.path = [self.schema.name]

    def fail(self, reason: str, position: int) -> ProtocolError:
        return ProtocolError(reason, ".".join(self.path), position)

    def decode(self, to_end: bool = True) -> Any:
        """The message, which must end where the data end, unless told otherwise."""
        value = self.struct(self.schema, self.message)
        if to_end and (left := len(self.data) - self.position) > 0:
            raise self.fail(f"{left} bytes are left after the message", self.position)
        return value

    def take(self, size: int, start: int) -> Buffer:
        left = len(self.data) - self.position
        if size > left:
            raise self.fail(f"{size} bytes wanted, {left} left", start)
        self.position += size
        return self.data[self.position - size : self.position]

    def fixed(self, code: str) -> Any:
        (value,) = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}"), self.position))
        return value

    def uvarint(self) -> int:
        number, self.position = decode_unsigned(self.data, self.position, field=".".join(self.path))
        return number

    def struct(self, part: Schema, cls: Any) -> Any:
        values: dict[str, Any] = {}
        for field in part.fields:
            if self.version in field.versions and self.version not in field.tagged:
                values[field.attribute] = self.named(field)
        if self.flexible:
            self.tags(part, values)
        return cls(**values)

    def named(self, field: Field, in_tag: bool = False) -> Any:
        self.path.append(field.attribute)
        value = self.field(field, in_tag)
        self.path.pop()
        return value

    def field(self, field: Field, in_tag: bool) -> Any:
        compact = self.flexible and field.may_be_compact
        nullable = self.version in field.nullable
        if field.is_array:
            return self.array(field, compact, nullable)
        if field.is_struct:
            if nullable and not self.present(in_tag):
                return None
            return self.struct(self.schema.structs[field.type], getattr(self.message, field.type))
        if field.type in FIXED:
            value = self.fixed(FIXED[field.type])
            return bytes(value) if field.type == "uuid" else value
        return self.text(field.type, compact, nullable)

    def present(self, in_tag: bool) -> bool:
        start = self.position
        mark = self.fixed("B")
        if mark not in ((0, 1) if in_tag else (255, 1)):
            raise self.fail(f"byte {mark} says neither null nor present", start)
        return bool(mark == 1)

    def length(self, code: str, compact: bool, nullable: bool) -> int:
        start = self.position
        length: int = self.uvarint() - 1 if compact else self.fixed(code)
        if length < -1:
            raise self.fail(f"length {length} is negative", start)
        if length == -1 and not nullable:
            raise self.fail("null, where it may not be", start)
        return length

    def text(self, kind: str, compact: bool, nullable: bool) -> Any:
        start = self.position
        length = self.length("h" if kind == "string" else "i", compact, nullable)
        if length == -1:
            return None
        if kind == "string" and length > STRING_BYTES_MAX:
            raise self.fail(f"a string of {length} bytes, over {STRING_BYTES_MAX}", start)
        content = self.take(length, start)
        if kind == "records":
            return content
        if kind == "bytes":
            return bytes(content)
        try:
            return str(content, "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"not UTF-8: {error.reason}", self.position - length + error.start) from None

    def array(self, field: Field, compact: bool, nullable: bool) -> Any:
        start = self.position
        count = self.length("i", compact, nullable)
        if count == -1:
            return None
        left = len(self.data) - self.position
        least = size_min(self.schema, field, self.version, compact)
        if count * least > left:
            raise self.fail(f"{count} elements of at least {least} bytes, and {left} bytes left", start)
        if field.is_struct:
            part, cls = self.schema.structs[field.type], getattr(self.message, field.type)
            return [self.struct(part, cls) for _ in range(count)]
        if field.type in FIXED:
            return [self.fixed(FIXED[field.type]) for _ in range(count)]
        return [self.text(field.type, compact, nullable=False) for _ in range(count)]

    def tags(self, part: Schema, values: dict[str, Any]) -> None:
        self.path.append("tags")
        known = {field.tag: field for field in part.fields if self.version in field.tagged}
        unknown: dict[int, bytes] = {}
        last = -1
        for _ in range(self.uvarint()):
            start = self.position
            tag = self.uvarint()
            size = self.uvarint()
            if tag <= last:
                raise self.fail(f"tag {tag} after tag {last}", start)
            last = tag
            stop = self.position + size
            if stop > len(self.data):
                raise self.fail(f"tag {tag} has {size} bytes, and {len(self.data) - self.position} are left", start)
            if tag in known:
                self.path.pop()
                values[known[tag].attribute] = self.named(known[tag], in_tag=True)
                self.path.append(known[tag].attribute)
                if self.position != stop:
                    raise self.fail(f"tag {tag} ends at byte {self.position}, its size says {stop}", start)
                self.path[-1] = "tags"
            else:
                unknown[tag] = bytes(self.take(size, start))
        self.path.pop()
        values["unknown_tags"] = unknown or None


class CarefulEncoder:
    """Encodes one message; records are copied, for this is never the way a message is sent."""

    def __init__(self, message: Any, version: int) -> None:
        self.message = message
        self.schema: Schema = message.schema
        self.version = version
        self.flexible = version in self.schema.flexible
        self.out = bytearray()
        self.path = [self.schema.name]

    def fail(self, reason: str) -> ProtocolError:
        return ProtocolError(reason, ".".join(self.path), len(self.out))

    def encode(self, value: Any) -> bytes:
        self.struct(self.schema, value)
        return bytes(self.out)

    def struct(self, part: Schema, value: Any) -> None:
        if not isinstance(value, self.message if part is self.schema else getattr(self.message, part.name)):
            raise self.fail(f"{type(value).__name__} in place of {part.name}")
        for field in part.fields:
            self.path.append(field.attribute)
            content = getattr(value, field.attribute)
            if self.version not in field.versions:
                if not (field.ignorable or is_default(field, content, self.message)):
                    raise self.fail(f"version {self.version} has no such field, and it is not the default")
            elif self.version not in field.tagged:
                self.field(field, content, in_tag=False)
            self.path.pop()
        if self.flexible:
            self.tags(part, value)
        elif value.unknown_tags:
            raise self.fail(f"version {self.version} has no tagged fields")

    def field(self, field: Field, value: Any, in_tag: bool) -> None:
        compact = self.flexible and field.may_be_compact
        nullable = self.version in field.nullable
        if value is None and not nullable:
            raise self.fail("null, where it may not be")
        if field.is_array:
            self.length(None if value is None else len(value), "i", compact)
            for element in value or ():
                self.element(field, element, compact)
        elif field.is_struct and nullable:
            present, absent = b"\x01", b"\x00" if in_tag else b"\xff"
            self.out += absent if value is None else present
            if value is not None:
                self.element(field, value, compact)
        elif value is None:
            self.length(None, "h" if field.type == "string" else "i", compact)
        else:
            self.element(field, value, compact)

    def element(self, field: Field, value: Any, compact: bool) -> None:
        if field.is_struct:
            self.struct(self.schema.structs[field.type], value)
        elif field.type in FIXED:
            self.fixed(field.type, value)
        elif field.type == "string":
            self.string(value, compact)
        else:
            if field.type == "bytes" and not isinstance(value, Buffer):
                raise self.fail(f"{type(value).__name__} in place of bytes")
            self.length(len(value), "i", compact)
            if isinstance(value, Buffer):  # a range of a file has only its length
                self.out += value

    def fixed(self, kind: str, value: Any) -> None:
        if kind == "uuid" and (not isinstance(value, Buffer) or len(value) != 16):
            raise self.fail(f"{value!r} is not the 16 bytes of a uuid")
        try:
            self.out += struct.pack(f">{FIXED[kind]}", value)
        except struct.error:
            raise self.fail(f"{value!r} is not of type {kind}") from None

    def string(self, value: Any, compact: bool) -> None:
        if not isinstance(value, str):
            raise self.fail(f"{type(value).__name__} in place of a string")
        try:
            content = value.encode()
        except UnicodeEncodeError as error:
            raise self.fail(f"not to be written in UTF-8: {error.reason}") from None
        if len(content) > STRING_BYTES_MAX:
            raise self.fail(f"a string of {len(content)} bytes, over {STRING_BYTES_MAX}")
        self.length(len(content), "h", compact)
        self.out += content

    def length(self, length: int | None, code: str, compact: bool) -> None:
        if compact:
            self.out += encode_unsigned(0 if length is None else length + 1)
        else:
            self.out += struct.pack(f">{code}", -1 if length is None else length)

    def tags(self, part: Schema, value: Any) -> None:
        found: dict[int, bytes] = dict(value.unknown_tags or {})
        outer = self.out
        for field in part.fields:
            content = getattr(value, field.attribute)
            if self.version not in field.tagged or is_default(field, content, self.message):
                continue
            self.path.append(field.attribute)
            if field.tag is None or field.tag in found:
                raise self.fail(f"tag {field.tag} is also among the unknown tags")
            self.out = bytearray()
            self.field(field, content, in_tag=True)
            found[field.tag] = bytes(self.out)
            self.out = outer
            self.path.pop()
        self.out += encode_unsigned(len(found))
        for tag in sorted(found):
            if not 0 <= tag < UINT32_END:
                raise self.fail(f"{tag} is no tag")
            self.out += encode_unsigned(tag) + encode_unsigned(len(found[tag])) + found[tag]

"""Messages as values: the base of all classes that `messages` makes from the table, and how they become bytes and back.

    request = FetchRequest(max_wait_ms=500, min_bytes=1)
    buffers = request.encode(17)                      # a list of buffers, to be sent one after another
    again = FetchRequest.decode(b"".join(buffers), 17)

A `uuid` is its 16 bytes, because `uuid.UUID` costs ten times as much to make and is never looked into; nil is `NIL_UUID`.
A `bytes` field is bytes. A `records` field is, decoded, a memoryview of what was decoded; to be encoded it may be anything
with a length, and is then in the list of buffers as it is. Arrays are lists.

Invariants
 1. Only `ProtocolError` leaves `decode`, whatever the bytes; it names the field and the byte.
 2. Codecs are compiled when a message's version is first used, and kept.
 3. `unknown_tags` are the tagged fields that the table does not know, as bytes by tag; they are written as they were read.
"""

from collections.abc import Callable, Sized
from typing import Any, ClassVar, Final, NoReturn, Self, TypeAlias

import msgspec

from odradek.wire.errors import ProtocolError
from odradek.wire.source import REFUSALS
from odradek.wire.table import NIL_UUID, Field, Schema, may_be_null
from odradek.wire.varint import Buffer

__all__ = ["NIL_UUID", "Buffer", "Buffers", "Message", "Piece", "Struct"]

Piece: TypeAlias = Buffer | Sized  # Sized: records that are not in memory
Buffers: TypeAlias = list[Piece]

REFUSED_BYTES_SHOWN: Final = 4096


class Struct(msgspec.Struct, gc=False, repr_omit_defaults=True):
    """A part of a message. Values are trees, never circles, so the garbage collector need not know them."""


class Codecs(dict[int, Callable[..., Any]]):
    """The decoders, or encoders, of one message by version; compiled when first asked for."""

    def __init__(self, direction: str) -> None:
        super().__init__()
        self.direction = direction
        self.message: type[Message] | None = None

    def __missing__(self, version: int) -> Callable[..., Any]:
        assert self.message is not None
        schema = self.message.schema
        if version not in schema.versions:
            known = f"{schema.versions[0]}-{schema.versions[-1]}"
            raise ProtocolError(f"version {version} is not one of {known}", schema.name, 0)
        if self.direction == "decode":
            from odradek.wire.decoder import compile_decoder as compile_codec
        else:
            from odradek.wire.encoder import compile_encoder as compile_codec
        self[version] = codec = compile_codec(self.message, version)
        return codec


class Message(Struct):
    """Something that has its own block in the table. `schema` is what the block says: key, versions, fields."""

    schema: ClassVar[Schema]
    decoders: ClassVar[Codecs]
    encoders: ClassVar[Codecs]
    is_view: ClassVar[bool]  # decoded from a memoryview, because it holds records or stands before what may

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """The message that `data` is, to the last byte."""
        return cls.decode_from(data, version, 0)

    @classmethod
    def decode_from(cls, data: Buffer, version: int, start: int) -> Self:
        """The message that `data` is from byte `start` to its end."""
        decoder = cls.decoders[version]
        source = memoryview(data) if cls.is_view else bytes(data)
        end = len(source)
        try:
            value, position = decoder(source, start, end)
        except REFUSALS as refusal:
            cls.refuse_bytes(source, version, start, refusal)
        if position != end:
            cls.refuse_bytes(source, version, start)
        return value  # type: ignore[no-any-return]

    @classmethod
    def decode_head(cls, data: Buffer, version: int, start: int = 0) -> tuple[Self, int]:
        """The message at byte `start` of `data`, and where it ends."""
        decoder = cls.decoders[version]
        source = memoryview(data) if cls.is_view else bytes(data)
        end = len(source)
        try:
            value, position = decoder(source, start, end)
        except REFUSALS as refusal:
            cls.refuse_bytes(source, version, start, refusal, to_end=False)
        if position > end:
            cls.refuse_bytes(source, version, start, to_end=False)
        return value, position

    def encode(self, version: int) -> Buffers:
        """The message as buffers that are to be sent one after another; the first is bytes."""
        encoder = self.encoders[version]
        try:
            return encoder(self)  # type: ignore[no-any-return]
        except REFUSALS as refusal:
            self.refuse_value(version, refusal)

    def to_bytes(self, version: int) -> bytes:
        """The message in one piece; its records must be in memory."""
        return b"".join(self.encode(version))  # type: ignore[arg-type]

    @classmethod
    def refuse_bytes(
        cls, source: Buffer, version: int, start: int, refusal: Exception | None = None, to_end: bool = True
    ) -> NoReturn:
        from odradek.wire.careful import CarefulDecoder

        CarefulDecoder(cls, version, source, start).decode(to_end)
        found = bytes(source[:REFUSED_BYTES_SHOWN]).hex()
        raise AssertionError(f"only the compiled decoder of {cls.__name__} v{version} refuses {found}") from refusal

    def refuse_value(self, version: int, refusal: Exception) -> NoReturn:
        from odradek.wire.careful import CarefulEncoder

        CarefulEncoder(type(self), version).encode(self)
        found = f"{type(self).__name__} v{version}"
        raise AssertionError(f"only the compiled encoder of {found} refuses {self}") from refusal


PYTHON_TYPES: Final[dict[str, type]] = {
    "bool": bool,
    "float64": float,
    "uuid": bytes,
    "string": str,
    "bytes": bytes,
    "records": object,
}


def make_class(schema: Schema) -> type[Message]:
    """The class of a message, with those of its structs inside."""
    parts: dict[str, Any] = {}
    for name in in_order_of_use(schema):
        fields = members(schema, schema.structs[name], parts)
        parts[name] = msgspec.defstruct(name, fields, bases=(Struct,), module=MODULE, gc=False, repr_omit_defaults=True)
        parts[name].__qualname__ = f"{schema.name}.{name}"
    decoders, encoders = Codecs("decode"), Codecs("encode")
    namespace = {
        **parts,
        "__doc__": f"{schema.kind} {schema.name}, versions {schema.versions[0]}-{schema.versions[-1]}.",
        "schema": schema,
        "decoders": decoders,
        "encoders": encoders,
        "is_view": schema.has_records or schema.kind == "header",
    }
    made: type[Message] = msgspec.defstruct(  # type: ignore[assignment]
        schema.name,
        members(schema, schema, parts),
        bases=(Message,),
        namespace=namespace,
        module=MODULE,
        gc=False,
        repr_omit_defaults=True,
    )
    decoders.message = encoders.message = made
    return made


MODULE: Final = "odradek.wire.messages"


def in_order_of_use(schema: Schema) -> list[str]:
    """The structs of a message, each after those that it has fields of."""
    ordered: list[str] = []

    def visit(part: Schema) -> None:
        for field in part.fields:
            if field.is_struct and field.type not in ordered:
                visit(schema.structs[field.type])
                ordered.append(field.type)

    visit(schema)
    return ordered


def members(message: Schema, part: Schema, parts: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What `defstruct` wants to know of each field: name, type, default."""
    found: list[tuple[str, Any, Any]] = []
    for field in part.fields:
        kind = parts[field.type] if field.is_struct else PYTHON_TYPES.get(field.type, int)
        annotation = list[kind] if field.is_array else kind  # type: ignore[valid-type]
        if may_be_null(message, field):
            annotation = annotation | None
        found.append((field.attribute, annotation, member_default(field, kind)))
    found.append(("unknown_tags", dict[int, bytes] | None, None))
    return found


def member_default(field: Field, kind: Any) -> Any:
    if field.default == ():
        return msgspec.field(default_factory=list)
    return msgspec.field(default_factory=kind) if field.default is ... else field.default

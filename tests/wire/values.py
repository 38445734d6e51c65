"""Values of any message and version, drawn by hypothesis from the table, and all pairs of message and version there are."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from odradek.wire.message import Message
from odradek.wire.messages import message_class
from odradek.wire.table import Field, Schema, blocks, schema

Draw = Callable[[st.SearchStrategy[Any]], Any]
Narrow = Callable[[Schema, Field], st.SearchStrategy[Any] | None]

LONG_TEXT = "ß" * 100  # 200 bytes: its length needs a varint of two bytes
LONG_BYTES = bytes(range(256)) * 2


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uint16": integers(16, signed=False),
    "uint32": integers(32, signed=False),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.sampled_from([bytes(16), bytes(range(16)), b"\xff" * 16]),
    "string": st.one_of(st.text(max_size=5), st.just(LONG_TEXT)),
    "bytes": st.one_of(st.binary(max_size=5), st.just(LONG_BYTES)),
    "records": st.one_of(st.binary(max_size=5), st.just(LONG_BYTES)),
}
ARRAYS = {
    kind: st.one_of(st.lists(values, max_size=3), st.lists(values, min_size=130, max_size=130))
    for kind, values in SCALARS.items()
}
RARELY = st.integers(0, 3).map(lambda number: number == 0)
COUNTS = st.integers(0, 2)
UNKNOWN_TAGS = st.one_of(
    st.none(),
    st.dictionaries(
        st.integers(1000, (1 << 32) - 1), st.one_of(st.binary(max_size=5), st.just(LONG_BYTES)), min_size=1, max_size=2
    ),
)


def all_versions() -> list[tuple[str, int]]:
    """Every message with each of its versions."""
    return [(name, version) for name in blocks() for version in schema(name).versions]


@st.composite
def values(draw: Draw, name: str, version: int, narrow: Narrow | None = None, with_unknown_tags: bool = False) -> Message:
    """A message whose every field is one that the version can carry."""
    message = message_class(name)
    table = schema(name)

    def of_struct(part: Schema, cls: Any) -> Any:
        made = {field.attribute: of_field(part, field) for field in part.fields if version in field.versions}
        if with_unknown_tags and version in table.flexible:
            made["unknown_tags"] = draw(UNKNOWN_TAGS)
        return cls(**{key: value for key, value in made.items() if value is not Ellipsis})

    def of_field(part: Schema, field: Field) -> Any:
        if version in field.tagged and draw(st.booleans()):
            return ...  # its default
        if version in field.nullable and draw(RARELY):
            return None
        if field.is_struct:
            struct, cls = table.structs[field.type], getattr(message, field.type)
            return [of_struct(struct, cls) for _ in range(draw(COUNTS))] if field.is_array else of_struct(struct, cls)
        strategy = narrow(part, field) if narrow is not None else None
        if strategy is None:
            strategy = (ARRAYS if field.is_array else SCALARS)[field.type]
        return draw(strategy)

    return of_struct(table, message)  # type: ignore[no-any-return]

"""Messages as Spark's types and rows, as Spark's from_protobuf maps them with its defaults.

A field that is not set is null; so is one of proto3 that holds its default and has no presence of its own, for the two
are the same bytes. Repeated fields and maps are never null. Enums are their names. Unsigned numbers are the signed ones
of the same bits. Timestamp and Duration are Spark's own, other messages are structs; a message without fields is left out.

Invariants
 1. the rows of a message are tuples in the order of its fields
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from pyspark.sql import types

from odradek.client.errors import InvalidOption

Convert = Callable[[Any], Any]
MICROSECONDS: Final = 1_000_000  # in a second

SCALARS: Final[dict[int, types.DataType]] = {
    FieldDescriptor.TYPE_BOOL: types.BooleanType(),
    FieldDescriptor.TYPE_INT32: types.IntegerType(),
    FieldDescriptor.TYPE_SINT32: types.IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: types.IntegerType(),
    FieldDescriptor.TYPE_INT64: types.LongType(),
    FieldDescriptor.TYPE_SINT64: types.LongType(),
    FieldDescriptor.TYPE_SFIXED64: types.LongType(),
    FieldDescriptor.TYPE_FLOAT: types.FloatType(),
    FieldDescriptor.TYPE_DOUBLE: types.DoubleType(),
    FieldDescriptor.TYPE_STRING: types.StringType(),
    FieldDescriptor.TYPE_BYTES: types.BinaryType(),
}
UNSIGNED: Final[dict[int, tuple[types.DataType, int]]] = {
    FieldDescriptor.TYPE_UINT32: (types.IntegerType(), 32),
    FieldDescriptor.TYPE_FIXED32: (types.IntegerType(), 32),
    FieldDescriptor.TYPE_UINT64: (types.LongType(), 64),
    FieldDescriptor.TYPE_FIXED64: (types.LongType(), 64),
}


class Field(NamedTuple):
    name: str
    number: int
    data_type: types.DataType
    convert: Convert
    absent: Any  # what it is where it is not set


def read_message(descriptor: Descriptor) -> tuple[types.DataType, Convert]:
    """The type of a message, and what makes rows of one."""
    found = _message(descriptor, ())
    if found is None:
        raise InvalidOption(f"message {descriptor.full_name} has no fields, and so no type in Spark")
    return found


def _message(descriptor: Descriptor, outer: tuple[str, ...]) -> tuple[types.DataType, Convert] | None:
    name = descriptor.full_name
    if name in outer:
        raise InvalidOption(f"message {name} holds itself ({' > '.join([*outer, name])}), and a type in Spark cannot")
    if name == "google.protobuf.Timestamp":
        return types.TimestampType(), _microseconds
    if name == "google.protobuf.Duration":
        return types.DayTimeIntervalType(), _microseconds
    declared = DescriptorProto()
    descriptor.CopyToProto(declared)
    repeated = {field.number for field in declared.field if field.label == FieldDescriptorProto.LABEL_REPEATED}
    candidates = [(_repeated if field.number in repeated else _one)(field, (*outer, name)) for field in descriptor.fields]
    fields = [field for field in candidates if field is not None]

    def row(message: Any) -> tuple[Any, ...]:
        given = {field.number: value for field, value in message.ListFields()}
        return tuple(field.convert(given[field.number]) if field.number in given else field.absent for field in fields)

    if not fields:
        return None
    return types.StructType([types.StructField(field.name, field.data_type, True) for field in fields]), row


def _one(field: FieldDescriptor, outer: tuple[str, ...]) -> Field | None:
    found = _single(field, outer)
    if found is None:
        return None
    data_type, convert = found
    default = convert(field.default_value) if field.has_default_value else None
    return Field(field.name, field.number, data_type, convert, default)


def _repeated(field: FieldDescriptor, outer: tuple[str, ...]) -> Field | None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field, field.message_type, outer)
    item = _single(field, outer)
    if item is None:
        return None
    data_type, convert = item
    array = types.ArrayType(data_type, True)
    return Field(field.name, field.number, array, lambda values: [convert(value) for value in values], [])


def _map(field: FieldDescriptor, entry: Descriptor, outer: tuple[str, ...]) -> Field | None:
    parts = entry.fields_by_name
    key, value = _single(parts["key"], outer), _single(parts["value"], outer)
    if key is None or value is None:
        return None
    (key_type, read_key), (value_type, read_value) = key, value

    def entries(values: Any) -> list[tuple[Any, Any]]:
        return [(read_key(name), read_value(values[name])) for name in values]

    return Field(field.name, field.number, types.MapType(key_type, value_type, True), entries, [])


def _single(field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[types.DataType, Convert] | None:
    if field.type in SCALARS:
        return SCALARS[field.type], _same
    if field.type in UNSIGNED:
        data_type, bits = UNSIGNED[field.type]
        return data_type, lambda number: number - (1 << bits) if number >> (bits - 1) else number
    if field.enum_type is not None:
        return types.StringType(), _enum_name(field.enum_type)
    assert field.message_type is not None
    return _message(field.message_type, outer)


def _enum_name(enum: EnumDescriptor) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"


def _same(value: Any) -> Any:
    return value


def _microseconds(moment: Any) -> int:
    """Nanoseconds are cut off towards zero: those of a duration below it are negative."""
    return int(moment.seconds) * MICROSECONDS + int(moment.nanos / 1000)

"""What is in a key or a value: a column of bytes as a column with a Spark type.

    string           UTF-8
    json             `schema` is Spark's DDL, or the JSON of a Spark type
    avro             `schema` is Avro's JSON, or @ and the path of a file that holds it
    avro-confluent   the same, behind the five bytes that a schema registry's client writes first
    protobuf         `schema` is @ and the path of a FileDescriptorSet, or its base64; `message` is a full name

Nothing is imported here before a format is asked for, and then what that format needs: drivers and workers start often.

Invariants
 1. a decoder gives as many rows as it gets, each at its place; what becomes of a row depends on nothing but its bytes
 2. a row is null where its value is null or bad, and a value that is bad costs no other row
 3. an array has exactly the Arrow type that pyspark's worker wants for `data_type`, and everything in it is nullable:
    what a writer left out is never read as something else
 4. a decoder can be pickled, and holds what it read from files: they need not be where it is decoded
"""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.client.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType

FORMATS: Final = ("string", "json", "avro", "avro-confluent", "protobuf")


class Bad(NamedTuple):
    """A record that could not be decoded."""

    row: int
    error: str


class Decoder(Protocol):
    @property
    def data_type(self) -> "DataType":
        """The column's type in Spark."""

    def decode(self, values: "pa.Array") -> "tuple[pa.Array, list[Bad]]":
        """A column of bytes, as a column of `data_type`, and what in it was bad, in the order of rows."""


def decoder(form: str, schema: str | None = None, message: str | None = None) -> Decoder:
    """The decoder of a format; InvalidOption, with what to do, where there is none for what was given."""
    if form not in FORMATS:
        raise InvalidOption(f"format {form!r} is not known: use {', '.join(FORMATS)}, or none for the bytes as they are")
    if message is not None and form != "protobuf":
        raise InvalidOption(f"message {message!r} is given, which only format protobuf has: leave it out")
    if form == "string":
        if schema is not None:
            raise InvalidOption("a schema is given, which format string does not have: leave it out")
        from odradek.spark.formats.string_decoder import StringDecoder

        return StringDecoder()
    if not schema or not schema.strip():
        raise InvalidOption(f"format {form} needs a schema")
    if form == "json":
        from odradek.spark.formats.json_decoder import JsonDecoder

        return JsonDecoder(schema)
    if form == "protobuf":
        if not message:
            raise InvalidOption("format protobuf needs the full name of a message, such as shop.Order")
        from odradek.spark.formats.protobuf_decoder import ProtobufDecoder

        return ProtobufDecoder.of(schema, message)
    from odradek.spark.formats.avro_decoder import AvroDecoder

    return AvroDecoder.of(schema, has_header=form == "avro-confluent")

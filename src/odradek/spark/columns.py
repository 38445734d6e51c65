"""What a row of the source is: the columns of Spark's Kafka connector, or those of them that were asked for by `.schema()`,
with keys and values decoded where a format was given.

Invariants
 1. What is given has exactly the Arrow schema that Spark's worker makes of the query's schema.
 2. A record that cannot be decoded is never given with a null in its place: it fails the query, or is left out.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.client.errors import InvalidOption
from odradek.spark import dead_letters
from odradek.spark.options import Format, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.spark.formats import Decoder

TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
WRITTEN: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "topic"})  # what a record may be given
TEXT: Final = Format("string")
Refuse = Callable[["pa.RecordBatch", dict[int, str]], None]


BAD: Final = StructType(  # records that cannot be decoded, as they came, and why
    [*(StructField(name, TYPES[name]) for name in dead_letters.COLUMNS), StructField("error", StringType())]
)


def full_schema(options: ReadOptions) -> StructType:
    """What a query reads that asks for nothing else."""
    if options.bad_records == "only":
        return BAD
    kinds = {name: kind for name, kind in TYPES.items() if name != "headers" or options.has_headers}
    for name, chosen in (("key", options.key_format), ("value", options.value_format)):
        if chosen is not None:
            kinds[name] = decoder_of(chosen).data_type
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def decoder_of(chosen: Format) -> "Decoder":
    from odradek.spark.formats import decoder

    return decoder(chosen.name, chosen.schema, chosen.message)


class Columns:
    """What is made of decoded record batches for one query. Travels to the workers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.schema = schema
        self.names = schema.fieldNames()
        self.decoders: dict[str, Decoder] = {}
        formats = {"key": options.key_format, "value": options.value_format}
        self.is_bad_wanted = options.bad_records == "only"
        if self.is_bad_wanted:
            if schema.simpleString() != BAD.simpleString():
                raise InvalidOption(f"badRecords=only has the columns {', '.join(BAD.names)}")
            self.decoders = {name: decoder_of(chosen) for name, chosen in formats.items() if chosen is not None}
            return
        for field in schema.fields:
            wanted = TYPES.get(field.name)
            if wanted is None:
                raise InvalidOption(f"there is no column {field.name}; there are {', '.join(TYPES)}")
            chosen = formats.get(field.name)
            if chosen is None and field.name in formats and isinstance(field.dataType, StringType):
                chosen = TEXT
            if chosen is not None:
                self.decoders[field.name] = decoder_of(chosen)
                wanted = self.decoders[field.name].data_type
            if field.dataType.simpleString() != wanted.simpleString():
                raise InvalidOption(
                    f"column {field.name} is {wanted.simpleString()}, and was asked for as {field.dataType.simpleString()}"
                )

    @property
    def wanted(self) -> list[str]:
        """What has to be read: where a record may be bad, all that is told of one."""
        more = dead_letters.COLUMNS if self.decoders else ()
        names = [name for name in self.names if name in TYPES]
        return [*names, *(name for name in more if name not in names)]

    def made(self, batches: Iterable["pa.RecordBatch"], refuse: Refuse) -> Iterator["pa.RecordBatch"]:
        """Rows for Spark. `refuse` is told of the rows that cannot be decoded, and why; they are left out."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            made, bad = self._decoded(batch)
            if self.is_bad_wanted:
                if bad:
                    yield bad_rows(batch, bad, target)
                continue
            found = pa.RecordBatch.from_arrays([fitted(made[field.name], field.type) for field in target], schema=target)
            if bad:
                refuse(batch, bad)
                found = found.filter(pa.array([row not in bad for row in range(batch.num_rows)]))
            if found.num_rows:
                yield found

    def _decoded(self, batch: "pa.RecordBatch") -> tuple[dict[str, "pa.Array"], dict[int, str]]:
        """The columns by name, and why the rows that cannot be decoded cannot."""
        made, bad = {name: batch.column(name) for name in batch.schema.names}, {}
        for name, each in self.decoders.items():
            made[name], refused = each.decode(batch.column(name))
            bad.update({row: f"{name}: {error}" for row, error in refused})
        return made, bad


def bad_rows(batch: "pa.RecordBatch", bad: dict[int, str], target: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    rows = sorted(bad)
    found = batch.take(pa.array(rows))
    columns = [found.column(name) for name in dead_letters.COLUMNS] + [pa.array([bad[row] for row in rows], pa.string())]
    return pa.RecordBatch.from_arrays([fitted(each, field.type) for each, field in zip(columns, target)], schema=target)


def fitted(array: "pa.Array", kind: Any) -> "pa.Array":
    """The same values: Spark has other names for the parts of lists than Arrow."""
    return array if array.type.equals(kind) else array.cast(kind)

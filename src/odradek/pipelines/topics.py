"""Topics as frames: what a pipeline reads.

Each field of a value is a column, and where a record comes from is in columns that begin with `_`. A topic whose values have
no fields has one column `value`.

Invariants
 1. A topic reads the columns that its query needs, and no others.
 2. A record that cannot be decoded is in no frame; what becomes of it is the pipeline's choice.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from odradek.client.errors import InvalidOption
from odradek.pipelines.lazy import LazyFrame
from odradek.pipelines.session import session
from odradek.spark.columns import TYPES, decoder_of
from odradek.spark.options import Format

PLAIN: Final[dict[str, DataType]] = {"binary": BinaryType(), "string": StringType()}
PLACE: Final = {"key": "_key", "topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp"}
HEADERS: Final = "_headers"


class TopicFrame(LazyFrame):
    def __init__(
        self,
        names: Sequence[str],
        *,
        bootstrap: str,
        value: str,
        key: str,
        format: str,  # noqa: A002
        options: Mapping[str, str],
        pattern: str | None = None,
        message: str | None = None,
        starting: str = "earliest",
    ) -> None:
        super().__init__(self._load)
        if key not in PLAIN:
            raise InvalidOption(f"key={key!r}: it is string or binary")
        if bool(names) == bool(pattern):
            raise InvalidOption("a topic is named, or found by a pattern")
        self.topics, self.pattern, self.value, self.key = tuple(names), pattern, value, key
        self.columns_needed: set[str] | None = None  # of the source, by the output that is being made; None for all
        self.columns_read: set[str] | None = None  # by any output of the pipeline
        self.source: DataFrame | None = None
        self.group: str | None = None  # that hears how far this is read, where nobody else tells it
        chosen = {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(names)}
        self.source_options: dict[str, str] = {
            "kafka.bootstrap.servers": bootstrap,
            "startingOffsets": starting,
            **{name: text for name, text in chosen.items() if text},
            **options,
        }
        if value not in PLAIN:
            self.source_options |= {"valueFormat": format, "valueSchema": value, **({"valueMessage": message} if message else {})}
        for column, kind in (("key", key), ("value", value)):
            if kind == "string":
                self.source_options[f"{column}Format"] = kind

    @property
    def is_decoded(self) -> bool:
        """Whether there can be records that are not what they should be."""
        return "valueFormat" in self.source_options or "keyFormat" in self.source_options

    @property
    def title(self) -> str:
        return ", ".join(self.topics) or str(self.pattern)

    @property
    def bad_options(self) -> dict[str, str]:
        """Those of a source that gives what this one cannot: of columns that this one decodes."""
        unread = () if self.columns_read is None else [name for name in ("key", "value") if name not in self.columns_read]
        found = {name: text for name, text in self.source_options.items() if not name.startswith(tuple(unread))}
        return {**found, "badRecords": "only"}

    def prune(self, needed: set[str] | None) -> None:
        """It is made anew, with these columns of the source."""
        self.columns_needed = needed
        self.forget()

    def forget(self) -> None:
        super().forget()
        self.source = None

    def schema_wanted(self) -> StructType:
        """Of the source: value and key decoded, and only what is needed."""
        schema = StructType()
        for name in (*PLACE, "value", "headers"):
            if self.columns_needed is None or name in self.columns_needed:
                schema = schema.add(name, self._kind(name))
        return schema if len(schema) else StructType().add("offset", TYPES["offset"])

    def _kind(self, name: str) -> DataType:
        if name in ("key", "value"):
            return PLAIN.get(getattr(self, name)) or self._value_type()
        return TYPES[name]

    def _value_type(self) -> DataType:
        options = self.source_options
        return decoder_of(Format(options["valueFormat"], options["valueSchema"], options.get("valueMessage"))).data_type

    def _load(self) -> DataFrame:
        schema = self.schema_wanted()
        options = {**({"groupId": self.group} if self.group else {}), **self.source_options}
        self.source = source = session().readStream.format("odradek").options(**options).schema(schema).load()
        names = ("value", *PLACE, "headers")
        unread = [F.lit(None).cast(self._kind(name)).alias(name) for name in names if name not in schema.fieldNames()]
        is_struct = isinstance(self._kind("value"), StructType)
        places = [F.col(name).alias(alias) for name, alias in {**PLACE, "headers": HEADERS}.items()]
        read = source.select("*", *unread)  # what is not read may be named nevertheless, where nothing comes of it
        return read.select(F.col("value.*") if is_struct else F.col("value"), *places)

    def load_latest(self) -> DataFrame:
        """The last value of each key, as it is when a batch begins."""
        self.columns_needed = {"key", "value", "offset"}
        schema = self.schema_wanted()
        options = {**self.source_options, "endingOffsets": "live"}
        source = session().read.format("odradek").options(**options).schema(schema).load()
        last = source.groupBy("key").agg(F.max_by(F.struct("value"), F.col("offset")).alias("last"))
        values = last.where("last.value IS NOT NULL").select(F.col("key"), F.col("last.value").alias("value"))
        is_struct = isinstance(schema["value"].dataType, StructType)
        return values.select(F.col("key").alias("_key"), F.col("value.*") if is_struct else F.col("value"))

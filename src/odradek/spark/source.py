"""`format("odradek")`: topics of any Kafka cluster, in Spark.

    spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

Spark finds it by the module `pyspark_odradek`, without registration. Names of columns and options are those of Spark's own
connector for Kafka; docs/pipelines.md has those that are ours.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from odradek.spark.columns import Columns, full_schema
from odradek.spark.options import EARLIEST, LIVE, ReadOptions, read_options, write_options
from odradek.spark.positions import Positions
from odradek.spark.ranges import Range, ranges, split
from odradek.spark.reading import RangePartition, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.spark.writer import StreamWriter, Writer


class Source(DataSource):
    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> StructType:
        return full_schema(read_options(self.options, is_streaming=None))

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(read_options(self.options, is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from odradek.spark.stream_reader import StreamReader

        return StreamReader(read_options(self.options, is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "Writer":  # noqa: ARG002 - there is nothing to overwrite in a log
        from odradek.spark.writer import Writer

        return Writer(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802, ARG002
        from odradek.spark.writer import StreamWriter

        return StreamWriter(write_options(self.options), schema)


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = Columns(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        options, positions = self.options, Positions(self.options)
        places = positions.partitions()
        start = positions.resolve(options.start, places, is_start=True)
        if options.end.offset == LIVE:
            is_whole = options.start.offset == EARLIEST
            return [RangePartition(Range(place, EARLIEST if is_whole else start[place], LIVE)) for place in places]
        end = positions.resolve(options.end, places, is_start=False)
        found = split(ranges(start, end), options.partitions_min, options.records_max)
        return [RangePartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_rows(self.options, self.columns, partition)

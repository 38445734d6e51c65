"""Writes rows to topics, at least once: a task that is done again writes again. `odradek.spark.exactly_once` writes once.

Each task has an idempotent producer: what is written twice is what a task wrote twice, not what was lost on the wire.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.spark.options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class Written(WriterCommitMessage):
    def __init__(self, count: int) -> None:
        self.count = count


class Writing:
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        from odradek.spark.producing import check_columns

        check_columns(schema.fieldNames(), options.topic)
        self.options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        from odradek.spark import clients
        from odradek.spark.producing import Encoder, producer

        count = 0
        with producer(self.options.properties) as sender:
            for topic, partition, record_count, data in Encoder(sender, self.options.topic).encode(iterator):
                clients.run(sender.send_batches(topic, [(partition, record_count, data)]))
                count += record_count
            clients.run(sender.flush())
        return Written(count)


class Writer(Writing, DataSourceArrowWriter): ...


class StreamWriter(Writing, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """It is written already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was written stays: at least once."""

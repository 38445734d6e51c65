"""Records that a query cannot use, as they go to a dead-letter topic: key and value as they came, and in the headers where
they were, and why they are here.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "odradek.topic"
PARTITION: Final = "odradek.partition"
OFFSET: Final = "odradek.offset"
ERROR: Final = "odradek.error"
PIPELINE: Final = "odradek.pipeline"
HEADERS: Final = (TOPIC, PARTITION, OFFSET, ERROR, PIPELINE)
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")  # of a record, that are needed
ERROR_LENGTH_MAX: Final = 1_000


def table(records: "pa.RecordBatch", errors: dict[int, str], pipeline: str) -> "pa.Table":
    """The rows of `records` that have an error, as a table that can be sent."""
    import pyarrow as pa

    bad = records.take(pa.array(sorted(errors)))
    headers = [
        [
            (TOPIC, topic.encode()),
            (PARTITION, str(partition).encode()),
            (OFFSET, str(offset).encode()),
            (ERROR, errors[row][:ERROR_LENGTH_MAX].encode()),
            (PIPELINE, pipeline.encode()),
        ]
        for row, topic, partition, offset in zip(
            sorted(errors),
            bad.column("topic").to_pylist(),
            bad.column("partition").to_pylist(),
            bad.column("offset").to_pylist(),
        )
    ]
    kind = pa.map_(pa.string(), pa.binary())
    return pa.table(
        {
            "key": bad.column("key"),
            "value": bad.column("value"),
            "timestamp": bad.column("timestamp"),
            "headers": pa.array(headers, kind),
        }
    )

"""The columns that are read: those of Spark's Kafka connector, with its names and the types that it takes from Arrow.

Times are microseconds in UTC, because a TimestampType of pyspark is exactly that in Arrow; Kafka's milliseconds are the
same moments, and a moment that microseconds cannot hold (292,000 years from 1970) is the last that they can. A topic is
a plain string and no dictionary, which the JVM's readers of Arrow do not take. Bytes have offsets of 32 bits: what needs
more is split into several record batches, not widened, so that the schema is always the same.

Invariants
 1. a schema depends on the names of its columns alone, so batches of all partitions make one table
 2. a record without headers has null in `headers`, as with Spark, and not an empty list
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
COLUMNS: Final = tuple(name for name in TYPES if name != "headers")
COLUMNS_WITH_HEADERS: Final = tuple(TYPES)


def schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The schema of some columns, in the order that is asked for."""
    unknown = [name for name in columns if name not in TYPES]
    if unknown or not columns or len(set(columns)) != len(columns):
        raise ValueError(f"columns {list(columns)}, where there are {', '.join(TYPES)}, each once at most")
    return pa.schema([(name, TYPES[name]) for name in columns])

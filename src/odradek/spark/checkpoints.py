"""What Spark has written down about a batch before its tasks start: `offsets/N` in the checkpoint, how far each source is read.

The first line is the version of the format, the second holds what is none of ours; then comes a line for each source, its
offsets as JSON, or `-` where it has none. Version 2 has the id of the source and a colon before the JSON.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.spark.options import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED: Final = re.compile(r"[^{:]+:(?=\{)")


def input_offsets(spark: "SparkSession", checkpoint: str, batch_id: int) -> Offsets:
    """How far the topics are read that are sources of the batch."""
    text = read_text(spark, f"{checkpoint}/offsets/{batch_id}")
    found: Offsets = {}
    for line in text.splitlines()[2:]:
        for place, offset in topic_offsets(NAMED.sub("", line, count=1)).items():
            found[place] = min(offset, found.get(place, offset))  # what is read twice is read as far as both have
    return found


def topic_offsets(line: str) -> Offsets:
    """None, of a source that is no topic."""
    try:
        return from_json(json.loads(line))
    except (ValueError, TypeError, AttributeError):
        return {}


def exists(spark: "SparkSession", path: str) -> bool:
    where = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
    return bool(where.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(where))


def read_text(spark: "SparkSession", path: str) -> str:
    """Through Hadoop, for a checkpoint may be anywhere; without it where it is on this machine."""
    if "://" not in path:
        return Path(path.removeprefix("file:")).read_text()
    jvm: Any = spark.sparkContext._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    stream = where.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).open(where)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()

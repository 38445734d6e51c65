"""A program as a user has it: copies a topic, and counts its records by key, exactly once. It is there to be killed.

python -m tests.spark.transformer BOOTSTRAP FOLDER SOURCE COPIES COUNTS
"""

import logging
import sys
from pathlib import Path

from pyspark.sql.functions import col, concat, lit

from odradek.spark.exactly_once import to_topics
from tests.spark.session import session

GROUP = "transformer"


def run(bootstrap: str, folder: Path, source: str, copies: str, counts: str) -> None:
    spark = session(folder / "spark")
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", source)
    records = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
    copied = records.select("key", concat(lit("copy of "), col("value").cast("string")).alias("value"))
    counted = records.groupBy("key").count().select("key", col("count").cast("string").alias("value"))
    for name, frame, topic in (("copies", copied, copies), ("counts", counted, counts)):
        writer = to_topics(
            frame,
            name=f"{GROUP}-{name}",
            checkpoint=str(folder / name),
            bootstrap=bootstrap,
            topic=topic,
            group=f"{GROUP}-{name}",
        )
        writer.outputMode("update").trigger(processingTime="0 seconds").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])

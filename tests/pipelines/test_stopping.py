"""A driver that is stopped in the middle of a batch: what the batch has written is out with its offsets, or not at all."""

import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.records import TopicPartition
from odradek.pipelines import Pipeline, PipelineTest
from odradek.pipelines.runner import Runner
from odradek.sync import Admin
from tests.clients.waiting import until

RECORDS, BATCH = 60, 20


def after_a_while(number: int, begun: Path, ended: Path) -> int:
    begun.touch()
    if not ended.exists():
        time.sleep(0.2)
    return number


def slow(begun: Path, ended: Path) -> Pipeline:
    """Takes its time with each record, until it is told not to."""
    pipeline = Pipeline("slow", trigger="100 milliseconds")
    numbers = pipeline.topic("numbers", value="n int", max_per_batch=BATCH)

    slowly = F.udf(lambda number: after_a_while(number, begun, ended), "int")

    @pipeline.to_topic("slow", key="n")
    def same() -> DataFrame:
        return numbers.select(slowly("n").alias("n"))

    return pipeline


def test_a_batch_at_work_is_finished_or_never_was(spark: SparkSession, tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    with PipelineTest(slow(begun, ended)) as test:
        test.send("numbers", *({"n": number} for number in range(RECORDS)))
        for _ in range(2):
            runner = Runner(test.pipelines, checkpoints=str(tmp_path / "checkpoints"))
            begun.unlink(missing_ok=True)
            thread = threading.Thread(target=runner.run)
            thread.start()
            until(begun.exists, "a batch at work")
            runner.stop()
            thread.join()
            with Admin(test.bootstrap) as admin:
                read = admin.list_group_offsets(["slow"])["slow"]
            offset = read[TopicPartition("numbers", 0)].offset if read else 0
            assert [each["n"] for each in test.values("slow")] == [*range(offset)]
        ended.touch()
        assert Runner(test.pipelines, checkpoints=str(tmp_path / "checkpoints"), to_end=True).run()
        assert [each["n"] for each in test.values("slow")] == [*range(RECORDS)]

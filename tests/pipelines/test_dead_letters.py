"""What becomes of records that cannot be decoded, and how they are sent again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.records import Record, TopicPartition
from odradek.pipelines import Pipeline, PipelineTest
from odradek.pipelines.runner import Runner
from odradek.pipelines.testing import PipelineFailed
from odradek.sync import Admin, Consumer, Producer
from tests.cli.program import odradek

NUMBER = "n int"


def summing(name: str, bad_records: str, delivery: str = "exactly-once") -> Pipeline:
    pipeline = Pipeline(name, bad_records=bad_records, delivery=delivery)  # type: ignore[arg-type]
    numbers = pipeline.topic("numbers", value=NUMBER)

    @pipeline.to_topic(name)
    def doubled() -> DataFrame:
        return numbers.select((numbers.n * 2).alias("n"))

    return pipeline


def to_files(folder: Path) -> Pipeline:
    pipeline = Pipeline("filing", bad_records="bad-files")
    numbers = pipeline.topic("numbers", value=NUMBER)

    @pipeline.to_files(str(folder / "numbers"), format="json", partition_by=("is_odd",))
    def numbered() -> DataFrame:
        return numbers.select("n", (numbers.n % 2 == 1).alias("is_odd"))

    return pipeline


def changing() -> Pipeline:
    """Results that change, windows that end, and dead letters of the same batches."""
    pipeline = Pipeline("changing", bad_records="bad-changing")
    numbers = pipeline.topic("numbers", value=NUMBER, options={"includeHeaders": "true"})

    @pipeline.to_topic("changing", key="odd", emit="changes")
    def counted() -> DataFrame:
        return numbers.groupBy((numbers.n % 2 == 1).alias("odd")).agg(F.count("*").alias("n"))

    return pipeline


def split() -> Pipeline:
    """Of two outputs, the first of which reads no values, and none of which reads the keys of `binaries`."""
    pipeline = Pipeline("split", bad_records="bad-split")
    numbers = pipeline.topic("numbers", value=NUMBER)
    binaries = pipeline.topic("binaries", value=NUMBER)

    @pipeline.to_topic("split-keys", emit="changes")
    def keys() -> DataFrame:
        return numbers.groupBy("_key").count()

    @pipeline.to_topic("split-values", key=F.lit("k"))
    def values() -> DataFrame:
        return numbers.select("n").unionByName(binaries.select("n"))

    return pipeline


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def ran(spark: SparkSession, folder: Path) -> Iterator[PipelineTest]:
    loose = summing("loose", "bad-loose", "at-least-once")
    tested = (summing("kept", "bad"), summing("dropped", "drop"), loose, changing(), to_files(folder), split())
    with PipelineTest(*tested) as test:
        test.send("binaries", {"n": 3}, key=b"\xff")
        test.send("numbers", {"n": 1}, b"\xff", {"n": 2}, '{"n": "many"}', key="k", timestamp_ms=1_700_000_000_000)
        test.run()
        yield test


def letter(record: Record) -> tuple[object, ...]:
    said = {name: (value or b"").decode() for name, value in record.headers}
    return record.value, said["odradek.offset"], said["odradek.pipeline"]


def test_a_dead_letter_is_as_it_came_with_where_it_was_and_why_it_is_here(ran: PipelineTest) -> None:
    first, second = ran.records("bad")
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"\xff", 1_700_000_000_000)
    said = {name: (value or b"").decode() for name, value in second.headers}
    assert said.pop("odradek.error").startswith("value: ")
    assert said == {
        "odradek.topic": "numbers",
        "odradek.partition": "0",
        "odradek.offset": "3",
        "odradek.pipeline": "kept",
    }


def test_what_can_be_decoded_is_written_beside_dead_letters_and_without_what_is_dropped(ran: PipelineTest) -> None:
    for topic in ("kept", "dropped", "loose"):
        assert sorted(each["n"] for each in ran.values(topic)) == [2, 4], topic


def test_dead_letters_are_in_the_transaction_of_their_batch(ran: PipelineTest) -> None:
    with Admin(ran.bootstrap) as admin:
        producers = admin.describe_producers([TopicPartition(topic, 0) for topic in ("bad", "kept", "bad-loose")])
    bad, kept, loose = ({(each.producer_id, each.producer_epoch) for each in found} for found in producers.values())
    assert bad == kept != loose


@pytest.mark.parametrize(("topic", "pipeline"), [("bad-loose", "loose"), ("bad-changing", "changing"), ("bad-files", "filing")])
def test_every_kind_of_output_has_dead_letters(ran: PipelineTest, topic: str, pipeline: str) -> None:
    found = {letter(record) for record in ran.records(topic)}
    assert found == {(b"\xff", "1", pipeline), (b'{"n": "many"}', "3", pipeline)}


def test_a_letter_is_what_any_output_could_not_read_and_nothing_that_nobody_reads(ran: PipelineTest) -> None:
    assert {letter(record) for record in ran.records("bad-split")} == {(b"\xff", "1", "split"), (b'{"n": "many"}', "3", "split")}
    assert sorted(each["n"] for each in ran.values("split-values")) == [1, 2, 3]
    assert [each["count"] for each in ran.values("split-keys")] == [4]


def test_files_have_what_can_be_decoded(ran: PipelineTest, spark: SparkSession, folder: Path) -> None:
    assert sorted(row.n for row in spark.read.json(str(folder / "numbers")).collect()) == [1, 2]
    assert {each.name for each in (folder / "numbers").glob("is_odd=*")} == {"is_odd=true", "is_odd=false"}


def test_rows_that_went_to_files_or_out_at_least_once_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    pipelines = [to_files(tmp_path), summing("loose", "drop", "at-least-once")]
    with PipelineTest(*pipelines) as test:
        test.send("numbers", {"n": 1}, "bad", {"n": 2})
        runner = Runner(pipelines, checkpoints=f"{tmp_path}/checkpoints", say=lambda _: None, failures_max=1, to_end=True)
        assert runner.run()
        done = {task.output.name: sum(batch["rows_out"] for batch in task.batches) for task in runner.tasks}
    assert done == {"numbered": 2, "dead-letters": 1, "loose": 2}


def test_files_that_another_query_wrote_are_not_mixed_with(spark: SparkSession, folder: Path, ran: PipelineTest) -> None:
    with PipelineTest(to_files(folder)) as test, pytest.raises(PipelineFailed, match="no checkpoint; move it away"):
        test.run()


def test_a_bad_record_fails_a_pipeline_that_does_not_say_otherwise(spark: SparkSession) -> None:
    with PipelineTest(summing("strict", "fail")) as test:
        test.send("numbers", {"n": 1}, '{"n": "many"}')
        with pytest.raises(PipelineFailed, match=r"strict: .*numbers-0 offset 1: value: .* badRecords=drop"):
            test.run()
        assert not test.values("strict")


def replayed(bootstrap: str, *arguments: str) -> str:
    done = odradek("pipeline", "replay-dead-letters", *arguments, "--bootstrap", bootstrap)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_dead_letters_are_sent_again_once_to_where_they_came_from(ran: PipelineTest) -> None:
    with Producer(ran.bootstrap) as producer:
        headers = {"odradek.topic": b"numbers", "odradek.pipeline": b"another", "mine": b"1"}
        producer.send("letters", "a", key="k", headers=headers, timestamp_ms=1_600_000_000_000)
        producer.send("letters", "b", headers={**headers, "odradek.pipeline": b"kept"})
        producer.send("letters", "c", headers={**headers, "odradek.topic": b"gone"})
        producer.send("letters", "d")
    assert replayed(ran.bootstrap, "letters", "--pipeline", "kept") == "1 record sent again, 3 left where they are\n"
    assert replayed(ran.bootstrap, "letters", "--limit", "1") == "1 record sent again\n"
    assert replayed(ran.bootstrap, "letters") == "0 records sent again, 2 left where they are\n"
    assert replayed(ran.bootstrap, "letters") == "0 records sent again\n"
    with Consumer(bootstrap=ran.bootstrap) as consumer:
        consumer.assign({("numbers", 0): 4})
        found: list[Record] = []
        while len(found) < 2:
            found += consumer.poll(10_000)
    assert [(each.value, each.headers) for each in found] == [(b"b", (("mine", b"1"),)), (b"a", (("mine", b"1"),))]
    assert (found[1].key, found[1].timestamp_ms) == (b"k", 1_600_000_000_000)


def test_replaying_a_topic_that_is_not_there_is_one_line(ran: PipelineTest) -> None:
    done = odradek("pipeline", "replay-dead-letters", "nowhere", "--bootstrap", ran.bootstrap)
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1

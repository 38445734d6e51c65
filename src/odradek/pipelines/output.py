"""One output of a pipeline: the frame of a function as a streaming query that writes it.

Invariants
 1. Its sources read the columns that the frame needs: what it needs is known after it was made once, then it is made anew.
 2. Records and dead letters of a batch are in one transaction, with the offsets of what was read for them.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from odradek.client.admin.topics import NewTopic
from odradek.client.errors import InvalidOption
from odradek.pipelines import pruning
from odradek.pipelines.records import records
from odradek.pipelines.session import session
from odradek.pipelines.topics import TopicFrame
from odradek.spark import checkpoints, clients, dead_letters
from odradek.spark.exactly_once import Sink
from odradek.spark.options import KAFKA

BATCHES_KEPT: Final = 1_000
OBSERVED: Final = "odradek"

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from odradek.pipelines.pipeline import Pipeline


class Target(Struct, frozen=True):
    """Where rows go: to a `topic` (None: their own column says), a `table`, which is a compacted topic, or `files`."""

    kind: Literal["topic", "table", "files"]
    where: str | None
    key: Any = None  # a Key
    emit: Literal["final", "changes"] = "final"
    co_partitioned: bool = False
    format: str = ""
    partition_by: tuple[str, ...] = ()

    @property
    def is_topic(self) -> bool:
        return self.kind != "files"

    @property
    def mode(self) -> str:
        return "append" if self.emit == "final" else "update"


class Output:
    def __init__(self, pipeline: "Pipeline", name: str, make: Callable[[], DataFrame], target: Target) -> None:
        self.pipeline, self.name, self.make, self.target = pipeline, name, make, target
        self.sink: Sink | None = None
        self.records_by_batch: dict[int, int] = {}  # of those that the sink wrote last

    @property
    def title(self) -> str:
        """Of the query; the group and the transactional id are called so too."""
        return self.pipeline.name if self.name == self.pipeline.name else f"{self.pipeline.name}.{self.name}"

    @property
    def group(self) -> str:
        return self.title

    @property
    def is_exact(self) -> bool:
        """Whether records and offsets are committed together, by the sink."""
        return self.target.is_topic and self.pipeline.delivery == "exactly-once"

    @property
    def transactional_id(self) -> str:
        return f"odradek-{self.title}"

    @property
    def _properties(self) -> dict[str, str]:
        return {"bootstrap.servers": self.pipeline.bootstrap, **self.pipeline.properties}

    # -- the frame

    def frame(self) -> DataFrame:
        """What the function gives, over sources that read what it needs."""
        topics = self.pipeline.topics
        for topic in topics:
            topic.group = None if self.is_exact else self.group
            topic.prune(None)
        self._forget()
        made = self._made()
        used = [topic for topic in topics if topic.source is not None]
        for topic, needed in zip(used, pruning.needed(made, [topic.source for topic in used])):
            topic.prune(needed)
        self._forget()
        return self._made()

    def _forget(self) -> None:
        for frame in self.pipeline.frames:
            frame.forget()

    def _made(self) -> DataFrame:
        """Records, for a topic: their columns are what is needed in the end."""
        rows = self.make()
        if not self.target.is_topic:
            return rows
        return records(rows, self.target.key, topic=self.target.where, is_table=self.target.kind == "table")

    def _with_dead_letters(self, frame: DataFrame) -> DataFrame:
        """And what this query could not read, as rows for another topic."""
        topic = self.pipeline.dead_letters
        claimed = self.pipeline.claimed(self)
        if topic is None or not claimed:
            return frame
        if "topic" not in frame.columns:
            frame = frame.withColumn("topic", F.lit(self.target.where))
        frame = bytes_of(frame)
        for each in claimed:
            frame = frame.unionByName(dead_letter_rows(each, topic, self.pipeline.name), allowMissingColumns=True)
        return frame

    # -- the query

    def start(self, checkpoint: str, *, trigger: Mapping[str, Any] | None = None) -> "StreamingQuery":
        """`trigger` takes the place of the pipeline's."""
        self._make_topics()
        if self.pipeline.claimed(self) or self not in self.pipeline.outputs:
            self.pipeline.note_columns_read()
        frame = self.frame()
        when = dict(trigger) if trigger is not None else {"processingTime": self.pipeline.trigger}
        if not self.is_exact:
            frame = frame.observe(OBSERVED, F.count(F.lit(1)).alias("rows"))  # sinks of Spark do not say
        if not self.target.is_topic:
            self._check_files(checkpoint)
            writer = frame.writeStream.format(self.target.format).option("path", str(self.target.where))
            writer = writer.partitionBy(*self.target.partition_by) if self.target.partition_by else writer
        else:
            frame = self._with_dead_letters(frame)
            writer = self._writer(frame, checkpoint)
        return (
            writer.option("checkpointLocation", checkpoint)
            .outputMode(self.target.mode)
            .queryName(self.title)
            .trigger(**when)
            .start()
        )

    def _writer(self, frame: DataFrame, checkpoint: str) -> "DataStreamWriter":
        topic = None if "topic" in frame.columns else self.target.where
        if self.is_exact:
            self.sink = sink = Sink(
                self.transactional_id,
                self._properties,
                checkpoint=checkpoint,
                topic=topic,
                group=self.group,
                co_partitioned=self.target.co_partitioned,
            )
            return frame.writeStream.foreachBatch(lambda frame, batch_id: self._write(sink, frame, batch_id))
        options = {f"{KAFKA}{name}": value for name, value in self._properties.items()}
        if topic is not None:
            options["topic"] = topic
        if self.target.mode == "append":
            return frame.writeStream.format("odradek").options(**options)

        def write(frame: DataFrame, _: int) -> None:
            frame.write.format("odradek").options(**options).mode("append").save()

        return frame.writeStream.foreachBatch(write)  # a sink in Python knows no changes

    def _write(self, sink: Sink, frame: DataFrame, batch_id: int) -> None:
        before = sink.records_written
        sink.write(frame, batch_id)
        self.records_by_batch = {**self.records_by_batch, batch_id: sink.records_written - before}
        for old in [each for each in self.records_by_batch if each <= batch_id - BATCHES_KEPT]:
            del self.records_by_batch[old]

    def _check_files(self, checkpoint: str) -> None:
        """Spark's sink leaves out batches that it finds in the folder already, whoever wrote them."""
        spark, where = session(), str(self.target.where)
        if checkpoints.exists(spark, f"{where}/_spark_metadata") and not checkpoints.exists(spark, f"{checkpoint}/offsets"):
            raise InvalidOption(
                f"{where} has been written by a query of which there is no checkpoint; move it away, or write to another folder"
            )

    def stop(self) -> None:
        """Waits for the batch that is being written; then the query has nothing more to do."""
        sink, self.sink = self.sink, None
        if sink is not None:
            sink.close()

    def _make_topics(self) -> None:
        """Those that are written to, where they are not there yet."""
        wanted = {}
        if self.target.is_topic and self.target.where is not None:
            configs = {"cleanup.policy": "compact"} if self.target.kind == "table" else {}
            wanted[self.target.where] = configs
        if self.pipeline.dead_letters is not None:
            wanted[self.pipeline.dead_letters] = {}
        with clients.admin(self._properties) as admin:
            for name, configs in wanted.items():
                clients.run(clients.make_topic(admin, NewTopic(name, configs=configs)))


def bytes_of(frame: DataFrame) -> DataFrame:
    """Keys and values as bytes, as those of dead letters are."""
    kinds = dict(frame.dtypes)
    texts = [name for name in ("key", "value") if kinds.get(name) == "string"]
    return frame.withColumns({name: F.encode(F.col(name), "UTF-8") for name in texts}) if texts else frame


def dead_letter_rows(topic: TopicFrame, target: str, pipeline: str) -> DataFrame:
    """What of a topic cannot be decoded, as it came, with where it was and why it is here in its headers."""
    reader = session().readStream.format("odradek").options(**topic.bad_options)
    found = reader.load()
    said = {
        dead_letters.TOPIC: F.col("topic"),
        dead_letters.PARTITION: F.col("partition").cast("string"),
        dead_letters.OFFSET: F.col("offset").cast("string"),
        dead_letters.ERROR: F.col("error"),
        dead_letters.PIPELINE: F.lit(pipeline),
    }
    headers = [F.struct(F.lit(name).alias("key"), F.encode(each, "UTF-8").alias("value")) for name, each in said.items()]
    return found.select("key", "value", "timestamp", F.lit(target).alias("topic"), F.array(*headers).alias("headers"))

"""Writes what a streaming query makes into topics exactly once: one transaction for each micro-batch.

    query = to_topics(frame, name="totals", checkpoint="/data/totals", bootstrap="127.0.0.1:9092", topic="totals").start()

The driver begins a transaction, the tasks write in it, each to partitions that no other writes to, and the driver ends it,
together with a marker that names query and batch and, for a group, the offsets that the batch has read. A driver that comes
after one that died fences it, reads the marker, and knows whether the batch that Spark does again is out already.

Rows become record batches in the tasks that have them; whole batches, and not rows, are then shuffled to the one task that
writes to their partition.

Invariants
 1. A batch is committed with its marker, or not at all; a batch whose marker is there is not written again.
 2. Nobody reads a marker before it has become the owner of the transactional id.
 3. A task that is done again writes nothing, and neither does one in whose partitions this transaction has been at work: the
    transaction is aborted, and the batch done again in the next one, with another epoch.
 4. Nothing is committed of a batch in which a task that writes has failed, or two have written to one partition.
 5. Where it is not known whether a transaction was committed, nothing is concluded: the marker says.
 6. Who was fenced ends: it goes on as the producer that it was, and does not take the id back from who came later.
 7. A batch that is out already is computed nevertheless, once at least: a query with state cannot go on without it.
"""

import logging
import threading
from collections.abc import Iterable, Iterator
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from odradek.client.admin.admin import Admin
from odradek.client.errors import Closed, Fenced, KafkaError
from odradek.client.producer import Producer
from odradek.client.records import SharedTransaction, TopicPartition
from odradek.spark import clients, markers
from odradek.spark.checkpoints import input_offsets
from odradek.spark.markers import Marker
from odradek.spark.reading import BadRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

ENCODED: Final = StructType().add("topic", StringType()).add("partition", IntegerType())
ENCODED.add("record_count", IntegerType()).add("batch", BinaryType())
WRITTEN: Final = StructType().add("topic", StringType()).add("partition", IntegerType()).add("record_count", LongType())
WRITTEN.add("stage", IntegerType())
QUERY: Final = "sql.streaming.queryId"  # where Spark says whose batch it is
ATTEMPTS_MAX: Final = 5
PAUSE_SECONDS: Final = 0.5
TIMEOUT_MS: Final = 300_000
LOOK_SECONDS: Final = 0.001
TOLD_SECONDS_MAX: Final = 10.0
log = logging.getLogger(__name__)


def to_topics(
    frame: "DataFrame",
    *,
    name: str,
    checkpoint: str,
    bootstrap: str = "127.0.0.1:9092",
    topic: str | None = None,
    group: str | None = None,
    co_partitioned: bool = False,
    properties: dict[str, str] | None = None,
) -> "DataStreamWriter":
    """A writer for a stream of records (value; key, headers, timestamp, partition and topic if they are wanted), to be started.

    `name` becomes the transactional id: a query has it for itself, and keeps it. `group`: the topics that the query reads are
    of the same cluster, and how far it has is committed as that group's offsets. `co_partitioned`: rows for one partition are in
    one of Spark's partitions already, so that nothing need be shuffled."""
    from odradek.spark.producing import check_columns

    check_columns(frame.columns, topic)
    sink = Sink(
        name,
        {"bootstrap.servers": bootstrap, **(properties or {})},
        checkpoint=checkpoint,
        topic=topic,
        group=group,
        co_partitioned=co_partitioned,
    )
    return frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(sink.write)


class RefusedTwice(Exception):
    """A task would have written what another may have written."""


class TooSlow(Exception):
    """The cluster has aborted a transaction that took too long."""


class Outdated(Exception):
    """The checkpoint is older than what is out."""


class Sink:
    """Of one query, in the driver."""

    def __init__(
        self,
        name: str,
        properties: dict[str, str],
        *,
        checkpoint: str,
        topic: str | None,
        group: str | None,
        co_partitioned: bool = False,
    ) -> None:
        self.name = name
        self.properties = {"transaction.timeout.ms": str(TIMEOUT_MS), **properties, "transactional.id": name}
        self.shared = clients.shared(properties)
        self.checkpoint, self.topic, self.group, self.co_partitioned = checkpoint, topic, group, co_partitioned
        self.records_written = 0
        self._producer: Producer | None = None
        self._out: Marker | None = None  # that is the last one for certain
        self._computed: Marker | None = None  # the batch at work, as soon as it was, whatever became of it
        self._is_closed = False
        self._at_work = threading.Lock()

    # -- a batch

    def write(self, frame: "DataFrame", batch_id: int) -> None:
        with self._at_work:
            if self._is_closed:
                raise Closed(f"{self.name} was stopped")
            self._write_once(frame, batch_id)

    def _write_once(self, frame: "DataFrame", batch_id: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY)
        marker = Marker(query or self.checkpoint, batch_id)
        self._computed = None  # by a query that was started again it is computed again
        for attempt in range(1, ATTEMPTS_MAX + 1):
            begun_s = monotonic()
            try:
                if self._is_out(marker):
                    log.info("%s: batch %d is out already", self.name, batch_id)
                    if self._computed != marker:
                        evaluate(frame)
                else:
                    self._write(frame, marker)
                self._out = marker
                return
            except Exception as error:  # whatever Spark makes of what fails in its tasks
                too_slow, fenced = self._too_slow(monotonic() - begun_s), self._leave()
                failed = too_slow or fenced or error
                if attempt == ATTEMPTS_MAX or isinstance(failed, (TooSlow, Fenced, Outdated)) or is_hopeless(error):
                    self._part()
                    if failed is error:
                        raise
                    raise failed from error
                log.warning("%s: batch %d is tried again: %s", self.name, batch_id, first_line(error))
                sleep(PAUSE_SECONDS * attempt)

    def _too_slow(self, seconds: float) -> TooSlow | None:
        timeout_ms = int(self.properties["transaction.timeout.ms"])
        if seconds * 1000 < timeout_ms:
            return None
        return TooSlow(
            f"{self.name}: the batch took {seconds:.0f} s, and the cluster aborts transactions after transaction.timeout.ms="
            f"{timeout_ms}. Set it higher (the brokers' transaction.max.timeout.ms allows so much), or make batches smaller "
            "(maxOffsetsPerTrigger); nothing of this one is out, and it will be done again"
        )

    def _is_out(self, marker: Marker) -> bool:
        """Begins a transaction, as the only owner of the id from now on; then the marker of the last one can be trusted."""
        if self._producer is None:
            self._producer = clients.run(start(self.properties, self.shared))
        clients.run(self._producer.begin_transaction())
        if self._out == Marker(marker.query, marker.batch - 1):
            return False
        found = clients.run(markers.last(self.shared, self.name))
        if found is None or found.query != marker.query or found.batch < marker.batch:
            return False
        if found.batch > marker.batch:
            raise Outdated(
                f"{self.name}: batch {found.batch} of this query is out, and {self.checkpoint} is at batch {marker.batch}: it is "
                "older than what was written with it. Begin with an empty checkpoint and another name to write all of it again"
            )
        clients.run(self._producer.abort_transaction())
        return True

    def _write(self, frame: "DataFrame", marker: Marker) -> None:
        producer = self._producer
        assert producer is not None
        self._out = None
        shared = producer.share_transaction()
        spark = frame.sparkSession
        written = self._job(frame, shared, marker.batch).collect()
        self._computed = marker
        if has_failed(spark.sparkContext, {row.stage for row in written}):
            raise RefusedTwice("a task that writes has failed on the way")
        places = [(row.topic, row.partition) for row in written]
        if len(set(places)) < len(places):
            raise RefusedTwice(f"two tasks have written to one partition, of {sorted(places)}")
        offsets = input_offsets(spark, self.checkpoint, marker.batch) if self.group is not None else {}

        async def end() -> None:
            await markers.send(producer, self.name, marker)
            if self.group is not None and offsets:
                await producer.send_offsets(offsets, self.group)
            await producer.commit_transaction()

        clients.run(end())
        self.records_written += sum(row.record_count for row in written)

    def _job(self, frame: "DataFrame", shared: SharedTransaction, batch_id: int) -> "DataFrame":
        """Rows to record batches, these to the tasks that write to their partitions, and what came of it."""
        writing = Writing(self.properties, self.topic, shared)
        if self.co_partitioned:
            return frame.mapInArrow(writing.encode_and_write, WRITTEN)
        if not {"key", "partition"} & set(frame.columns):
            owners = self._partitions()
            if owners:
                writing.owners, writing.turn = owners, batch_id
                return frame.coalesce(owners).mapInArrow(writing.encode_and_write_own, WRITTEN)
        encoded = frame.mapInArrow(writing.encode, ENCODED)
        tasks = frame.sparkSession.sparkContext.defaultParallelism
        return encoded.repartition(tasks, "topic", "partition").mapInArrow(writing.write, WRITTEN)

    def _partitions(self) -> int:
        """Of the one topic that rows without keys go to."""
        assert self._producer is not None
        return len(clients.run(self._producer.partitions(self.topic))) if self.topic is not None else 0

    def _leave(self) -> Fenced | None:
        """Aborts what is open, as far as that is possible; gives that somebody else has the id, if so. Whoever begins again reads
        the marker first."""
        self._out = None
        if self._producer is None:
            return None
        try:
            clients.run(self._producer.abort_transaction())
        except Fenced as error:
            return error
        except KafkaError as error:
            log.info("%s: the transaction is left to its end: %s", self.name, error)
        return None

    def _part(self) -> None:
        """With the producer: whoever goes on begins as another one."""
        producer, self._producer = self._producer, None
        if producer is not None:
            clients.run(producer.close(is_hasty=True))

    def close(self) -> None:
        """After the batch at work: no other is written."""
        with self._at_work:
            self._is_closed = True
            self._leave()
            self._part()


async def start(properties: dict[str, str], shared: dict[str, str]) -> Producer:
    async with Admin.of(shared) as admin:
        await markers.make_topic(admin)
    return await clients.started(properties)


def evaluate(frame: "DataFrame") -> None:
    """A query with state fails when a batch of it is not computed, whoever wants the result."""
    frame.write.format("noop").mode("overwrite").save()


def is_hopeless(error: Exception) -> bool:
    """Whether the same happens the next time: somebody has stopped the query, or a record cannot be decoded, now or ever."""
    return "SPARK_JOB_CANCELLED" in str(error) or f"{BadRecord.__name__}: " in str(error)


def first_line(error: Exception) -> str:
    text = str(error).strip()
    refused = [line for line in text.splitlines() if "RefusedTwice" in line]
    return (refused or text.splitlines() or [type(error).__name__])[-1 if refused else 0][:300]


def has_failed(context: Any, stages: Iterable[int]) -> bool:
    """Whether a task of stages that are over has failed on the way, or a stage was begun again. What Spark tells of them comes a
    moment later than their results; where it does not come at all, they count as failed."""
    tracker = context._jsc.sc().statusTracker()
    end_s = monotonic() + TOLD_SECONDS_MAX
    for stage in stages:
        while (told := tracker.getStageInfo(stage)).isEmpty() or told.get().numCompletedTasks() < told.get().numTasks():
            if monotonic() > end_s:
                return True
            sleep(LOOK_SECONDS)
        if told.get().currentAttemptId() or told.get().numFailedTasks():
            return True
    return False


class Writing:
    """What tasks do. Travels to the workers."""

    def __init__(self, properties: dict[str, str], topic: str | None, shared: SharedTransaction) -> None:
        self.properties, self.topic, self.shared = properties, topic, shared
        self.owners = 1  # tasks at most, each of which has one partition of so many for itself,
        self.turn = 0  # in each batch another

    def encode(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Record batches, as rows."""
        import pyarrow as pa

        from odradek.spark.producing import Encoder, producer

        names = ["topic", "partition", "record_count", "batch"]
        kinds = [pa.string(), pa.int32(), pa.int32(), pa.binary()]
        with producer(self.properties) as sender:
            for each in Encoder(sender, self.topic).encode(batches):
                columns = [pa.array([part], kind) for part, kind in zip(each, kinds)]
                yield pa.RecordBatch.from_arrays(columns, names)

    def write(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """What was encoded, of partitions that no other task writes to."""

        def rows() -> Iterator[tuple[str, int, int, bytearray]]:
            for batch in batches:
                topics, partitions, counts, data = batch.columns
                for row in range(batch.num_rows):
                    place = topics[row].as_py(), partitions[row].as_py()
                    yield *place, counts[row].as_py(), bytearray(data[row].as_buffer())

        from odradek.spark.producing import producer

        with producer(self.properties) as sender:
            yield from self._write(sender, rows())

    def encode_and_write(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Both at once, of rows that are where they are to be written from."""
        from odradek.spark.producing import Encoder, producer

        with producer(self.properties) as sender:
            yield from self._write(sender, Encoder(sender, self.topic).encode(batches))

    def encode_and_write_own(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """The same, of rows that may go to any partition: each task has partitions of its own."""
        from pyspark import TaskContext

        from odradek.spark.producing import Encoder, producer

        context = TaskContext.get()
        assert context is not None
        with producer(self.properties) as sender:
            owned = (self.owners, (context.partitionId() + self.turn) % self.owners)
            yield from self._write(sender, Encoder(sender, self.topic, owned).encode(batches))

    def _write(self, sender: Producer, encoded: Iterable[tuple[str, int, int, bytearray]]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise RefusedTwice("this task has been tried before, and may have written then")
        sender.join_transaction(self.shared)
        written: dict[TopicPartition, int] = {}
        for topic, partition, count, data in encoded:
            place = TopicPartition(topic, partition)
            if place not in written:
                self._check(place)
            clients.run(sender.send_batches(topic, [(partition, count, data)]))
            written[place] = written.get(place, 0) + count
        clients.run(sender.flush())
        stage = context.stageId() if context is not None else 0
        rows = [(*place, count, stage) for place, count in written.items()]
        kinds = [pa.string(), pa.int32(), pa.int64(), pa.int32()]
        arrays = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]
        yield pa.RecordBatch.from_arrays(arrays, WRITTEN.names)

    def _check(self, place: TopicPartition) -> None:
        """A broker takes the same numbers from a second writer for a repetition, and writes nothing: nobody would notice."""
        with clients.admin(self.properties) as admin:
            found = clients.run(admin.describe_producers([place]))[place]
        owner = (self.shared.producer_id, self.shared.epoch)
        written = [each for each in found if each.last_sequence >= 0]  # the end of a transaction leaves the next epoch alone
        if owner in [(each.producer_id, each.producer_epoch) for each in written]:
            raise RefusedTwice(f"{place} has been written to in this transaction, by another task")

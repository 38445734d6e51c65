"""A pipeline: topics that it reads, and functions whose frames it writes, each as a query of its own.

Invariants
 1. Each output is a query: it has a checkpoint, a transactional id and a consumer group to itself, all named after it.
 2. What is declared does nothing; `Output.start` does.
 3. A record that cannot be decoded is a dead letter of one output at most.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from odradek.client.errors import InvalidOption
from odradek.pipelines.lazy import LazyFrame
from odradek.pipelines.output import Output, Target, dead_letter_rows
from odradek.pipelines.records import Key
from odradek.pipelines.session import session
from odradek.pipelines.topics import TopicFrame
from odradek.spark import clients
from odradek.spark.options import KAFKA

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,150}")
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
BOOTSTRAP: Final = "ODRADEK_BOOTSTRAP"
DEAD_LETTERS: Final = "dead-letters"
Make = Callable[[], DataFrame]
Delivery = Literal["exactly-once", "at-least-once"]
Emit = Literal["final", "changes"]
declared: list["Pipeline"] = []  # in this process, in this order


class Pipeline:
    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        delivery: Delivery = "exactly-once",
        bad_records: str = "fail",
        trigger: str = "0 seconds",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`bootstrap`: of the cluster that is read and written; without it, ODRADEK_BOOTSTRAP, or 127.0.0.1:9092.

        `bad_records`: `fail`, `drop`, or the name of a dead-letter topic. `trigger`: how often it looks for more. `properties`:
        of its clients, as Kafka names them; sources and admins have those that all clients know."""
        if NAME.fullmatch(name) is None:
            raise InvalidOption(f"name={name!r}: it has letters, digits, dots, - and _")
        if delivery not in ("exactly-once", "at-least-once"):
            raise InvalidOption(f"delivery={delivery!r}: it is exactly-once or at-least-once")
        self.name = name
        self.bootstrap = bootstrap or os.environ.get(BOOTSTRAP) or "127.0.0.1:9092"
        self.delivery: Delivery = delivery
        self.bad_records = bad_records
        self.trigger = trigger
        self.properties = dict(properties or {})
        self.topics: list[TopicFrame] = []
        self.tables: list[TopicFrame] = []
        self.frames: list[LazyFrame] = []  # that are made of topics when they are needed
        self.outputs: list[Output] = []
        self._fixed: list[TopicFrame] | None = None  # topics that were made before anything was started
        if bad_records != "drop" and TOPIC_NAME.fullmatch(bad_records) is None:
            raise InvalidOption(f"bad_records={bad_records!r}: it is fail, drop, or the topic that takes them")
        declared.append(self)

    @property
    def spark(self) -> Any:
        """The session, which is started when it is first asked for."""
        return session()

    @property
    def dead_letters(self) -> str | None:
        return None if self.bad_records in ("fail", "drop") else self.bad_records

    @property
    def _read_options(self) -> dict[str, str]:
        """Of all sources: what is bad is for the dead-letter topic, and not for them to deal with."""
        known = {f"{KAFKA}{name}": value for name, value in clients.shared(self.properties).items()}
        return {**known, "badRecords": "fail" if self.bad_records == "fail" else "drop"}

    @property
    def decoded(self) -> list[TopicFrame]:
        return [each for each in self.topics if each.is_decoded]

    def claimed(self, output: Output) -> list[TopicFrame]:
        """The topics whose dead letters an output takes along: all of them, if it is the first that writes to a topic."""
        if self.dead_letters is None:
            return []
        first = next((each for each in self.outputs if each.target.is_topic), None)
        return self.decoded if output is first else []

    def note_columns_read(self) -> None:
        """Of each topic, what any output reads: where that cannot be decoded, it is a dead letter. Of a topic that was made into
        other frames where the pipeline was declared, that is not known, and all counts."""
        fixed = self._fixed or []
        read: dict[int, set[str] | None] = {id(each): None if each in fixed else set() for each in self.topics}
        for output in self.outputs:
            try:
                output.frame()
            except (InvalidOption, AnalysisException):  # it will be told when it is started itself
                continue
            for each in self.topics:
                known = read[id(each)]
                if each.source is not None and known is not None:
                    read[id(each)] = None if each.columns_needed is None else known | each.columns_needed
        for each in self.topics:
            each.columns_read = read[id(each)]

    def queries(self) -> list[Output]:
        """All outputs; where none is a topic that dead letters could go along with, they are one by themselves."""
        if self._fixed is None:  # nothing has been started yet
            self._fixed = [each for each in self.topics if each.source is not None]
        if self.dead_letters is None or not self.decoded or any(each.target.is_topic for each in self.outputs):
            return self.outputs
        return [*self.outputs, Output(self, DEAD_LETTERS, self._dead_letters, Target("topic", self.dead_letters))]

    def _dead_letters(self) -> DataFrame:
        assert self.dead_letters is not None
        rows = [dead_letter_rows(each, self.dead_letters, self.name) for each in self.decoded]
        return reduce(DataFrame.unionByName, rows)

    def move(self, bootstrap: str) -> None:
        """To another cluster."""
        self.bootstrap = bootstrap
        for each in (*self.topics, *self.tables):
            each.source_options["kafka.bootstrap.servers"] = bootstrap

    # -- what is read

    def topic(
        self,
        *names: str,
        pattern: str | None = None,
        value: str = "binary",
        key: str = "string",
        format: str = "json",  # noqa: A002
        message: str | None = None,
        starting: str = "earliest",
        max_per_batch: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> DataFrame:
        """A stream of the records of topics. `value` is `binary`, `string`, or what its fields are, as SQL writes it (for avro
        and protobuf, their schema). The first run begins at `starting`: earliest, latest, or as startingOffsets has it."""
        chosen = {**self._read_options, **(options or {})}
        if max_per_batch is not None:
            chosen["maxOffsetsPerTrigger"] = str(max_per_batch)
        found = TopicFrame(
            names,
            pattern=pattern,
            bootstrap=self.bootstrap,
            value=value,
            key=key,
            format=format,
            message=message,
            starting=starting,
            options=chosen,
        )
        self.topics.append(found)
        return found

    def latest(self, topic: str, *, value: str, key: str = "string", format: str = "json") -> DataFrame:  # noqa: A002
        """The latest value of each key of a topic, without those that were deleted: a table to join streams with. It is read anew
        for each batch."""
        frame = TopicFrame((topic,), bootstrap=self.bootstrap, value=value, key=key, format=format, options=self._read_options)
        self.tables.append(frame)
        return self._lazy(frame.load_latest)

    def sql(self, query: str, **frames: DataFrame) -> DataFrame:
        """What a query gives over topics, by their names (with _ in place of - and ., or in backquotes), and other frames."""

        def make() -> DataFrame:
            for name, each in self._views(query).items():
                each.createOrReplaceTempView(f"`{name}`")
            for name, frame in frames.items():
                frame.createOrReplaceTempView(f"`{name}`")
            return session().sql(query)

        return self._lazy(make)

    def _views(self, query: str) -> dict[str, TopicFrame]:
        """Those that a query may mean: what is not in its text need not be there."""
        found = {}
        for each in self.topics:
            for topic in each.topics:
                found.update({name: each for name in (topic, re.sub("[-.]", "_", topic)) if name in query})
        return found

    def _lazy(self, make: Make) -> DataFrame:
        found = LazyFrame(make)
        self.frames.append(found)
        return found

    # -- what is written

    def to_topic(
        self,
        topic: str | None = None,
        *,
        key: Key = None,
        emit: Emit = "final",
        co_partitioned: bool = False,
        name: str | None = None,
    ) -> Callable[[Make], Make]:
        """The rows of the frame that the function gives, to a topic, or to the one that their column `topic` names.

        A frame with a column `value`, and none but those of records, is written as it is; of any other, rows become JSON. `emit`:
        results that are `final`, or all their `changes`. `co_partitioned`: rows for one partition are together already. `name`:
        of the output, if not that of the topic or, where rows have their own, of the function."""
        if emit not in ("final", "changes"):
            raise InvalidOption(f"emit={emit!r}: it is final or changes")
        return self._output(Target("topic", topic, key=key, emit=emit, co_partitioned=co_partitioned), name or topic)

    def table(self, topic: str, *, key: Key, name: str | None = None) -> Callable[[Make], Make]:
        """Results that change, to a compacted topic: the last record of a key is its row. A row with true in a column `_deleted`
        deletes its key."""
        return self._output(Target("table", topic, key=key, emit="changes"), name or topic)

    def to_files(
        self,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002
        partition_by: tuple[str, ...] = (),
        name: str | None = None,
    ) -> Callable[[Make], Make]:
        """The rows of the frame that the function gives, to files, through Spark's own sink: exactly once for who reads them with
        Spark."""
        return self._output(Target("files", path, emit="final", format=format, partition_by=partition_by), name)

    def _output(self, target: Target, name: str | None) -> Callable[[Make], Make]:
        def decorate(make: Make) -> Make:
            chosen = name or str(getattr(make, "__name__", "output"))
            if NAME.fullmatch(chosen) is None:
                raise InvalidOption(
                    f"an output of {self.name} is called {chosen}; give it a name of letters, digits, dots, - and _, with name="
                )
            if any(chosen == each.name for each in self.outputs):
                raise InvalidOption(f"{self.name} has two outputs {chosen}; give one of them another name, with name=")
            self.outputs.append(Output(self, chosen, make, target))
            return make

        return decorate

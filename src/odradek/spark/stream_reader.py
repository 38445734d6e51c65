"""Reads topics as a stream: says how far there is anything, and what a micro-batch reads. Lives in a process beside the driver.

Spark asks for the latest offsets about ninety times a second while there is nothing to do, and never says that a query ends.

Invariants
 1. Offsets in a checkpoint are those of Spark's own connector: topic, partition, the offset to go on from.
 2. A partition that appears while a query runs is read from its beginning.
 3. What has been processed is committed to the group, if one was given: after the next batch, or when Spark asks again.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from odradek.client.records import TopicPartition
from odradek.spark import clients
from odradek.spark.columns import Columns
from odradek.spark.options import LATEST, Offsets, ReadOptions, from_json, to_json
from odradek.spark.positions import DataLost, Positions
from odradek.spark.ranges import limited, ranges, split
from odradek.spark.reading import RangePartition, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

REST_SECONDS: Final = 0.02  # between two looks that find nothing new
PARTITIONS_SECONDS: Final = 1.0  # after which it is looked for new partitions
Json = Mapping[str, Mapping[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.columns = Columns(options, schema)
        self._driver: Driver | None = None  # workers get a copy of this, and need none

    @property
    def driver(self) -> "Driver":
        if self._driver is None:
            self._driver = Driver(self.options)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self.driver.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self.options.offsets_max is None else ReadMaxRows(self.options.offsets_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.driver.stop_at_end()

    def latestOffset(self, start: Json, limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return to_json(self.driver.latest(from_json(start), offsets_max))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return to_json(self.driver.end) if self.driver.end else None

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        return [RangePartition(each) for each in self.driver.plan(from_json(start), from_json(end))]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return read_rows(self.options, self.columns, partition)

    def commit(self, end: Json) -> None:
        self.driver.commit(from_json(end))


class Driver:
    """What goes on beside the driver, and is in no worker."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.positions = Positions(options)
        self.end: Offsets = {}
        self._target: Offsets | None = None  # of a query that stops there
        self._places: list[TopicPartition] = []
        self._places_s = self._looked_s = 0.0
        self._batch_s = monotonic()
        self._committed: Offsets = {}

    def initial(self) -> Offsets:
        return self.positions.resolve(self.options.start, self.positions.partitions(), is_start=True)

    def places(self, *, is_fresh: bool = False) -> list[TopicPartition]:
        now_s = monotonic()
        if is_fresh or now_s - self._places_s > PARTITIONS_SECONDS:
            self._places = self.positions.partitions(may_lack=True)
            self._places_s = now_s
        return self._places

    def stop_at_end(self) -> None:
        self._target = self.end = self._ends(is_fresh=True)

    def latest(self, start: Offsets, offsets_max: int | None) -> Offsets:
        self.commit(start)
        end = self._target if self._target is not None else self._look(start)
        self._check(start, end)
        begin = {**dict.fromkeys(end, 0), **{place: offset for place, offset in start.items() if place in end}}
        waiting = sum(max(end[place] - begin[place], 0) for place in end)
        if waiting and self._target is None and waiting < (self.options.offsets_min or 0) and not self._is_overdue():
            return start
        if waiting:
            self._batch_s = monotonic()
        return end if offsets_max is None else limited(begin, end, offsets_max)

    def _look(self, start: Offsets) -> Offsets:
        """How far there is anything; not too often, while there is nothing new."""
        rest_s = self._looked_s + REST_SECONDS - monotonic()
        if rest_s > 0 and self.end == start:
            sleep(rest_s)
        self.end = self._ends()
        self._looked_s = monotonic()
        return self.end

    def _ends(self, *, is_fresh: bool = False) -> Offsets:
        """Of what there is: a topic that went since it was looked for is not, and `_check` says whether that matters."""
        try:
            return self.positions.at(self.places(is_fresh=is_fresh), LATEST)
        except DataLost:
            return self.positions.at(self.places(is_fresh=True), LATEST)

    def _is_overdue(self) -> bool:
        return (monotonic() - self._batch_s) * 1000 >= self.options.delay_ms_max

    def _check(self, start: Offsets, end: Offsets) -> None:
        """What was read once is there no more."""
        if not self.options.fails_on_loss:
            return
        for place, offset in start.items():
            if place not in end:
                raise DataLost(f"{place} is gone; {offset} offsets of it have been read")
            if end[place] < offset:
                raise DataLost(f"{place}: the log ends at {end[place]} now, and has been read to {offset}")

    def plan(self, start: Offsets, end: Offsets) -> list[Any]:
        begin = {**dict.fromkeys(end, 0), **start}
        return split(ranges(begin, end), self.options.partitions_min, self.options.records_max)

    def commit(self, offsets: Offsets) -> None:
        group = self.options.group
        fresh = {place: offset for place, offset in offsets.items() if self._committed.get(place) != offset}
        if group is None or not fresh:
            return
        with clients.admin(self.options.properties) as admin:
            clients.run(admin.alter_group_offsets(group, fresh))
        self._committed.update(fresh)

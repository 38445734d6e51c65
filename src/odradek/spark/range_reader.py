"""Reads a range of offsets of a partition, in a task of Spark: Arrow from the socket to the JVM.

The loop's thread fetches what comes next while this one decodes, and the JVM takes what was decoded.

Invariants
 1. All records of the range are given, in their order, but for what compaction has taken, and transactions that were aborted.
 2. It ends: without progress for `default.api.timeout.ms`, with an error that says where.
 3. What is gone is an error, or is left out where that was chosen.
"""

import gc
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Any, Final

import pyarrow as pa

from odradek.client.arrow.tables import table_of
from odradek.client.consumer import Consumer
from odradek.client.errors import KafkaError, NoOffset, TimedOut
from odradek.client.records import Batches
from odradek.spark import clients
from odradek.spark.options import ReadOptions
from odradek.spark.positions import DataLost, gone
from odradek.spark.ranges import Range

FETCH_BYTES: Final = 8 * 1024 * 1024
POLL_MS: Final = 1_000
PATIENCE_MS: Final = 60_000
OURS: Final = {"auto.offset.reset": "none", "enable.auto.commit": "false"}
DEFAULTS: Final = {"max.partition.fetch.bytes": str(FETCH_BYTES)}

_is_frozen = False


def read(options: ReadOptions, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of the range, with these columns of `odradek.client.arrow.columns`."""
    properties = {**DEFAULTS, **options.properties, **OURS, "isolation.level": options.isolation}

    async def make() -> Consumer:
        found = Consumer.of(properties)
        await found.start()
        return found

    with clients.kept(("consumer", clients.fixed(properties)), make) as consumer:
        for batches in RangeReading(options, consumer, wanted).batches():
            yield from table_of(batches, columns, is_committed=options.isolation == "read_committed").to_batches()
    freeze()


def freeze() -> None:
    """What a worker has loaded stays: the collection after each of its tasks need not go through it again."""
    global _is_frozen  # noqa: PLW0603 - of the process
    if not _is_frozen:
        _is_frozen = True
        gc.collect()
        gc.freeze()


class RangeReading:
    def __init__(self, options: ReadOptions, consumer: Consumer, wanted: Range) -> None:
        self.options = options
        self.consumer = consumer
        self.place, self.offset, self.end = wanted.place, wanted.start, wanted.end
        self.patience_s = int(options.properties.get("default.api.timeout.ms", PATIENCE_MS)) / 1000
        self.moved_s = monotonic()

    def batches(self) -> Iterator[list[Batches]]:
        self._go_on()
        while self.offset < self.end:
            try:
                found = clients.run(self.consumer.poll_batches(FETCH_BYTES, POLL_MS))
            except NoOffset:
                self._find_beginning()
                continue
            if found:
                self.offset = found[-1].next_offset
                self.moved_s = monotonic()
                yield found
            else:
                self._find_end()

    def _go_on(self) -> None:
        try:
            clients.run(self.consumer.assign({self.place: self.offset}, {self.place: self.end}))
        except TimedOut as error:
            if not isinstance(error.__cause__, KafkaError) or gone(error.__cause__) is None:
                raise
            self._lose(self.offset, self.end, "the topic is not there any more")
            self.offset = self.end

    def _find_beginning(self) -> None:
        """There is nothing at the offset: what is there begins later, or ends before it, or is of a topic that was made anew."""
        first = self._ask(self.consumer.beginning_offsets(self.place))
        if first <= self.offset:
            self._find_end()
        else:
            self._lose(self.offset, min(first, self.end), f"the log begins at {first} now")
            self.offset = first
        if self.offset < self.end:
            self._go_on()

    def _find_end(self) -> None:
        """Nothing comes: there may be nothing any more."""
        end = self._ask(self.consumer.end_offsets(self.place))
        if end < self.end:
            self._lose(max(self.offset, end), self.end, f"the log ends at {end} now")
            self.end = min(self.end, max(end, self.offset))
        elif monotonic() - self.moved_s > self.patience_s:
            raise TimedOut(
                f"{self.place}: nothing came from offset {self.offset} on in {self.patience_s:.0f} s, and the log ends at {end}",
                topic=self.place.topic,
                partition=self.place.partition,
                offset=self.offset,
            )

    def _lose(self, start: int, end: int, why: str) -> None:
        if self.options.fails_on_loss:
            raise DataLost(f"{self.place}: offsets {start} to {end - 1} are gone, {why}")

    def _ask(self, asking: Any) -> int:
        found: int = clients.run(asking)[self.place]
        return found

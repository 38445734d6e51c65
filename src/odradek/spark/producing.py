"""Producers of this process, and Arrow rows as record batches for them.

A row has a value, and may have a key, headers, a timestamp, a partition and a topic, as with Spark's own sink. Rows are made
into record batches in the thread that has them, while the loop's thread sends those that are ready.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.arrow.encode import codec_that_pays, encode
from odradek.client.batches import Compression
from odradek.client.errors import InvalidOption
from odradek.client.producer import Producer
from odradek.spark import clients
from odradek.spark.columns import WRITTEN

GATHER_BYTES: Final = 4 * 1024 * 1024  # of rows that are made into batches together


@contextmanager
def producer(properties: dict[str, str]) -> Iterator[Producer]:
    with clients.kept(("producer", clients.fixed(properties)), lambda: clients.started(properties)) as found:
        yield found


class Encoded(NamedTuple):
    topic: str
    partition: int
    record_count: int
    data: bytearray


class Encoder:
    """Makes record batches of rows, for the topic that is given or that the rows name."""

    def __init__(self, sender: Producer, topic: str | None, owned: tuple[int, int] | None = None) -> None:
        """Rows without a key go to all partitions in turn, or, of every so many, to one: `owned` is (3, 1) for 1, 4, 7 …"""
        self.sender = sender
        self.topic = topic
        self.owned = owned
        self.counts: dict[str, int] = {}
        self.keyless_rows: dict[str, int] = {}
        self.compression = Compression(sender.options.codec, sender.options.compression_level)

    def encode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Encoded]:
        for table in gathered(batches):
            for topic, rows in by_topic(table, self.topic):
                yield from self._encode(topic, rows)

    def _encode(self, topic: str, rows: pa.Table) -> Iterator[Encoded]:
        count = self.counts.get(topic)
        if count is None:
            count = self.counts[topic] = len(clients.run(self.sender.partitions(topic)))
        every, first = self.owned or (1, 0)
        encoded = encode(
            rows,
            count,
            now_ms=int(time.time() * 1000),
            codec=codec_that_pays(rows, count, self.compression),
            level=self.compression.level,
            turns=range(first % count, count, every),
            keyless_rows=self.keyless_rows.get(topic, 0),
        )
        self.keyless_rows[topic] = encoded.keyless_rows
        for partition, record_count, data in encoded.batches:
            yield Encoded(topic, partition, record_count, data)


def check_columns(names: Iterable[str], topic: str | None) -> None:
    """InvalidOption when rows with these columns cannot be sent."""
    found = set(names)
    if "value" not in found:
        raise InvalidOption("a frame that is written has a column value; give the one you mean that name")
    if unknown := sorted(found - WRITTEN):
        raise InvalidOption(
            f"there is no column {unknown[0]} in a record; it has {', '.join(sorted(WRITTEN))}. to_json(struct(*)) makes one "
            "value of many columns"
        )
    if topic is None and "topic" not in found:
        raise InvalidOption("say where it goes: by the option topic, or by a column topic")


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Several of Spark's small batches at once: record batches get full."""
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        found.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield pa.Table.from_batches(found)
            found, size = [], 0
    if found:
        yield pa.Table.from_batches(found)


def by_topic(table: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    if topic is not None:
        yield topic, table
        return
    column = table.column("topic")
    if column.null_count:
        raise InvalidOption("a row has no topic, and there is no option topic")
    names = column.unique().to_pylist()
    for name in names:
        yield name, table if len(names) == 1 else table.filter(pc.equal(column, name))

"""Which batch a query has written last: a record in a compacted topic, written in the transaction of the batch itself.

Whoever begins as a transactional id reads what its predecessor got done. Transactions of other queries may be open in the same
partition, and hold back what a reader of committed records gets; so this reads everything, and looks at the ends of the
transactions of each producer by itself. Our own have all ended when this is called: InitProducerId has seen to it.

Invariants
 1. A marker counts when its transaction was committed, not before, whatever others do.
 2. Markers do not expire: the topic is compacted, and nothing else is done to it. It is on three brokers, where there are.
 3. Reading ends, with what there is or with an error.
"""

import asyncio
from typing import Final

from msgspec import Struct
from msgspec.json import Decoder, Encoder

from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.client.consumer import Consumer
from odradek.client.errors import TimedOut
from odradek.client.producer import Producer
from odradek.client.records import Batches, TopicPartition
from odradek.spark import clients
from odradek.wire.batch import read_header
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.records import records

TOPIC: Final = "__odradek_pipelines"
PLACE: Final = TopicPartition(TOPIC, 0)
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.05",
    "segment.bytes": str(4 * 1024 * 1024),
    "segment.ms": str(3_600_000),
}
REPLICAS_MAX: Final = 3
READ_SECONDS_MAX: Final = 120.0


class Marker(Struct, frozen=True):
    """A batch of a query, by the names that Spark has for them."""

    query: str
    batch: int


_encoder, _decoder = Encoder(), Decoder(Marker)


async def send(producer: Producer, transactional_id: str, marker: Marker) -> None:
    await producer.send(TOPIC, _encoder.encode(marker), key=transactional_id, partition=PLACE.partition)


async def make_topic(admin: Admin) -> None:
    replicas = min(len((await admin.describe_cluster()).brokers), REPLICAS_MAX)
    configs = {**CONFIGS, "min.insync.replicas": str(max(replicas - 1, 1))}
    await clients.make_topic(admin, NewTopic(TOPIC, 1, replicas, configs))


async def last(properties: dict[str, str], transactional_id: str) -> Marker | None:
    """The marker that was committed last."""
    reading = Reading(transactional_id.encode())
    async with Consumer.of({**properties, "isolation.level": "read_uncommitted", "auto.offset.reset": "none"}) as consumer:
        start = (await consumer.beginning_offsets(PLACE))[PLACE]
        end = (await consumer.end_offsets(PLACE))[PLACE]
        await consumer.assign({PLACE: start}, {PLACE: end})
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                while start < end:
                    for batches in await consumer.poll_batches():
                        reading.take(batches)
                        start = batches.next_offset
        except TimeoutError:
            raise TimedOut(f"{PLACE} was not read to its end within {READ_SECONDS_MAX:.0f} s: {start} of {end}") from None
    return reading.committed


class Reading:
    def __init__(self, key: bytes) -> None:
        self.key = key
        self.committed: Marker | None = None
        self._open: dict[int, Marker] = {}  # by producer id, until their transactions end

    def take(self, batches: Batches) -> None:
        position = 0
        while position < len(batches.records):
            header = read_header(batches.records, position)
            for record in records(batches.records, position, header):
                if header.is_control:
                    self._end(header.producer_id, read_control_type(record.key) == ControlType.COMMIT)
                elif record.key == self.key and record.value is not None:
                    self._open[header.producer_id] = _decoder.decode(record.value)
            position += header.size

    def _end(self, producer_id: int, is_commit: bool) -> None:
        marker = self._open.pop(producer_id, None)
        if marker is not None and is_commit:
            self.committed = marker

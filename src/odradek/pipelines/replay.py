"""Sends dead letters again, to the topics that they came from: exactly once, as a group that knows how far it is.

A letter that is no dead letter of ours, or came from nowhere that is there, stays where it is and is told of.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.records import Record
from odradek.spark.dead_letters import HEADERS, PIPELINE, TOPIC

BATCH_RECORDS: Final = 500
QUIET_MS: Final = 2_000


class Replayed(NamedTuple):
    sent: int
    skipped: int  # of other pipelines, or no dead letters


async def replay(bootstrap: str, topic: str, *, pipeline: str | None = None, limit: int | None = None) -> Replayed:
    """All that there are now, or so many at most; of one pipeline, or of all."""
    group = f"odradek-replay-{topic}" + (f"-{pipeline}" if pipeline else "")
    sent = skipped = 0
    async with (
        Consumer(bootstrap=bootstrap, group=group, auto_commit=False) as consumer,
        Producer(bootstrap, transactional_id=group) as producer,
    ):
        async for batch in letters(consumer, topic, limit):
            async with producer.transaction():
                for letter in batch:
                    headers = {name: value or b"" for name, value in letter.headers}
                    target = headers.get(TOPIC, b"").decode()
                    if not target or (pipeline is not None and headers.get(PIPELINE, b"").decode() != pipeline):
                        skipped += 1
                        continue
                    rest = [each for each in letter.headers if each[0] not in HEADERS]
                    await producer.send(target, letter.value, key=letter.key, headers=rest, timestamp_ms=letter.timestamp_ms)
                    sent += 1
                await producer.send_offsets(consumer.positions(), group)
    return Replayed(sent, skipped)


async def letters(consumer: Consumer, topic: str, limit: int | None) -> AsyncIterator[list[Record]]:
    """What is there when it begins, from where the group is: what is replayed in vain comes back behind that."""
    places = {(topic, index): None for index in await partitions(consumer, topic)}
    ends = await consumer.end_offsets(*places)
    await consumer.assign(places, until=ends)
    left = limit
    while left is None or left > 0:
        found = await consumer.poll(min(BATCH_RECORDS, left or BATCH_RECORDS), QUIET_MS)
        if not found:
            return
        left = left - len(found) if left is not None else None
        yield found


async def partitions(consumer: Consumer, topic: str) -> list[int]:
    from odradek.client.admin.admin import Admin

    async with Admin(consumer._options.bootstrap) as admin:
        return [each.index for each in (await admin.describe_topics([topic]))[topic].partitions]

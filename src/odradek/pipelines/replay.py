"""Sends dead letters again, to the topics that they came from: exactly once, as groups that know how far they are.

There is a group for all letters of a topic, and one for those of each pipeline that was asked for by itself; a letter that one
of the two has passed is not sent again for the other. A letter that is no dead letter of ours, or came from a topic that is
there no more, stays where it is and is told of.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.records import Record, TopicPartition
from odradek.spark.dead_letters import HEADERS, PIPELINE, TOPIC

BATCH_RECORDS: Final = 500
QUIET_MS: Final = 2_000


class Replayed(NamedTuple):
    sent: int
    skipped: int  # of other pipelines, or no dead letters, or of topics that are gone


async def replay(bootstrap: str, topic: str, *, pipeline: str | None = None, limit: int | None = None) -> Replayed:
    """All that there are now, or so many at most; of one pipeline, or of all."""
    group = group_of(topic, pipeline)
    sent = skipped = 0
    async with (
        Admin(bootstrap) as admin,
        Producer(bootstrap, transactional_id=group) as producer,
        Consumer(bootstrap=bootstrap, group=group, auto_commit=False) as consumer,
    ):
        done = Done(admin, topic, pipeline)
        places = [(topic, each.index) for each in (await admin.describe_topics([topic]))[topic].partitions]
        there = await admin.list_topics()
        async for batch in letters(consumer, places, limit):
            async with producer.transaction():
                for letter in batch:
                    headers = {name: value or b"" for name, value in letter.headers}
                    target, whose = (headers.get(name, b"").decode() for name in (TOPIC, PIPELINE))
                    if await done.has(letter, whose):
                        continue
                    if target not in there or (pipeline is not None and whose != pipeline):
                        skipped += 1
                        continue
                    rest = [each for each in letter.headers if each[0] not in HEADERS]
                    await producer.send(target, letter.value, key=letter.key, headers=rest, timestamp_ms=letter.timestamp_ms)
                    sent += 1
                await producer.send_offsets(consumer.positions(), group)
    return Replayed(sent, skipped)


def group_of(topic: str, pipeline: str | None) -> str:
    return f"odradek-replay:{topic}" + (f":{pipeline}" if pipeline else "")


class Done:
    """What the other groups have sent again already."""

    def __init__(self, admin: Admin, topic: str, pipeline: str | None) -> None:
        self.admin, self.topic, self.pipeline = admin, topic, pipeline
        self._offsets: dict[str, dict[TopicPartition, int]] = {}

    async def has(self, letter: Record, whose: str) -> bool:
        group = group_of(self.topic, whose if self.pipeline is None else None)
        if group == group_of(self.topic, self.pipeline):  # it is nobody's
            return False
        if group not in self._offsets:
            found = await self.admin.list_group_offsets([group], require_stable=True)
            self._offsets[group] = {place: each.offset for place, each in found[group].items()}
        return letter.offset < self._offsets[group].get(TopicPartition(letter.topic, letter.partition), 0)


async def letters(consumer: Consumer, places: list[tuple[str, int]], limit: int | None) -> AsyncIterator[list[Record]]:
    """What is there when it begins, from where the group is: what is replayed in vain comes back behind that."""
    ends = await consumer.end_offsets(*places)
    await consumer.assign(dict.fromkeys(places), until=ends)
    left = limit
    while left is None or left > 0:
        found = await consumer.poll(min(BATCH_RECORDS, left or BATCH_RECORDS), QUIET_MS)
        if not found:
            return
        left = left - len(found) if left is not None else None
        yield found

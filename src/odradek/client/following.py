"""A consumer of whole topics without a group: it reads all their partitions, and those that are added later.

Invariants
 1. What is added while it reads is read from its begin: nothing of it can be older than the consumer.
 2. A topic that somebody does not know for a while is not forgotten: brokers that have just started may not know it yet.
"""

import asyncio
from contextlib import suppress
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError
from odradek.client.fetching import Fetching
from odradek.client.group.member import Wanted
from odradek.client.reading import EARLIEST
from odradek.client.records import TopicPartition

MISSES_MAX: Final = 100
MISSING_SECONDS: Final = 1.0  # after which topics that are not there are looked for again


class Following:
    def __init__(self, cluster: Cluster, fetching: Fetching, wanted: Wanted) -> None:
        self.cluster = cluster
        self.fetching = fetching
        self.wanted = wanted
        self._seen: set[str] = set()  # topics
        self._misses: dict[str, int] = {}  # news without a topic that was there, one after the other
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.cluster.want(None if self.wanted.pattern is not None else self.wanted.topics)
        self.cluster.on_metadata.insert(0, self.look)
        self._looking = asyncio.create_task(self._look_again())

    def look(self) -> None:
        fetcher = self.fetching.fetcher
        topics = self.wanted.matching(self.cluster)
        known = self.cluster.metadata.topics
        there = {TopicPartition(topic, index) for topic in topics if topic in known for index in known[topic].partitions}
        for topic in {place.topic for place in fetcher.readings}:
            self._misses[topic] = 0 if topic in known else self._misses.get(topic, 0) + 1
        for place in [place for place in fetcher.readings if place not in there]:
            if place.topic in known or self._misses[place.topic] > MISSES_MAX:
                fetcher.forget(place)
                self._seen.discard(place.topic)
        for place in sorted(there - fetcher.readings.keys()):
            reading = fetcher.begin(place)
            if place.topic in self._seen:
                fetcher.aim(reading, EARLIEST)
        self._seen |= {place.topic for place in there}
        fetcher.learn(self.cluster.metadata)
        self.fetching.go_on()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(MISSING_SECONDS)
            if self.wanted.pattern is None and any(name not in self.cluster.metadata.topics for name in self.wanted.topics):
                with suppress(KafkaError):
                    await self.cluster.refresh()

    async def stop(self) -> None:
        if self.look in self.cluster.on_metadata:
            self.cluster.on_metadata.remove(self.look)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

"""Which offsets a consumer commits, and when: by hand, or by itself at intervals, before it gives partitions up, and at its end.

Invariants
 1. By itself it commits what the program is done with, never what that has in hand.
 2. One commit is under way at a time: an older one cannot overtake a newer one.
 3. A commit waits while the group is between two generations, where it would be refused.
 4. Who is no member at present commits nothing, and a member nothing that it had when it was asked to and has not any more: in
    the name of a later generation, the group would take it over what others have committed since. Nor is an offset of a topic
    committed for the one that was made anew under its name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from odradek.client.errors import KafkaError, Refused, TimedOut, refused
from odradek.client.fetcher import Fetcher
from odradek.client.handing import Handing
from odradek.client.metadata import NO_ID, TopicInfo
from odradek.client.offsets import Offsets
from odradek.client.reading import Reading
from odradek.client.records import NO_OFFSET, Committed, TopicPartition
from odradek.wire.errors import ErrorCode

LAST_TIMEOUT_MS: Final = 15_000  # of a commit before partitions are given up: somebody waits for them


class Commits:
    def __init__(self, offsets: Offsets, fetcher: Fetcher, handing: Handing) -> None:
        self.offsets = offsets
        self.fetcher = fetcher
        self.handing = handing
        self.ready: Callable[[], Awaitable[None]] | None = None  # waits until the group takes commits
        self.is_member: Callable[[], bool] = lambda: True  # who is of no group by choice may commit as nobody
        self._known: dict[TopicPartition, tuple[int, bytes]] = {}  # committed, as far as we know, and of which topic
        self._lock = asyncio.Lock()

    def start_from(self, place: TopicPartition, offset: int | None) -> None:
        """What is committed of a partition that we begin with."""
        if offset is None:
            self._known.pop(place, None)
        else:
            self._note({place: Committed(offset)})

    def unsent(self, places: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
        """What is done with and not committed."""
        self.handing.look()
        found: dict[TopicPartition, Committed] = {}
        for place, reading in self.fetcher.readings.items():
            if reading.done < 0 or self._is_known(reading) or self.handing.holds_from_before(reading):
                continue
            if reading.is_replaced_by(self._topics.get(place.topic)):
                continue
            if places is None or place in places:
                found[place] = Committed(reading.done, leader_epoch=reading.done_epoch)
        return found

    def _sendable(self, places: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Committed]:
        """What is unsent of topics that are there, as far as we know: the others would keep it from being sent."""
        return {place: each for place, each in self.unsent(places).items() if place.topic in self._topics}

    @property
    def _topics(self) -> Mapping[str, TopicInfo]:
        return self.offsets.cluster.metadata.topics

    def _is_known(self, reading: Reading) -> bool:
        """Whether what is done with is committed; of a topic that was made anew nothing is."""
        offset, topic_id = self._known.get(reading.place, (NO_OFFSET, NO_ID))
        return offset == reading.done and (topic_id == reading.topic_id or NO_ID in (topic_id, reading.topic_id))

    async def commit(self, offsets: Mapping[TopicPartition, Committed], timeout_ms: float | None = None) -> None:
        """Until it is done, or refused for good."""
        cluster, check = self.offsets.cluster, self._check(offsets)
        timeout_ms = cluster.timing.default_timeout_ms if timeout_ms is None else timeout_ms
        end_s = cluster.loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(end_s):
                await self._lock.acquire()
        except TimeoutError:
            raise TimedOut(f"another commit of group {self.offsets.group} is under way for {timeout_ms:.0f} ms") from None
        try:
            async with asyncio.timeout_at(end_s):
                if self.ready is not None:
                    await self.ready()
            await self.offsets.commit(offsets, check, max(end_s - cluster.loop.time(), 0) * 1000)
            self._note(offsets)
        except TimeoutError:
            raise TimedOut(f"group {self.offsets.group} shares out anew for {timeout_ms:.0f} ms") from None
        finally:
            self._lock.release()

    def _check(self, offsets: Collection[TopicPartition]) -> Callable[[], None]:
        """Raises, as soon as what we have now is not to be committed by us any more."""
        readings = self.fetcher.readings
        held = [(place, readings[place], readings[place].topic_id) for place in offsets if place in readings]

        def check() -> None:
            if not self.is_member():
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, "it is no member at present", group=self.offsets.group)
            for (topic, partition), reading, topic_id in held:
                if readings.get(reading.place) is not reading:
                    reason = "it was given up before it was committed"
                elif topic_id not in (NO_ID, reading.topic_id) or reading.is_replaced_by(self._topics.get(topic)):
                    reason = "its topic was made anew before it was committed"
                elif reading.is_assigned and topic not in self._topics:  # whichever has the name by then would get it
                    raise refused(ErrorCode.UNKNOWN_TOPIC_ID, topic=topic, partition=partition)
                else:
                    continue
                raise Refused(ErrorCode.ILLEGAL_GENERATION, reason, topic=topic, partition=partition)

        return check

    async def commit_last(self, places: Collection[TopicPartition], *, may_wait: bool = True) -> None:
        """What can be committed of partitions that are about to be given up; whoever gets them reads the rest again."""
        unsent = self._sendable(places)
        if not unsent:
            return
        check = self._check(unsent)
        with suppress(KafkaError):
            async with self._lock:
                if may_wait:
                    await self.offsets.commit(unsent, check, LAST_TIMEOUT_MS)
                else:
                    await self.offsets.try_to_commit(dict(unsent), check)
                self._note(unsent)

    async def run(self, interval_ms: float, may_commit: Callable[[], bool]) -> None:
        """Commits at intervals, for ever. What fails is tried again with what there is then."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            if not may_commit():
                continue
            async with self._lock:
                unsent = self._sendable()
                left = dict(unsent)
                with suppress(KafkaError):
                    if left:
                        await self.offsets.try_to_commit(left, self._check(left))
                self._note({place: each for place, each in unsent.items() if place not in left})

    def _note(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        for place, each in offsets.items():
            reading = self.fetcher.readings.get(place)
            self._known[place] = each.offset, reading.topic_id if reading is not None else NO_ID

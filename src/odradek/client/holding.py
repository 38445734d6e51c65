"""The partitions that a consumer has: how they come and go, with the callbacks of the program, and what it has to hear of.

Invariants
 1. What is to be given up is not given to the program from that moment on. It is given up when the program has come back with
    what it had of it; until then its offsets are not known to be final.
 2. What is given up is committed first, where that goes by itself; then the program is told; then it is read no more.
 3. What was lost is read no more at once, and not committed: somebody else has it.
 4. A callback that has begun runs to its end. What it raises, the program hears at its next step.
 5. Of what the program was told that it has it is told once that it has it no more: by `on_revoked` or by `on_lost`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from odradek.client.commits import Commits
from odradek.client.errors import InvalidOption, KafkaError, TimedOut, refused
from odradek.client.fetcher import Fetcher
from odradek.client.fetching import Fetching
from odradek.client.handing import Handing
from odradek.client.metadata import NO_ID
from odradek.client.reading import Reading
from odradek.client.records import Committed, TopicPartition
from odradek.wire.errors import ErrorCode

NO_IDS: Final[Mapping[str, bytes]] = MappingProxyType({})

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]


class Holding:
    def __init__(
        self,
        fetcher: Fetcher,
        handing: Handing,
        fetching: Fetching,
        commits: Commits | None,
        *,
        commits_itself: bool,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        self.fetcher = fetcher
        self.handing = handing
        self.fetching = fetching
        self.commits = commits
        self.commits_itself = commits_itself
        self.on_assigned = on_assigned
        self.on_revoked = on_revoked
        self.on_lost = on_lost or on_revoked
        self.failures: list[BaseException] = []  # to be heard once
        self.end: KafkaError | None = None  # nothing comes any more, and this is why
        self.waiting = 0  # steps of the program that wait for records
        self.back_s = fetching.loop.time()  # when the program came back last
        self._left = 0
        self._came_back = asyncio.Event()
        self._calling: asyncio.Future[None] | None = None  # a callback

    @property
    def places(self) -> list[TopicPartition]:
        return sorted(self.fetcher.readings)

    @property
    def ids(self) -> dict[TopicPartition, bytes]:
        """Of the topics of all partitions."""
        return {place: self.fetcher.readings[place].topic_id for place in self.places}

    # -- the program

    def come_back(self, *, is_iterating: bool) -> None:
        self.handing.come_back(is_iterating=is_iterating)
        self.back_s = self.fetching.loop.time()
        self._came_back.set()

    def away_s(self) -> float:
        """For how long the program has not come back."""
        now_s = self.fetching.loop.time()
        left = self.handing.left
        if self.waiting or left != self._left:
            self._left, self.back_s = left, now_s
        return now_s - self.back_s

    async def wait_back(self) -> None:
        """Until the program comes back."""
        if not self.waiting:
            self._came_back.clear()
            await self._came_back.wait()

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)
        self.fetching.on_news()

    def hear(self, task: "asyncio.Task[None]") -> None:
        """Of a task of the consumer that has ended: what only a bug can have raised, the program hears."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def stop(self, error: KafkaError) -> None:
        """For good."""
        self.end = error
        self.fetching.on_news()

    def check(self) -> None:
        """Raises what the program has to hear of."""
        if self.failures:
            raise self.failures.pop(0)
        if self.fetcher.failures:
            raise self.fetcher.failures.pop(0)
        if self.end is not None:
            raise self.end.with_traceback(None)

    # -- coming

    async def take(self, places: Iterable[TopicPartition], ids: Mapping[str, bytes] = NO_IDS) -> None:
        """Reads these too, from what the group has committed on. What cannot be taken is not held either.

        `ids` are those of the topics, where they are shared out by them."""
        fresh = [place for place in sorted(places) if place not in self.fetcher.readings]
        if not fresh:
            return
        for place in fresh:
            self.fetcher.hold(place, ids.get(place.topic, NO_ID))
        try:
            await self._place(fresh)
        except BaseException:
            for place in fresh:
                self.fetcher.forget(place)
            raise
        await self._call(self.on_assigned, fresh)
        for place in fresh:
            reading = self.fetcher.readings.get(place)
            if reading is not None:
                reading.is_withheld = False
        self.fetching.go_on()

    async def _place(self, fresh: list[TopicPartition]) -> None:
        """Each where the group has left it; where it has not, the policy says."""
        found = await self._committed(fresh)
        metadata = self.fetching.cluster.metadata
        self.fetcher.learn(metadata)
        for place in fresh:
            reading = self.fetcher.readings.get(place)
            if reading is None:
                continue
            if reading.is_assigned and metadata.names.get(reading.topic_id) != place.topic:
                raise refused(ErrorCode.UNKNOWN_TOPIC_ID, topic=place.topic)  # what was found may be another topic's
            known = found.get(place)
            if self.commits is not None:
                self.commits.start_from(place, known.offset if known is not None else None)
            if known is not None:
                self.fetcher.seek(reading, known.offset, known.leader_epoch)
            else:
                self.fetcher.reset(reading)
        self.fetching.go_on()

    async def _committed(self, places: list[TopicPartition]) -> dict[TopicPartition, Committed]:
        if self.commits is None:
            return {}
        while True:
            try:
                return await self.commits.offsets.committed(places)
            except TimedOut:  # without its offsets a share is nothing
                continue

    # -- going

    async def give_up(self, places: Collection[TopicPartition]) -> None:
        """Lets somebody else have these, as soon as the program is done with what it has of them."""
        readings = self._withhold(places)
        while self.handing.holds(readings):
            await self.wait_back()
        await self._part(places, self.on_revoked)

    async def part(self) -> None:
        """Gives all up, whatever the program has in hand: it is over."""
        self._withhold(self.places)
        await self._part(self.places, self.on_revoked)

    async def lose(self) -> None:
        """Somebody else has them, or will."""
        places = self.places
        self.handing.lose(self._withhold(places))
        self._forget(places)
        if places:
            await self._call(self.on_lost, places)

    async def _part(self, places: Collection[TopicPartition], callback: Callback | None) -> None:
        if not places:
            return
        if self.commits is not None and self.commits_itself:
            await self.commits.commit_last(places)
        try:
            await self._call(callback, sorted(places))
        finally:
            self._forget(places)

    def _withhold(self, places: Iterable[TopicPartition]) -> set[Reading]:
        self.handing.interrupt()
        readings = {self.fetcher.readings[place] for place in places if place in self.fetcher.readings}
        for reading in readings:
            reading.is_withheld = True
        return readings

    def _forget(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.fetcher.forget(place)
        self.fetching.go_on()

    async def _call(self, callback: Callback | None, places: list[TopicPartition]) -> None:
        if callback is None:
            return
        running = self._calling = asyncio.ensure_future(self._run_callback(callback, places))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            raise

    def check_not_called_back(self) -> None:
        """Raises for a callback, where something waits for its end."""
        if self._calling is not None and asyncio.current_task() is self._calling:
            raise InvalidOption("a callback cannot close its consumer, or have it read something else: do that when it is over")

    async def _run_callback(self, callback: Callback, places: list[TopicPartition]) -> None:
        try:
            result = callback(places)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - it is the program's, which hears of it
            self.fail(error)

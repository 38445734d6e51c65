"""The parts of a consumer at work: what it fetches, holds and commits, and how a step of the program gets its records.

Invariants
 1. A step waits for news and takes what there is at once, so who is cancelled while it waits has taken nothing.
 2. Others on the event loop get their turn, however much there is to give and however long the program takes for each record.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.commits import Commits
from odradek.client.consumer_options import Options
from odradek.client.errors import Closed, InvalidOption, KafkaError, TimedOut
from odradek.client.fetcher import Fetcher
from odradek.client.fetching import Fetching
from odradek.client.following import Following
from odradek.client.group.choice import choose
from odradek.client.group.member import Member, Wanted
from odradek.client.handing import Handing
from odradek.client.holding import Holding
from odradek.client.offsets import Offsets
from odradek.client.reading import Reading
from odradek.client.records import Committed, GroupMetadata, Record, TopicPartition
from odradek.wire.batch import OFFSET_MAX

TURN_SECONDS: Final = 0.01  # after which others get their turn, before more is given
CHUNK_SECONDS: Final = 0.05  # that an iteration shall take at most between two such turns
CHUNK_RECORDS_FIRST: Final = 32
CHUNK_RECORDS_MAX: Final = 4096

Place = TopicPartition | tuple[str, int]
Result = TypeVar("Result")


class Reader:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.terms = options.terms()
        taste, timing = options.taste(), options.timing()
        self.cluster = Cluster(options.bootstrap, client_id=options.client_id, timing=timing, machine=options.machine)
        self.loop = self.cluster.loop
        self.fetcher = Fetcher(taste)
        self.handing = Handing(self.fetcher)
        self.news = asyncio.Event()
        self.fetching = Fetching(self.cluster, self.fetcher, self.news.set, self._hear)
        self.offsets: Offsets | None = None
        self.commits: Commits | None = None
        if self.terms is not None:
            self.offsets = Offsets(self.cluster, self.terms.group, self.group_metadata, is_stable=taste.is_committed)
            self.commits = Commits(self.offsets, self.fetcher, self.handing)
        self.holding = Holding(
            self.fetcher,
            self.handing,
            self.fetching,
            self.commits,
            commits_itself=options.auto_commit,
            on_assigned=options.on_assigned,
            on_revoked=options.on_revoked,
            on_lost=options.on_lost,
        )
        self.member: Member | None = None
        self.following: Following | None = None
        self.is_closed = False
        self._committing: asyncio.Task[None] | None = None
        self._given_s = self._turn_s = self.loop.time()  # when the program got something, and others had their turn, last
        self._chunk_count = CHUNK_RECORDS_FIRST

    async def start(self) -> None:
        await self.cluster.insist("to reach the cluster", self.cluster.refresh)
        if self.commits is not None and self.options.auto_commit:
            self._committing = self.loop.create_task(self.commits.run(self.options.auto_commit_interval_ms, self._may_commit))
            self._committing.add_done_callback(self.holding.hear)

    def _hear(self, task: "asyncio.Task[None]") -> None:
        self.holding.hear(task)

    def _may_commit(self) -> bool:
        return self.member is None or self.member.may_commit

    def group_metadata(self) -> GroupMetadata:
        assert self.terms is not None
        return self.member.metadata if self.member is not None else GroupMetadata(self.terms.group)

    # -- what is read

    async def subscribe(self, wanted: Wanted) -> None:
        if self.member is not None:
            self.member.change(wanted)
            return
        await self.stop_reading()
        terms = self.terms
        if terms is None:
            self.following = Following(self.cluster, self.fetching, wanted)
            self.following.start()
        else:
            kind = await choose(self.cluster, self.options.group_protocol, terms, wanted)
            self.member = kind(self.cluster, self.holding, terms, wanted)
            if self.commits is not None:
                self.commits.ready, self.commits.is_member = self.member.ready, self.member.is_member
            self.member.start()
        with suppress(KafkaError):
            await self.cluster.refresh()

    async def assign(
        self, places: Mapping[TopicPartition, int | None], until: Mapping[TopicPartition, int] = MappingProxyType({})
    ) -> None:
        self.handing.finish()
        await self.stop_reading()
        for topic in dict.fromkeys(place.topic for place in places):
            await self.cluster.topic(topic)
        committed = dict.fromkeys(place for place, offset in places.items() if offset is None)
        known = await self.offsets.committed(committed) if self.offsets is not None else {}
        for place, offset in places.items():
            found, end = known.get(place), until.get(place, OFFSET_MAX)
            if offset is not None:
                self.fetcher.begin(place, offset, until=end)
            elif found is not None:
                self.fetcher.begin(place, found.offset, found.leader_epoch, until=end)
            else:
                self.fetcher.begin(place, until=end)
            if self.commits is not None:
                self.commits.start_from(place, found.offset if found is not None else None)
        self.fetcher.learn(self.cluster.metadata)
        self.fetching.go_on()

    async def stop_reading(self) -> None:
        """Gives all up: leaves the group, where it is in one."""
        self.holding.check_not_called_back()
        member, self.member = self.member, None
        if member is not None:
            await member.stop()
            self.member = member  # what is left to be committed is committed in its name
        try:
            await self.holding.part()
            if member is not None:
                await member.leave()
        finally:
            self.member = None
            if self.commits is not None:
                self.commits.ready, self.commits.is_member = None, lambda: True
            following, self.following = self.following, None
            if following is not None:
                await following.stop()

    def reading(self, place: TopicPartition) -> Reading:
        found = self.fetcher.readings.get(place)
        if found is None:
            raise InvalidOption(f"{place} is not assigned to this consumer")
        self.handing.look()
        return found

    def move(self, places: Iterable[TopicPartition], how: Callable[[Reading], None]) -> None:
        for reading in [self.reading(place) for place in places]:
            how(reading)
        self.fetching.go_on()

    async def position(self, place: TopicPartition, timeout_ms: float | None = None) -> int:
        timeout_ms = self.cluster.timing.default_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while (given := self.reading(place).given) < 0:
                    self._check()
                    self.news.clear()
                    await self.news.wait()
        except TimeoutError:
            raise TimedOut(f"the position of {place} is not known within {timeout_ms:.0f} ms") from None
        return given

    def positions(self) -> dict[TopicPartition, Committed]:
        self.handing.look()
        self.handing.check_nothing_lost()
        readings = self.fetcher.readings
        topics = self.cluster.metadata.topics
        return {
            place: Committed(each.given, leader_epoch=each.given_epoch)
            for place, each in readings.items()
            if each.given >= 0 and not each.is_replaced_by(topics.get(place.topic))
        }

    async def commit(self, offsets: Mapping[Place, int | Committed] | None, timeout_ms: float | None) -> None:
        if self.commits is None:
            raise InvalidOption("a consumer without a group commits nothing")
        if offsets is None:
            self.handing.check_nothing_lost()
            self.handing.finish()
            wanted = self.commits.unsent()
        else:
            wanted = {
                TopicPartition(*place): each if isinstance(each, Committed) else Committed(each)
                for place, each in offsets.items()
            }
        await self.commits.commit(wanted, timeout_ms)

    # -- steps

    async def next(self) -> Record:
        """The next record of an iteration, where none is ready."""
        now_s = self.loop.time()
        taken_s = now_s - self._given_s
        if taken_s > CHUNK_SECONDS:
            self._chunk_count = max(self._chunk_count // 2, 1)
        elif taken_s < CHUNK_SECONDS / 4:
            self._chunk_count = min(self._chunk_count * 2, CHUNK_RECORDS_MAX)
        await self.step(is_iterating=True, take=lambda: self.handing.prepare(self._chunk_count))
        return next(self.handing.coming)

    async def step(self, *, is_iterating: bool, take: Callable[[], Result], timeout_ms: float | None = None) -> Result:
        """What there is to take, as soon as it is something; what it is when time is up."""
        self.holding.come_back(is_iterating=is_iterating)
        self.holding.waiting += 1
        end_s = None if timeout_ms is None else self.loop.time() + timeout_ms / 1000
        try:
            if self.loop.time() - self._turn_s > TURN_SECONDS:
                await asyncio.sleep(0)
                self._turn_s = self.loop.time()
            while True:
                self._check()
                found = take()
                self.fetching.go_on()
                if found or (end_s is not None and self.loop.time() >= end_s):
                    return found
                self.news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end_s):
                        await self.news.wait()
                self._turn_s = self.loop.time()
        finally:
            self.holding.waiting -= 1
            self._given_s = self.holding.back_s = self.loop.time()

    def _check(self) -> None:
        if self.is_closed:
            raise Closed("the consumer was closed")
        self.holding.check()

    # -- the end

    async def close(self, *, is_done: bool) -> None:
        """`is_done`: with what the program has in hand."""
        if self.is_closed:
            return
        self.is_closed = True
        self.news.set()
        if is_done:
            self.handing.finish()
        try:
            if self._committing is not None:
                self._committing.cancel()
                await asyncio.wait([self._committing])
            await self.stop_reading()
        finally:
            if self.member is not None:  # whoever closes was cancelled before that
                await self.member.stop()
            await self.fetching.close()
            await self.cluster.close()

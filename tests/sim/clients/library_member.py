"""A member of a group with `odradek.Consumer`: it reads what it is given, commits it, and gives it up.

In half of its lives the consumer commits by itself; in the others the program does, now and then and before it gives up what it
has. What happens to it is told from its callbacks.

Invariants
 1. What is given to it is told before anything is read from it; what it gives up is told when all that was read is committed, as
    far as that is possible, and before anybody else may have it.
 2. What the program has in hand is not committed by the consumer; what it has committed is.
 3. A program that stalls does not come back for more; a process that stalls does nothing at all.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final, cast

from odradek.client.consumer import Consumer
from odradek.client.errors import Fenced, KafkaError
from odradek.client.machine import Machine
from odradek.client.reading import Reading
from odradek.client.records import TopicPartition
from tests.checker import history
from tests.sim.clients.fetcher import Taste
from tests.sim.clients.library_offsets import ToldOffsets
from tests.sim.clients.library_polling import OPTIONS, PAUSE_SECONDS, Polling
from tests.sim.clients.member import Terms
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks
from tests.sim.loop import SimLoop

MODERN: Final = "consumer"
AUTO: Final = 0.5  # of lives
OF_PROCESSES: Final = 0.5  # of stalls
LABORIOUS: Final = 0.2  # of polls: what they give takes a while
WORK_SECONDS_MAX: Final = 2.0


class LibraryMember(Polling):
    def __init__(self, program: Program, taste: Taste, terms: Terms) -> None:
        chance = program.chance
        self.terms = terms
        self.commits_itself = chance.random() < AUTO
        is_modern = terms.protocol == MODERN
        consumer = Consumer(
            bootstrap=[f"{host}:{port}" for host, port in program.bootstrap],
            client_id=program.name,
            group=terms.group,
            group_instance_id=terms.instance,
            group_protocol="consumer" if is_modern else "classic",
            assignor=None if is_modern else terms.protocol,
            isolation=cast("Any", taste.isolation),
            auto_commit=self.commits_itself,
            auto_commit_interval_ms=int(terms.commit_seconds * 1000),
            session_timeout_ms=terms.session_timeout_ms,
            heartbeat_interval_ms=int(terms.heartbeat_seconds * 1000),
            max_poll_interval_ms=terms.rebalance_timeout_ms,
            fetch_max_wait_ms=max(taste.max_wait_ms, 20),
            max_partition_fetch_bytes=taste.max_bytes,
            rack=taste.rack,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            machine=cast("Machine", program.machine),
            **OPTIONS,
        )
        super().__init__(program, consumer, taste.isolation)
        self.is_fenced = False  # another one has its instance id: it is over
        self.rebalances = 0
        self._offsets: ToldOffsets | None = None
        self._in_hand: dict[Place, int] = {}  # the first offset of what it got last, and is not done with
        self._stalled_until_s = 0.0
        self._has_ended = False
        self._tasks = Tasks(program)

    # -- its life

    def start(self) -> None:
        self._tasks.start(self._live())

    def stall(self, seconds: float) -> None:
        if self.program.chance.random() < OF_PROCESSES:
            cast("SimLoop", self.program.loop).stall(seconds)
        else:
            self._stalled_until_s = self.program.loop.time() + seconds

    def rejoin(self) -> None:
        """A static leader that was away may have missed new partitions: it says anew what it wants."""
        self._tasks.start(self.consumer.subscribe(*self.terms.topics))

    async def crash(self) -> None:
        """Ends without a word: nobody hears of it any more."""
        self._end(is_crash=True)
        await self._tasks.cancel()
        if self.consumer._reader is not None:
            await self.consumer._reader.cluster.close()
        await self.consumer.close()

    async def leave(self) -> None:
        """Ends as it should."""
        await self._tasks.cancel()
        self._in_hand.clear()
        await self.consumer.close()
        self._end(is_crash=False)

    def _end(self, *, is_crash: bool) -> None:
        self._has_ended = True
        program = self.program
        program.tell(history.MemberEnded(program.at_ms, program.name, self.terms.group, self._who()[0], is_crash))

    @property
    def may_commit(self) -> bool:
        reader = self.consumer._reader
        return reader is not None and reader.member is not None and reader.member.may_commit

    @property
    def commits(self) -> int:
        return self._offsets.commits if self._offsets is not None else 0

    def _who(self) -> tuple[str, int]:
        """Member id and generation."""
        reader = self.consumer._reader
        member = reader.member if reader is not None else None
        return (member.member_id, member.generation) if member is not None else ("", -1)

    # -- reading

    async def _live(self) -> None:
        await self._begin()
        committed_s = self.program.loop.time()
        while True:
            await self._awake()
            self._in_hand.clear()
            try:
                records = await self.poll()
            except KafkaError as error:
                if self._is_end(error):
                    return
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            for each in reversed(records):
                self._in_hand[Place(each.topic, each.partition)] = each.offset
            if records and self.program.chance.random() < LABORIOUS:
                await asyncio.sleep(self.program.chance.uniform(0, WORK_SECONDS_MAX))
            await self._awake()
            if not self.commits_itself and self.program.loop.time() - committed_s >= self.terms.commit_seconds:
                await self._commit()
                committed_s = self.program.loop.time()

    async def _begin(self) -> None:
        """Tries until somebody is there."""
        while True:
            try:
                await self.consumer.start()
            except KafkaError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                break
        offsets = self.consumer._running.offsets
        assert offsets is not None
        self._offsets = ToldOffsets(self.program, offsets, self._look_at_commit)
        await self.consumer.subscribe(*self.terms.topics)

    def _is_end(self, error: KafkaError) -> bool:
        """Whether the consumer is at its end, as it may only be when somebody else has its instance id."""
        if self.consumer._running.holding.end is None:
            return False
        if not isinstance(error, Fenced):
            raise error
        self.is_fenced = True
        return True

    async def _awake(self) -> None:
        while (left_s := self._stalled_until_s - self.program.loop.time()) > 0:  # noqa: ASYNC110 - it may be made to stall again
            await asyncio.sleep(left_s)

    def readings(self) -> dict[Place, Reading]:
        return {place: reading for place, reading in super().readings().items() if place in self.jumps}

    # -- commits

    async def _commit(self) -> None:
        """All that it has got."""
        self._in_hand.clear()
        held = dict(self.jumps)
        try:
            wanted = self.consumer.positions()
            await self.consumer.commit()
        except KafkaError:
            return
        assert self._offsets is not None
        for place, each in wanted.items():
            mine = Place(*place)
            if self.jumps.get(mine) == held.get(mine) is not None:
                known = self._offsets.acknowledged.get(mine)
                assert known == each.offset, f"{self.program.name} has committed {each.offset} of {place}, and {known} is"

    def _look_at_commit(self, offsets: dict[Place, int]) -> None:
        for place, offset in offsets.items():
            if offset > self._in_hand.get(place, offset):
                what = f"{self.program.name} has offset {self._in_hand[place]} of {place} in hand"
                self.program.failures.append(AssertionError(f"{what}, and {offset} is committed"))

    # -- what is its

    def _assigned(self, places: list[TopicPartition]) -> None:
        if self._has_ended:
            return
        program, (member, generation) = self.program, self._who()
        kept = [history.Position(place.topic, place.index) for place in sorted(self.jumps)]
        fresh = []
        assert self._offsets is not None
        for place in places:
            mine, reading = Place(*place), self.consumer._running.fetcher.readings[place]
            self.jumps[mine] = reading, reading.jumps
            self._offsets.acknowledged[mine] = reading.given
            fresh.append(history.Position(place.topic, place.partition, reading.given))
        self.rebalances += 1
        program.tell(history.Assigned(program.at_ms, program.name, fresh, kept, self.terms.group, member, generation))

    async def _revoked(self, places: list[TopicPartition]) -> None:
        if self._has_ended:
            return
        if not self.commits_itself:
            assert self._offsets is not None
            known = self._offsets.acknowledged
            with suppress(KafkaError):
                given = {place: each for place, each in self.consumer.positions().items() if place in places}
                await self.consumer.commit({place: each for place, each in given.items() if known[Place(*place)] != each.offset})
        self._tell_revoked(places, is_lost=False)

    def _lost(self, places: list[TopicPartition]) -> None:
        self._tell_revoked(places, is_lost=True)

    def _tell_revoked(self, places: list[TopicPartition], *, is_lost: bool) -> None:
        if self._has_ended:
            return
        for place in places:
            del self.jumps[Place(*place)]
            if is_lost:
                self._in_hand.pop(Place(*place), None)  # when it is given to it anew, that may begin behind it
        gone = [history.Position(*place) for place in places]
        program, (member, _) = self.program, self._who()
        program.tell(history.Revoked(program.at_ms, program.name, gone, self.terms.group, member, is_lost))

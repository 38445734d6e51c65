"""What members of all groups have in common: they read what they were given, commit it, and give it up.

How a member learns what is its is in classic.py and modern.py.

Invariants
 1. What is taken away is not read any more from that moment on, before anything is waited for; then it is committed.
 2. One commit is under way at a time, in the name of the generation in which it began.
 3. A member whose commit is refused because it is none any more has lost everything it had.
 4. A member that stalls does nothing at all until it goes on, and then goes on as if nothing had been.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from tests.checker import history
from tests.sim.clients.commits import Committed, Identity, commit, committed
from tests.sim.clients.connection import Lost
from tests.sim.clients.fetcher import UNKNOWN, Fetcher, Taste
from tests.sim.clients.processor import Processor
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks
from tests.sim.clients.view import BACK_OFF_SECONDS, View

IDLE_SECONDS: Final = 0.5
LAST_COMMITS: Final = 3  # attempts, before what is revoked is let go
FENCED: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class Terms(msgspec.Struct, frozen=True):
    """How a member was configured."""

    group: str
    topics: tuple[str, ...]
    protocol: str = "range"  # or "cooperative-sticky", or "consumer": the new one
    instance: str | None = None
    session_timeout_ms: int = 6000
    rebalance_timeout_ms: int = 8000
    heartbeat_seconds: float = 1.0
    commit_seconds: float = 0.5


class Member(ABC):
    def __init__(self, program: Program, taste: Taste, terms: Terms) -> None:
        self.program = program
        self.terms = terms
        self.view = View(program)
        self.fetcher = Fetcher(program, self.view, taste)
        self.member_id = ""
        self.generation = -1
        self.is_fenced = False  # another one has its instance id: it is over
        self.rebalances = 0
        self.commits = 0  # that were acknowledged
        self.processor: Processor | None = None  # commits offsets in transactions, with what is made of the records
        self._unsent: dict[Place, Committed] = {}  # read, and not known to be committed
        self._committed: dict[Place, tuple[int, bytes]] = {}  # as far as it knows: the offset, and of which topic
        self._committing = asyncio.Lock()
        self._stalled_until_s = 0.0
        self._tasks = Tasks(program)

    def process_by(self, processor: Processor) -> None:
        self.processor = processor
        self.fetcher.on_records, self.fetcher.transaction = processor.polled, processor.transaction

    # -- its life

    def start(self) -> None:
        self._tasks.start(self._read())
        self._belonging = self._tasks.start(self._belong())

    def stall(self, seconds: float) -> None:
        self._stalled_until_s = self.program.loop.time() + seconds

    def be_forsaken(self) -> None:
        """Is no more told what becomes of the group, and goes on with what it has."""
        self._belonging.cancel()
        program = self.program
        program.tell(history.MemberEnded(program.at_ms, program.name, self.terms.group, self.member_id, is_crash=True))

    def rejoin(self) -> None:
        """Commits all that it has read once more: a coordinator that had not heard yet that a topic was made anew may have taken
        the last commit by its name for the one that is gone. Where members share partitions out, has them do it anew: a static
        leader that was away may have missed new ones."""
        self._committed = {}

    async def crash(self) -> None:
        """Ends without a word."""
        await self._tasks.cancel()
        self.view.close()
        program = self.program
        program.tell(history.MemberEnded(program.at_ms, program.name, self.terms.group, self.member_id, is_crash=True))

    async def leave(self) -> None:
        """Ends as it should: commits, gives up, says so."""
        await self._tasks.cancel()
        await self.revoke(list(self.fetcher.positions))
        if not self.is_fenced:
            with suppress(Lost):
                await self._say_goodbye()
        self.view.close()
        program = self.program
        program.tell(history.MemberEnded(program.at_ms, program.name, self.terms.group, self.member_id))

    @abstractmethod
    async def _belong(self) -> None:
        """Be a member, for ever."""

    @abstractmethod
    async def _say_goodbye(self) -> None: ...

    @abstractmethod
    def _refused(self, code: ErrorCode) -> None:
        """A commit of the present generation was refused."""

    @property
    def records_read(self) -> int:
        return self.fetcher.records_read

    @property
    def may_commit(self) -> bool:
        return True

    @property
    def identity(self) -> Identity:
        return Identity(self.terms.group, self.member_id, self.generation, self.terms.instance)

    async def awake(self) -> None:
        while (left_s := self._stalled_until_s - self.program.loop.time()) > 0:  # noqa: ASYNC110 - it may be made to stall again
            await asyncio.sleep(left_s)

    async def pause(self, seconds: float = BACK_OFF_SECONDS) -> None:
        await asyncio.sleep(seconds)
        await self.awake()

    # -- reading

    async def _read(self) -> None:
        committed_s = self.program.loop.time()
        while not self.is_fenced:
            await self.awake()
            if not self.fetcher.positions:
                await self._look_again()
                await asyncio.sleep(IDLE_SECONDS)
                continue
            if self.processor is not None:
                await self.processor.ready()
            count = await self.fetcher.poll()
            await self.awake()
            self._note_read()
            if self._unsent and self.may_commit and self.program.loop.time() - committed_s >= self.terms.commit_seconds:
                await self.commit(dict(self._unsent))
                committed_s = self.program.loop.time()
            if not count:
                await asyncio.sleep(IDLE_SECONDS)

    async def _look_again(self) -> None:
        """Who reads nothing hears of topics by this alone, and may lead."""
        if self.view.is_stale:
            with suppress(Lost):
                await self.view.refresh(self.terms.topics)

    def _note_read(self) -> None:
        for place, position in self.fetcher.positions.items():
            if position.offset != UNKNOWN and self._committed.get(place) != (position.offset, position.topic_id):
                self._unsent[place] = Committed(position.offset, position.last_epoch, position.topic_id)

    async def commit(self, offsets: dict[Place, Committed]) -> ErrorCode:
        """What is of a topic that was made anew since is no longer."""
        async with self._committing:
            who, known = self.identity, self._committed  # which is another one when all is to be committed once more meanwhile
            offsets = {place: each for place, each in offsets.items() if not self._is_of_another(place, each)}
            if not offsets:
                return ErrorCode.NONE
            if self.processor is None:
                code = await commit(self.program, self.view, who, offsets)
            else:
                code = await self.processor.commit(who, offsets)
                self.is_fenced |= self.processor.is_over
            if code == ErrorCode.NONE:
                self.commits += 1
                for place, each in offsets.items():
                    known[place] = (each.offset, each.topic_id)
                    if self._unsent.get(place) == each:
                        del self._unsent[place]
            elif who == self.identity and self.may_commit:
                self._refused(code)
            return code

    def _is_of_another(self, place: Place, each: Committed) -> bool:
        return NIL_UUID != self.view.topic_id(place.topic) != each.topic_id != NIL_UUID

    # -- what is its

    @property
    def owned(self) -> list[Place]:
        return sorted(self.fetcher.positions)

    async def take(self, added: Iterable[Place]) -> None:
        """Reads these too, from what the group has committed on. Lost when nobody says what that is, or when they are not its any
        more by then."""
        fresh = sorted(set(added) - set(self.fetcher.positions))
        kept, who = self.owned, self.identity
        starts = await committed(self.program, self.view, who, fresh) if fresh else {}
        if who != self.identity:
            raise Lost(f"{who.member} is not in generation {who.generation} any more")
        program = self.program
        program.tell(
            history.Assigned(
                program.at_ms,
                program.name,
                fresh=[history.Position(each.topic, each.index, starts[each].offset) for each in fresh],
                kept=[history.Position(each.topic, each.index, self.fetcher.positions[each].offset) for each in kept],
                group=self.terms.group,
                member=self.member_id,
                generation=self.generation,
                ids=self._told_ids(starts, kept),
            )
        )
        self.rebalances += 1
        for place in fresh:
            self._committed[place] = (starts[place].offset, starts[place].topic_id)
            if self.processor is not None:
                self.processor.take(place)
            self.fetcher.begin(place, starts[place].offset, starts[place].epoch, starts[place].topic_id)

    def _told_ids(self, starts: dict[Place, Committed], kept: list[Place]) -> history.Ids:
        """Where both offsets and records are asked for by the ids of topics, and those of all partitions are the same."""
        ids = self.fetcher.told_ids(kept)
        for place, each in starts.items() if self.program.era.has_ids("Fetch", "OffsetFetch") else ():
            if ids.setdefault(place.topic, each.topic_id.hex()) != each.topic_id.hex():
                return {}
        return ids if not starts or self.program.era.has_ids("Fetch", "OffsetFetch") else {}

    async def revoke(self, places: list[Place]) -> None:
        """Gives these up: reads no more, commits what was read, as far as it can. Who leaves while it joins has heard of a
        generation at most, which the next coordinator need not know."""
        self._note_read()
        last = {place: self._unsent[place] for place in places if place in self._unsent}
        self._drop(places)
        for _ in range(LAST_COMMITS if last and self.may_commit else 0):
            code = await self.commit(last)
            if not code.retriable and code != ErrorCode.STALE_MEMBER_EPOCH:
                break
            await self.pause()
        self._tell_revoked(places, is_lost=False)

    def lose(self) -> None:
        """Everything was taken away."""
        places = self.owned
        self._drop(places)
        self._tell_revoked(places, is_lost=True)

    def _drop(self, places: list[Place]) -> None:
        for place in places:
            self.fetcher.forget(place)
            self._unsent.pop(place, None)

    def _tell_revoked(self, places: list[Place], *, is_lost: bool) -> None:
        if not places:
            return
        program = self.program
        gone = [history.Position(place.topic, place.index) for place in places]
        program.tell(history.Revoked(program.at_ms, program.name, gone, self.terms.group, self.member_id, is_lost))

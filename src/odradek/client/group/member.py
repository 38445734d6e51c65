"""What members of all groups have in common: topics they want, a life in tasks of their own, and patience with the program.

How a member learns what is its is in classic.py and modern.py.

Invariants
 1. A program that does not come back in time has its member leave the group; when it does come back, the member joins again.
 2. What ends a member for good is what every later step of the program raises.
 3. What a member does while it may be thrown out of the group is cut short when that happens.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from odradek.client.backoff import Backoff
from odradek.client.cluster import GROUP, LOST_COORDINATOR, Cluster
from odradek.client.errors import KafkaError, Refused, refused
from odradek.client.holding import Holding
from odradek.client.records import GroupMetadata
from odradek.wire.errors import ErrorCode, ProtocolError

LOOKS: Final = 8  # at the program, in the time that it may take
MISSING_SECONDS: Final = 1.0  # after which a topic that is not there is looked for again
LEAVE_TIMEOUT_MS: Final = 5_000


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a member was configured."""

    group: str
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rack: str = ""
    assignors: tuple[str, ...] = ()


class Wanted(msgspec.Struct, frozen=True):
    """Topics by name, or all whose whole names match a pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matching(self, cluster: Cluster) -> list[str]:
        """Those that are meant, and of a pattern those that are there."""
        if self.pattern is None:
            return sorted(self.topics)
        matches = re.compile(self.pattern).fullmatch
        return sorted(name for name, each in cluster.metadata.topics.items() if not each.is_internal and matches(name))


class FellOut(Exception):
    """It is no member any more, or not of this generation."""


class Member(ABC):
    def __init__(self, cluster: Cluster, holding: Holding, terms: Terms, wanted: Wanted) -> None:
        self.cluster = cluster
        self.holding = holding
        self.terms = terms
        self.wanted = wanted
        self.member_id = ""
        self.generation = -1
        timing = cluster.timing
        self.backoff = Backoff(timing.retry_backoff_ms, timing.retry_backoff_max_ms, cluster.machine.random)
        self.changed = asyncio.Event()  # there is something to do before the next heartbeat
        self.is_out = asyncio.Event()
        self.is_away = False  # the program
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def metadata(self) -> GroupMetadata:
        return GroupMetadata(self.terms.group, self.generation, self.member_id, self.terms.instance_id)

    # -- its life

    def start(self) -> None:
        self._want()
        self.cluster.on_metadata.append(self.look)
        self._tasks = [asyncio.create_task(work) for work in (self._live(), self._watch_program(), self._find_topics())]
        for task in self._tasks:
            task.add_done_callback(self.holding.hear)

    async def _live(self) -> None:
        try:
            await self.belong()
        except KafkaError as error:
            self.holding.stop(error)
        except ProtocolError as error:
            reason = f"what another member says cannot be read: {error}"
            self.holding.stop(refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason, group=self.terms.group))

    async def stop(self) -> None:
        """It does nothing any more, and is a member still."""
        if self.look in self.cluster.on_metadata:
            self.cluster.on_metadata.remove(self.look)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    async def leave(self) -> None:
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self.say_goodbye()
        self.generation = -1

    def change(self, wanted: Wanted) -> None:
        """Of what it wants."""
        self.wanted = wanted
        self._want()
        self.wanted_changed()
        self.changed.set()

    def _want(self) -> None:
        """What it has is kept up to date until it is given up."""
        held = [place.topic for place in self.holding.places]
        self.cluster.want(None if self.wanted.pattern is not None else [*self.wanted.topics, *held])

    @abstractmethod
    async def belong(self) -> None:
        """Be a member, for ever. KafkaError when that cannot be."""

    @abstractmethod
    async def say_goodbye(self) -> None: ...

    @abstractmethod
    def wanted_changed(self) -> None: ...

    @abstractmethod
    def fall_out(self) -> None:
        """Forgets what it was: the next thing it does is to join."""

    @abstractmethod
    def is_member(self) -> bool:
        """Whether it is in a generation, as far as it knows."""

    @property
    @abstractmethod
    def may_commit(self) -> bool: ...

    @abstractmethod
    async def ready(self) -> None:
        """Waits while commits would be refused."""

    @abstractmethod
    def look(self) -> None:
        """There are news of topics."""

    # -- patience

    async def _watch_program(self) -> None:
        limit_s = self.terms.max_poll_interval_ms / 1000
        while True:
            await asyncio.sleep(limit_s / LOOKS)
            if self.holding.away_s() >= limit_s:
                self.is_away = True
                self.is_out.set()
                self.changed.set()

    async def come_in_again(self) -> None:
        """Everything it had is gone. A program that has been away has to come back first."""
        is_away, self.is_away = self.is_away, False
        if is_away:
            await self.leave()
        self.fall_out()
        await self.holding.lose()
        if is_away:
            await self.holding.wait_back()
        self.is_out.clear()

    async def _find_topics(self) -> None:
        while True:
            await asyncio.sleep(MISSING_SECONDS)
            if self.wanted.pattern is None and any(name not in self.cluster.metadata.topics for name in self.wanted.topics):
                with suppress(KafkaError):
                    await self.cluster.refresh()

    # -- asking

    def judge(self, code: int, message: str | None = None) -> None:
        """Raises, unless all is well."""
        if code:
            error = refused(code, message, group=self.terms.group)
            if error.code in LOST_COORDINATOR:
                self.cluster.forget_coordinator(GROUP, self.terms.group)
            raise error

    async def unless_out(self, work: Coroutine[Any, Any, None]) -> None:
        """FellOut when that happens before the work is done."""
        working = asyncio.create_task(work)
        falling = asyncio.create_task(self.is_out.wait())
        try:
            await asyncio.wait([working, falling], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, falling):
                task.cancel()
            await asyncio.wait([working, falling])
        if working.cancelled():
            raise FellOut
        working.result()

    async def wait_changed(self, seconds_max: float | None = None) -> None:
        """Until there is something to do, but not longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self.changed.wait()

    async def wait_before_retry(self) -> None:
        await asyncio.sleep(self.backoff.next_ms() / 1000)


def is_fatal(error: KafkaError) -> bool:
    return isinstance(error, Refused) and not error.is_retriable and error.code not in NOT_FATAL


NOT_FATAL: Final = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)

"""The way to a cluster: connections to its brokers, what is known of it, and requests that are tried until they succeed.

    cluster = Cluster(["127.0.0.1:9092"], client_id="me")
    answer = await cluster.ask_any(request, ResponseClass)
    await cluster.close()

A broker handles the requests of one connection one after the other. What waits there for long, a fetch or a join, has a lane of
its own: another connection to the same broker.

Invariants
 1. There is one connection to a broker and lane, and one attempt to make it; who waits for it may go, and spoils it for nobody.
 2. One metadata request is under way at a time. Who wants newer news than that will bring waits for the next one.
 3. Everything that is tried again waits longer each time, and ends at its deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from odradek.client.backoff import Backoff
from odradek.client.connection import Connection
from odradek.client.errors import Closed, InvalidOption, KafkaError, TimedOut, Unreachable, refused
from odradek.client.machine import Machine
from odradek.client.metadata import NO_NODE, Broker, Metadata, TopicInfo
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, MetadataResponse

DEFAULT_PORT: Final = 9092
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
BATCHED_COORDINATORS_SINCE: Final = 4
AUTO_CREATION_SINCE: Final = 4
FIRST_RECONNECT_MS: Final = 20
LOST_COORDINATOR: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)

Result = TypeVar("Result")
Answer = TypeVar("Answer", bound=Message)
Address = tuple[str, int]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take: `request_timeout_ms` is for one request to one broker, `default_timeout_ms` for a call with all
    its tries."""

    request_timeout_ms: int = 30_000
    default_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000

    @classmethod
    def of(cls, options: object) -> "Timing":
        """That of options with the same names."""
        return cls(**{name: getattr(options, name) for name in cls.__struct_fields__})


class Cluster:
    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "odradek",
        timing: Timing | None = None,
        machine: Machine | None = None,
        auto_creates: bool = False,
    ) -> None:
        """`auto_creates`: a topic that is asked for may be created by that, if the cluster does so."""
        self.bootstrap = addresses(bootstrap)
        self.client_id = client_id
        self.timing = timing or Timing()
        self.machine = machine or Machine()
        self.auto_creates = auto_creates
        self.loop = asyncio.get_running_loop()
        self.metadata = Metadata()
        self.wanted: dict[str, None] | None = {}  # topics; None: all that there are
        self.on_metadata: list[Callable[[], None]] = []  # called when there are news
        self.is_closed = False
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._connecting: dict[tuple[Address, str], asyncio.Task[Connection]] = {}
        self._backoffs: dict[Address, tuple[Backoff, float]] = {}  # of those that could not be connected to: not before when
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_s = -1.0
        self._aging: asyncio.TimerHandle | None = None

    # -- connections

    def connected(self, node: int, lane: str = "") -> Connection | None:
        """The connection to a broker, if there is one now."""
        broker = self.metadata.brokers.get(node)
        found = self._connections.get(((broker.host, broker.port), lane)) if broker is not None else None
        return found if found is not None and found.is_open else None

    async def connection(self, node: int, lane: str = "") -> Connection:
        broker = self.metadata.brokers.get(node)
        if broker is None:
            raise Unreachable(f"broker {node} is not known", was_sent=False)
        return await self._connection((broker.host, broker.port), lane)

    async def _connection(self, address: Address, lane: str = "") -> Connection:
        self.check_open()
        place = (address, lane)
        found = self._connections.get(place)
        if found is not None and found.is_open:
            return found
        connecting = self._connecting.get(place)
        if connecting is None:
            connecting = self._connecting[place] = self.loop.create_task(self._connect(address, lane))
            connecting.add_done_callback(lambda _: self._connecting.pop(place, None))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():  # by `close`
                raise Closed("the client was closed") from None
            connecting.add_done_callback(forget_failure)
            raise

    async def _connect(self, address: Address, lane: str) -> Connection:
        host, port = address
        backoff, not_before_s = self._backoffs.get(address, (self._backoff(FIRST_RECONNECT_MS), 0.0))
        if not_before_s > self.loop.time():
            await asyncio.sleep(not_before_s - self.loop.time())
        connection = Connection(self.machine, host, port, self.client_id, self._lost)
        try:
            await connection.connect(self.timing.connect_timeout_ms)
        except Unreachable:
            self._backoffs[address] = (backoff, self.loop.time() + backoff.next_ms() / 1000)
            raise
        self._backoffs.pop(address, None)
        self._connections[address, lane] = connection
        return connection

    def _lost(self, lost: Connection) -> None:
        for place, each in [*self._connections.items()]:
            if each is lost:
                del self._connections[place]

    def _backoff(self, first_ms: float | None = None) -> Backoff:
        timing = self.timing
        return Backoff(first_ms or timing.retry_backoff_ms, timing.retry_backoff_max_ms, self.machine.random)

    async def any_connection(self) -> Connection:
        """To whichever broker is the easiest to reach; to where it all began, when none that is known can be reached."""
        self.check_open()
        brokers = [(each.host, each.port) for each in self.metadata.brokers.values()]
        open_ones = [each for (_, lane), each in self._connections.items() if not lane and each.is_open]
        if open_ones:
            return min(open_ones, key=lambda each: each.under_way)
        self.machine.random.shuffle(brokers)
        now_s = self.loop.time()
        failed: KafkaError | None = None
        candidates = list(dict.fromkeys([*brokers, *self.bootstrap]))
        for address in sorted(candidates, key=lambda each: max(self._backoffs.get(each, (None, 0.0))[1], now_s)):
            try:
                return await self._connection(address)
            except Unreachable as error:
                failed = error
        raise failed or Unreachable("no broker is known", was_sent=False)

    # -- asking

    async def ask(
        self,
        node: int,
        request: Message,
        response: type[Answer],
        *,
        timeout_ms: float | None = None,
        lane: str = "",
        newest: int | None = None,
    ) -> Answer:
        """One request to one broker; its answer, whatever that says, or Unreachable."""
        connection = self.connected(node, lane) or await self.connection(node, lane)
        return await connection.post(request, response, timeout_ms or self.timing.request_timeout_ms, newest)

    async def ask_any(self, request: Message, response: type[Answer], *, timeout_ms: float | None = None) -> Answer:
        """One request to any broker."""
        connection = await self.any_connection()
        return await connection.post(request, response, timeout_ms or self.timing.request_timeout_ms)

    async def insist(self, what: str, attempt: Callable[[], Awaitable[Result]], timeout_ms: float | None = None) -> Result:
        """Tries until it succeeds, or fails in a way that will not pass; TimedOut when it takes too long."""
        timeout_ms = self.timing.default_timeout_ms if timeout_ms is None else timeout_ms
        end_s = self.loop.time() + timeout_ms / 1000
        backoff = self._backoff()
        last: KafkaError | None = None
        while True:
            self.check_open()
            try:
                async with asyncio.timeout_at(end_s):
                    return await attempt()
            except TimeoutError:
                reason: KafkaError | None = last
            except KafkaError as error:
                if not error.is_retriable or isinstance(error, TimedOut):
                    raise
                reason = last = error
            wait_s = backoff.next_ms() / 1000
            if self.loop.time() + wait_s >= end_s:
                because = f": {reason}" if reason is not None else ""
                raise TimedOut(f"{what} did not succeed within {timeout_ms:.0f} ms{because}") from reason
            await asyncio.sleep(wait_s)

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("the client was closed")

    # -- metadata

    async def topic(self, name: str, timeout_ms: float | None = None) -> TopicInfo:
        """A topic with its partitions; waits for one that is about to be there."""
        found = self.metadata.topics.get(name)
        if found is not None:
            return found
        if self.wanted is not None:
            self.wanted[name] = None

        async def attempt() -> TopicInfo:
            await self.refresh()
            known = self.metadata.topics.get(name)
            if known is None:
                raise refused(self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic=name)
            return known

        return await self.insist(f"to find topic {name}", attempt, timeout_ms)

    def want(self, topics: Iterable[str] | None) -> None:
        """From now on these are kept up to date, and no others; None: all of the cluster's."""
        self.wanted = None if topics is None else dict.fromkeys(topics)
        if self.wanted is not None:
            self.metadata.keep(self.wanted)

    async def refresh(self) -> None:
        """Asks a broker what there is. Unreachable when none answers."""
        self.check_open()
        if self._refreshing is not None:  # it may have been asked before what is wanted now was known
            await self._settled(self._refreshing)
        await self._settled(self.refresh_soon())

    async def _settled(self, refreshing: "asyncio.Task[None]") -> None:
        await asyncio.wait([refreshing])
        if refreshing.cancelled():
            raise Closed("the client was closed")
        refreshing.result()

    def refresh_soon(self) -> "asyncio.Task[None]":
        """The same, for who need not wait."""
        if self._refreshing is None:
            self._refreshing = self.loop.create_task(self._refresh())
            self._refreshing.add_done_callback(forget_failure)
        return self._refreshing

    async def _refresh(self) -> None:
        try:
            wait_s = self._refreshed_s + self.timing.retry_backoff_ms / 1000 - self.loop.time()
            if self._refreshed_s >= 0 and wait_s > 0:
                await asyncio.sleep(wait_s)
            wanted = None if self.wanted is None else [*self.wanted]
            await self._ask_metadata(wanted)
        finally:
            self._refreshing = None
            self._age()

    async def _ask_metadata(self, topics: list[str] | None) -> None:
        connection = await self.any_connection()
        kind = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None if topics is None else [kind(name=name) for name in topics],
            allow_auto_topic_creation=self.auto_creates or connection.version(MetadataRequest.schema.key) < AUTO_CREATION_SINCE,
        )
        response = await connection.post(request, MetadataResponse, self.timing.request_timeout_ms)
        self._refreshed_s = self.loop.time()
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self.metadata.brokers.clear()
            raise refused(response.error_code)
        self.metadata.take(response)
        if topics is None:
            self.metadata.keep(each.name for each in response.topics if each.name is not None)
        for tell in [*self.on_metadata]:
            tell()

    def _age(self) -> None:
        if self._aging is not None:
            self._aging.cancel()
        if not self.is_closed:
            self._aging = self.loop.call_later(self.timing.metadata_max_age_ms / 1000, self.refresh_soon)

    def learn_leader(self, topic: str, partition: int, leader: int, leader_epoch: int, brokers: Iterable[Broker] = ()) -> None:
        """What the answer of a broker that does not lead a partition says of who does."""
        self.metadata.learn_brokers(brokers)
        if not self.metadata.learn_leader(topic, partition, leader, leader_epoch):
            self.refresh_soon()

    # -- coordinators

    async def coordinator(self, kind: int, name: str) -> int:
        """The broker that coordinates a group, or a transactional id."""
        known = self._coordinators.get((kind, name))
        if known is not None and known in self.metadata.brokers:
            return known
        connection = await self.any_connection()
        version = connection.version(FindCoordinatorRequest.schema.key)
        if version >= BATCHED_COORDINATORS_SINCE:
            answer = await self.ask_any(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), FindCoordinatorResponse)
            found = answer.coordinators[0]
            code, reason, node, host, port = found.error_code, found.error_message, found.node_id, found.host, found.port
        else:
            answer = await self.ask_any(FindCoordinatorRequest(key_type=kind, key=name), FindCoordinatorResponse)
            code, reason, node, host, port = answer.error_code, answer.error_message, answer.node_id, answer.host, answer.port
        if code:
            group, transactional_id = (name, None) if kind == GROUP else (None, name)
            raise refused(code, reason, group=group, transactional_id=transactional_id)
        if node == NO_NODE:
            raise refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._coordinators[kind, name] = node
        if node not in self.metadata.brokers:
            self.metadata.learn_brokers([Broker(node, host, port)])
        return node

    def forget_coordinator(self, kind: int, name: str) -> None:
        self._coordinators.pop((kind, name), None)

    async def ask_coordinator(
        self,
        kind: int,
        name: str,
        request: Message,
        response: type[Answer],
        *,
        timeout_ms: float | None = None,
        lane: str = "coordinator",
        newest: int | None = None,
    ) -> Answer:
        """One request to the coordinator of a name. Who hears NOT_COORDINATOR in the answer calls `forget_coordinator`."""
        node = await self.coordinator(kind, name)
        try:
            return await self.ask(node, request, response, timeout_ms=timeout_ms, lane=lane, newest=newest)
        except Unreachable:
            self.forget_coordinator(kind, name)
            raise

    # -- the end

    async def close(self) -> None:
        self.is_closed = True
        if self._aging is not None:
            self._aging.cancel()
        tasks = [*self._connecting.values(), *([self._refreshing] if self._refreshing is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in [*self._connections.values()]:
            connection.close("the client was closed")
        self._connections.clear()


def addresses(bootstrap: str | Sequence[str]) -> list[Address]:
    """Of `host`, `host:port` or `[::1]:port`, one or many, or several in one text with commas between them."""
    texts = bootstrap.split(",") if isinstance(bootstrap, str) else [part for text in bootstrap for part in text.split(",")]
    found = [address(text.strip()) for text in texts if text.strip()]
    if not found:
        raise InvalidOption("bootstrap names no broker: give at least one as host:port")
    return found


def address(text: str) -> Address:
    text = text.rpartition("://")[2]  # some write the protocol of the listener before it
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidOption(f"{text!r} is no broker's address: it is written host:port")
    return host.strip("[]"), int(port)


def forget_failure(task: "asyncio.Future[Any]") -> None:
    """Nobody need hear of it: what failed is tried again by whoever needs it."""
    if not task.cancelled():
        task.exception()

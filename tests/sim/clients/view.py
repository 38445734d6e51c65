"""What one client knows of the cluster: brokers, leaders, coordinators, and a connection to each when it needs one.

Invariants
 1. Of a partition the leader of the highest epoch is known; metadata that is older changes nothing, unless the topic is another.
 2. There is one connection to a node for each purpose: a request that waits there holds up nothing of another purpose.
 3. A topic that was asked for once is always asked for from then on, also when it is not there: it may be made, or made anew.
 4. Nothing is tried again here but the question for metadata, which any broker can answer: who asks knows what may be repeated.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
)
from tests.sim.clients.connection import Connection, Lost, open_connection
from tests.sim.clients.program import Address, Place, Program

CONNECT_SECONDS_MAX: Final = 5.0
REQUEST_SECONDS_MAX: Final = 5.0
BACK_OFF_SECONDS: Final = 0.1
STALE_SECONDS: Final = 10.0  # metadata.max.age.ms: a client looks again, also when all goes well
FIRST_MANY_KEYS: Final = 4  # of FindCoordinator
OF_A_GROUP: Final = 0
OF_TRANSACTIONS: Final = 1

Answer = TypeVar("Answer", bound=Message)


class Led(msgspec.Struct):
    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]


class Topic(msgspec.Struct):
    id: bytes
    partitions: dict[int, Led]


class View:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, Topic] = {}
        self.coordinators: dict[str, int] = {}
        self.refreshed = 0  # how often
        self._wanted: set[str] = set()  # topics that were asked for
        self._refreshed_s = -STALE_SECONDS
        self._refreshing = asyncio.Lock()
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Lock] = {}

    def close(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()

    # -- connections

    async def connection(self, node: int, purpose: str) -> Connection:
        address = self.brokers.get(node)
        if address is None:
            raise Lost(f"node {node} is not known")
        place = (node, purpose)
        async with self._connecting.setdefault(place, asyncio.Lock()):
            found = self._connections.get(place)
            if found is None or not found.is_open:
                found = await open_connection(self.program.machine, *address, self.program.name, CONNECT_SECONDS_MAX)
                self._connections[place] = found
        return found

    async def ask(
        self, node: int, purpose: str, request: Message, response: type[Answer], seconds_max: float = REQUEST_SECONDS_MAX
    ) -> Answer:
        """The answer in the era's version; Lost when there is none."""
        connection = await self.connection(node, purpose)
        version = self.version(request, connection)
        return await connection.ask(request, version, response, seconds_max)

    def version(self, request: type[Message] | Message, connection: Connection) -> int:
        return self.program.era.version(request, connection.versions)

    # -- metadata

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Asks any broker once; Lost when none of them answers. Whoever waits for a refresh under way has it for its own."""
        before = self.refreshed
        self._wanted.update(topics or ())
        async with self._refreshing:
            if self.refreshed != before:
                return
            kind = MetadataRequest.MetadataRequestTopic
            request = MetadataRequest(topics=[kind(name=name) for name in sorted(self._wanted)], allow_auto_topic_creation=False)
            self._take(await self._ask_any(request))
            self.refreshed += 1
            self._refreshed_s = self.program.loop.time()

    async def look(self, node: int, topic: str) -> None:
        """Takes what this node knows of a topic, which it may have answered for by its name."""
        kind = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[kind(name=topic)], allow_auto_topic_creation=False)
        self._take(await self.ask(node, "metadata", request, MetadataResponse))

    @property
    def is_stale(self) -> bool:
        return self.program.loop.time() - self._refreshed_s > STALE_SECONDS

    async def _ask_any(self, request: MetadataRequest) -> MetadataResponse:
        known = sorted(self.brokers)
        self.program.chance.shuffle(known)
        for node in known:
            try:
                return await self.ask(node, "metadata", request, MetadataResponse)
            except Lost:
                continue
        first = list(self.program.bootstrap)
        self.program.chance.shuffle(first)
        for host, port in first:
            try:
                connection = await open_connection(self.program.machine, host, port, self.program.name, CONNECT_SECONDS_MAX)
            except Lost:
                continue
            try:
                version = self.version(request, connection)
                return await connection.ask(request, version, MetadataResponse, REQUEST_SECONDS_MAX)
            except Lost:
                continue
            finally:
                connection.close()
        raise Lost("no broker tells metadata")

    def _take(self, answer: MetadataResponse) -> None:
        self.brokers = {each.node_id: (each.host, each.port) for each in answer.brokers} or self.brokers
        for found in answer.topics:
            name = found.name
            if name is None or found.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                continue
            if found.error_code:
                self.topics.pop(name, None)
                continue
            topic = self.topics.get(name)
            if topic is None or topic.id != found.topic_id:
                topic = self.topics[name] = Topic(found.topic_id, {})
            for each in found.partitions:
                led = topic.partitions.get(each.partition_index)
                if led is None or each.leader_epoch >= led.epoch or each.leader_epoch == -1:
                    led = Led(each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes)
                    topic.partitions[each.partition_index] = led

    def heard(
        self,
        place: Place,
        current: ProduceResponse.LeaderIdAndEpoch | FetchResponse.LeaderIdAndEpoch,
        endpoints: list[ProduceResponse.NodeEndpoint] | list[FetchResponse.NodeEndpoint],
    ) -> None:
        """What an answer that refuses says of who leads instead (KIP-951)."""
        topic = self.topics.get(place.topic)
        known = topic.partitions.get(place.index) if topic else None
        if known is None or current.leader_id < 0 or current.leader_epoch <= known.epoch:
            return
        for each in endpoints:
            self.brokers[each.node_id] = (each.host, each.port)
        known.leader, known.epoch = current.leader_id, current.leader_epoch

    async def any_broker(self) -> int:
        """Lost when none is told."""
        if not self.brokers:
            await self.refresh()
        if not self.brokers:
            raise Lost("no broker is let into the cluster yet")
        return self.program.chance.choice(sorted(self.brokers))

    async def led(self, place: Place) -> Led:
        """Who leads a partition, as far as is known. Lost when nobody is."""
        if self.is_stale or self.known(place) is None:
            await self.refresh([place.topic])
        found = self.known(place)
        if found is None or found.leader not in self.brokers:
            raise Lost(f"{place.topic}-{place.index} has no leader that is known")
        return found

    def known(self, place: Place) -> Led | None:
        topic = self.topics.get(place.topic)
        found = topic.partitions.get(place.index) if topic else None
        return found if found is not None and found.leader >= 0 else None

    def topic_id(self, name: str) -> bytes:
        return self.topics[name].id if name in self.topics else NIL_UUID

    def told_id(self, name: str) -> str:
        """As a history tells it; none where it is not known."""
        return self.topics[name].id.hex() if self.topic_id(name) != NIL_UUID else ""

    def topic_ids(self, names: Iterable[str], *, is_told: bool) -> dict[str, bytes]:
        """As they are known now: when an answer comes they may not be. Lost when a request tells ids, and one is not known."""
        found = {name: self.topic_id(name) for name in names}
        if is_told and NIL_UUID in found.values():
            raise Lost(f"the ids of {sorted(found)} are not all known")
        return found

    def topic_name(self, topic_id: bytes) -> str:
        return next((name for name, topic in self.topics.items() if topic.id == topic_id), "")

    # -- coordinators

    async def coordinator(self, group: str, key_type: int = OF_A_GROUP) -> int:
        """The node of the coordinator of a group, or of a transactional id. Lost when nobody says."""
        if group not in self.coordinators:
            connection = await self.connection(await self.any_broker(), "metadata")
            version = self.version(FindCoordinatorRequest, connection)
            request = FindCoordinatorRequest(key=group, key_type=key_type)
            if version >= FIRST_MANY_KEYS:
                request = FindCoordinatorRequest(coordinator_keys=[group], key_type=key_type)
            answer = await connection.ask(request, version, FindCoordinatorResponse, REQUEST_SECONDS_MAX)
            found = answer.coordinators[0] if version >= FIRST_MANY_KEYS else answer
            if found.error_code:
                raise Lost(f"the coordinator of {group}: {ErrorCode(found.error_code).name}")
            self.brokers[found.node_id] = (found.host, found.port)
            self.coordinators[group] = found.node_id
        return self.coordinators[group]

    async def ask_coordinator(
        self, group: str, request: Message, response: type[Answer], seconds_max: float = REQUEST_SECONDS_MAX
    ) -> Answer:
        """Of whoever coordinates the group. One that cannot be reached is looked for again next time."""
        node = await self.coordinator(group)
        try:
            return await self.ask(node, f"group {group}", request, response, seconds_max)
        except Lost:
            self.coordinators.pop(group, None)
            raise

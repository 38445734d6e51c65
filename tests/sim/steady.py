"""A small cluster at peace: topics with records, groups with members and offsets. What tests of the simulator itself break."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
    ProduceResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.wire.records import Record, build
from tests.log.disk import SimDisk
from tests.sim.clients.connection import Connection, open_connection
from tests.sim.cluster import SimCluster
from tests.sim.loop import SimLoop, World
from tests.sim.machine import BEGIN_MS, SimMachine, WallClock

START_SECONDS: Final = 5.0
STORY_SECONDS_MAX: Final = 30.0
TIMEOUT_SECONDS: Final = 5.0
CLIENT_HOST: Final = "10.1.0.1"
BATCHES: Final = 20
TOPICS: Final = {"t": {}, "compacted": {"cleanup.policy": "compact"}}

Answer = TypeVar("Answer", bound=Message)


class Client:
    """Asks one broker after the other, and takes no for an answer."""

    def __init__(self, cluster: SimCluster, machine: SimMachine) -> None:
        self.cluster = cluster
        self.machine = machine
        self.connections: dict[int, Connection] = {}

    async def ask(self, node: int, request: Message, version: int, response: type[Answer]) -> Answer:
        if node not in self.connections:
            address = self.cluster.members[node].address
            self.connections[node] = await open_connection(self.machine, *address, "steady", TIMEOUT_SECONDS)
        return await self.connections[node].ask(request, version, response, TIMEOUT_SECONDS)

    async def create(self, topic: str, partitions: int, **configs: str) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=-1,
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        answer = await self.ask(1, CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0]

    def leader(self, topic: str, index: int) -> int:
        (found,) = [number for number, node in self.cluster.nodes.items() if index in node.partitions.by_name.get(topic, {})]
        return found

    async def produce(self, topic: str, index: int, *pairs: tuple[bytes, bytes]) -> None:
        rows = [Record(number, BEGIN_MS, key, value) for number, (key, value) in enumerate(pairs)]
        data = ProduceRequest.PartitionProduceData(index=index, records=build(rows))
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)
        answer = await self.ask(self.leader(topic, index), request, 9, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    async def coordinator(self, group: str) -> int:
        while True:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            answer = (await self.ask(1, request, 4, FindCoordinatorResponse)).coordinators[0]
            if answer.error_code == ErrorCode.NONE:
                return answer.node_id
            await asyncio.sleep(0.1)

    async def commit(self, group: str, offset: int) -> None:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=topics)
        while True:
            answer = await self.ask(await self.coordinator(group), request, 8, OffsetCommitResponse)
            if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.1)

    async def join_classic(self, group: str) -> None:
        node = await self.coordinator(group)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, protocol_type="consumer", protocols=[protocol]
        )
        joined = await self.ask(node, request, 3, JoinGroupResponse)
        assert joined.error_code == ErrorCode.NONE
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        )
        synced = await self.ask(node, sync, 3, SyncGroupResponse)
        assert synced.assignment == b"all"

    async def join_consumer(self, group: str) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="A" * 22,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        answer = await self.ask(await self.coordinator(group), request, 1, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == ErrorCode.NONE, answer


async def live(client: Client) -> None:
    for topic, configs in TOPICS.items():
        await client.create(topic, 2, **configs)
    await asyncio.sleep(1)
    for number in range(BATCHES):
        for topic in TOPICS:
            await client.produce(topic, number % 2, (b"key %d" % (number % 5), b"value %d" % number))
    await client.commit("simple", 7)
    await client.join_classic("classic")
    await client.join_consumer("consumer")
    await asyncio.sleep(1)


def tell(cluster: SimCluster, story: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Runs a client to its end. What it raises is raised here."""
    loop = SimLoop(cluster.world, f"client {cluster.world.now_s}")
    cluster.network.power_on(CLIENT_HOST)
    machine = SimMachine(cluster.network, loop, CLIENT_HOST, WallClock(), SimDisk)
    task = loop.run_soon(story(Client(cluster, machine)))
    cluster.world.run(cluster.world.now_s + STORY_SECONDS_MAX, task.done)
    assert task.done(), "the client is not answered"
    task.result()


def steady_cluster(count: int = 3, seed: str = "steady", **settings: str) -> SimCluster:
    """Of which nothing is wrong."""
    cluster = SimCluster(World(seed), count, {key.replace("_", "."): value for key, value in settings.items()})
    cluster.start()
    cluster.world.run(START_SECONDS)
    assert len(cluster.nodes) == count
    tell(cluster, live)
    return cluster

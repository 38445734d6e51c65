"""The wall clock is set forward by more than a day, or back: retention goes by it, and nothing else ends before its time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.log.disk import RealDisk
from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.node.reserve import RESERVE_BYTES
from odradek.wire.batch import read_header
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from odradek.wire.records import Record, build
from tests.node.inside import Client, connected, fetch_request, new_node, running, until

OK = ErrorCode.NONE
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Clock(Machine):
    """A machine whose wall clock can be set."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def play(folder: Path, scenario: Callable[[Node, Clock, Client], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def run() -> None:
        clock = Clock()
        node = new_node(folder, RealDisk, RESERVE_BYTES, clock, **settings)
        async with running(node), connected(node) as client:
            await scenario(node, clock, client)

    asyncio.run(run())


async def produce(client: Client, clock: Clock, topic: str, sequence: int) -> tuple[ErrorCode, int]:
    """One record of an idempotent producer, made now; gives its offset."""
    batch = build([Record(0, clock.wall_ms(), b"key", b"value")], producer_id=7, producer_epoch=0, base_sequence=sequence)
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9, ProduceResponse)
    (found,) = answer.responses[0].partition_responses
    return ErrorCode(found.error_code), found.base_offset


async def join(client: Client, group: str) -> JoinGroupResponse:
    """The only member of a group, which has its part of it."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=HOUR_MS // 60,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = await client.ask(request, 5, JoinGroupResponse)
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request.member_id = joined.member_id
    joined = await client.ask(request, 5, JoinGroupResponse)
    assert not joined.error_code
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
    )
    assert not (await client.ask(sync, 3, SyncGroupResponse)).error_code
    return joined


async def commit(client: Client, group: str) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name="things", partitions=[partition])]
    answer = await client.ask(OffsetCommitRequest(group_id=group, topics=topics), 7, OffsetCommitResponse)
    assert not answer.topics[0].partitions[0].error_code


async def committed(client: Client, group: str) -> int:
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="things", partition_indexes=[0])]
    answer = await client.ask(OffsetFetchRequest(group_id=group, topics=topics), 5, OffsetFetchResponse)
    return answer.topics[0].partitions[0].committed_offset


@pytest.mark.parametrize("jump_ms", [DAY_MS + HOUR_MS, -DAY_MS])
def test_nothing_ends_but_what_retention_ends(tmp_path: Path, jump_ms: int) -> None:
    async def scenario(node: Node, clock: Clock, client: Client) -> None:
        assert await client.create("things", retention_ms="-1") == OK
        assert await client.create("brief", retention_ms=str(HOUR_MS)) == OK
        for topic in ("things", "brief"):
            assert await produce(client, clock, topic, 0) == (OK, 0)
        await client.ask(FindCoordinatorRequest(key="group"), 2, FindCoordinatorResponse)
        await node.followed()
        joined = await join(client, "group")
        await commit(client, "other")
        async with connected(node) as reader:
            reader.send(fetch_request("things", 1, max_wait_ms=10 * DAY_MS), 12)
            await until(lambda: bool(node.partitions.by_name["things"][0].readers))
            clock.ahead_ms = jump_ms
            node.background.expire()
            assert bool(node.partitions.by_name["things"][0].readers)
            request = HeartbeatRequest(group_id="group", generation_id=joined.generation_id, member_id=joined.member_id)
            assert not (await client.ask(request, 3, HeartbeatResponse)).error_code
            assert await committed(client, "other") == 1
            assert not node.image.brokers[1].fenced
            assert await produce(client, clock, "things", 0) == (OK, 0)  # which is known as the same again
            assert await produce(client, clock, "things", 1) == (OK, 1)
            assert len((await reader.receive(FetchResponse, 12)).responses[0].partitions[0].records or b"") > 0
        assert len(await client.fetch("things")) == 2
        assert node.partitions.by_name["brief"][0].log_start == (1 if jump_ms > 0 else 0)

    play(tmp_path, scenario)


def test_flush_ms_holds_also_when_the_clock_was_set_back(tmp_path: Path) -> None:
    async def scenario(node: Node, clock: Clock, client: Client) -> None:
        assert await client.create("things", flush_ms="1000") == OK
        clock.ahead_ms = -DAY_MS
        assert await produce(client, clock, "things", 0) == (OK, 0)
        node.background.flush()
        log = node.partitions.by_name["things"][0].log
        await until(lambda: log.recovery_point == log.end_offset)

    play(tmp_path, scenario)


def test_a_batch_that_waits_for_its_coordinator_is_not_forgotten_when_the_clock_is_set_back(tmp_path: Path) -> None:
    async def scenario(node: Node, clock: Clock, client: Client) -> None:
        assert await client.create("things") == OK
        clock.ahead_ms = -2 * DAY_MS
        partition = node.partitions.by_name["things"][0]
        verification = partition.verify(7, 0, 0, is_adding=True)
        node.background.expire()
        batch = build(
            [Record(0, clock.wall_ms(), None, b"value")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        assert partition.append(batch, read_header(batch), clock.wall_ms(), verification=verification).first_offset == 0

    play(tmp_path, scenario)

"""What a reader is told whose last epoch ends elsewhere in its log than in ours."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from odradek.core.partition.broker_session import NEVER_MS
from odradek.core.partition.follower import Follower
from odradek.node.readable import FollowedPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FetchResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from tests.node.inside import Client, connected, fetch_request, new_node, running


async def fetched(client: Client, offset: int, last_fetched_epoch: int) -> FetchResponse.PartitionData:
    request = fetch_request("orders", offset)
    request.topics[0].partitions[0].last_fetched_epoch = last_fetched_epoch
    answer = await client.ask(request, 12, FetchResponse)
    partition: FetchResponse.PartitionData = answer.responses[0].partitions[0]
    return partition


def test_an_offset_that_is_gone_is_out_of_range_even_where_epochs_part(tmp_path: Path) -> None:
    """Otherwise a follower would cut its log to what the leader no longer has, again and again."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", *[b"x"] * 10) == ErrorCode.NONE
            partition = node.partitions.by_name["orders"][0]
            partition.log.epochs.assign(5, 10)  # others led in between
            told = await fetched(client, 2, 3)
            assert (told.error_code, told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (ErrorCode.NONE, 0, 10)
            partition.move_start(4)
            assert (await fetched(client, 2, 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await fetched(client, 6, 3)).diverging_epoch.epoch == 0

    asyncio.run(run())


def test_a_session_tells_the_high_watermark_after_it_told_where_logs_part(tmp_path: Path) -> None:
    """Who cuts its log takes no offsets from that answer; without records to come, it would not hear of them for long."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", *[b"x"] * 10) == ErrorCode.NONE
            node.partitions.by_name["orders"][0].log.epochs.assign(5, 10)
            first = fetch_request("orders", 10)
            first.session_epoch, first.topics[0].partitions[0].last_fetched_epoch = 0, 3
            told = await client.ask(first, 12, FetchResponse)
            assert told.responses[0].partitions[0].diverging_epoch.end_offset == 10
            again = fetch_request("orders", 10)
            again.session_id, again.session_epoch, again.max_wait_ms = told.session_id, 1, 0
            again.topics[0].partitions[0].last_fetched_epoch = 0
            answer = await client.ask(again, 12, FetchResponse)
            assert answer.responses[0].partitions[0].high_watermark == 10

    asyncio.run(run())


def test_a_leader_of_the_past_denies_nothing(tmp_path: Path) -> None:
    """Who leads now may have what it does not have: a reader that went back for it would process everything again."""

    async def end_of_epoch(client: Client, epoch: int) -> OffsetForLeaderEpochResponse.EpochEndOffset:
        partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="orders", partitions=[partition])
        answer = await client.ask(OffsetForLeaderEpochRequest(topics=[topic]), 3, OffsetForLeaderEpochResponse)
        found: OffsetForLeaderEpochResponse.EpochEndOffset = answer.topics[0].partitions[0]
        return found

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            assert await client.produce("orders", *[b"x"] * 10) == ErrorCode.NONE
            node.partitions.by_name["orders"][0].log.epochs.assign(5, 10)
            session, refused = node.partitions.session, ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await fetched(client, 12, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert (await fetched(client, 10, 3)).diverging_epoch.end_offset == 10
            assert (await end_of_epoch(client, 0)).end_offset == 10
            until_ms, session.certain_until_ms = session.certain_until_ms, NEVER_MS
            assert (await fetched(client, 12, -1)).error_code == refused
            assert (await fetched(client, 10, 3)).error_code == refused
            assert (await end_of_epoch(client, 0)).error_code == refused
            assert (await fetched(client, 4, 0)).records  # what it has was committed, and it may be read
            session.certain_until_ms = until_ms
            assert (await fetched(client, 12, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    asyncio.run(run())


def test_a_follower_that_has_not_heard_of_an_epoch_lets_readers_wait_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, they would go back to the leader, which sends them here again. Without records it has heard of no epoch yet."""

    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("orders")
            led = node.partitions.by_name["orders"].pop(0)
            followed = FollowedPartition(node.partitions, led.log, cast("Follower", led))
            monkeypatch.setattr(node.partitions, "followed", lambda _topic_id, _index: followed)
            led.log.epochs.truncate_from_end(0)
            told = await fetched(client, 0, 0)
            assert told.error_code == ErrorCode.NONE
            assert not told.records
            for offset in (1, 5):  # of which it cannot know whether the leader has it
                assert (await fetched(client, offset, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            node.partitions.by_name["orders"][0] = led

    asyncio.run(run())

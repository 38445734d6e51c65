"""A coordinator that has just taken over: what it has loaded may not be committed, and what it is to load may be broken."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.core.groups.coordinator import GroupCoordinator
from odradek.log.disk import DiskFull
from odradek.log.log import Log
from odradek.log.segment import Slice
from odradek.node import coordinators
from odradek.node.coordinators import Shard
from odradek.node.groups import CONSUMER_OFFSETS
from odradek.node.node import Node
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.messages import OffsetFetchRequest, OffsetFetchResponse
from tests.node.inside import Client, connected, new_node, running, until
from tests.node.test_disk_full import commit, committed, prepare


async def error(client: Client, group: str) -> int:
    return (await client.ask(OffsetFetchRequest(group_id=group, topics=None), 7, OffsetFetchResponse)).error_code


def test_offsets_are_told_when_all_that_was_loaded_is_committed(tmp_path: Path) -> None:
    """Or an offset that somebody was told is committed would be seen to go back."""

    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            (shard,) = node.groups.shards.values()
            shard.loaded_offset = shard.partition.log_end + 1
            assert await error(client, "readers") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            shard.loaded_offset = shard.partition.log_end
            assert await committed(client, "readers") == [1]

    asyncio.run(story())


def test_who_is_the_coordinator_no_longer_by_the_image_tells_nothing(tmp_path: Path) -> None:
    """Its partitions may be waiting for a slow disk, while another commits offsets."""

    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            states = node.image.topics[CONSUMER_OFFSETS].partitions
            led = states[0]
            states[0] = replace(led, leader=2)
            assert await error(client, "readers") == ErrorCode.NOT_COORDINATOR
            states[0] = led
            assert await committed(client, "readers") == [1]

    asyncio.run(story())


def test_the_coordinator_of_a_partition_that_is_closed_tells_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            (shard,) = node.groups.shards.values()
            shard.partition.is_closed = True
            assert await error(client, "readers") == ErrorCode.NOT_COORDINATOR
            shard.partition.is_closed = False
            assert await committed(client, "readers") == [1]

    asyncio.run(story())


def loading(node: Node) -> Shard[GroupCoordinator]:
    """Another coordinator of the partition that the node leads."""
    (shard,) = node.groups.shards.values()
    return node.groups._new_shard(shard.partition)


def offsets(shard: Shard[GroupCoordinator]) -> dict[str, Any]:
    return shard.coordinator.shard.offsets.by_group


@pytest.mark.parametrize(
    "error",
    [
        DiskFull(errno.EMFILE, "too many open files"),
        Refused(ErrorCode.CORRUPT_MESSAGE, "rot"),
        ProtocolError("rot", "key", 0),
        RuntimeError("whatever"),
    ],
)
def test_a_partition_that_cannot_be_read_is_loaded_later_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr(coordinators, "RELOAD_MS", 1)
    monkeypatch.setattr(coordinators, "LOAD_BYTES", 1)  # which is a batch
    known, asked = Log.read, []

    def read(log: Log, offset: int, *given: Any, **named: Any) -> Slice:
        if log.folder.endswith("__consumer_offsets-0"):
            asked.append(offset)
            if asked == [0, 1]:
                raise error
        return known(log, offset, *given, **named)

    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            for offset in (2, 3):
                assert not await commit(client, "readers", offset)
            monkeypatch.setattr(Log, "read", read)
            shard = loading(node)
            await shard.load()
            assert (shard.is_loaded, shard.next_offset) == (False, 1)
            await until(lambda: shard.is_loaded)
            assert asked == [0, 1, 1, 2]
            assert offsets(shard) == offsets(*node.groups.shards.values())
            shard.close()

    asyncio.run(story())
    assert f"cannot be loaded from offset 1 on: {error}" in caplog.text


def test_others_lead_a_partition_that_is_found_broken_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others have it, which is for the partitions to know."""
    monkeypatch.setattr(coordinators, "RELOAD_MS", 1)
    told: list[tuple[object, int]] = []

    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            assert not await commit(client, "readers", 2)
            shard = loading(node)
            monkeypatch.setattr(node.partitions, "damaged", lambda partition, offset, _: told.append((partition, offset)))
            file = tmp_path / "data" / "__consumer_offsets-0" / f"{0:020}.log"
            sound = file.read_bytes()
            file.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
            await shard.load()
            assert told == [(shard.partition, 1)]
            file.write_bytes(sound)
            await until(lambda: shard.is_loaded)
            assert offsets(shard) == offsets(*node.groups.shards.values())
            shard.close()

    asyncio.run(story())


def test_a_coordinator_that_is_closed_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        node = new_node(tmp_path)
        async with running(node), connected(node) as client:
            await prepare(client, "readers")
            shard = loading(node)
            with monkeypatch.context() as patch:
                patch.setattr(Log, "read", lambda *_: 1 / 0)
                await shard.load()
            assert shard.running
            shard.close()
            assert not shard.running

    asyncio.run(story())

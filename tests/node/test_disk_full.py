"""A full disk: what is produced is refused, everything else goes on, and when there is room again, so does what was refused.

The same on a disk that counts its room, and on a real small one where this machine lets us mount one.
"""

import asyncio
import errno
import subprocess
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odradek.core.metadata.delta import Delta
from odradek.core.metadata.topics import LOST_DIRECTORY, Topic
from odradek.log.disk import DiskFull
from odradek.log.folder import LogFolder
from odradek.log.names import TopicPartition
from odradek.node.errors import StartFailed
from odradek.node.node import Node
from odradek.node.partitions import Partitions
from odradek.node.reserve import RESERVE, SPARE_BYTES_MIN
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceResponse,
)
from tests.clients.server import Node as ProcessNode
from tests.node.disks import SmallDisk, Volume, size_of
from tests.node.inside import Client, connected, fetch_request, new_node, produce_request, running, until, values_in
from tests.node.socket_client import SocketClient

MB = 1024 * 1024
RESERVE_BYTES = 2 * MB
ROOM_BYTES = SPARE_BYTES_MIN + 20 * MB
RECOVERY_SECONDS_MAX = 30
FULL = ErrorCode.KAFKA_STORAGE_ERROR


def with_node(
    folder: Path, volume: Volume, scenario: Callable[[Node, Client], Coroutine[Any, Any, None]], **settings: str
) -> None:
    async def run() -> None:
        node = new_node(folder, lambda: SmallDisk(volume), RESERVE_BYTES, **settings)
        async with running(node), connected(node) as client:
            await scenario(node, client)

    asyncio.run(run())


async def delete_topic(client: Client, topic: str) -> ErrorCode:
    answer = await client.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5, DeleteTopicsResponse)
    return ErrorCode(answer.responses[0].error_code)


async def delete_records(client: Client, topic: str, offset: int) -> ErrorCode:
    partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition])
    answer = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000), 2, DeleteRecordsResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def set_retention(client: Client, topic: str, retention_ms: int) -> ErrorCode:
    config = AlterConfigsRequest.AlterableConfig(name="retention.ms", value=str(retention_ms))
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    answer = await client.ask(AlterConfigsRequest(resources=[resource]), 2, AlterConfigsResponse)
    return ErrorCode(answer.responses[0].error_code)


async def commit(client: Client, group: str, offset: int) -> ErrorCode:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="things", partitions=[partition])
    answer = await client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8, OffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(client: Client, group: str) -> list[int]:
    answer = await client.ask(OffsetFetchRequest(group_id=group, topics=None), 7, OffsetFetchResponse)
    return [partition.committed_offset for topic in answer.topics for partition in topic.partitions]


async def prepare(client: Client, group: str = "") -> None:
    assert not await client.create("things")
    assert not await client.create("others")
    assert not await client.produce("things", b"first", b"second")
    if group:
        await client.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4, FindCoordinatorResponse)
        assert not await commit(client, group, 1)


def test_produce_is_refused_and_everything_else_goes_on(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await client.produce("things", b"third") == FULL
        assert await client.fetch("things") == [b"first", b"second"]
        assert await delete_records(client, "things", 1) == ErrorCode.NONE
        assert await set_retention(client, "things", 1000) == ErrorCode.NONE
        assert await delete_topic(client, "others") == ErrorCode.NONE
        assert not node.stopped.done()
        volume.give(ROOM_BYTES)
        await until(lambda: node.reserve.is_there)
        assert await client.produce("things", b"third") == ErrorCode.NONE
        assert await client.fetch("things", 1) == [b"first", b"second", b"third"]  # the batch that holds offset 1 comes whole

    with_node(tmp_path, volume, scenario)


def test_produce_recovers_by_itself_when_there_is_room(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        volume.fill()
        assert await client.produce("things", b"third", sequence=0) == FULL
        assert await client.produce("things", b"third", sequence=0) == FULL
        volume.give(1000)
        assert await client.produce("things", b"third", sequence=0) == ErrorCode.NONE
        assert await client.produce("things", b"fourth", sequence=1) == ErrorCode.NONE
        assert await client.fetch("things") == [b"first", b"second", b"third", b"fourth"]

    with_node(tmp_path, volume, scenario)


def test_what_the_reserve_frees_is_the_metadatas_alone(tmp_path: Path) -> None:
    """Or a producer that tries again and again would have it in a moment."""
    volume, reserve = Volume(ROOM_BYTES), str(tmp_path / "data" / RESERVE)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client, group="readers")
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await set_retention(client, "things", 1000) == ErrorCode.NONE
        assert size_of(reserve) == 0
        assert RESERVE_BYTES - MB < volume.room_bytes < RESERVE_BYTES
        assert await client.produce("things", b"third") == FULL
        assert await commit(client, "readers", 2) == ErrorCode.NOT_COORDINATOR
        for number in range(20):
            assert await set_retention(client, "things", 1000 + number) == ErrorCode.NONE
        volume.give(ROOM_BYTES)
        await until(lambda: not node.reserve.is_in_use)
        assert size_of(reserve) == RESERVE_BYTES
        assert await client.produce("things", b"third") == ErrorCode.NONE

    with_node(tmp_path, volume, scenario)


def test_nothing_is_compacted_with_it(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        assert not await client.create("latest", cleanup_policy="compact", internal_segment_bytes="1000")
        for _ in range(10):
            assert not await client.produce("latest", bytes(500))
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await set_retention(client, "others", 1000) == ErrorCode.NONE
        assert node.reserve.is_in_use
        await compacted(node)
        assert len(await client.fetch("latest")) == 10
        volume.give(ROOM_BYTES)
        await until(lambda: node.reserve.is_there)
        await compacted(node)
        assert len(await client.fetch("latest")) < 10

    async def compacted(node: Node) -> None:
        node.background.clean()
        await asyncio.gather(*node.background.cleaning.values())

    with_node(tmp_path, volume, scenario)


def test_the_next_life_leaves_it_to_the_metadata_before_anything_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the partitions that it follows would have filled the disk again when it serves."""
    volume = Volume(ROOM_BYTES)
    full = list[list[str]]()
    follow = Partitions.follow

    async def look_first(partitions: Partitions, delta: Delta) -> None:
        full.append([folder.path for folder in partitions.full])
        await follow(partitions, delta)

    async def use(node: Node, client: Client) -> None:
        await prepare(client)
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await set_retention(client, "things", 1000) == ErrorCode.NONE

    async def look(node: Node, client: Client) -> None:
        assert node.reserve.is_in_use
        assert await client.produce("things", b"third") == FULL

    with_node(tmp_path, volume, use)
    monkeypatch.setattr(Partitions, "follow", look_first)
    with_node(tmp_path, volume, look)
    assert full[0] == [str(tmp_path / "data")]


def test_without_room_and_reserve_a_change_of_metadata_is_refused_and_later_ones_work(tmp_path: Path) -> None:
    volume = Volume(SPARE_BYTES_MIN)  # never enough for the reserve

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        assert not node.reserve.is_there
        volume.fill()
        assert await set_retention(client, "things", 1000) == FULL
        assert await client.create("late") == FULL
        assert await delete_topic(client, "others") == FULL
        volume.give(MB)
        assert await set_retention(client, "things", 1000) == ErrorCode.NONE
        assert await delete_topic(client, "others") == ErrorCode.NONE

    with_node(tmp_path, volume, scenario)


def test_a_topic_that_was_created_on_a_full_disk_can_be_used_when_there_is_room(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await client.create("other-folder", partitions=4) == ErrorCode.NONE
        volume.fill()
        assert await client.create("late", partitions=2) in (ErrorCode.NONE, FULL)
        volume.give(ROOM_BYTES)
        await until(lambda: node.reserve.is_there and not node.partitions.unmade)
        await node.followed()
        for index in range(4):
            assert await client.produce("other-folder", b"here", index=index) == ErrorCode.NONE

    with_node(tmp_path, volume, scenario)


def test_a_log_that_there_was_no_room_for_has_lost_nothing_when_it_is_made(tmp_path: Path) -> None:
    """The controller heard meanwhile that it is lost, as of all its replicas: no other one could lead."""
    volume = Volume(SPARE_BYTES_MIN)

    async def scenario(node: Node, client: Client) -> None:
        def find_no_room(folder: LogFolder, *_: object) -> None:
            raise DiskFull(errno.ENOSPC, "no room on the disk", folder.path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LogFolder, "_make", find_no_room)
            assert await client.create("things") == ErrorCode.NONE
            await node.followed()
        topic = node.image.topics["things"]
        assert (topic.id, 0) in node.partitions.unmade
        state = msgspec.structs.replace(topic.partitions[0], replicas=(1, 2), directories=(LOST_DIRECTORY,) * 2)
        topic.partitions[0] = state
        await node.partitions.follow(node.partitions.take_unmade())
        log = node.partitions.log_of(TopicPartition("things", 0))
        assert log is not None
        assert log.damage is None

    with_node(tmp_path, volume, scenario)


def test_a_topic_made_anew_when_there_is_room_again_does_not_get_the_log_of_the_one_before(tmp_path: Path) -> None:
    """The metadata is ahead of what is made of it: a log is known by its name until then."""

    async def scenario(node: Node, client: Client) -> None:
        await client.create("things")
        partitions, gate = node.partitions, asyncio.Event()
        (folder,) = partitions.folders
        delete = partitions._delete

        async def delete_slowly(topic: Topic) -> None:
            await gate.wait()
            await delete(topic)

        partitions._delete = delete_slowly  # type: ignore[method-assign]
        partitions.filled(folder)
        partitions._close(partitions.by_name["things"][0])  # as if another led
        async with connected(node) as other:
            changes = [asyncio.create_task(delete_topic(client, "things"))]
            await until(lambda: "things" not in node.image.topics)
            changes.append(asyncio.create_task(other.create("things")))
            await until(lambda: "things" in node.image.topics)
            after = node.image.topics["things"].id
            partitions.has_room(folder)
            await asyncio.sleep(0)
            led = dict(partitions.by_name["things"])
            gate.set()
            assert not led
            assert await asyncio.gather(*changes) == [ErrorCode.NONE, ErrorCode.NONE]
        await until(lambda: not partitions.unmade)
        await node.followed()
        log = partitions.by_id[after][0].log
        found = folder.topic_id(log)
        assert found is not None
        assert found.bytes == after
        assert await client.produce("things", b"first") == ErrorCode.NONE
        assert log.end_offset == 1

    with_node(tmp_path, Volume(ROOM_BYTES), scenario)


def test_the_first_group_of_a_full_disk_is_served_when_there_is_room(tmp_path: Path) -> None:
    """Its coordinator's partition could not be made when it was asked for."""
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client)
        await until(lambda: node.reserve.is_there)
        volume.fill()
        assert await set_retention(client, "things", 1000) == ErrorCode.NONE
        volume.fill()
        request = FindCoordinatorRequest(coordinator_keys=["readers"])
        await client.ask(request, 4, FindCoordinatorResponse)
        volume.give(ROOM_BYTES)
        await until(lambda: not node.reserve.is_in_use)
        deadline = time.monotonic() + RECOVERY_SECONDS_MAX
        while await commit(client, "readers", 1) != ErrorCode.NONE:
            assert time.monotonic() < deadline
            await client.ask(request, 4, FindCoordinatorResponse)
        assert await committed(client, "readers") == [1]

    with_node(tmp_path, volume, scenario)


def test_a_commit_on_a_full_disk_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def scenario(node: Node, client: Client) -> None:
        await prepare(client, group="readers")
        volume.fill()
        assert await commit(client, "readers", 2) == ErrorCode.NOT_COORDINATOR
        assert await committed(client, "readers") == [1]
        volume.give(ROOM_BYTES)
        await until(lambda: not node.reserve.is_in_use)
        assert await commit(client, "readers", 2) == ErrorCode.NONE
        assert await committed(client, "readers") == [2]

    with_node(tmp_path, volume, scenario)


def test_a_node_that_has_stopped_keeps_no_room_unless_there_is_little(tmp_path: Path) -> None:
    volume, reserve = Volume(ROOM_BYTES), str(tmp_path / "data" / RESERVE)

    async def stop_with_room(node: Node, _: Client) -> None:
        await until(lambda: node.reserve.is_there)

    async def stop_without(node: Node, _: Client) -> None:
        await until(lambda: node.reserve.is_there)
        volume.take(volume.room_bytes - SPARE_BYTES_MIN // 2, reserve)

    with_node(tmp_path, volume, stop_with_room)
    assert size_of(reserve) == 0
    with_node(tmp_path, volume, stop_without)
    assert size_of(reserve) == RESERVE_BYTES


def test_a_node_stops_cleanly_on_a_full_disk_and_starts_on_it_again(tmp_path: Path) -> None:
    volume = Volume(ROOM_BYTES)

    async def fill(node: Node, client: Client) -> None:
        await prepare(client, group="readers")
        await until(lambda: node.reserve.is_there)
        volume.fill()

    async def look(node: Node, client: Client) -> None:
        assert all(folder.was_clean for folder in node.partitions.folders)
        assert await client.fetch("things") == [b"first", b"second"]
        assert await committed(client, "readers") == [1]
        assert await delete_topic(client, "others") == ErrorCode.NONE

    with_node(tmp_path, volume, fill)
    with_node(tmp_path, volume, look)


def test_a_disk_that_becomes_full_while_a_node_stops_is_left_cleanly(tmp_path: Path) -> None:
    """Otherwise it counts as crashed, and a replica that did crash may lead in its place, without what only this one has."""
    volume = Volume(ROOM_BYTES)

    async def fill(node: Node, client: Client) -> None:
        await prepare(client)
        await until(lambda: node.reserve.is_there)
        close = node.quorum.close

        async def fill_then() -> None:
            await close()
            volume.fill()

        node.quorum.close = fill_then  # type: ignore[method-assign]

    async def look(node: Node, client: Client) -> None:
        assert all(folder.was_clean for folder in node.partitions.folders)

    with_node(tmp_path, volume, fill)
    with_node(tmp_path, volume, look)


def test_without_a_reserve_a_stop_says_what_is_missing_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    volume = Volume(SPARE_BYTES_MIN)

    async def fill(node: Node, client: Client) -> None:
        await prepare(client)
        volume.fill()

    async def look(node: Node, client: Client) -> None:
        assert await client.fetch("things") == [b"first", b"second"]
        assert await client.produce("things", b"third") == ErrorCode.NONE

    with_node(tmp_path, volume, fill)
    assert "no room on the disk to stop cleanly" in caplog.text
    with pytest.raises(StartFailed, match=r"no room|is full"):
        with_node(tmp_path, volume, look)
    volume.give(ROOM_BYTES)
    with_node(tmp_path, volume, look)


# -- on a real small disk


class SmallNode(ProcessNode):
    """A node in a process of its own whose folder is a file system of 24 MB; where none can be mounted, files end at 8 MB."""

    def _command(self) -> list[str]:
        command = super()._command()
        if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0:
            mounted = 'mkdir -p "$0" && mount -t tmpfs -o size=24m tmpfs "$0" && exec "$@"'
            return ["unshare", "-rm", "sh", "-c", mounted, str(self.data), *command]
        return ["sh", "-c", 'ulimit -f 8192 && exec "$@"', "sh", *command]


def produce_until(client: SocketClient, topic: str, wanted: ErrorCode) -> None:
    """Large records, one after the other, until one is answered so."""
    deadline = time.monotonic() + RECOVERY_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = client.ask(produce_request(topic, b"x" * 900_000), 9, ProduceResponse)
        if answer.responses[0].partition_responses[0].error_code == wanted:
            return
    raise AssertionError(f"never {wanted.name}")


def create_topic(client: SocketClient, topic: str) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    assert not client.ask(CreateTopicsRequest(topics=[wanted]), 7, CreateTopicsResponse).topics[0].error_code


def test_a_small_file_system_is_filled_cleared_and_filled_again(tmp_path: Path) -> None:
    settings = {"log_segment_delete_delay_ms": "0", "log_retention_check_interval_ms": "100", "log_retention_ms": "-1"}
    server = SmallNode(tmp_path, **settings)
    with server.running(), SocketClient(server.port) as client:
        create_topic(client, "large")
        create_topic(client, "small")
        produce_until(client, "large", FULL)
        answer = client.ask(fetch_request("large"), 12, FetchResponse)
        assert values_in(bytes(answer.responses[0].partitions[0].records or b""))[0] == b"x" * 900_000
        deleted = client.ask(DeleteTopicsRequest(topic_names=["large"], timeout_ms=10_000), 5, DeleteTopicsResponse)
        assert not deleted.responses[0].error_code
        produce_until(client, "small", ErrorCode.NONE)
        produce_until(client, "small", FULL)
    assert "Traceback" not in server.output()

"""Several folders in log.dirs: one that fails takes its own partitions offline and no others, and what was in it comes back with
it. The folder of the metadata, or the last one, takes the node with it."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.core.metadata.delta import Delta
from odradek.core.metadata.topics import UNASSIGNED_DIRECTORY
from odradek.log.checkpoint import CLEAN_SHUTDOWN
from odradek.log.disk import DiskFull, RealDisk
from odradek.log.meta_properties import META_PROPERTIES
from odradek.node.errors import StartFailed
from odradek.node.node import Node
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.node.disks import FailingDisk, Fault
from tests.node.inside import Client, connected, fetch_request, new_node, running, until

PARTITIONS = 6
OK, OFFLINE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR


class Scene:
    """A node with the folders a and b, metadata in a, and a topic whose partitions are in both."""

    def __init__(self, node: Node, client: Client, fault: Fault) -> None:
        self.node = node
        self.client = client
        self.fault = fault

    def inside(self, folder: str) -> list[int]:
        """The partitions whose logs are in a folder."""
        (found,) = [each for each in self.node.partitions.folders if each.path.endswith(f"/{folder}")]
        return sorted(name.partition for name in found.logs if name.topic == "things")

    def directory(self, index: int) -> bytes:
        """What the metadata says."""
        return self.node.image.topics["things"].partitions[index].directory(1)

    async def begin(self) -> None:
        assert await self.client.create("things", PARTITIONS) == OK
        for index in range(PARTITIONS):
            assert await self.client.produce("things", b"first", index=index) == OK
        await until(lambda: UNASSIGNED_DIRECTORY not in map(self.directory, range(PARTITIONS)))

    async def fail(self, call: str, folder: str) -> None:
        """The folder fails, by whatever meets it first."""
        index = self.inside(folder)[0]
        self.fault.begin(f"/{folder}/", call)
        match call:
            case "append":
                assert await self.client.produce("things", b"second", index=index) == OFFLINE
            case "sync":
                with pytest.raises(Exception, match="Input/output"):
                    await self.node.partitions.work.flush(self.node.partitions.by_name["things"][index].log)
            case _:
                for segment in self.node.partitions.by_name["things"][index].log.segments:
                    segment.release()
                    segment._boundaries.clear()
                assert await self.fetch_error(index) == OFFLINE

    async def fetch_error(self, index: int) -> ErrorCode:
        answer = await self.client.ask(fetch_request("things", index=index), 12, FetchResponse)
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    async def log_dirs(self) -> dict[str, ErrorCode]:
        answer = await self.client.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        return {each.log_dir.rpartition("/")[2]: ErrorCode(each.error_code) for each in answer.results}

    async def metadata(self) -> dict[int, MetadataResponse.MetadataResponsePartition]:
        wanted = [MetadataRequest.MetadataRequestTopic(name="things")]
        answer = await self.client.ask(MetadataRequest(topics=wanted), 12, MetadataResponse)
        return {each.partition_index: each for each in answer.topics[0].partitions}


@asynccontextmanager
async def scene_on(folder: Path, **settings: str) -> AsyncIterator[Scene]:
    fault = Fault()
    settings = {"log_dirs": "a,b", "metadata_log_dir": str(folder / "a"), **settings}
    node = new_node(folder, lambda: FailingDisk(fault), **settings)
    async with running(node), connected(node) as client:
        yield Scene(node, client, fault)


def play(folder: Path, scenario: Callable[[Scene], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def run() -> None:
        async with scene_on(folder, **settings) as scene:
            await scene.begin()
            await scenario(scene)

    asyncio.run(run())


def test_partitions_are_spread_over_the_folders_and_the_controller_hears_which_is_where(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        assert len(scene.inside("a")) == len(scene.inside("b")) == PARTITIONS // 2
        ids = {folder.path: folder.directory_id for folder in scene.node.partitions.folders}
        for name in ("a", "b"):
            assert {scene.directory(index) for index in scene.inside(name)} == {ids[str(tmp_path / name)]}

    play(tmp_path, scenario)


def test_a_folder_that_fails_between_the_records_of_an_answer_and_its_aborted_transactions_refuses_it(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        index = scene.inside("b")[0]
        assert await scene.client.produce("things", b"second", index=index) == OK
        partition = scene.node.partitions.by_name["things"][index]
        found = partition.read(0, 1_000_000, 1, at_least_one=True)
        partition.log.disk.fail(OSError(errno.EIO, "Input/output error"))
        with pytest.raises(Refused) as refused:
            partition.aborted(0, found)
        assert refused.value.code == OFFLINE
        await until(lambda: len(scene.node.partitions.folders) == 1)

    play(tmp_path, scenario)


def test_what_found_no_room_in_a_folder_that_has_failed_meanwhile_is_refused(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        partitions = scene.node.partitions
        partition = partitions.by_name["things"][scene.inside("b")[0]]
        await scene.fail("append", "b")
        await until(lambda: len(partitions.folders) == 1)
        refused = partitions.refused(partition, DiskFull(errno.ENOSPC, "No space left on device"))
        assert refused.code == OFFLINE
        assert not partitions.full

    play(tmp_path, scenario)


@pytest.mark.parametrize("call", ["append", "sync", "read"])
def test_a_folder_that_fails_takes_only_its_partitions_offline(tmp_path: Path, call: str) -> None:
    async def scenario(scene: Scene) -> None:
        gone, left = scene.inside("b"), scene.inside("a")
        await scene.fail(call, "b")
        await until(lambda: len(scene.node.partitions.folders) == 1)
        for index in gone:
            assert await scene.client.produce("things", b"second", index=index) == OFFLINE
            assert await scene.fetch_error(index) == OFFLINE
        for index in left:
            assert await scene.client.produce("things", b"second", index=index) == OK
            assert await scene.client.fetch("things", index=index) == [b"first", b"second"]
        assert await scene.log_dirs() == {"a": OK, "b": OFFLINE}
        await until(lambda: len(scene.node.image.brokers[1].log_dirs) == 1)
        found = await scene.metadata()
        assert {index for index, each in found.items() if each.leader_id < 0 and each.offline_replicas == [1]} == set(gone)
        assert await scene.client.create("others", 2) == OK
        assert await scene.client.produce("others", b"new", index=1) == OK
        assert not scene.node.stopped.done()

    play(tmp_path, scenario)
    assert (tmp_path / "a" / CLEAN_SHUTDOWN).exists()
    assert not (tmp_path / "b" / CLEAN_SHUTDOWN).exists()


def test_what_was_in_a_folder_comes_back_with_it(tmp_path: Path) -> None:
    gone: list[int] = []

    async def scenario(scene: Scene) -> None:
        gone.extend(scene.inside("b"))
        await scene.fail("append", "b")
        await until(lambda: len(scene.node.image.brokers[1].log_dirs) == 1)

    async def again() -> None:
        async with scene_on(tmp_path) as scene:
            assert scene.inside("b") == gone
            for index in gone:
                assert await scene.client.fetch("things", index=index) == [b"first"]
                assert await scene.client.produce("things", b"second", index=index) == OK
            assert await scene.log_dirs() == {"a": OK, "b": OK}

    play(tmp_path, scenario)
    asyncio.run(again())


def test_who_waits_for_a_partition_is_told_when_its_folder_fails(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        first, *_, last = scene.inside("b")
        async with connected(scene.node) as reader:
            reader.send(fetch_request("things", 1, index=last, max_wait_ms=600_000), 12)
            await until(lambda: bool(scene.node.partitions.by_name["things"][last].readers))
            scene.fault.begin("/b/", "append")
            assert await scene.client.produce("things", b"second", index=first) == OFFLINE
            answer = await reader.receive(FetchResponse, 12)
            assert answer.responses[0].partitions[0].error_code == OFFLINE

    play(tmp_path, scenario)


@pytest.mark.parametrize("folder", ["a", "b"])
def test_a_start_goes_on_without_a_folder_that_cannot_be_used(tmp_path: Path, folder: str) -> None:
    """Unless it is that of the metadata."""
    gone: list[int] = []

    async def scenario(scene: Scene) -> None:
        gone.extend(scene.inside("b"))

    async def without() -> None:
        async with scene_on(tmp_path) as scene:
            assert await scene.log_dirs() == {"a": OK, "b": OFFLINE}
            assert len(scene.node.image.brokers[1].log_dirs) == 1
            for index in range(PARTITIONS):
                assert await scene.client.produce("things", b"second", index=index) == (OFFLINE if index in gone else OK)
            assert await scene.client.create("others", 2) == OK

    async def again() -> None:
        async with scene_on(tmp_path) as scene:
            assert scene.inside("b") == gone
            for index in gone:
                assert await scene.client.fetch("things", index=index) == [b"first"]

    play(tmp_path, scenario)
    (tmp_path / folder).rename(tmp_path / "away")
    (tmp_path / folder).write_text("where a folder should be")
    if folder == "a":
        with pytest.raises(StartFailed, match="cannot be used as a data folder"):
            asyncio.run(without())
        return
    asyncio.run(without())
    (tmp_path / folder).unlink()
    (tmp_path / "away").rename(tmp_path / folder)
    asyncio.run(again())


def test_a_folder_whose_logs_cannot_be_read_at_the_start_is_offline(tmp_path: Path) -> None:
    async def scenario(_: Scene) -> None:
        pass

    async def without() -> None:
        fault = Fault()
        fault.begin("/b/", "read", "append")
        node = new_node(tmp_path, lambda: FailingDisk(fault), log_dirs="a,b", metadata_log_dir=str(tmp_path / "a"))
        async with running(node), connected(node) as client:
            assert await Scene(node, client, fault).log_dirs() == {"a": OK, "b": OFFLINE}

    play(tmp_path, scenario)
    asyncio.run(without())


def test_the_folder_of_the_metadata_ends_the_node(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.fail("append", "a")
        async with asyncio.timeout(20):
            assert isinstance(await scene.node.stopped, OSError)

    play(tmp_path, scenario)


def test_the_last_folder_ends_the_node(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.fail("append", "b")
        await until(lambda: len(scene.node.partitions.folders) == 1)
        assert not scene.node.stopped.done()
        await scene.fail("append", "a")
        async with asyncio.timeout(20):
            assert isinstance(await scene.node.stopped, OSError)

    play(tmp_path, scenario, metadata_log_dir=str(tmp_path / "metadata"))


def test_a_log_that_may_be_in_a_folder_that_is_offline_is_not_made_anew(tmp_path: Path) -> None:
    """Its records are there, and nowhere else. One that nobody has chosen a folder for may be made."""

    async def scenario(scene: Scene) -> None:
        await scene.fail("append", "b")
        await until(lambda: len(scene.node.image.brokers[1].log_dirs) == 1)

    async def without() -> None:
        async with scene_on(tmp_path) as scene:
            held = {name.partition for name in scene.node.partitions.folders[0].logs if name.topic == "things"}
            assert len(held) == PARTITIONS // 2

    play(tmp_path, scenario)
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("where a folder should be")
    asyncio.run(without())


def test_replicas_of_a_folder_that_was_replaced_are_made_anew_elsewhere(tmp_path: Path) -> None:
    """The folder is there, with another id and nothing in it: nothing of the old one can come back."""

    async def scenario(_: Scene) -> None:
        pass

    async def again() -> None:
        async with scene_on(tmp_path) as scene:
            assert len(scene.inside("a")) + len(scene.inside("b")) == PARTITIONS
            ids = {folder.directory_id for folder in scene.node.partitions.folders}
            await until(lambda: {scene.directory(index) for index in range(PARTITIONS)} <= ids)
            elected = await scene.client.ask(
                ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), 2, ElectLeadersResponse
            )
            assert not elected.error_code
            for index in range(PARTITIONS):
                assert await scene.client.produce("things", b"second", index=index) == OK

    play(tmp_path, scenario)
    (tmp_path / "b").rename(tmp_path / "away")
    asyncio.run(again())
    assert (tmp_path / "b" / META_PROPERTIES).exists()
    assert RealDisk().read(str(tmp_path / "b" / META_PROPERTIES)) != RealDisk().read(str(tmp_path / "away" / META_PROPERTIES))


def test_a_topic_made_anew_is_not_in_the_folder_that_the_one_before_was_in_when_it_failed(tmp_path: Path) -> None:
    """The folder fails when the metadata has the new one, and the logs are still those of the old one."""

    async def scenario(scene: Scene) -> None:
        partitions, may_follow = scene.node.partitions, asyncio.Event()
        follow, old_id = partitions.follow, scene.node.image.topics["things"].id

        async def follow_late(delta: Delta) -> None:
            await may_follow.wait()
            await follow(delta)

        partitions.follow = follow_late  # type: ignore[method-assign]
        wanted = CreateTopicsRequest.CreatableTopic(name="things", num_partitions=PARTITIONS, replication_factor=1)
        async with connected(scene.node) as one, connected(scene.node) as other:
            one.send(DeleteTopicsRequest(topic_names=["things"], timeout_ms=10_000), 5)
            await until(lambda: "things" not in scene.node.image.topics)
            other.send(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
            await until(lambda: "things" in scene.node.image.topics)
            partitions.folders[1].disk.fail(OSError(errno.EIO, "Input/output error"))
            partitions.look_for_failures()
            offline = {topic_id for topic_id, _ in partitions.offline}
            may_follow.set()
            assert offline == {old_id}
            await until(lambda: len(scene.inside("a")) == PARTITIONS)

    play(tmp_path, scenario)


def test_a_stop_while_a_log_is_copied_anew_is_not_a_clean_one(tmp_path: Path) -> None:
    """The next life would tell that it is whole, and might lead with what it has."""

    async def live(*, is_copied: bool) -> list[bool]:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create("things")
            if is_copied:
                node.partitions.copied_anew[node.image.topics["things"].id, 0] = None
            return [folder.was_clean for folder in node.partitions.folders]

    asyncio.run(live(is_copied=True))
    assert asyncio.run(live(is_copied=False)) == [False]
    assert asyncio.run(live(is_copied=False)) == [True]

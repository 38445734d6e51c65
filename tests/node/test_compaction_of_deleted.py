"""What is deleted while a worker compacts it: neither the disk nor the log that has its name afterwards is to blame."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from odradek.log.cleaner import Cleaner
from odradek.log.compaction import Job, Outcome, compact
from odradek.log.disk import DiskFailed, RealDisk
from odradek.log.names import TopicPartition
from odradek.node.machine import Machine
from odradek.node.node import Node
from odradek.wire.batch import InvalidBatch
from odradek.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse
from tests.node.compacting import clean, fill
from tests.node.inside import Client, connected, new_node, running, until

WAIT_SECONDS_MAX = 20


class Held(Machine):
    """Its worker waits before it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_go_on = Event(), Event()
        self.compact = self._compact
        self.error: Exception | None = None  # with which it ends then, once

    def worker(self) -> Executor:
        return ThreadPoolExecutor(1)

    def _compact(self, job: Job, bytes_per_second: float) -> Outcome:
        del bytes_per_second
        self.begun.set()
        assert self.may_go_on.wait(WAIT_SECONDS_MAX)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return compact(RealDisk(), job)


class Scene:
    def __init__(self, node: Node, machine: Held, client: Client) -> None:
        self.node = node
        self.machine = machine
        self.client = client

    @property
    def cleaner(self) -> Cleaner:
        return self.node.background.cleaners[self.node.partitions.folders[0]]

    async def fill(self) -> None:
        await fill(self.node, self.client, "t")

    async def delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
        assert not (await self.client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code

    async def begin(self) -> None:
        self.node.background.clean()
        await until(self.machine.begun.is_set)

    async def end(self) -> None:
        self.machine.may_go_on.set()
        await until(lambda: not self.node.background.cleaning)

    async def check_sound(self) -> None:
        """Nothing has failed, and the topic is compacted when it is there again."""
        folder = self.node.partitions.folders[0]
        assert folder.disk.failure is None
        assert not self.cleaner.running
        assert not self.cleaner.set_aside
        await clean(self.node)
        assert folder.clean_offsets[TopicPartition("t", 0)] > 0


def play(folder: Path, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        machine = Held()
        node = new_node(folder, RealDisk, 64 * 1024, machine)
        async with running(node), connected(node) as client:
            scene = Scene(node, machine, client)
            try:
                await scene.fill()
                await scene.begin()
                await scenario(scene)
            finally:
                machine.may_go_on.set()

    asyncio.run(run())


def test_a_topic_that_is_deleted_while_it_is_compacted_fails_no_disk(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.delete()
        await scene.end()
        await scene.fill()
        await scene.check_sound()

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "no such file"), DiskFailed(2, "no such file"), InvalidBatch("cut off", "records", 0)]
)
def test_a_topic_that_is_made_anew_meanwhile_is_compacted(tmp_path: Path, error: Exception) -> None:
    async def scenario(scene: Scene) -> None:
        scene.machine.error = error
        await scene.delete()
        await scene.fill()
        await scene.end()
        await scene.check_sound()

    play(tmp_path, scenario)


def test_segments_that_retention_takes_away_meanwhile_fail_no_disk(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        log = scene.node.partitions.by_name["t"][0].log
        log.move_start(log.bases[2])
        scene.node.background.expire()
        assert log.bases[0] > 0
        await scene.end()
        await scene.check_sound()

    play(tmp_path, scenario)


def test_a_disk_that_fails_while_a_log_is_compacted_has_failed(tmp_path: Path) -> None:
    async def scenario(scene: Scene) -> None:
        scene.machine.error = DiskFailed(5, "Input/output error")
        await scene.end()
        assert scene.node.stopped.done()

    play(tmp_path, scenario)

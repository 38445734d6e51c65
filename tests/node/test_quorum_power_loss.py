"""The power goes at every file operation of a quorum's life: what was committed is there afterwards, and it can go on.

The story is told once to count its operations, then again up to each of them; from there the disk is found in several states.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from odradek.log.disk import DiskFailed
from odradek.node.controller import ControllerHost
from odradek.node.quorum_config import QuorumConfig
from odradek.wire.message import Message
from odradek.wire.messages import TopicRecord
from tests.log.disk import PowerLost, SimDisk
from tests.node.metadata import formatted, started, with_log

FOLDER = "/disk/data"
CONFIG = with_log(
    segment_bytes=700,
    max_record_bytes_between_snapshots=500,
    max_retention_bytes=1500,
    file_delete_delay_ms=0,
)
Result = TypeVar("Result")


class SameThreadLoop(asyncio.SelectorEventLoop):
    """Runs what is handed to threads at once, so that every run has the same operations in the same order."""

    def run_in_executor(  # type: ignore[override]
        self, executor: None, func: Callable[..., Result], *args: object
    ) -> asyncio.Future[Result]:
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001
            done.set_exception(error)
        return done


class Story:
    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.committed: list[str] = []
        self.epochs: list[int] = []

    async def tell(self) -> None:
        formatted(self.disk, FOLDER)
        for life in range(3):
            host = await started(self.disk, FOLDER, CONFIG)
            self.epochs.append(host.quorum.epoch)
            for number in range(8):
                await self.create(host, f"{life}-{number}")
            if life != 1:  # the second life ends without a stop
                await host.quorum.close()

    async def create(self, host: ControllerHost, name: str) -> None:
        record: tuple[Message, int] = (TopicRecord(name=name, topic_id=name.encode().ljust(16)), 0)
        await host.quorum.commit(host.quorum.append([record]))
        self.committed.append(name)


def run(story: Story) -> None:
    loop = SameThreadLoop()
    try:
        loop.run_until_complete(story.tell())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.close()


def told_until(step: int | None) -> Story:
    story = Story(SimDisk())
    if step is not None:
        story.disk.stop_at(step)
    with contextlib.suppress(PowerLost, DiskFailed):
        run(story)
    return story


def ways_to_end(disk: SimDisk, step: int) -> Iterator[SimDisk]:
    yield disk.crash("strict")
    yield disk.crash("kept")
    yield disk.crash("torn", kept_bytes=step % 90, zeros=step % 2 == 0)
    for seed in range(2):
        yield disk.crash("mixed", seed=1000 * step + seed)


PARTS = 4
STEPS = len(told_until(None).disk.steps)


def test_the_story_has_snapshots_and_lets_go_of_segments_and_snapshots() -> None:
    renamed = [step.path for step in told_until(None).disk.steps if step.kind == "rename"]
    for ending in (".checkpoint", ".checkpoint.deleted", ".log.deleted"):
        assert any(path.endswith(ending) for path in renamed), ending


@pytest.mark.parametrize("part", range(PARTS))
def test_what_was_committed_survives_a_power_loss_at_every_operation(part: int) -> None:
    for step in range(part, STEPS, PARTS):
        story = told_until(step)
        for found in ways_to_end(story.disk, step):
            check(found, story, step)


def check(found: SimDisk, story: Story, step: int) -> None:
    """The folder opens with all that was committed, in an epoch that nobody led before, and goes on."""

    async def again(config: QuorumConfig) -> None:
        if not exists(found, f"{FOLDER}/meta.properties"):
            assert not story.epochs
            formatted(found, FOLDER)
        host = await started(found, FOLDER, config)
        names = list(host.quorum.image.topics)
        assert names[: len(story.committed)] == story.committed, f"step {step}"
        assert len(names) <= len(story.committed) + 1
        assert host.quorum.epoch > max(story.epochs, default=0)
        await story.create(host, "after")
        story.committed.remove("after")

    loop = SameThreadLoop()
    try:
        loop.run_until_complete(again(CONFIG))
    finally:
        loop.close()


def exists(disk: SimDisk, path: str) -> bool:
    try:
        disk.read(path)
    except FileNotFoundError:
        return False
    return True

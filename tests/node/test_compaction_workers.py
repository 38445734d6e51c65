"""Processes that compact and die of it: one log is left as it is then, and the others are compacted by the next process."""

import asyncio
import os
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from odradek.log.compaction import Job, Outcome
from odradek.log.disk import RealDisk
from odradek.log.names import TopicPartition
from odradek.node.machine import Machine, compact_elsewhere
from tests.node.compacting import clean, fill
from tests.node.inside import connected, new_node, running

OTHER = TopicPartition("other", 0)


def compact_or_die(job: Job, bytes_per_second: float) -> Outcome:
    if job.folder.endswith("/worst-0"):
        os._exit(1)
    return compact_elsewhere(job, bytes_per_second)


class DeadWorker(ThreadPoolExecutor):
    """A process that was killed before it was asked for anything."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        raise BrokenProcessPool("a child process terminated abruptly")


class DeadAtFirst(Machine):
    is_dead = True

    def worker(self) -> Executor:
        return DeadWorker(1) if self.is_dead else super().worker()


def test_a_process_that_dies_takes_one_log_with_it_and_the_others_are_compacted_by_the_next(tmp_path: Path) -> None:
    async def run() -> None:
        machine = Machine()
        machine.compact = compact_or_die
        node = new_node(tmp_path, RealDisk, 64 * 1024, machine)
        async with running(node), connected(node) as client:
            await fill(node, client, "worst")
            await fill(node, client, "other")
            worst = node.partitions.by_name["worst"][0].log
            for _ in range(2):
                cleaner = await clean(node)
                assert [*cleaner.set_aside] == [worst]
                assert not cleaner.running
            assert cleaner.folder.clean_offsets[OTHER] > 0

    asyncio.run(run())


def test_a_process_that_was_dead_before_is_no_logs_fault(tmp_path: Path) -> None:
    async def run() -> None:
        machine = DeadAtFirst()
        node = new_node(tmp_path, RealDisk, 64 * 1024, machine)
        async with running(node), connected(node) as client:
            await fill(node, client, "other")
            cleaner = await clean(node)
            assert not cleaner.set_aside
            assert not cleaner.running
            machine.is_dead = False
            await clean(node)
            assert cleaner.folder.clean_offsets[OTHER] > 0

    asyncio.run(run())

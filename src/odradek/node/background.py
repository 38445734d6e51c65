"""What goes on beside the clients: retention, checkpoints, flushes by time, compaction.

What changes in memory happens on the loop, in short steps; what waits for the disk, on the folder's thread; compaction is done by
a process of its own, which is there only while there is something to compact.

Invariants
 1. One compaction at a time for a folder. One that fails sets its log aside, with one line that says why; for room it waits.
 2. A failure here is logged and tried again with the next interval; it never reaches a client.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from odradek.core.config.broker import BrokerConfig
from odradek.core.metadata.delta import Delta
from odradek.log.cleaner import Cleaner
from odradek.log.compaction import Job, Outcome
from odradek.log.config import INT64_MAX
from odradek.log.disk import DiskFailed, DiskFull
from odradek.log.folder import LogFolder
from odradek.log.names import TopicPartition
from odradek.node.partitions import Partitions
from odradek.node.reserve import SPARE_BYTES_MIN, Reserve
from odradek.node.timers import Timer, Timers
from odradek.wire.errors import ProtocolError

LOOK_INTERVAL_MS = 1000  # how often it is looked whether there is room again, and whether a disk has failed
ROOM = "room.tmp"  # there for a moment
FLUSH_INTERVAL_MS = 1000  # how often logs with a flush.ms are looked at, unless log.flush.scheduler.interval.ms says otherwise

logger = logging.getLogger("odradek.background")


class Background:
    def __init__(
        self,
        partitions: Partitions,
        config: BrokerConfig,
        timers: Timers,
        reserve: Reserve,
        follow: Callable[[Delta], None],
    ) -> None:
        """`follow` has changes of the metadata followed that could not be before."""
        self.follow = follow
        self.partitions = partitions
        self.reserve = reserve
        self.is_making_room = False
        self.config = config
        self.timers = timers
        self.machine = partitions.machine
        self.now_ms = self.machine.wall_ms
        self.written: dict[LogFolder, dict[str, bytes]] = {}
        self.cleaners = {
            folder: Cleaner(folder, config.integer("log.cleaner.dedupe.buffer.size")) for folder in partitions.folders
        }
        self.cleaning: dict[LogFolder, asyncio.Task[None]] = {}
        self.next_cleaning: Timer | None = None
        flush_ms = config.integer("log.flush.scheduler.interval.ms")
        self.stops = [
            timers.every(config.integer("log.retention.check.interval.ms"), self.expire),
            timers.every(config.integer("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint),
            timers.every(FLUSH_INTERVAL_MS if flush_ms == INT64_MAX else flush_ms, self.flush),
        ]
        self.stops += [
            timers.every(LOOK_INTERVAL_MS, self.look_for_room),
            timers.every(LOOK_INTERVAL_MS, partitions.look_for_failures),
        ]
        self.look_for_room()
        if config.flag("log.cleaner.enable"):
            self._clean_later()

    def configure(self, config: BrokerConfig) -> None:
        """Takes over what was changed while running, from the next compaction on."""
        self.config = config
        if self.next_cleaning is not None:
            self._clean_later()
        for cleaner in self.cleaners.values():
            cleaner.memory_bytes = config.integer("log.cleaner.dedupe.buffer.size")

    def look_for_room(self) -> None:
        """Makes what there was no room for: the reserve of the metadata, and new logs. Goes on with folders that were full."""
        if not self.is_making_room and (not self.reserve.is_there or self.partitions.unmade or self.partitions.full):
            self.is_making_room = True
            self.partitions.work.spawn(self._make_room())

    async def _make_room(self) -> None:
        if self.partitions.full:
            self.machine.collect_garbage()  # a file that was deleted takes up room until nothing refers to it, garbage included
        try:
            if not self.reserve.is_there and await self.partitions.loop.run_in_executor(None, self.reserve.make):
                self.reserve.made()
            for folder in [each for each in self.partitions.full if not self.partitions.writings[each].is_reserved]:
                if await self.partitions.work.in_folder(folder, partial(has_room, folder)) and folder in self.partitions.full:
                    self.partitions.has_room(folder)
            if self.partitions.unmade:
                self.follow(self.partitions.take_unmade())
        finally:
            self.is_making_room = False

    def expire(self) -> None:
        for folder in self.partitions.folders:
            try:
                removals = folder.expire(self.now_ms(), self.partitions.steady_ms())
            except DiskFull as full:
                logger.error("%s: retention has to wait until there is room: %s", folder.path, full)
                continue
            except DiskFailed as error:
                self.partitions.failed(error)
                continue
            if removals:
                self.partitions.work.spawn(self._remove(folder, removals))
        self.partitions.replication.starts_moved()

    async def _remove(self, folder: LogFolder, removals: list[Callable[[], None]]) -> None:
        for remove in removals:
            await self.partitions.work.in_folder(folder, remove)

    def checkpoint(self) -> None:
        for folder in self.partitions.folders:
            checkpoints = folder.checkpoints()
            known = self.written.setdefault(folder, {})
            changed = {path: content for path, content in checkpoints.items() if known.get(path) != content}
            if changed:
                saving = self.partitions.work.in_folder(folder, folder.saving(changed))  # now: what is to be noted next is newer
                self.partitions.work.spawn(self._checkpoint(folder, changed, saving))

    async def _checkpoint(self, folder: LogFolder, changed: dict[str, bytes], saving: "asyncio.Future[None]") -> None:
        try:
            await saving
        except DiskFull:
            return  # the old ones stay, and are right, only older
        self.written[folder].update(changed)

    def flush(self) -> None:
        now_ms = self.now_ms()
        for folder in self.partitions.folders:
            for log in folder.logs.values():
                if log.config.flush_ms < INT64_MAX and log.flush_due(now_ms) and log not in self.partitions.work.flushes:
                    self.partitions.work.spawn(self.partitions.work.flush(log))

    # -- compaction

    def _clean_later(self) -> None:
        if self.next_cleaning is not None:
            self.next_cleaning.cancel()
        self.next_cleaning = self.timers.after(self.config.integer("log.cleaner.backoff.ms"), self._clean_again)

    def _clean_again(self) -> None:
        self._clean_later()
        self.clean()

    def clean(self) -> None:
        for folder in self.partitions.folders:
            if folder not in self.cleaning:
                cleaner = self.cleaners[folder]
                task = self.partitions.loop.create_task(self._clean(folder, cleaner))
                self.cleaning[folder] = task
                task.add_done_callback(lambda _, folder=folder: self.cleaning.pop(folder))  # type: ignore[misc]

    async def _clean(self, folder: LogFolder, cleaner: Cleaner) -> None:
        try:
            await self._compact(folder, cleaner)
        except DiskFailed as error:  # in that process it was another disk, of the same folder
            self.partitions.failed(folder.disk.fail(error))

    async def _compact(self, folder: LogFolder, cleaner: Cleaner) -> None:
        """Compacts the logs of a folder that are worth it, in a process that ends afterwards."""
        found = self._next_job(folder, cleaner)
        if found is None:
            return
        bytes_per_second = self.config.number("log.cleaner.io.max.bytes.per.second")
        from concurrent.futures.process import BrokenProcessPool  # takes long, and is rarely needed

        with self.machine.worker() as process:
            while found is not None:
                partition, job = found
                try:
                    run = self.partitions.loop.run_in_executor(process, self.machine.compact, job, bytes_per_second)
                except BrokenProcessPool as error:  # since the log before this one
                    cleaner.postpone(partition)
                    logger.error("%s: compaction has to wait for a new process: %s", folder.path, error)
                    return
                try:
                    outcome = await self._outcome(cleaner, partition, run)
                    if outcome is not None:
                        await self._finish(folder, cleaner.finishing(partition, outcome, self.now_ms()))
                except DiskFull as full:
                    cleaner.postpone(partition)
                    logger.error("%s: compaction has to wait until there is room: %s", folder.path, full)
                    return
                except DiskFailed:
                    raise
                except (OSError, ProtocolError, BrokenProcessPool) as error:
                    cleaner.fail(partition, str(error))
                    logger.error("%s-%d cannot be compacted and is left as it is: %s", *partition, error)
                    if isinstance(error, BrokenProcessPool):
                        return  # the others would find the same
                found = self._next_job(folder, cleaner)

    async def _outcome(self, cleaner: Cleaner, partition: TopicPartition, run: "asyncio.Future[Outcome]") -> Outcome | None:
        """None when it came to nothing because the log, or a part of it, was deleted meanwhile: neither it nor the disk is at
        fault, nor is a log that has its name now."""
        try:
            return await run
        except (OSError, ProtocolError):
            if cleaner.is_there(partition):
                raise
            cleaner.postpone(partition)
            return None

    def _next_job(self, folder: LogFolder, cleaner: Cleaner) -> tuple[TopicPartition, Job] | None:
        """None too while only the metadata may be written: a compacted copy takes room before it frees any."""
        return None if self.partitions.writings[folder].is_reserved else cleaner.next_job(self.now_ms())

    async def _finish(self, folder: LogFolder, steps: Iterator[Callable[[], None]]) -> None:
        for step in steps:
            await self.partitions.work.in_folder(folder, step)

    async def close(self) -> None:
        for stop in self.stops:
            stop()
        if self.next_cleaning is not None:
            self.next_cleaning.cancel()
        for task in list(self.cleaning.values()):
            task.cancel()
        await asyncio.gather(*self.cleaning.values(), return_exceptions=True)


def has_room(folder: LogFolder) -> bool:
    """Tries it: what the volume says is not all that limits a folder."""
    path = f"{folder.path}/{ROOM}"
    try:
        folder.disk.reserve(path, SPARE_BYTES_MIN)
    except DiskFull:
        return False
    folder.disk.remove(path)
    return True

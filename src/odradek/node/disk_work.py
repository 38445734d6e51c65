"""What waits for the disks of a node, on threads: one for each folder does its small files in order, others sync and read.

Invariants
 1. Small files of one folder are written one after the other.
 2. A log is flushed by one thread at a time.
 3. Whatever fails is told once: to who waits for it, or to `failed` where nobody does.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from odradek.log.disk import Cold, DiskFailed, DiskFull
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.wire.errors import ErrorCode, Refused

BATCHES_LOOKED_INTO_MAX = 2  # at once: each may take twice PAYLOAD_SIZE_MAX

Result = TypeVar("Result")

logger = logging.getLogger("odradek.partitions")


class DiskWork:
    def __init__(self, folders: list[LogFolder], now_ms: Callable[[], int], failed: Callable[[OSError], None]) -> None:
        """`folders` are those in use; `failed` is told of a disk that is none any more."""
        self.now_ms = now_ms
        self.failed = failed
        self.loop = asyncio.get_running_loop()
        self.flushes: dict[Log, asyncio.Task[None]] = {}
        self._threads = {folder: ThreadPoolExecutor(1, "folder") for folder in folders}
        self._batch_threads = ThreadPoolExecutor(BATCHES_LOOKED_INTO_MAX, "batch")
        self._tasks: set[asyncio.Task[None]] = set()

    def in_folder(self, folder: LogFolder, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Does something with a folder's small files, one thing after the other."""
        return self.loop.run_in_executor(self._threads[folder], work)

    def look_into(self, function: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Runs what decompresses a batch that a client made, few at a time."""
        return self.loop.run_in_executor(self._batch_threads, function)

    async def patiently(self, log: Log, look: Callable[[], Result]) -> Result:
        """Looks something up in a log, here; what is not in memory is read in on a thread first. By its name another log may be
        found when it is gone."""
        while True:
            if log.is_gone:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{log.folder} is deleted, or elsewhere")
            log.disk.is_hasty = True
            try:
                return look()
            except Cold as cold:
                warm = cold.warm
            finally:
                log.disk.is_hasty = False
            await self.loop.run_in_executor(None, warm)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Has something done for which nobody waits."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DiskFailed):
            self.failed(error)
        elif error is not None and not isinstance(error, Refused):  # which was told already
            logger.error("background work failed: %s", error)

    # -- flushing

    def flush_rolled(self, log: Log) -> None:
        if log.has_rolled and log not in self.flushes:
            self.spawn(self.flush(log, closed_only=True))

    async def flush(self, log: Log, *, closed_only: bool = False) -> None:
        """Syncs a log, after a sync that is under way."""
        while (running := self.flushes.get(log)) is not None:
            await asyncio.wait([running])
        task = self.flushes[log] = self.loop.create_task(self._flush(log, closed_only=closed_only))
        await task

    async def _flush(self, log: Log, *, closed_only: bool) -> None:
        try:
            if log.is_gone:
                return
            flush = log.start_flush(closed_only=closed_only)
            await self.loop.run_in_executor(None, flush.run)
            log.finish_flush(flush, self.now_ms())
        except FileNotFoundError as error:
            if not log.is_gone:
                self.failed(log.disk.fail(error))
        except (DiskFull, DiskFailed) as error:
            logger.error("%s cannot be flushed: %s", log.folder, error.strerror or error)
            if isinstance(error, DiskFailed):
                self.failed(error)
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.folder}: {error.strerror or error}") from error
        finally:
            del self.flushes[log]

    # -- the end

    async def finish(self) -> None:
        """Until nothing is under way but what is asked for in folders."""
        self._batch_threads.shutdown(wait=False)
        await asyncio.gather(*self._tasks, *self.flushes.values(), return_exceptions=True)

    def close(self) -> None:
        for thread in self._threads.values():
            thread.shutdown(wait=False)

"""How one folder is written: at once, as long as it is fast; on threads, when it has turned slow; not at all, while the last room
on its disk is the metadata's.

An append at once costs no more than two looks at a clock. When one has taken long, the loop would wait for the next one too: from
then on appends to that folder are written by threads, and when several in a row were fast again, at once as before. What a
coordinator writes for itself stays on the loop: it is small, and its next step needs the offset.

Invariants
 1. Appends to one log happen in the order in which they came, however they are done, and whoever leads it.
 2. Nothing is written at once to a folder that has a write under way on a thread.
 3. What waits is bounded: WRITES_WAITING_MAX appends, then others are refused and come again. A follower waits for each.
 4. What was written for a role that is over when it is done is taken back: the next leader's epoch has begun without it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.log.folder import LogFolder
from odradek.log.log import Appended, Log, Manner
from odradek.log.write import Write
from odradek.wire.batch import BatchHeader
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.varint import Buffer

if TYPE_CHECKING:
    from odradek.node.partition import Partition

SLOW_APPEND_SECONDS = 0.05
FAST_WRITE_SECONDS = 0.01
FAST_WRITES_MIN = 8  # in a row, before the loop writes again
WRITE_THREADS_MAX = 4
WRITES_WAITING_MAX = 1000

Result = TypeVar("Result")

logger = logging.getLogger("odradek.writing")


class Writing:
    def __init__(self, folder: LogFolder, seconds: Callable[[], float]) -> None:
        """`seconds` is the clock by which a write is slow."""
        self.folder = folder
        self.seconds = seconds
        self.is_slow = False
        self.is_reserved = False
        self.partitions: dict[Partition, None] = {}  # those that are led here
        self.locks: dict[Log, asyncio.Lock] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.fast_writes = 0
        self.threads = ThreadPoolExecutor(WRITE_THREADS_MAX, "write")

    @property
    def is_at_once(self) -> bool:
        return not (self.is_slow or self.is_reserved)

    def reserve(self, is_reserved: bool) -> None:
        """Says whether only the metadata may be written."""
        self.is_reserved = is_reserved
        self._changed()

    def appended(self, began_s: float) -> None:
        """An append on the loop is done, which began then. After one that took long there are no more."""
        seconds = self.seconds() - began_s
        if seconds <= SLOW_APPEND_SECONDS:
            return
        logger.warning("%s is slow, a write took %.0f ms: threads write to it from now on", self.folder.path, seconds * 1000)
        self.is_slow, self.fast_writes = True, 0
        self._changed()

    def _changed(self) -> None:
        for partition in self.partitions:
            partition.decide_way()

    def check(self) -> None:
        if self.is_reserved:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder.path}: the disk is full")

    async def append(
        self, partition: "Partition", records: bytearray | memoryview, header: BatchHeader, now_ms: int, how: Manner
    ) -> Appended:
        """Appends on a thread, when those before it are done. Refused, ProtocolError, DiskFull or DiskFailed when that fails."""
        self.check()
        if len(self.tasks) >= WRITES_WAITING_MAX:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.folder.path}: {len(self.tasks)} writes wait for the disk already"
            )
        return await self._start(self._append(partition, records, header, now_ms, how))

    async def append_as_follower(self, log: Log, records: Buffer, now_ms: int, is_followed: Callable[[], bool]) -> None:
        """The same for what a leader sent."""
        await self._start(self._append_as_follower(log, records, now_ms, is_followed))

    async def idle(self, log: Log) -> None:
        """Until no thread writes to a log."""
        while log.is_being_written:
            await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _start(self, append: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.get_running_loop().create_task(append)
        self.tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)  # what is being written is noted, also when nobody waits for it any more

    async def _append(
        self, partition: "Partition", records: bytearray | memoryview, header: BatchHeader, now_ms: int, how: Manner
    ) -> Appended:
        log, batches = partition.log, list[tuple[int, BatchHeader]]()
        async with self.locks.setdefault(log, asyncio.Lock()):
            partition.check_open()
            epoch = partition.leader_epoch
            appended = log.append(records, leader_epoch=epoch, now_ms=now_ms, header=header, unwritten=batches, **how)
            if not appended.is_duplicate:
                write = Write(log, records, batches, now_ms)
                await self._write(write, lambda: not partition.is_closed and partition.leader_epoch == epoch)
                partition.check_open()
                if partition.leader_epoch != epoch:
                    raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition} was written in epoch {epoch}, which is over")
                partition.host.grew(partition)
            return appended

    async def _append_as_follower(self, log: Log, records: Buffer, now_ms: int, is_followed: Callable[[], bool]) -> None:
        batches = list[tuple[int, BatchHeader]]()
        async with self.locks.setdefault(log, asyncio.Lock()):
            if is_followed() and log.append_as_follower(records, now_ms=now_ms, unwritten=batches):
                at, last = batches[-1]
                await self._write(Write(log, memoryview(records)[: at + last.size], batches, now_ms), is_followed)

    async def _write(self, write: Write, is_wanted: Callable[[], bool]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self.threads, self._run, write)
        except BaseException:
            write.give_up()
            raise
        if is_wanted():
            write.finish()
        else:
            write.take_back()

    def _run(self, write: Write) -> None:
        began = self.seconds()
        write.run()
        is_fast = self.seconds() - began < FAST_WRITE_SECONDS
        self.fast_writes = self.fast_writes + 1 if is_fast else 0

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.discard(task)
        if self.tasks:
            return
        self.locks.clear()
        if self.is_slow and self.fast_writes >= FAST_WRITES_MIN:
            logger.info("%s is fast again: it is written at once as before", self.folder.path)
            self.is_slow = False
            self._changed()

    async def close(self) -> None:
        """When what is under way is done."""
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.threads.shutdown()

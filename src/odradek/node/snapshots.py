"""Snapshots of the metadata: when one is due, how it is made, and what is let go of then.

`metadata.log.max.record.bytes.between.snapshots` and `metadata.log.max.snapshot.interval.ms` say when.

Invariants
 1. A snapshot is made of the image as it is after a batch: what is committed, and nothing else; and what is synced here, because
    a start takes the log below a snapshot for synced.
 2. One is made at a time, and written on a thread. Without room there is none, and the log goes on.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.snapshot import snapshot_records
from odradek.core.raft.batches import SnapshotId, encode_snapshot
from odradek.core.raft.machine import Raft
from odradek.log.disk import Disk, DiskFull
from odradek.node.metadata_log import MetadataLog, write_snapshot


class Snapshots:
    def __init__(
        self, disk: Disk, metadata_log: MetadataLog, image: MetadataImage, machine: Raft, now_ms: Callable[[], int]
    ) -> None:
        self.disk = disk
        self.metadata_log = metadata_log
        self.image = image
        self.machine = machine
        self.now_ms = now_ms
        self.bytes_since = 0  # of the records that no snapshot holds yet
        self.task: asyncio.Task[None] | None = None  # that makes one
        self._made_s = 0.0

    def begin(self) -> None:
        """From now on time counts."""
        self._made_s = asyncio.get_running_loop().time()
        self.expire()

    def take_if_due(self, ended: Callable[[asyncio.Task[None]], None]) -> None:
        loop, config = asyncio.get_running_loop(), self.metadata_log.config
        waited_ms = (loop.time() - self._made_s) * 1000
        is_large = self.bytes_since >= config.max_record_bytes_between_snapshots
        if self.task is None and (is_large or 0 < config.max_snapshot_interval_ms <= waited_ms):
            self.task = loop.create_task(self._take_and_clean())
            self.task.add_done_callback(ended)

    async def _take_and_clean(self) -> None:
        loop = asyncio.get_running_loop()
        if self.image.offset >= self.machine.synced_offset:  # with one of the next commits it is not
            self.task = None
            return
        try:
            await self.take()
            self._clean()
        except DiskFull:  # the next one may find room
            self.bytes_since = 0
        finally:
            self._made_s = loop.time()
            self.task = None

    async def take(self) -> SnapshotId | None:
        """A snapshot of the image; None when there is one already, or one of the leader stands for all that it holds by now."""
        image = self.image
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        self.bytes_since = 0
        if snapshot in self.metadata_log.snapshots:
            return None
        kraft_version, voters = self.machine.voters_at(snapshot.offset)
        batches = encode_snapshot(
            list(snapshot_records(image)),
            epoch=image.epoch,
            now_ms=self.now_ms(),
            timestamp_ms=image.timestamp_ms,
            kraft_version=kraft_version,
            voters=voters if kraft_version else None,
        )
        write = partial(write_snapshot, self.disk, self.metadata_log.folder, snapshot, batches)
        await asyncio.get_running_loop().run_in_executor(None, write)
        return snapshot if self.metadata_log.took(snapshot) else None

    def _clean(self) -> None:
        self.metadata_log.clean(self.now_ms())
        self.machine.start_moved()

    def expire(self) -> None:
        """To be called now and then: removes what has had its time."""
        with suppress(DiskFull):  # of names; the next time there may be room
            self._clean()

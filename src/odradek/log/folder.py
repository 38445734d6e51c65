"""One folder of `log.dirs`: its lock, its small files, and the logs of the partitions in it.

Invariants
 1. Who opened the folder holds its lock until it is closed.
 2. The clean-shutdown mark is there only while nobody has the folder open, and only when every log was closed and every
    checkpoint written.
 3. A recovery point on disk is never above what has been synced, nor above the end of the log, whoever writes it when.
 4. No log is made while a checkpoint on disk tells of one with its name that is gone.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from uuid import UUID

from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptFile,
    format_offsets,
    partition_metadata,
    read_clean_shutdown,
    read_offsets,
    read_partition_metadata,
    write_clean_shutdown,
)
from odradek.log.config import LogConfig
from odradek.log.disk import Disk, DiskFull, Lock, replace_files
from odradek.log.loading import open_log
from odradek.log.log import Log
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.log.names import FolderState, TopicPartition, folder_name, parse_folder_name

LOCK = ".lock"
METADATA_LOG = "__cluster_metadata-0"  # the quorum opens it, with rules of its own


def lock_folder(disk: Disk, path: str) -> Lock:
    """Makes the folder if it is not there, and takes it for this process. BlockingIOError when another process has it."""
    disk.make_folder(path)
    disk.sync_folder(os.path.dirname(os.path.abspath(path)))
    return disk.lock(f"{path}/{LOCK}")


class LogFolder:
    """An open folder. `jitter` picks a number below its argument, `unique_id` gives 32 hexadecimal digits."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        config_of: Callable[[str], LogConfig],
        *,
        now_ms: int,
        jitter: Callable[[int], int],
        unique_id: Callable[[], str],
        lock: Lock | None = None,
    ) -> None:
        """`lock` is what `lock_folder` gave, if that was called already. BlockingIOError when another process has the folder."""
        self.disk = disk
        self.path = path
        self.config_of = config_of
        self.jitter = jitter
        self.unique_id = unique_id
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        self.strays: list[str] = []
        self.deletions: list[tuple[int, str]] = []
        self.saving_lock = threading.Lock()  # one writes the checkpoints at a time
        self.lowerings = 0  # of recovery points: how often a log was cut below one
        self.gone = self.noted_gone = 0  # logs, and of how many of them no checkpoint on disk tells any more
        self.lock = lock or lock_folder(disk, path)
        try:
            self._load(now_ms)
        except BaseException:
            self.lock.release()
            raise

    @property
    def directory_id(self) -> bytes | None:
        """What the metadata calls it."""
        return None if self.meta is None or self.meta.directory_id is None else self.meta.directory_id.bytes

    def give_up(self) -> None:
        """Its disk has failed: lets go of it, so that a person can look at it. Nothing is left of it here but a name."""
        self.logs.clear()
        self.futures.clear()
        self.deletions.clear()
        self.lock.release()

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _load(self, now_ms: int) -> None:
        self.meta = read_meta_properties(self.disk, self._file(META_PROPERTIES))
        self.clean_broker_epoch = read_clean_shutdown(self.disk, self._file(CLEAN_SHUTDOWN))
        self.was_clean = self.clean_broker_epoch is not None
        recovery_points = self._offsets(RECOVERY_POINTS)
        starts = self._offsets(LOG_STARTS)
        high_watermarks = self._offsets(HIGH_WATERMARKS)
        self.clean_offsets = self._offsets(CLEANER_OFFSETS)
        if self.was_clean:
            self.disk.remove(self._file(CLEAN_SHUTDOWN))
            self.disk.sync_folder(self.path)
        for name, size in self.disk.names(self.path):
            parsed = parse_folder_name(name) if size < 0 and name != METADATA_LOG else None
            if parsed is None:
                continue
            partition, state = parsed
            if state is FolderState.DELETE:
                self.disk.remove_folder(self._file(name))
            elif state is FolderState.STRAY:
                self.strays.append(name)
            else:
                future = state is FolderState.FUTURE  # of which the checkpoints do not tell
                log = self._open(
                    partition,
                    name,
                    now_ms,
                    clean=self.was_clean,
                    recovery_point=0 if future else recovery_points.get(partition, 0),
                    start=0 if future else starts.get(partition, 0),
                )
                (self.futures if future else self.logs)[partition] = log
                high_watermark = 0 if future else high_watermarks.get(partition, 0)
                log.move_high_watermark(min(max(high_watermark, log.start_offset), log.end_offset))
        if {*recovery_points, *starts, *high_watermarks, *self.clean_offsets} - self.logs.keys():
            self.clean_offsets = {partition: clean for partition, clean in self.clean_offsets.items() if partition in self.logs}
            self.gone += 1
            self._note_gone()

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint; one that is damaged tells nothing, and nothing is lost by it but time."""
        try:
            return read_offsets(self.disk, self._file(name))
        except CorruptFile:
            return {}

    def _open(
        self, partition: TopicPartition, name: str, now_ms: int, *, clean: bool, recovery_point: int = 0, start: int = 0
    ) -> Log:
        return open_log(
            self.disk,
            self._file(name),
            self.config_of(partition.topic),
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start,
            clean_offset=self.clean_offsets.get(partition, 0),
            jitter=self.jitter,
            recovery_point_lowered=lambda: self._lowered(partition),
        )

    def _lowered(self, partition: TopicPartition) -> None:
        """A log is about to be cut below what was synced, and perhaps below what was compacted."""
        log = self.logs.get(partition)
        if log is not None and partition in self.clean_offsets:  # also one that was lowered before, when there was no room for it
            self.clean_offsets[partition] = min(self.clean_offsets[partition], log.recovery_point)
        lower = self.recovery_points() | self.compacted()
        with self.saving_lock:
            self.lowerings += 1
            replace_files(self.disk, lower)

    def create(self, partition: TopicPartition, topic_id: UUID, now_ms: int) -> Log:
        """A new, empty log."""
        self.adopt(self.making({partition: topic_id}, now_ms)())
        return self.logs[partition]

    def making(self, partitions: dict[TopicPartition, UUID], now_ms: int) -> Callable[[], dict[TopicPartition, Log]]:
        """What makes new, empty logs, which `adopt` takes, on any thread. Their folders and topics' ids are durable before
        anything can be appended: the more are made at once, the less a sync costs each."""
        note_gone = self.noting_gone() if self.noted_gone < self.gone else None

        def make() -> dict[TopicPartition, Log]:
            if note_gone is not None:
                note_gone()
            return self._make(partitions, now_ms)

        return make

    def _make(self, partitions: dict[TopicPartition, UUID], now_ms: int) -> dict[TopicPartition, Log]:
        names = {partition: folder_name(partition) for partition in partitions}
        for name in names.values():
            self.disk.make_folder(self._file(name))
        replace_files(
            self.disk,
            {
                self._file(f"{names[partition]}/{PARTITION_METADATA}"): partition_metadata(topic_id)
                for partition, topic_id in partitions.items()
            },
        )
        self.disk.sync_folder(self.path)
        return {partition: self._open(partition, name, now_ms, clean=True) for partition, name in names.items()}

    def adopt(self, logs: dict[TopicPartition, Log]) -> None:
        assert not self.logs.keys() & logs.keys()
        self.logs.update(logs)

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        self.discard([self.forget(partition)], now_ms)
        self._note_gone()

    def forget(self, partition: TopicPartition) -> Log:
        """Takes a log away at once; `discard` is to follow."""
        self.gone += 1
        self.clean_offsets.pop(partition, None)
        log = self.logs.pop(partition)
        log.is_gone = True
        return log

    def topic_id(self, log: Log) -> UUID | None:
        """Of the topic that a log was made for; None where its folder does not say."""
        return read_partition_metadata(self.disk, f"{log.folder}/{PARTITION_METADATA}")

    def set_aside(self, partition: TopicPartition, now_ms: int) -> str:
        """Renames the folder of a log that the cluster does not know, or not here; gives its new name. Whether somebody misses
        it, nobody knows: it stays until a person removes it."""
        self.logs[partition].close(now_ms)
        log = self.forget(partition)
        name = folder_name(partition, FolderState.STRAY, self.unique_id())
        self.disk.rename(log.folder, self._file(name))
        self.disk.sync_folder(self.path)
        self.strays.append(name)
        self._note_gone()
        return name

    def discard(self, logs: list[Log], now_ms: int) -> None:
        """Renames the folders of logs that were forgotten, on any thread; their files go when nobody can be about to read them.
        Nothing that the checkpoints say may be believed of the next log with that name: `noting_gone` is to follow."""
        for log in logs:
            partition, _ = parse_folder_name(os.path.basename(log.folder)) or (None, None)
            assert partition is not None
            path = self._file(folder_name(partition, FolderState.DELETE, self.unique_id()))
            with log.naming:
                try:
                    self.disk.rename(log.folder, path)
                except DiskFull:
                    self.disk.remove_folder(log.folder)  # this makes room, and who reads has its files open
                    continue
                except FileNotFoundError:  # somebody was faster
                    continue
            self.deletions.append((now_ms + log.config.file_delete_delay_ms, path))
        self.disk.sync_folder(self.path)

    def noting_gone(self) -> Callable[[], None]:
        """What has the checkpoints tell of no log that is gone by now, on any thread."""
        gone, save = self.gone, self.saving(self.checkpoints())

        def note() -> None:
            save()
            self.noted_gone = gone

        return note

    def _note_gone(self) -> None:
        with suppress(DiskFull):  # then it is done before the next log is made
            self.noting_gone()()

    def expire(self, now_ms: int, steady_ms: int) -> list[Callable[[], None]]:
        """Retention, producers that have gone, files that nobody has read of late. Gives what removes the files whose time has
        come: that takes long, and may be called on any thread. `steady_ms` is a clock that nobody sets: whoever produced a moment
        ago by it is not forgotten, whatever day it is said to be."""
        for log in self.logs.values():
            log.delete_expired(now_ms)
            log.producers.remove_expired(steady_ms)
            for segment in log.segments[:-1]:
                segment.release()
        due = [remove for log in self.logs.values() for remove in log.deletions_due(now_ms)]  # forgotten by the logs from now on
        due += [partial(self.disk.remove_folder, path) for due_ms, path in self.deletions if due_ms <= now_ms]
        self.deletions = [entry for entry in self.deletions if entry[0] > now_ms]
        return due

    def checkpoint(self) -> None:
        """Notes where each log has been synced to, begins, is committed and compacted to."""
        self.saving(self.checkpoints())()

    def saving(self, checkpoints: dict[str, bytes]) -> Callable[[], None]:
        """What writes checkpoints that were made just now, on any thread. When a log is cut before it comes to that, those which
        the cut has written are newer, and stay."""
        lowerings = self.lowerings

        def save() -> None:
            with self.saving_lock:
                old = () if lowerings == self.lowerings else (self._file(RECOVERY_POINTS), self._file(CLEANER_OFFSETS))
                replace_files(self.disk, {path: content for path, content in checkpoints.items() if path not in old})

        return save

    def checkpoints(self) -> dict[str, bytes]:
        """The checkpoints as they are to be written, by path."""
        high_watermarks = {partition: log.high_watermark for partition, log in self.logs.items()}
        return {
            **self.recovery_points(),
            **self.starts(),
            self._file(HIGH_WATERMARKS): format_offsets(high_watermarks),
            **self.compacted(),
        }

    def starts(self) -> dict[str, bytes]:
        """Where logs start that have something below."""
        starts = {partition: log.start_offset for partition, log in self.logs.items() if log.start_offset > log.bases[0]}
        return {self._file(LOG_STARTS): format_offsets(starts)}

    def recovery_points(self) -> dict[str, bytes]:
        points = {partition: log.recovery_point for partition, log in self.logs.items()}
        return {self._file(RECOVERY_POINTS): format_offsets(points)}

    def compacted(self) -> dict[str, bytes]:
        """Up to where each log has been compacted."""
        return {self._file(CLEANER_OFFSETS): format_offsets(self.clean_offsets)}

    def close(self, now_ms: int, broker_epoch: int = -1, *, is_whole: bool = True) -> None:
        """Leaves everything synced and the mark of a clean stop, unless a log is damaged or not whole: then the next start looks
        again, and nobody counts on what is here."""
        try:
            for log in [*self.logs.values(), *self.futures.values()]:
                log.close(now_ms)
            self.checkpoint()
            if is_whole and all(log.damage is None and log.is_settled for log in self.logs.values()):
                write_clean_shutdown(self.disk, self._file(CLEAN_SHUTDOWN), broker_epoch)
        finally:
            self.lock.release()

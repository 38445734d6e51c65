"""Which log of a folder is compacted next, and what becomes of the result.

A log is worth it when enough of it is dirty (`min.cleanable.dirty.ratio`), or when something in it has waited for longer than
`max.compaction.lag.ms`. What is younger than `min.compaction.lag.ms`, not yet stable, or still being written is left alone.

The compaction itself runs elsewhere: `next_job` says what is to be done; `finish`, `fail` and `postpone` take what came of
it.

Invariants
 1. One job at a time for a log. Where its segments went meanwhile (retention, truncation), its result is thrown away.
 2. Everything below a log's clean offset has been compacted; the offset is on disk only after the segments are.
 3. A log that could not be cleaned is set aside and shown, and not tried again until a person says so.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator
from functools import partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

from odradek.log.compaction import Job, LastBatch, Outcome
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.lookup import aborted_between
from odradek.log.names import FileState, TopicPartition
from odradek.log.segment import Segment

MEMORY_BYTES = 128 * 1024 * 1024  # log.cleaner.dedupe.buffer.size


class Range(NamedTuple):
    """What can be compacted in a log: clean up to `dirty_offset`, dirty up to `end_offset`."""

    dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


class Running(NamedTuple):
    """A job, as the log was when it was handed out."""

    log: Log
    segments: list[Segment]
    cuts: int  # a segment that was cut may have grown, and be closed, again


class Cleaner:
    """The compactions of one log folder."""

    def __init__(self, folder: LogFolder, memory_bytes: int = MEMORY_BYTES) -> None:
        self.folder = folder
        self.memory_bytes = memory_bytes
        self.running: dict[TopicPartition, Running] = {}
        self.set_aside: WeakKeyDictionary[Log, str] = WeakKeyDictionary()  # not what has the name of one that was deleted

    def range_of(self, partition: TopicPartition, now_ms: int) -> Range:
        log = self.folder.logs[partition]
        dirty_offset = self.folder.clean_offsets.get(partition, log.start_offset)
        if not log.start_offset <= dirty_offset <= log.end_offset:
            dirty_offset = log.start_offset
        first_dirty = max(bisect_right(log.bases, dirty_offset) - 1, 0)
        end = first_dirty
        while end < len(log.segments) - 1 and self._is_cleanable(log, end, now_ms):
            end += 1
        dirty = log.segments[first_dirty:end]
        first_timestamps = [segment.first_timestamp() for segment in dirty]
        return Range(
            dirty_offset,
            log.bases[end] if dirty else dirty_offset,
            sum(segment.size for segment in log.segments[:first_dirty]),
            sum(segment.size for segment in dirty),
            any(0 < timestamp < now_ms - log.config.max_compaction_lag_ms for timestamp in first_timestamps),
        )

    def _is_cleanable(self, log: Log, number: int, now_ms: int) -> bool:
        """Whether a closed segment is synced, stable as a whole, and old enough."""
        lag_ms = log.config.min_compaction_lag_ms
        if log.bases[number + 1] > log.last_stable_offset or not log.segments[number].is_synced:
            return False
        return lag_ms <= 0 or log.segments[number].largest_timestamp() <= now_ms - lag_ms

    def next_job(self, now_ms: int) -> tuple[TopicPartition, Job] | None:
        """The dirtiest log that is worth it; None when none is."""
        best: tuple[float, TopicPartition, Range] | None = None
        for partition, log in self.folder.logs.items():
            if not log.config.compacts or partition in self.running or log in self.set_aside or log.damage:
                continue
            found = self.range_of(partition, now_ms)
            worth_it = found.ratio > log.config.min_cleanable_dirty_ratio or found.overdue
            if found.dirty_bytes and worth_it and (best is None or found.ratio > best[0]):
                best = (found.ratio, partition, found)
        if best is None:
            return None
        return best[1], self._start(best[1], best[2], now_ms)

    def _start(self, partition: TopicPartition, found: Range, now_ms: int) -> Job:
        log = self.folder.logs[partition]
        segments = [segment for segment in log.segments if segment.base_offset < found.end_offset]
        job = Job(
            folder=log.folder,
            config=log.config,
            segments=[(segment.base_offset, segment.size) for segment in segments],
            dirty_offset=found.dirty_offset,
            end_offset=found.end_offset,
            aborted=aborted_between(log, log.start_offset, found.end_offset),
            last_batches={
                producer_id: LastBatch(producer.last_offset, producer.epoch)
                for producer_id, producer in log.producers.producers.items()
            },
            memory_bytes=self.memory_bytes,
            now_ms=now_ms,
        )
        self.running[partition] = Running(log, segments, log.cuts)
        return job

    def finish(self, partition: TopicPartition, outcome: Outcome, now_ms: int) -> bool:
        """Swaps the new segments in; False when the log has changed and they were thrown away."""
        steps = self.finishing(partition, outcome, now_ms)
        while True:
            try:
                next(steps)()
            except StopIteration as end:
                return bool(end.value)

    def finishing(self, partition: TopicPartition, outcome: Outcome, now_ms: int) -> Generator[Callable[[], None], None, bool]:
        """The same, step by step: what it yields waits for the disk, and is to be run on any thread before it goes on."""
        running = self.running[partition]
        log, segments, _ = running
        by_base = {segment.base_offset: segment for segment in segments}
        points = self.folder.recovery_points()  # above a recovery point, a gap between segments is taken for a loss
        yield self.folder.saving(points)
        swapped = True
        for bases, size in outcome.groups:
            new = Segment(log.disk, log.folder, bases[0], log.config, size=size, created_ms=now_ms, state=FileState.CLEANED)
            old = [by_base[base] for base in bases]
            swapped = swapped and self._is_current(partition, running, old)
            if swapped:
                yield partial(announce, log, new)
                swapped = self._is_current(partition, running, old)
            if swapped:
                log.swap_segments(old, new, now_ms)
            elif self.folder.logs.get(partition) is log:
                new.remove()
            else:
                self.running.pop(partition)
                return False  # the folder has another name by now, and goes with all that is in it
            yield partial(log.disk.sync_folder, log.folder)
        if swapped:
            self.folder.clean_offsets[partition] = outcome.end_offset
            yield self.folder.saving(self.folder.compacted())
        self.running.pop(partition)
        return swapped

    def is_there(self, partition: TopicPartition) -> bool:
        """Whether the log of a job, and all that it reads of it, is still where the job finds it."""
        running = self.running[partition]
        return self._is_current(partition, running, running.segments)

    def _is_current(self, partition: TopicPartition, running: Running, segments: list[Segment]) -> bool:
        log = running.log
        return self.folder.logs.get(partition) is log and log.cuts == running.cuts and log.has_closed(segments)

    def fail(self, partition: TopicPartition, reason: str) -> None:
        """The log cannot be cleaned: it is damaged, or the disk is."""
        self.set_aside[self.running.pop(partition).log] = reason

    def postpone(self, partition: TopicPartition) -> None:
        """There was no room for the result, or what was to be compacted has gone; the log is as it was."""
        self.running.pop(partition, None)

    def retry(self, partition: TopicPartition) -> None:
        """A person has looked at it."""
        self.set_aside.pop(self.folder.logs[partition], None)


def announce(log: Log, new: Segment) -> None:
    """Names a compacted segment .swap, durably: it is complete, and may take the place of what it covers."""
    new.rename(FileState.SWAP)
    log.disk.sync_folder(log.folder)

"""The power goes at every file operation, and at every byte of the last write: what was flushed is there afterwards.

A run is a fixed story of a log. It is told once to count its operations, then again up to each of them; from there the disk is
found in several states, from everything unsynced lost to everything kept.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import UUID

import pytest

from odradek.log.cleaner import Cleaner
from odradek.log.compaction import compact
from odradek.log.config import LogConfig
from odradek.log.folder import LogFolder
from odradek.log.log import Log, Origin
from odradek.log.names import TopicPartition
from odradek.log.producer import encode_snapshot
from odradek.log.producer_state import ProducerState
from odradek.log.replay import note_batch
from odradek.log.segment import Segment
from odradek.wire.batch import read_header
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.records import Record, build, records
from tests.log.disk import PowerLost, SimDisk
from tests.log.model import all_records, check_indexes

PARTITION = TopicPartition("orders", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, file_delete_delay_ms=0, min_cleanable_dirty_ratio=0.0)
COMPACTING = LogConfig(
    segment_bytes=700,
    index_interval_bytes=100,
    file_delete_delay_ms=0,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    cleanup_policy=frozenset({"compact"}),
)


class Story:
    """What is done to the log, and what has been promised so far."""

    def __init__(self, disk: SimDisk, config: LogConfig) -> None:
        self.disk = disk
        self.config = config
        self.now_ms = 1_000_000
        self.flushed: list[bytes] = []  # the batches that are synced, below the end at the last flush
        self.written: list[bytes] = []
        self.folder = open_folder(disk, config)
        self.log = self.folder.create(PARTITION, UUID(int=9), self.now_ms)
        self.sequences: dict[int, int] = {}

    def append(
        self, number: int, *, producer_id: int = -1, transactional: bool = False, epoch: int = 1, codec: Codec = Codec.NONE
    ) -> None:
        self.now_ms += 10
        key = b"key %d" % (number % 4)
        rows = [Record(n, self.now_ms + n, key, None if number % 5 == 4 else b"value %d" % number) for n in range(2)]
        sequence = self.sequences.get(producer_id, 0)
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if producer_id >= 0 else {}
        batch = build(rows, codec=codec, transactional=transactional, **fields)  # type: ignore[arg-type]
        self.log.append(batch, leader_epoch=epoch, now_ms=self.now_ms)
        self.sequences[producer_id] = sequence + 2
        self.written.append(bytes(batch))

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = end_marker(commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=self.now_ms)
        self.log.append(marker, leader_epoch=1, now_ms=self.now_ms, origin=Origin.COORDINATOR)
        self.written.append(bytes(marker))

    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.flushed = list(self.written)
        self.folder.checkpoint()

    def truncate(self, batches: int) -> None:
        """Cuts the last batches off."""
        kept = self.written[:-batches]
        self.flushed = [batch for batch in self.flushed if batch in kept]
        self.written = kept
        self.log.truncate_to(int.from_bytes(kept[-1][:8], "big") + int.from_bytes(kept[-1][23:27], "big") + 1, self.now_ms)

    def close(self) -> None:
        self.folder.close(self.now_ms)
        self.flushed = list(self.written)


def open_folder(disk: SimDisk, config: LogConfig) -> LogFolder:
    return LogFolder(disk, "/disk/data", lambda _: config, now_ms=1_000_000, jitter=lambda _: 0, unique_id=lambda: "0" * 32)


def tell_appends(story: Story) -> None:
    """Appends of all kinds over several segments, a cut, a new leader, and a clean stop."""
    for number in range(4):
        story.append(number, codec=Codec.GZIP if number == 2 else Codec.NONE)
    story.flush()
    story.append(4, producer_id=100)
    story.append(5, producer_id=101, transactional=True)
    story.append(6, producer_id=102, transactional=True)
    story.end(101, commit=False)
    story.flush()
    story.log.roll(story.now_ms)  # where the recovery point is
    story.append(7, producer_id=100)
    story.end(102, commit=True)
    story.append(8)
    story.append(9, producer_id=101)
    story.flush()
    story.truncate(2)
    story.append(10, epoch=3)
    story.append(11, epoch=3)
    story.flush()
    story.append(12, epoch=3)
    story.close()


def tell_compaction(story: Story) -> None:
    """Enough for several closed segments, then a compaction of them, twice."""
    for number in range(14):
        story.append(number)
    story.append(14, producer_id=100, transactional=True)
    story.end(100, commit=False)
    story.append(15)
    story.log.roll(story.now_ms)
    story.flush()
    story.log.move_high_watermark(story.log.end_offset)
    cleaner = Cleaner(story.folder)
    for _ in range(2):
        chosen = cleaner.next_job(story.now_ms)
        assert chosen is not None
        partition, job = chosen
        cleaner.finish(partition, compact(story.disk, job), story.now_ms)
        story.log.delete_due(story.now_ms)
        for number in range(16, 20):
            story.append(number)
        story.log.roll(story.now_ms)
        story.flush()
        story.log.move_high_watermark(story.log.end_offset)


def told_until(tell: Callable[[Story], None], config: LogConfig, step: int | None) -> Story:
    """The story up to an operation, which is done and nothing after it."""
    disk = SimDisk()
    if step is not None:
        disk.stop_at(step + 1)
    story = Story.__new__(Story)
    story.flushed, story.disk = [], disk
    with suppress(PowerLost):
        story.__init__(disk, config)  # type: ignore[misc]
        tell(story)
    return story


def ways_to_end(disk: SimDisk, step: int) -> Iterator[SimDisk]:
    """How the disk may be found. After a write, with every number of its bytes."""
    yield disk.crash("strict")
    yield disk.crash("kept")
    yield disk.crash("mixed", seed=step)
    last = disk.steps[step]
    if last.kind == "append" and last.size < 400:
        for kept in range(0, last.size, 1 if last.path.endswith(".log") else 5):
            yield disk.crash("torn", kept_bytes=kept)
        yield disk.crash("torn", kept_bytes=last.size // 2, zeros=True)


def steps_of(tell: Callable[[Story], None], config: LogConfig) -> int:
    return len(told_until(tell, config, None).disk.steps)


def opened(disk: SimDisk, config: LogConfig) -> Log | None:
    """The log that is found; None when it had not been created yet."""
    return open_folder(disk, config).logs.get(PARTITION)


def batches_on_disk(log: Log) -> list[bytes]:
    return [bytes(view) for segment in log.segments for _, _, view in segment.checked_batches()]


def check_sound(log: Log) -> None:
    """Everything beside the batches says what the batches say."""
    assert log.damage is None
    check_indexes(log)
    fresh = ProducerState(SimDisk(), "/disk", [])
    aborted = []
    index = Segment(SimDisk(), "/disk", 0, CONFIG)
    epochs: list[int] = []
    for segment in log.segments:
        for _, header, view in segment.checked_batches():
            note_batch(fresh, index, header, view)
            if header.leader_epoch not in epochs:
                epochs.append(header.leader_epoch)
        aborted += segment.transactions.entries()
    assert encode_snapshot(fresh._all()) == encode_snapshot(log.producers._all())
    assert list(fresh.ongoing) == list(log.producers.ongoing)
    assert index.transactions.entries() == aborted
    assert [entry.epoch for entry in log.epochs.entries] == epochs
    assert all(log.epochs.epoch_for(header.base_offset) == header.leader_epoch for _, _, header in log.batches(0))


def check_goes_on(log: Log) -> None:
    """The log takes and gives again."""
    batch = build([Record(0, 5, b"key", b"after the power came back")])
    appended = log.append(batch, leader_epoch=9, now_ms=2_000_000)
    found = log.read(appended.first_offset, 1000, log.end_offset)
    assert found.read() == bytes(batch)


@pytest.mark.parametrize("part", range(2))
def test_what_was_flushed_survives_a_power_loss_at_every_operation_and_byte(part: int) -> None:
    steps = steps_of(tell_appends, CONFIG)
    assert steps > 100
    for step in range(part, steps, 2):
        story = told_until(tell_appends, CONFIG, step)
        for disk in ways_to_end(story.disk, step):
            log = opened(disk, CONFIG)
            if log is None:
                assert not story.flushed
                continue
            check_sound(log)
            found = batches_on_disk(log)
            assert found[: len(story.flushed)] == story.flushed
            check_goes_on(log)


def test_opening_twice_gives_the_same_log() -> None:
    for step in range(steps_of(tell_appends, CONFIG)):
        disk = told_until(tell_appends, CONFIG, step).disk.crash("mixed", seed=step)
        first = opened(disk, CONFIG)
        if first is None:
            continue
        again = opened(disk.crash("kept"), CONFIG)
        assert again is not None
        assert (again.start_offset, again.end_offset, again.bases) == (first.start_offset, first.end_offset, first.bases)
        assert batches_on_disk(again) == batches_on_disk(first)


@pytest.mark.parametrize("manner", ["strict", "kept", "mixed"])
def test_a_crash_in_compaction_leaves_a_readable_log_and_loses_no_last_value(manner: str) -> None:
    steps = steps_of(tell_compaction, COMPACTING)
    for step in range(steps):
        story = told_until(tell_compaction, COMPACTING, step)
        log = opened(story.disk.crash(manner, seed=step), COMPACTING)  # type: ignore[arg-type]
        if log is None:
            assert not story.flushed
            continue
        assert log.damage is None
        check_indexes(log)
        last = last_values(story.flushed)
        found = {record.key: record for record in all_records(log) if record.value != b"value 14"}
        for key, record in last.items():
            assert found[key].offset >= record.offset, f"step {step}: {story.disk.steps[step]}"
            if found[key].offset == record.offset:
                assert found[key] == record
        check_goes_on(log)


def last_values(batches: list[bytes]) -> dict[bytes | None, Record]:
    """The last committed record of every key that has a value."""
    last: dict[bytes | None, Record] = {}
    for data in batches:
        header = read_header(data)
        if not header.is_control and not header.is_transactional:
            last.update({record.key: record for record in records(data, 0, header)})
    return {key: record for key, record in last.items() if record.value is not None}

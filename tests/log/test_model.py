"""A log does what a plain list of batches does, whatever happens to it and in whatever order.

Each example of the machine works on one partition in a simulated folder; at its end Apache Kafka's DumpLogSegments looks at
what is in the folder.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.log.cleaner import Cleaner
from odradek.log.compaction import compact
from odradek.log.config import LogConfig
from odradek.log.folder import LogFolder
from odradek.log.log import Appended, Origin
from odradek.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from odradek.log.names import TopicPartition
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.records import Record, build
from tests.kafka.dump import check_dump
from tests.kafka.oracle import Oracle
from tests.log.disk import SimDisk
from tests.log.model import Batch, Known, all_records, batches_of, check_indexes, committed, consumed

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = [100, 101, 102]

values = st.one_of(st.binary(max_size=60), st.none())
codecs = st.sampled_from(list(Codec))


class LogMachine(RuleBasedStateMachine):
    compacts = False

    @initialize(
        segment_bytes=st.sampled_from([600, 2000, 100_000]),
        interval=st.sampled_from([0, 150, 4096]),
        index_bytes=st.sampled_from([36, 1000]),
    )
    def open(self, segment_bytes: int, interval: int, index_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            cleanup_policy=frozenset({"compact"} if self.compacts else {"delete"}),
            retention_ms=10_000,
            segment_ms=5_000,
            delete_retention_ms=500,
            min_cleanable_dirty_ratio=0.0,
        )
        self.disk = SimDisk()
        self.now_ms = 1_000_000
        self.epoch = 0
        self.batches: list[Batch] = []
        self.producers: dict[int, Known] = {}
        self.synced = 0
        self.start = 0
        self.end = 0
        self.high_watermark = 0
        self.folder = self._open_folder()
        self.log = self.folder.create(PARTITION, TOPIC_ID, self.now_ms)

    def _open_folder(self) -> LogFolder:
        self.disk.now_ms = self.now_ms
        folder = LogFolder(
            self.disk,
            "/disk/data",
            lambda _: self.config,
            now_ms=self.now_ms,
            jitter=lambda _: 0,
            unique_id=lambda: "0" * 32,
        )
        self.cleaner = Cleaner(folder, memory_bytes=2000)
        return folder

    # -- appends

    @rule(count=st.integers(1, 4), data=st.data(), codec=codecs, lag_ms=st.integers(-50, 50))
    def append(self, count: int, data: st.DataObject, codec: Codec, lag_ms: int) -> None:
        rows = self._rows(data, count, lag_ms)
        self._append(rows, build(rows, codec=codec))

    def _rows(self, data: st.DataObject, count: int, lag_ms: int = 0) -> list[Record]:
        self.now_ms += 10
        keys = st.sampled_from(KEYS if self.compacts else [*KEYS, None])
        return [Record(number, self.now_ms + lag_ms + number % 2, data.draw(keys), data.draw(values)) for number in range(count)]

    def _append(self, rows: list[Record], batch: bytearray, **fields: int | bool) -> Appended:
        appended = self.log.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms)
        if not appended.is_duplicate:
            assert appended == Appended(self.end, self.end + len(rows) - 1)
            placed = [(self.end + row.offset, row.timestamp, row.key, row.value) for row in rows]
            self.batches.append(Batch(appended.first_offset, appended.last_offset, self.epoch, placed, **fields))  # type: ignore[arg-type]
            self.end = appended.last_offset + 1
        return appended

    def _produce(self, producer_id: int, rows: list[Record], sequence: int, *, transactional: bool, codec: Codec) -> Appended:
        known = self.producers.setdefault(producer_id, Known(epoch=0))
        fields = {"producer_id": producer_id, "producer_epoch": known.epoch, "base_sequence": sequence}
        batch = build(rows, codec=codec, transactional=transactional, **fields)  # type: ignore[arg-type]
        appended = self._append(rows, batch, is_transactional=transactional, **fields)
        if not appended.is_duplicate:
            last_sequence = sequence + len(rows) - 1
            known.recent = [*known.recent, (sequence, last_sequence, appended.first_offset, appended.last_offset)][-5:]
            known.next_sequence = last_sequence + 1
            if transactional and known.open_since < 0:
                known.open_since = appended.first_offset
        return appended

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3), data=st.data(), codec=codecs)
    def append_idempotent(self, producer_id: int, count: int, data: st.DataObject, codec: Codec) -> None:
        known = self.producers.get(producer_id, Known(epoch=0))
        rows = self._rows(data, count)
        transactional = known.open_since >= 0
        assert not self._produce(producer_id, rows, known.next_sequence, transactional=transactional, codec=codec).is_duplicate

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3), data=st.data(), codec=codecs)
    def append_in_transaction(self, producer_id: int, count: int, data: st.DataObject, codec: Codec) -> None:
        known = self.producers.get(producer_id, Known(epoch=0))
        rows = self._rows(data, count)
        self._produce(producer_id, rows, known.next_sequence, transactional=True, codec=codec)

    @rule(producer_id=st.sampled_from(PRODUCERS), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        known = self.producers.get(producer_id)
        if known is None or known.open_since < 0:
            return
        self.now_ms += 1
        marker = end_marker(
            commit=commit, producer_id=producer_id, producer_epoch=known.epoch, coordinator_epoch=3, timestamp=self.now_ms
        )
        appended = self.log.append(marker, leader_epoch=self.epoch, now_ms=self.now_ms, origin=Origin.COORDINATOR)
        end = "commit" if commit else "abort"
        self.batches.append(Batch(self.end, self.end, self.epoch, [], producer_id, known.epoch, -1, True, end))
        assert appended == Appended(self.end, self.end)
        self.end += 1
        known.open_since = -1

    @rule(data=st.data(), which=st.integers(0, 4))
    def repeat_a_batch(self, data: st.DataObject, which: int) -> None:
        candidates = [producer for producer, known in self.producers.items() if known.recent]
        if not candidates:
            return
        producer_id = data.draw(st.sampled_from(candidates))
        known = self.producers[producer_id]
        first, last, first_offset, last_offset = known.recent[which % len(known.recent)]
        rows = [Record(number, self.now_ms, b"a", b"again") for number in range(last - first + 1)]
        appended = self._produce(producer_id, rows, first, transactional=known.open_since >= 0, codec=Codec.NONE)
        assert appended[:3] == (first_offset, last_offset, True)

    @rule(producer_id=st.sampled_from(PRODUCERS), gap=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, gap: int) -> None:
        known = self.producers.get(producer_id)
        if known is None or not known.recent:
            return
        rows = [Record(0, self.now_ms, b"a", b"lost before")]
        with pytest.raises(Refused) as refused:
            self._produce(producer_id, rows, known.next_sequence + gap, transactional=known.open_since >= 0, codec=Codec.NONE)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def fence_a_producer(self, producer_id: int) -> None:
        known = self.producers.get(producer_id)
        if known is None or known.open_since >= 0 or not known.recent:
            return
        self.producers[producer_id] = Known(epoch=known.epoch + 1)
        rows = [Record(0, self.now_ms, b"a", b"new epoch")]
        self._produce(producer_id, rows, 0, transactional=False, codec=Codec.NONE)
        zombie = build(rows, producer_id=producer_id, producer_epoch=known.epoch, base_sequence=known.next_sequence)
        with pytest.raises(Refused) as refused:
            self.log.append(zombie, leader_epoch=self.epoch, now_ms=self.now_ms)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    # -- what moves

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        boundaries = [batch.base_offset for batch in self.batches if batch.base_offset >= self.high_watermark] + [self.end]
        self.high_watermark = boundaries[int(share * (len(boundaries) - 1))]
        self.log.move_high_watermark(self.high_watermark)

    @rule(share=st.floats(0, 1))
    def move_start(self, share: float) -> None:
        self.start = max(self.start, int(self.start + share * (self.high_watermark - self.start)))
        self.log.move_start(self.start)

    @rule(ms=st.sampled_from([100, 2000, 9000]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule()
    def expire(self) -> None:
        before = self.log.start_offset
        expired = self.log.delete_expired(self.now_ms)
        self.log.delete_due(self.now_ms)
        for segment in expired:
            assert self.now_ms - segment.max_timestamp()[0] > 10_000 or segment.base_offset < self.start
        assert self.log.start_offset >= before
        assert self.log.start_offset <= self.high_watermark
        self.start = self.log.start_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        if not self.batches:
            return
        at = int(self.high_watermark + share * (self.end - self.high_watermark))
        at = max(at, self.start)
        self.log.truncate_to(at, self.now_ms)
        self._forget_from(at)

    def _forget_from(self, offset: int) -> None:
        """The model loses every batch that ends at or past an offset."""
        self.batches = [batch for batch in self.batches if batch.last_offset < offset]
        end = self.log.end_offset
        data_end = self.batches[-1].last_offset + 1 if self.batches else min(self.log.bases[0], offset)
        assert end == min(offset, data_end) or (end <= offset and self.compacts) or end == self.log.bases[-1]
        self.end = end
        self.high_watermark = min(self.high_watermark, end)
        self.start = min(self.start, end)
        self.synced = min(self.synced, end)
        self._recall_producers()

    def _recall_producers(self) -> None:
        """What is known of producers is what the batches tell; older ones may be known from a snapshot, and are not judged."""
        self.producers = {}
        for batch in self.batches:
            if batch.producer_id < 0:
                continue
            known = self.producers.get(batch.producer_id)
            if known is None or known.epoch != batch.producer_epoch:
                open_since = known.open_since if known is not None else -1
                known = self.producers[batch.producer_id] = Known(epoch=batch.producer_epoch, open_since=open_since)
            if batch.end:
                known.open_since = -1
                continue
            if batch.base_sequence < 0:
                continue
            last_sequence = batch.base_sequence + batch.last_offset - batch.base_offset
            known.recent = [*known.recent, (batch.base_sequence, last_sequence, batch.base_offset, batch.last_offset)][-5:]
            known.next_sequence = last_sequence + 1
            if batch.is_transactional and known.open_since < 0:
                known.open_since = batch.base_offset

    # -- restarts

    @rule()
    def flush(self) -> None:
        self.log.flush(self.now_ms)
        self.folder.checkpoint()
        self.synced = self.end

    @rule()
    def restart_cleanly(self) -> None:
        self.folder.close(self.now_ms, broker_epoch=5)
        self.disk = self.disk.crash("strict")
        self._restart(was_clean=True)
        self.synced = self.end

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.crash("kept")
        self._restart(was_clean=False)
        assert self.log.end_offset == self.end

    @rule(
        manner=st.sampled_from(["strict", "torn", "mixed"]),
        kept=st.integers(0, 300),
        zeros=st.booleans(),
        seed=st.integers(0, 99),
    )
    def lose_power(self, manner: str, kept: int, zeros: bool, seed: int) -> None:
        self.disk = self.disk.crash(manner, kept_bytes=kept, zeros=zeros, seed=seed)  # type: ignore[arg-type]
        self._restart(was_clean=False)

    def _restart(self, *, was_clean: bool) -> None:
        self.folder = self._open_folder()
        assert self.folder.was_clean == was_clean
        self.log = self.folder.logs[PARTITION]
        assert self.log.damage is None
        assert self.synced <= self.log.end_offset <= self.end
        self._forget_from(self.log.end_offset)
        self.start = self.log.start_offset
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.log.bases[0]]
        self.high_watermark = max(self.log.high_watermark, self.start)
        for producer_id in list(self.producers):
            if producer_id not in self.log.producers.producers:
                del self.producers[producer_id]  # its batches are gone, or it has been silent for a day
        check_indexes(self.log)

    # -- what is seen

    @rule(share=st.floats(0, 1), bytes_max=st.integers(1, 3000))
    def read(self, share: float, bytes_max: int) -> None:
        offset = int(self.start + share * (self.end - self.start))
        found = self.log.read(offset, bytes_max, self.high_watermark)
        expected = [batch for batch in self.batches if batch.last_offset >= offset and batch.base_offset < self.high_watermark]
        if offset >= self.high_watermark or not expected:
            assert len(found) == 0
            return
        data = found.read()
        size = int.from_bytes(data[8:12], "big") + 12
        assert len(data) >= size
        assert len(data) <= max(bytes_max, size)
        first = batches_of(data[:size])[0]
        assert (first.base_offset, first.records) == (expected[0].base_offset, expected[0].records)

    @rule(offset=st.sampled_from([-1, 1]))
    def read_outside(self, offset: int) -> None:
        with pytest.raises(Refused) as refused:
            self.log.read(self.start - 1 if offset < 0 else self.end + 1, 100, self.end)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @rule(ago_ms=st.integers(-10, 300))
    def look_up_time(self, ago_ms: int) -> None:
        timestamp = self.now_ms - ago_ms
        rows = [row for batch in self.batches for row in batch.records if row[0] >= self.start and row[1] >= timestamp]
        found = offset_for_timestamp(self.log, timestamp)
        if found is not None and rows and found.offset < rows[0][0]:
            assert found.timestamp >= timestamp  # a marker has a timestamp too
            return
        if rows:
            assert found is not None
            assert (found.offset, found.timestamp) == rows[0][:2]

    @rule()
    def look_up_greatest_time(self) -> None:
        rows = [row for record in [batch.records for batch in self.batches] for row in record]
        found = offset_of_max_timestamp(self.log)
        if rows and not any(batch.end for batch in self.batches) and not self.compacts:
            greatest = max(row[1] for row in rows)
            assert found is not None
            assert (found.timestamp, found.offset) == (greatest, next(row[0] for row in rows if row[1] == greatest))

    @rule(epoch=st.integers(0, 6))
    def look_up_epoch(self, epoch: int) -> None:
        batches = [batch for batch in self.batches if batch.last_offset >= self.start]
        found_epoch, end = self.log.epochs.end_offset_for(epoch, self.end)
        after = [max(batch.base_offset, self.start) for batch in batches if batch.leader_epoch > epoch]
        up_to = [batch.leader_epoch for batch in batches if batch.leader_epoch <= epoch]
        if not self.compacts and up_to and after:
            assert (found_epoch, end) == (up_to[-1], after[0])

    @rule()
    @precondition(lambda self: self.compacts)
    def compact(self) -> None:
        chosen = self.cleaner.next_job(self.now_ms)
        if chosen is None:
            return
        partition, job = chosen
        outcome = compact(self.disk, job)
        note(f"compacted {outcome}")
        before = all_records(self.log)
        assert self.cleaner.finish(partition, outcome, self.now_ms)
        self._check_compaction(before, outcome.end_offset)
        self.batches = (
            batches_of(self.log.read(self.log.bases[0], 10**9, self.end, at_least_one=True).read())
            if (self.log.bases[0] >= self.log.start_offset)
            else self._batches_on_disk()
        )

    def _batches_on_disk(self) -> list[Batch]:
        return batches_of(b"".join(segment.file.read(0, segment.size) for segment in self.log.segments))

    def _check_compaction(self, before: list[Record], end_offset: int) -> None:
        """What stays was there, at the same offset; the last value of every key stays; what is past the end stays as it was."""
        after = {record.offset: record for record in all_records(self.log)}
        was = {record.offset: record for record in before}
        assert all(was[offset] == record for offset, record in after.items())
        visible = {offset for offset, *_ in committed(self.batches, self.end)}
        last = {record.key: record for record in before if record.offset in visible}
        for record in last.values():
            if record.value is not None:
                assert after[record.offset] == record
        assert all(offset in after for offset in was if offset >= end_offset)
        assert len(after) <= len(was)

    @invariant()
    def ends_agree(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark) == (self.start, self.end, self.high_watermark)
        assert log.recovery_point <= log.end_offset
        assert log.epochs.latest_epoch <= self.epoch
        open_since = [max(known.open_since, self.start) for known in self.producers.values() if known.open_since >= 0]
        # A transaction that has ended is unstable until the high watermark has passed its marker; a restart forgets that.
        ended_since = []
        for number, batch in enumerate(self.batches):
            if batch.end and batch.base_offset >= self.high_watermark:
                ended = [b for b in self.batches[:number] if b.producer_id == batch.producer_id]
                earlier = [position for position, b in enumerate(ended) if b.end]
                ended_since += [b.base_offset for b in ended[earlier[-1] + 1 if earlier else 0 :] if b.is_transactional][:1]
        unstable = [max(offset, self.start) for offset in ended_since]
        # One that began below the start is known to have begun there only while its snapshot lives.
        known_again = [
            batch.base_offset
            for batch in self.batches
            if batch.is_transactional and batch.base_offset >= max(self._open_since(batch.producer_id), self.start)
        ]
        assert min([self.high_watermark, *open_since, *unstable]) <= log.last_stable_offset
        assert log.last_stable_offset <= min([self.high_watermark, *known_again])

    def _open_since(self, producer_id: int) -> int:
        """Where the open transaction of a producer began; past everything when it has none."""
        known = self.producers.get(producer_id)
        return self.end if known is None or known.open_since < 0 else known.open_since

    @invariant()
    def records_agree(self) -> None:
        expected = [row for row in committed(self.batches, self.log.last_stable_offset) if row[0] >= self.start]
        assert consumed(self.log) == expected

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        self.folder.close(self.now_ms)
        with tempfile.TemporaryDirectory() as scratch:
            self.disk.export(Path(scratch), "/disk/data/orders-0")
            check_dump(judge(), Path(scratch))


class CompactingMachine(LogMachine):
    compacts = True


judges: list[Oracle] = []


def judge() -> Oracle:
    if not judges:
        judges.append(Oracle())
    return judges[0]


@pytest.fixture(scope="module", autouse=True)
def _judge() -> object:
    yield
    while judges:
        judges.pop().close()


EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "60"))  # `make model` runs many more
SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=50)
TestLog: Callable[[], None] = LogMachine.TestCase  # type: ignore[assignment]
TestCompactingLog: Callable[[], None] = CompactingMachine.TestCase  # type: ignore[assignment]
LogMachine.TestCase.settings = SETTINGS
CompactingMachine.TestCase.settings = SETTINGS

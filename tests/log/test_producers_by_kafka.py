"""Random histories of producers, given to Apache Kafka's own log and to our producer state: the same verdicts at every step, the
same offsets unstable after it, the same aborted transactions, and the same snapshots, byte for byte.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.log.producer import Producer
from odradek.log.producer_state import ProducerRefused, ProducerState, Verification
from odradek.wire.batch import BatchHeader, read_header, set_offset_and_epoch
from odradek.wire.control import end_marker
from odradek.wire.records import Record, build
from tests.kafka.oracle import Oracle
from tests.log.disk import SimDisk

EXPIRATION_MS = 600_000
ELAPSED_MS = 10_000  # since the batches' timestamps, so that what Kafka stamps with its own clock expires later than they do
FOLDER = "/disk/t-0"


class Choice(NamedTuple):
    """A step of a history. What its numbers mean depends on what is known when it is taken."""

    kind: str
    producer_id: int
    epoch: int  # beside the producer's
    sequence: int  # 0 goes on; others go astray, or repeat an earlier batch
    number: int
    flag: bool


KINDS = ["data"] * 6 + ["transactional"] * 6 + ["coordinator"] * 2 + ["marker"] * 4
KINDS += ["follower", "follower_marker", "verify", "roll", "truncate", "expire", "move_start"]
KINDS += ["move_high_watermark"] * 2
CHOICE = st.builds(
    Choice,
    st.sampled_from(KINDS),
    st.integers(0, 2),
    st.sampled_from([0] * 12 + [1, 1, -1, 32767]),
    st.sampled_from([0] * 8 + [1, 2, 3, 4, 5, -1, -2, -6, 2**31 - 3]),
    st.integers(0, 20),
    st.booleans(),
)
CHOICES = st.lists(CHOICE, max_size=12) | st.lists(CHOICE, min_size=25, max_size=50)


class History:
    """Our side: the batches of a log without files, and the producer state under test, kept as Kafka's log keeps its own."""

    def __init__(self, *, verifies: bool, start_ms: int) -> None:
        self.disk = SimDisk()
        self.disk.make_folder(FOLDER)
        self.state = ProducerState(self.disk, FOLDER, expiration_ms=EXPIRATION_MS, verifies_transactions=verifies)
        self.start_ms = start_ms
        self.verified_ms = start_ms + ELAPSED_MS
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.bases = [0]
        self.end = self.start = self.high_watermark = 0
        self.epoch_fell = False
        self.aborted: list[list[int]] = []
        self.verifications: dict[int, Verification | None] = {}
        self.steps: list[dict[str, Any]] = []
        self.verdicts: list[list[Any]] = []

    def take(self, choice: Choice) -> None:
        if choice.kind == "transactional" and choice.number % 4:  # a leader asks the coordinator before the first batch
            self.take(choice._replace(kind="verify", sequence=0))
        try:
            verdict = getattr(self, choice.kind)(choice)
        except ProducerRefused as error:
            verdict = [error.code.name]
        unstable = self.state.first_unstable_offset
        self.verdicts.append([*verdict, -1 if unstable is None else unstable, self.state.map_end_offset, self.end])

    # -- appends

    def data(self, choice: Choice) -> list[int]:
        return self._data(choice, transactional=False)

    def transactional(self, choice: Choice) -> list[int]:
        return self._data(choice, transactional=True)

    def _data(self, choice: Choice, *, transactional: bool) -> list[int]:
        batch = self._batch(choice, transactional=transactional)
        self.steps.append({"do": "append", "origin": "client", "hex": batch.hex()})
        duplicate = self.state.check(read_header(batch), self.verifications.get(choice.producer_id))
        if duplicate is not None:
            return [duplicate.first_offset, duplicate.last_offset]
        return self._append(batch)

    def coordinator(self, choice: Choice) -> list[int]:
        """What a group's coordinator writes for a transaction: offsets, without a sequence."""
        batch = self._batch(choice, transactional=choice.number % 4 > 0, sequenced=False)
        self.steps.append({"do": "append", "origin": "coordinator", "hex": batch.hex()})
        self.state.check_from_coordinator(read_header(batch), self.verifications.get(choice.producer_id))
        return self._append(batch)

    def follower(self, choice: Choice) -> list[int]:
        producer = self.state.producers.get(choice.producer_id)
        batch = self._batch(choice, transactional=choice.flag or (producer is not None and producer.has_transaction))
        set_offset_and_epoch(batch, 0, self.end, 0)
        self.steps.append({"do": "append", "origin": "follower", "hex": batch.hex()})
        return self._append(batch)

    def marker(self, choice: Choice) -> list[int]:
        batch = self._marker(choice)
        version = choice.number % 3
        self.steps.append({"do": "append", "origin": "coordinator", "hex": batch.hex(), "transaction_version": version})
        self.state.check_marker(read_header(batch), batch, version)
        return self._append(batch)

    def follower_marker(self, choice: Choice) -> list[int]:
        batch = self._marker(choice)
        set_offset_and_epoch(batch, 0, self.end, 0)
        self.steps.append({"do": "append", "origin": "follower", "hex": batch.hex()})
        return self._append(batch)

    def _epoch(self, choice: Choice) -> tuple[int, Producer]:
        producer = self.state.producers.get(choice.producer_id, Producer(choice.producer_id))
        epoch = max(producer.epoch, 0) + choice.epoch if choice.epoch < 2 else choice.epoch
        return min(max(epoch, 0), 2**15 - 1), producer

    def _batch(self, choice: Choice, *, transactional: bool, sequenced: bool = True) -> bytearray:
        epoch, producer = self._epoch(choice)
        count = choice.number % 3 + 1
        sequence = -1
        if sequenced:
            last = producer.last_sequence if epoch == producer.epoch else -1
            sequence = (last + 1 + choice.sequence) & 0x7FFFFFFF
            if choice.flag and 0 < choice.sequence <= len(producer.batches):  # again what was appended before
                again = producer.batches[-choice.sequence]
                sequence, count = again.first_sequence, again.offset_delta + 1
        timestamp = self.start_ms + choice.number
        return build(
            [Record(offset, timestamp, None, b"v") for offset in range(count)],
            producer_id=choice.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def _marker(self, choice: Choice) -> bytearray:
        epoch, producer = self._epoch(choice)
        return end_marker(
            commit=choice.flag,
            producer_id=choice.producer_id,
            producer_epoch=epoch,
            coordinator_epoch=max(producer.coordinator_epoch + choice.number % 5 - 1, 0),
            timestamp=self.start_ms + choice.number,
        )

    def _append(self, batch: bytearray) -> list[int]:
        set_offset_and_epoch(batch, 0, self.end, 0)
        header = read_header(batch)
        self.epoch_fell |= any(header.producer_epoch < other.producer_epoch for other, _ in self.of(header.producer_id))
        self.batches.append((header, bytes(batch)))
        self.end = header.next_offset
        self._note(header, bytes(batch), again=False)
        self.state.map_end_offset = self.end
        return [header.base_offset, header.last_offset]

    def of(self, producer_id: int) -> list[tuple[BatchHeader, bytes]]:
        return [entry for entry in self.batches if entry[0].producer_id == producer_id]

    def _note(self, header: BatchHeader, batch: bytes, *, again: bool) -> None:
        if not header.is_control:
            self.state.append(header)
            return
        completed = self.state.append_marker(header, batch)
        if completed is not None:
            if completed.is_aborted and not again:
                self.aborted.append([*completed[:3], self.state.last_stable_offset(completed)])
            self.state.complete(completed)

    # -- what else happens

    def verify(self, choice: Choice) -> list[int]:
        epoch, producer = self._epoch(choice)
        sequence = max(producer.last_sequence + 1 + choice.sequence, 0) & 0x7FFFFFFF
        step = {"producer_id": choice.producer_id, "sequence": sequence, "epoch": epoch, "supports_epoch_bump": choice.flag}
        self.steps.append({"do": "verify", **step})
        found = self.state.verify(choice.producer_id, sequence, epoch, supports_epoch_bump=choice.flag, now_ms=self.verified_ms)
        self.verifications[choice.producer_id] = found
        return [0 if found is None else 1]

    def move_high_watermark(self, choice: Choice) -> list[int]:
        self.high_watermark += choice.number % (self.end - self.high_watermark + 1)
        self.steps.append({"do": "high_watermark", "offset": self.high_watermark})
        self.state.on_high_watermark(self.high_watermark)
        return []

    def roll(self, _: Choice) -> list[int]:
        self.steps.append({"do": "roll"})
        if self.end > self.bases[-1]:
            self.bases.append(self.end)
        self.state.map_end_offset = self.end
        self.state.take_snapshot()
        return []

    def expire(self, choice: Choice) -> list[int]:
        now_ms = self.start_ms + EXPIRATION_MS + choice.number
        self.steps.append({"do": "expire", "now_ms": now_ms})
        self.state.remove_expired(0)  # since when all are silent, so that their batches alone count, as for Kafka
        self.state.remove_expired(now_ms)
        return []

    def move_start(self, choice: Choice) -> list[int]:
        offset = self.start + choice.number % (self.high_watermark - self.start + 1)
        self.steps.append({"do": "start", "offset": offset})
        if offset > self.start:
            self.start = offset
            self.state.on_start_moved(offset)
        return []

    def truncate(self, choice: Choice) -> list[int]:
        if self.epoch_fell:  # a replay of Kafka's updates a producer once for all batches that it reads together, and so does
            return self.move_high_watermark(choice)  # not see an epoch that rose and fell again; ours goes batch by batch
        boundaries = [header.base_offset for header, _ in self.batches if header.base_offset >= self.start] or [self.end]
        offset = boundaries[choice.number % len(boundaries)]
        self.steps.append({"do": "truncate", "offset": offset})
        if offset < self.end:
            self.end = offset
            self.batches = [(header, batch) for header, batch in self.batches if header.base_offset < offset]
            self.bases = [base for base in self.bases if base <= offset]
            self.aborted = [row for row in self.aborted if row[2] < offset]
            self._rebuild()
            if self.high_watermark >= offset:
                self.high_watermark = offset
                self.state.on_high_watermark(offset)
        return []

    def _rebuild(self) -> None:
        was_empty = self.state.is_empty and self.state.map_end_offset >= self.end
        self.state.truncate_and_reload(self.start, self.end, self.start_ms)
        if self.end > self.state.map_end_offset and not was_empty:
            self._replay()
        self.state.map_end_offset = self.end
        self.state.take_snapshot()

    def _replay(self) -> None:
        """Snapshots are taken where the last two segments begin, and at the end."""
        loaded = self.state.map_end_offset
        for number, base in enumerate(self.bases):
            following = self.bases[number + 1] if number + 1 < len(self.bases) else self.end
            if following <= loaded:
                continue
            first = self.state.map_end_offset = max(base, loaded, self.start)
            if base in self.bases[-2:]:
                self.state.take_snapshot()
            for header, batch in self.batches:
                if header.last_offset >= first and header.base_offset < following:  # also the batch in which the log begins
                    self._note(header, batch, again=True)


def test_kafka_judges_the_same(oracle: Oracle, tmp_path: Path) -> None:
    start_ms = int(time.time() * 1000) - ELAPSED_MS

    @settings(max_examples=150)
    @given(CHOICES, st.booleans())
    def check(choices: list[Choice], verifies: bool) -> None:
        history = History(verifies=verifies, start_ms=start_ms)
        for choice in choices:
            history.take(choice)
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            os.mkdir(f"{folder}/t-0")
            arguments = {"path": f"{folder}/t-0", "expiration_ms": EXPIRATION_MS, "verifies": verifies}
            answer = oracle.call("Producers.judge", steps=history.steps, **arguments)
        assert answer["verdicts"] == history.verdicts
        assert answer["aborted"] == [row for row in history.aborted if row[2] >= history.start]
        state = history.state
        state.take_snapshot()
        assert sorted(answer["snapshots"]) == state.snapshots
        latest = state.latest_snapshot_offset
        content = b"" if latest is None else history.disk.read(state.snapshot_path(latest))
        assert answer["snapshot"] == content.hex()

    check()

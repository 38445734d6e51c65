"""Odradek's turn with the data folder of a stopped broker: it appends all kinds of batches to topics that Kafka made.

As a program it takes the folder, the number of the turn, and how it ends: `close`, or `kill` where it stands. It prints a
report of what it appended.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import msgspec

from odradek.log.folder import LogFolder
from odradek.log.log import Appended, Origin
from odradek.log.names import TopicPartition
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.records import Record, build
from tests.kafka.folders import SMALL_SEGMENTS, Topics, now, opened
from tests.kafka.partitions import Seen, seen_by_odradek

TOPICS: Topics = {"plain": {}, "idempotent": {}, "transactions": SMALL_SEGMENTS, "segments": SMALL_SEGMENTS}
PRODUCER = 5000  # far from the ids that a young cluster hands out
COMMITTING, ABORTING, OPEN = 6000, 6001, 6002
COORDINATOR_EPOCH = 0


class Report(msgspec.Struct):
    """What was appended by topic, which of it in transactions that were aborted, and how Odradek itself sees all of it."""

    records: dict[str, list[Record]]
    aborted: list[int]
    seen: dict[str, Seen]


class Turn:
    def __init__(self, folder: LogFolder, number: int) -> None:
        self.folder = folder
        self.number = number
        self.random = Random(number)
        self.now_ms = now()
        self.report = Report({topic: [] for topic in TOPICS}, [], {})

    def append(
        self, topic: str, count: int = 5, codec: Codec = Codec.NONE, producer: int = -1, *, transactional: bool = False
    ) -> None:
        """Appends a batch of new records; one with a producer goes on where that producer stands."""
        log = self.folder.logs[TopicPartition(topic, 0)]
        rows = [self.record(log.end_offset + at) for at in range(count)]
        known = log.producers.producers.get(producer)
        sequence = -1 if producer < 0 else 0 if known is None else known.last_sequence + 1
        batch = build(
            [msgspec.structs.replace(row, offset=at) for at, row in enumerate(rows)],
            codec=codec,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=sequence,
            transactional=transactional,
        )
        appended = log.append(batch, leader_epoch=max(log.epochs.latest_epoch, 0), now_ms=self.now_ms)
        assert appended == Appended(rows[0].offset, rows[-1].offset)
        self.report.records[topic] += rows

    def record(self, offset: int) -> Record:
        """Any record: keys and values may be null, and timestamps go back and forth."""
        key = self.random.choice([None, b"", b"key-%d" % (offset % 7)])
        value = self.random.choice([None, b"text " * 9, self.random.randbytes(80)])
        headers = self.random.choice([(), (("h", b"1"), ("h", None), ("ü", b""))])
        return Record(offset, self.now_ms - self.random.randrange(60_000), key, value, headers)

    def end(self, producer: int, *, commit: bool) -> None:
        log = self.folder.logs[TopicPartition("transactions", 0)]
        marker = end_marker(
            commit=commit,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=COORDINATOR_EPOCH,
            timestamp=self.now_ms + self.number,
        )
        log.append(marker, leader_epoch=max(log.epochs.latest_epoch, 0), now_ms=self.now_ms, origin=Origin.COORDINATOR)

    def append_all(self) -> None:
        for codec in Codec:
            self.append("plain", codec=codec)
            self.append("idempotent", count=1 + codec, codec=codec, producer=PRODUCER)
        for number in range(40):
            self.append("segments", count=1 + number % 9, codec=Codec(number % len(Codec)), producer=number % 3 - 1)
        self.append_transactions()
        if self.number == 1:
            self.delete_some()

    def delete_some(self) -> None:
        """Moves the start of a log into its second segment, and lets the first go."""
        log = self.folder.logs[TopicPartition("segments", 0)]
        log.move_high_watermark(log.end_offset)
        log.move_start(log.bases[1] + 1)
        assert len(log.delete_expired(self.now_ms)) == 1

    def append_transactions(self) -> None:
        """Transactions of several producers at once, over several segments; each turn aborts what the one before left open."""
        if self.number > 1:
            self.end(OPEN + self.number - 1, commit=False)
        for number in range(3):
            for producer in (COMMITTING, ABORTING, COMMITTING, ABORTING):
                first = len(self.report.records["transactions"])
                self.append("transactions", codec=Codec(number), producer=producer, transactional=True)
                if producer == ABORTING:
                    self.report.aborted += [record.offset for record in self.report.records["transactions"][first:]]
            self.append("transactions")
            self.end(ABORTING, commit=False)
            self.append("transactions", codec=Codec.ZSTD)
            self.end(COMMITTING, commit=True)
        first = len(self.report.records["transactions"])
        self.append("transactions", producer=OPEN + self.number, transactional=True)
        self.report.aborted += [record.offset for record in self.report.records["transactions"][first:]]
        self.append("transactions")


def run(data: Path, number: int, ending: str) -> Report:
    """A turn in a process of its own."""
    command = [sys.executable, "-m", "tests.kafka.turn", str(data), str(number), ending]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == (-signal.SIGKILL if ending == "kill" else 0), done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Report)


def main(data: str, number: str, ending: str) -> None:
    with opened(Path(data), TOPICS) as folder:
        turn = Turn(folder, int(number))
        turn.append_all()
        for partition, log in folder.logs.items():
            if partition.topic in TOPICS:
                log.move_high_watermark(log.end_offset)
                turn.report.seen[partition.topic] = seen_by_odradek(log)
        sys.stdout.buffer.write(msgspec.json.encode(turn.report))
        sys.stdout.flush()
        if ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Odradek and Apache Kafka compact the same logs, each its own copy and each what the other has compacted.

A broker writes two topics, in transactions and without. Kafka's cleaner compacts them, and they are written on and compacted
again; of each stage Odradek gets a copy, and has to keep of it what Kafka keeps. Then the broker goes on with Odradek's copy.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from odradek.log.checkpoint import CLEANER_OFFSETS, read_offsets
from odradek.log.cleaner import Cleaner
from odradek.log.compaction import compact
from odradek.log.disk import RealDisk
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.wire.records import Record, records
from tests.kafka.broker import Broker
from tests.kafka.dump import check_dump
from tests.kafka.folders import SMALL_SEGMENTS, Topics, now, opened
from tests.kafka.oracle import Oracle
from tests.kafka.partitions import Seen, seen_by_kafka, seen_by_odradek

NEVER, AT_ONCE = "1.0", "0.01"  # how much of a log has to be dirty before Kafka compacts it
COMPACTED = {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": NEVER}
FORGETTING, KEEPING = "forgetting", "keeping"  # what was deleted: at the second compaction, or for a day
TOPICS: Topics = {FORGETTING: {**COMPACTED, "delete.retention.ms": "1"}, KEEPING: COMPACTED}
CLEANER = {"log_cleaner_enable": "true", "log_cleaner_backoff_ms": "300", "log_cleaner_dedupe_buffer_size": "4000000"}
SESSION = {"broker_heartbeat_interval_ms": "500", "broker_session_timeout_ms": "3000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 17
WAIT_SECONDS_MAX = 60


class Kept(NamedTuple):
    """What compaction left of a batch."""

    base_offset: int
    last_offset: int
    producer: tuple[int, int, int]
    is_control: bool
    has_delete_horizon: bool
    records: list[Record]


def kept_in(log: Log, end_offset: int) -> list[Kept]:
    """What is left of the batches below an offset."""
    return [
        Kept(
            header.base_offset,
            header.last_offset,
            (header.producer_id, header.producer_epoch, header.base_sequence),
            header.is_control,
            header.has_delete_horizon,
            list(records(segment.file.read(position, header.size), 0, header)),
        )
        for segment, position, header in log.batches(0, end_offset)
    ]


class Copy(NamedTuple):
    """A copy of a partition as Odradek sees it, what is in it below some offset, and in which segments."""

    seen: Seen
    kept: list[Kept]
    bases: list[int]

    def below(self, offset: int) -> tuple[list[Kept], list[int]]:
        return [batch for batch in self.kept if batch.base_offset < offset], [base for base in self.bases if base < offset]


class Story:
    """`first` and `second` are the offsets up to which each topic is compacted for the first and for the second time."""

    def __init__(self, folder: Path, oracle: Oracle) -> None:
        self.folder = folder
        self.oracle = oracle
        self.broker = Broker(folder, **CLEANER, **SESSION)
        self.last_values: dict[str, dict[bytes | None, bytes | None]] = {topic: {} for topic in TOPICS}
        self.numbers = iter(range(1000))

    def run(self) -> None:
        with self.broker.running():
            for topic, settings in TOPICS.items():
                self.call("Clients.create", topic, partitions=1, configs=dict(settings))
            self.write_on()
            written = self.copy("written")
            self.first = self.kafka_compacts()
            self.write_on()
            compacted_once = self.copy("compacted-once")
            self.served_once = self.served()
            self.second = self.kafka_compacts()
            self.served_twice = self.served()
        compacted_twice = self.copy("compacted-twice")
        self.written, self.compacted_by_us = self.look(written, self.first)
        self.compacted, self.compacted_again_by_us = self.look(compacted_once, self.second)
        self.compacted_again, _ = self.look(compacted_twice, self.second)
        self.go_on_with(compacted_once)

    def go_on_with(self, copy: Path) -> None:
        """Kafka starts on what Odradek has compacted."""
        self.dumped = {topic: check_dump(self.oracle, copy / f"{topic}-0") for topic in TOPICS}
        shutil.rmtree(self.broker.data)
        copy.rename(self.broker.data)
        with self.broker.running():
            self.served_ours = self.served()
            self.write_on()
            self.kafka_compacts()
            self.served_at_last = self.served()
        with opened(self.broker.data, TOPICS) as folder:
            self.reread = {topic: seen_by_odradek(folder.logs[TopicPartition(topic, 0)]) for topic in TOPICS}

    def call(self, name: str, topic: str, **arguments: Any) -> Any:
        return self.oracle.call(name, bootstrap=self.broker.bootstrap, topic=topic, partition=0, **arguments)

    def write_on(self) -> None:
        for topic in TOPICS:
            for end in ("commit", "abort", "", "commit", "abort", "abort", ""):
                self.write(topic, end, next(self.numbers))
        wait_until(lambda: all(map(self.is_stable, TOPICS)))

    def is_stable(self, topic: str) -> bool:
        """Whether all transactions have their markers: Kafka writes them after it has answered."""
        offsets = self.call("Partitions.offsets", topic, timestamps=[])
        return bool(offsets["stable"][0] == offsets["end"][0])

    def write(self, topic: str, end: str, number: int) -> None:
        """Values, and deletions, of some keys; what is committed is noted."""
        random = Random(number)
        keys = [b"gone-%d" % number] * 2 + [b"%d" % (at * (number + 1) % KEYS) for at in range(20)]
        values = [None if at % 6 == 1 else random.randbytes(40 + at) for at in range(22)]
        rows = [
            [now() + at, key.hex(), None if value is None else value.hex()] for at, (key, value) in enumerate(zip(keys, values))
        ]
        settings = {"batch.size": "500", "compression.type": CODECS[number % len(CODECS)]}
        self.call("Clients.produce", topic, rows=rows, end=end, settings=settings | ({"transactional.id": topic} if end else {}))
        if end != "abort":
            self.last_values[topic].update(zip(keys, values))

    def kafka_compacts(self) -> dict[str, int]:
        """Lets Kafka compact all topics up to their last segments; gives the offsets of those."""
        logs = {topic: sorted((self.broker.data / f"{topic}-0").glob("*.log")) for topic in TOPICS}
        ends = {TopicPartition(topic, 0): int(paths[-1].stem) for topic, paths in logs.items()}
        self.compact_when(AT_ONCE)
        checkpoint = str(self.broker.data / CLEANER_OFFSETS)
        wait_until(lambda: ends.items() <= read_offsets(RealDisk(), checkpoint).items())
        self.compact_when(NEVER)
        return {topic: end for (topic, _), end in ends.items()}

    def compact_when(self, ratio: str) -> None:
        for topic in TOPICS:
            self.call("Partitions.configure", topic, configs={"min.cleanable.dirty.ratio": ratio})

    def served(self) -> dict[str, Seen]:
        return {topic: seen_by_kafka(self.oracle, self.broker.bootstrap, TopicPartition(topic, 0)) for topic in TOPICS}

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.broker.data, self.folder / name))

    def look(self, path: Path, ends: dict[str, int]) -> tuple[dict[str, Copy], dict[str, Copy]]:
        """What is in a copy, and what Odradek's compaction leaves of it."""
        with opened(path, TOPICS) as folder:
            before = copies_of(folder, ends)
            odradek_compacts(folder)
            return before, copies_of(folder, ends)


def copies_of(folder: LogFolder, ends: dict[str, int]) -> dict[str, Copy]:
    logs = {topic: folder.logs[TopicPartition(topic, 0)] for topic in TOPICS}
    return {topic: Copy(seen_by_odradek(log), kept_in(log, ends[topic]), [*log.bases]) for topic, log in logs.items()}


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def odradek_compacts(folder: LogFolder) -> None:
    for log in folder.logs.values():
        log.flush(now())  # only what is synced is compacted
    cleaner = Cleaner(folder)
    while (found := cleaner.next_job(now())) is not None:
        partition, job = found
        assert cleaner.finish(partition, compact(folder.disk, job), now())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("compaction"), oracle)
    try:
        told.run()
        yield told
    finally:
        told.broker.stop(signal.SIGKILL)


@pytest.mark.parametrize("topic", TOPICS)
def test_odradek_keeps_what_kafka_keeps(story: Story, topic: str) -> None:
    """Of the same log: the same records in the same batches and segments, the same ones with a time to be deleted at."""
    ours, bases = story.compacted_by_us[topic].below(story.first[topic])
    assert (ours, bases) == story.compacted[topic].below(story.first[topic])
    assert len(bases) > 1
    assert sum(len(batch.records) for batch in ours) < sum(len(batch.records) for batch in story.written[topic].kept)


@pytest.mark.parametrize("topic", TOPICS)
def test_odradek_keeps_what_kafka_keeps_of_a_log_that_kafka_compacted_before(story: Story, topic: str) -> None:
    ours, bases = story.compacted_again_by_us[topic].below(story.second[topic])
    assert (ours, bases) == story.compacted_again[topic].below(story.second[topic])
    assert len(bases) < len(story.compacted[topic].below(story.second[topic])[1])  # small segments become one


def deletions(copy: Copy, end_offset: int) -> list[int]:
    """The offsets of the deletions that are left."""
    kept = copy.below(end_offset)[0]
    return [record.offset for batch in kept for record in batch.records if record.value is None]


def test_deletions_are_forgotten_when_the_time_that_kafka_gave_them_is_over(story: Story) -> None:
    for topic in TOPICS:
        assert deletions(story.compacted[topic], story.first[topic])
    once_more = {topic: deletions(story.compacted_again_by_us[topic], story.first[topic]) for topic in TOPICS}
    assert once_more[KEEPING]
    assert not once_more[FORGETTING]


def without_what_kafka_overlooks(ours: Seen, theirs: Seen) -> Seen:
    """Kafka looks for a time in the first segment that reaches it and in no other. Where compaction has left of the records
    there only an empty batch, which keeps their greatest timestamp, it finds nothing, and Odradek the next record."""
    found = [None if their is None else our for our, their in zip(ours.found, theirs.found, strict=True)]
    return msgspec.structs.replace(ours, found=found)


def check_same(ours: Seen, theirs: Seen) -> None:
    assert without_what_kafka_overlooks(ours, theirs) == theirs


@pytest.mark.parametrize("topic", TOPICS)
def test_odradek_reads_what_kafka_compacted(story: Story, topic: str) -> None:
    check_same(story.compacted[topic].seen, story.served_once[topic])
    check_same(story.compacted_again[topic].seen, story.served_twice[topic])
    kept = story.compacted_again[topic].kept
    assert any(batch.has_delete_horizon for batch in kept)
    assert any(not batch.records for batch in kept)
    assert any(after.base_offset > before.last_offset + 1 for before, after in pairwise(kept))


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_serves_what_odradek_compacted(story: Story, topic: str) -> None:
    check_same(story.compacted_again_by_us[topic].seen, story.served_ours[topic])


@pytest.mark.parametrize("topic", TOPICS)
def test_kafkas_tool_finds_no_fault_with_what_odradek_compacted(story: Story, topic: str) -> None:
    assert "deleteHorizonMs: OptionalLong[" in story.dumped[topic]


def present(values: Mapping[bytes | None, bytes | None]) -> dict[bytes | None, bytes]:
    return {key: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_compacts_what_odradek_compacted(story: Story, topic: str) -> None:
    """The last value of every key is there to the end, and Odradek reads the same as Kafka's consumer."""
    check_same(story.reread[topic], story.served_at_last[topic])
    last_values = {record.key: record.value for record in story.reread[topic].committed}
    assert present(last_values) == present(story.last_values[topic])
    assert len(story.reread[topic].records) < len(story.served_ours[topic].records) + 7 * 22

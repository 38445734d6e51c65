"""Odradek opens what a broker leaves behind when it is stopped, and when it is killed while it is being written to.

A clean stop leaves everything said: nothing has to be looked at. A kill leaves indexes filled up with zeros, no mark, and
recovery points of long ago; Kafka's own recovery then says what is right, down to the bytes of every file. Odradek works on
copies, so that both see the same.
"""

import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_clean_shutdown,
    read_offsets,
    read_partition_metadata,
    uuid_text,
)
from odradek.log.disk import RealDisk
from odradek.log.epochs import LEADER_EPOCHS
from odradek.log.folder import LogFolder
from odradek.log.log import Log
from odradek.log.lookup import aborted_between
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.log.names import TopicPartition
from odradek.log.producer import BATCHES_MAX
from odradek.log.transaction_index import AbortedTransaction
from odradek.wire.batch import BatchHeader, set_offset_and_epoch
from odradek.wire.records import Record
from tests.kafka.broker import Broker
from tests.kafka.dump import check_dump
from tests.kafka.folders import SMALL_INDEXES, SMALL_SEGMENTS, Topics, now, open_folder, opened
from tests.kafka.oracle import Oracle
from tests.kafka.partitions import Seen, record_of, seen_by_kafka, seen_by_odradek

CANARY = "canary"  # its last batch is damaged after the stop: whoever looks at every batch on start cuts it off
TOPICS: Topics = {
    "plain": SMALL_INDEXES,
    "segments": {**SMALL_SEGMENTS, "preallocate": "true"},  # so that Kafka fills them up with zeros as well
    "transactions": SMALL_SEGMENTS,
    "deleted": SMALL_SEGMENTS,
    CANARY: SMALL_INDEXES,
}
COMPARED = [topic for topic in TOPICS if topic != CANARY]
STOPS = ("clean", "killed")
DELETED_BEFORE = 25
ACKNOWLEDGED_MIN = 200
WAIT_SECONDS_MAX = 60
ABORTED = re.compile(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)")
# A broker that was killed is let in again when its session is over.
SESSION = {"broker_heartbeat_interval_ms": "500", "broker_session_timeout_ms": "3000"}


class Story:
    """`before`, `between` and `after` are what Kafka served before its clean stop, after Odradek had opened and closed its
    folder, and after it was killed and had recovered; `clean` and `killed` are copies that Odradek has open."""

    def __init__(self, folder: Path, oracle: Oracle) -> None:
        self.folder = folder
        self.oracle = oracle
        self.broker = Broker(folder, **SESSION)

    def run(self) -> None:
        with self.broker.running():
            self.make()
            self.topic_ids = {topic: self.call("Partitions.topicId", topic) for topic in TOPICS}
            self.before, self.canary_before = self.served()
        damage_last_batch(self.broker.data / f"{CANARY}-0")
        self.checkpoints = {name: self.read_checkpoint(name) for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)}
        self.clean = self.copied("clean")
        with opened(self.broker.data, TOPICS):
            self.status_when_held = start_refused(self.broker)
        self.broker.start()
        self.between, self.canary_between = self.served()
        self.error_when_running = open_refused(self.broker.data)
        self.kill_while_producing()
        self.killed = self.copied("killed")
        with opened(self.copy("recovered"), TOPICS):
            pass
        with self.broker.running():
            self.after, self.canary_after = self.served()

    def call(self, name: str, topic: str, **arguments: Any) -> Any:
        return self.oracle.call(name, bootstrap=self.broker.bootstrap, topic=topic, partition=0, **arguments)

    def send(self, topic: str, count: int, *, end: str = "", **settings: str) -> None:
        """Records of a new producer in small batches."""
        rows = [[now() + at % 7, None if at % 3 else "6b", None if at % 5 == 0 else "76" * at] for at in range(count)]
        named = {"batch.size": "500", **{key.replace("_", "."): value for key, value in settings.items()}}
        self.call("Clients.produce", topic, rows=rows, end=end, settings=named)

    def make(self) -> None:
        for topic, settings in TOPICS.items():
            self.call("Clients.create", topic, partitions=1, configs=dict(settings))
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            self.send("plain", 20, compression_type=codec)
        for topic in ("segments", "deleted"):
            self.send(topic, 60)
        for end in ("commit", "abort", "commit", "abort"):
            self.send("transactions", 40, end=end, transactional_id="ending")
        still_open = {"transactional.id": "open", "transaction.timeout.ms": "900000"}
        self.call("Partitions.send", "transactions", producer="open", rows=[[now(), None, "aa"]], settings=still_open)
        self.oracle.call("Partitions.forget", producer="open")
        self.call("Partitions.deleteBefore", "deleted", offset=DELETED_BEFORE)
        for _ in range(2):
            self.send(CANARY, 5)

    def served(self) -> tuple[dict[str, Seen], int]:
        """What Kafka serves, and where the canary ends."""
        partitions = {topic: TopicPartition(topic, 0) for topic in COMPARED}
        seen = {topic: seen_by_kafka(self.oracle, self.broker.bootstrap, at) for topic, at in partitions.items()}
        return seen, self.call("Partitions.offsets", CANARY, timestamps=[])["end"][0]

    def read_checkpoint(self, name: str) -> dict[str, int]:
        offsets = read_offsets(RealDisk(), str(self.broker.data / name))
        return {topic: offset for (topic, _), offset in offsets.items() if topic in TOPICS}

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.broker.data, self.folder / name))

    def copied(self, name: str) -> LogFolder:
        folder = open_folder(self.copy(name), TOPICS)
        for log in folder.logs.values():
            log.move_high_watermark(log.end_offset)
        return folder

    def kill_while_producing(self) -> None:
        self.call("Partitions.startStream", "segments", timestamp=now(), settings={"batch.size": "500"})
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while self.oracle.call("Partitions.sent") < ACKNOWLEDGED_MIN:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.broker.stop(signal.SIGKILL)
        self.acknowledged = [record_of(row) for row in self.oracle.call("Partitions.stopStream")]
        assert not (self.broker.data / CLEAN_SHUTDOWN).exists()
        for topic in TOPICS.keys() - {"segments"}:  # which may have been between two segments just then
            assert max(self.broker.data.glob(f"{topic}-0/*.index")).read_bytes().endswith(bytes(1000))

    def log(self, stop: str, topic: str) -> Log:
        folder: LogFolder = getattr(self, stop)
        return folder.logs[TopicPartition(topic, 0)]

    def close(self) -> None:
        self.clean.lock.release()
        self.killed.lock.release()


def damage_last_batch(partition: Path) -> None:
    (log,) = partition.glob("*.log")
    content = bytearray(log.read_bytes())
    content[-2] ^= 1
    log.write_bytes(content)


def start_refused(broker: Broker) -> int:
    """The exit status of a broker that does not start."""
    with pytest.raises(AssertionError):
        broker.start()
    assert broker.process is not None
    status, broker.process = broker.process.wait(), None
    return status


def open_refused(data: Path) -> OSError:
    with pytest.raises(BlockingIOError) as refusal:
        open_folder(data, TOPICS)
    return refusal.value


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Iterator[Story]:
    told = Story(tmp_path_factory.mktemp("stops"), oracle)
    try:
        told.run()
    finally:
        told.broker.stop(signal.SIGKILL)
    yield told
    told.close()


@pytest.mark.parametrize("topic", COMPARED)
def test_after_a_clean_stop_odradek_sees_what_kafka_served(story: Story, topic: str) -> None:
    assert story.clean.was_clean
    assert seen_by_odradek(story.log("clean", topic)) == story.before[topic]
    assert len(story.before[topic].records) >= 30


@pytest.mark.parametrize("topic", COMPARED)
def test_after_a_kill_odradek_sees_what_kafka_serves_when_it_has_recovered(story: Story, topic: str) -> None:
    assert not story.killed.was_clean
    assert seen_by_odradek(story.log("killed", topic)) == story.after[topic]


def test_after_a_kill_every_acknowledged_record_is_there(story: Story) -> None:
    records: dict[int, Record] = {record.offset: record for record in seen_by_odradek(story.log("killed", "segments")).records}
    assert [records[record.offset] for record in story.acknowledged] == story.acknowledged
    assert len(story.acknowledged) >= ACKNOWLEDGED_MIN


@pytest.mark.parametrize("topic", [*COMPARED, "__transaction_state"])
def test_recovery_leaves_every_file_as_kafkas_recovery_leaves_it(story: Story, topic: str) -> None:
    """All bytes of logs, indexes and snapshots; but for the epochs, where Kafka notes that it leads once more."""
    ours, theirs = (
        {path.name: path.read_bytes() for path in (data / f"{topic}-0").iterdir() if path.name != LEADER_EPOCHS}
        for data in (story.folder / "recovered", story.broker.data)
    )
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert any(name.endswith(".snapshot") for name in ours)


def test_after_a_clean_stop_of_odradek_kafka_starts_without_recovery(story: Story) -> None:
    """It would have cut off the damaged batch, as it does after the kill."""
    assert story.before == story.between
    assert story.canary_before == story.canary_between == 10
    assert story.canary_after == 5


def test_after_a_clean_stop_of_kafka_odradek_starts_without_recovery(story: Story) -> None:
    """After the kill it looks; a batch that had been synced is not cut off, but said to be damaged."""
    assert story.log("clean", CANARY).end_offset == 10
    assert story.log("clean", CANARY).damage is None
    damage = story.log("killed", CANARY).damage
    assert damage is not None
    assert damage.offset == 5


def test_records_that_were_deleted_stay_deleted(story: Story) -> None:
    assert story.log("clean", "deleted").start_offset == story.log("killed", "deleted").start_offset == DELETED_BEFORE


def last_batches(log: Log) -> Iterator[tuple[BatchHeader, bytearray]]:
    """The last batches of the log's last producer, as it would send them once more."""
    found = [(segment.file.read(position, header.size), header) for segment, position, header in log.batches(log.start_offset)]
    for data, header in found[-BATCHES_MAX:]:
        assert header.producer_id == found[-1][1].producer_id
        batch = bytearray(data)
        set_offset_and_epoch(batch, 0, 0, -1)
        yield header, batch


@pytest.mark.parametrize("topic", ["segments", "deleted"])
@pytest.mark.parametrize("stop", STOPS)
def test_the_last_batches_of_a_java_producer_are_known_when_they_come_again(story: Story, stop: str, topic: str) -> None:
    log = story.log(stop, topic)
    for header, batch in last_batches(log):
        answer = log.append(batch, leader_epoch=9, now_ms=now())
        assert answer[:3] == (header.base_offset, header.last_offset, True)


@pytest.mark.parametrize("topic", COMPARED)
def test_producers_are_those_of_kafkas_snapshot(story: Story, oracle: Oracle, topic: str) -> None:
    """Of the one that Kafka takes when it stops, after it has recovered. There it keeps the last batch of each."""
    log = story.log("killed", topic)
    snapshot = story.broker.data / f"{topic}-0" / f"{log.end_offset:020d}.snapshot"
    ours = [
        [known.producer_id, known.epoch, known.last_timestamp, known.coordinator_epoch, known.transaction_first_offset]
        + [list(batch) for batch in list(known.batches)[-1:]]
        for known in log.producers.producers.values()
    ]
    assert sorted(ours) == sorted(oracle.call("LogFiles.readSnapshot", path=str(snapshot)))
    assert ours


@pytest.mark.parametrize("stop", STOPS)
def test_aborted_transactions_are_those_that_kafkas_tool_shows(story: Story, oracle: Oracle, stop: str) -> None:
    printed = check_dump(oracle, story.broker.data / "transactions-0")
    theirs = [AbortedTransaction(*map(int, row)) for row in ABORTED.findall(printed)]
    log = story.log(stop, "transactions")
    assert [entry for segment in log.segments for entry in segment.transactions.entries()] == theirs
    assert aborted_between(log, 0, log.end_offset) == theirs
    assert len(theirs) == 2


@pytest.mark.parametrize("topic", COMPARED)
@pytest.mark.parametrize("stop", STOPS)
def test_every_batch_is_of_the_leader_epoch_that_the_checkpoint_tells(story: Story, stop: str, topic: str) -> None:
    log = story.log(stop, topic)
    for _, _, header in log.batches(log.start_offset):
        assert log.epochs.epoch_for(header.base_offset) == header.leader_epoch
    if topic == "segments":
        assert len(log.epochs.entries) == (2 if stop == "killed" else 1)


def test_a_folder_belongs_to_one_process_at_a_time(story: Story) -> None:
    assert story.status_when_held == 1
    assert isinstance(story.error_when_running, BlockingIOError)


def test_the_folder_is_known_as_kafka_knows_it(story: Story, oracle: Oracle) -> None:
    path = str(story.broker.data / META_PROPERTIES)
    meta = read_meta_properties(RealDisk(), path)
    values = oracle.call("LogFiles.readMeta", path=path)["values"]
    assert meta is not None
    assert meta.directory_id is not None
    assert (meta.version, meta.cluster_id, meta.node_id) == (1, "AAAAAAAAAAAAAAAAAAAAQQ", 1)
    assert uuid_text(meta.directory_id) == values["directory.id"]


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_have_the_ids_that_kafka_gave_them(story: Story, topic: str) -> None:
    topic_id = read_partition_metadata(RealDisk(), str(story.broker.data / f"{topic}-0" / PARTITION_METADATA))
    assert topic_id is not None
    assert uuid_text(topic_id) == story.topic_ids[topic]


def test_checkpoints_tell_what_kafka_served(story: Story) -> None:
    ends = {topic: seen.end for topic, seen in story.before.items()} | {CANARY: story.canary_before}
    assert story.checkpoints[RECOVERY_POINTS] == story.checkpoints[HIGH_WATERMARKS] == ends
    assert story.checkpoints[LOG_STARTS] == {"deleted": DELETED_BEFORE}


def test_the_mark_of_a_clean_stop_keeps_the_brokers_epoch(story: Story, oracle: Oracle) -> None:
    epoch = read_clean_shutdown(RealDisk(), str(story.broker.data / CLEAN_SHUTDOWN))
    assert epoch == oracle.call("LogFiles.readCleanShutdown", path=str(story.broker.data))
    assert epoch is not None
    assert epoch > 0

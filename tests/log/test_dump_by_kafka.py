"""What `dump` shows is what Apache Kafka's own DumpLogSegments shows: of logs that Odradek wrote, and of the logs that a real
broker leaves behind, its own topics included.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.dump import Holds, Selection, dump
from odradek.log.dump.disk import ReadOnlyDisk
from odradek.log.dump.rows import Batch, Damage, File, Named, Record, Row, Zeros
from odradek.log.loading import open_log
from odradek.log.log import Origin
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.records import Record as NewRecord
from odradek.wire.records import build
from odradek.wire.table import attribute
from tests.kafka.broker import Broker
from tests.kafka.dump import dump as kafka_dump
from tests.kafka.oracle import Oracle

DECODERS = {
    "__cluster_metadata-0": "--cluster-metadata-decoder",
    "__consumer_offsets-0": "--offsets-decoder",
    "__transaction_state-0": "--transaction-log-decoder",
    "__share_group_state-0": "--share-group-state-decoder",
}
WITH_RECORDS = Selection(records=True)
PAIR = re.compile(r"(\w+): (\S+)")
CONTROL_NAMES = {"LeaderChange", "KRaftVersion", "KRaftVoters", "SnapshotHeader", "SnapshotFooter"}


def rows_of(path: Path, wanted: Selection = WITH_RECORDS, holds: Holds | None = None) -> list[Row]:
    rows = list(dump(ReadOnlyDisk(), str(path), wanted, holds))
    assert isinstance(rows[0], File)
    assert not [row for row in rows if isinstance(row, Damage)]
    return rows


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of ours with all kinds of batches, in several segments."""
    folder = tmp_path_factory.mktemp("written") / "things-0"
    folder.mkdir()
    config = LogConfig(segment_bytes=3000, index_interval_bytes=100, max_message_bytes=10_000)
    log = open_log(RealDisk(), str(folder), config, now_ms=1000, clean=True)
    for number in range(40):
        codec = list(Codec)[number % len(Codec)]
        rows = [
            NewRecord(
                at,
                1000 + number * 10 + at,
                None if at == 3 else b"key%d" % at,
                None if at == 2 else b"value-%d-%d" % (number, at),
                (("h", b"x"), ("empty", None)) if at == 1 else (),
            )
            for at in range(5)
        ]
        producer = {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number // 3 * 5} if number % 2 else {}
        log.append(build(rows, codec=codec, **producer), leader_epoch=number // 15, now_ms=1000, origin=Origin.COORDINATOR)  # type: ignore[arg-type]
    for producer_id, commit in ((7, True), (8, False), (9, None)):
        first = build(
            [NewRecord(0, 2000, b"k", b"v")], producer_id=producer_id, producer_epoch=1, base_sequence=0, transactional=True
        )
        log.append(first, leader_epoch=3, now_ms=1000, origin=Origin.COORDINATOR)
        if commit is not None:
            marker = end_marker(commit=commit, producer_id=producer_id, producer_epoch=1, coordinator_epoch=4, timestamp=2001)
            log.append(marker, leader_epoch=3, now_ms=1000, origin=Origin.COORDINATOR)
    log.append(
        build([NewRecord(0, 5, b"k", None)], delete_horizon_ms=9000), leader_epoch=3, now_ms=1000, origin=Origin.COORDINATOR
    )
    log.append(build([NewRecord(0, 5, b"k", b"v")], log_append_time=2500), leader_epoch=3, now_ms=1000, origin=Origin.COORDINATOR)
    log.close(1000)
    return folder


class Kafka(NamedTuple):
    """What a broker left behind, and what was shown of it while it was running."""

    data: Path
    while_running: list[Row]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Kafka:
    """A broker that had transactions and groups of all three protocols, and was stopped."""
    made = Broker(
        tmp_path_factory.mktemp("kafka"),
        share_coordinator_state_topic_num_partitions="1",
        metadata_log_max_record_bytes_between_snapshots="1000",
    )
    with made.running():
        at = {"bootstrap": made.bootstrap, "topic": "t1"}
        rows = [[1000, "6b", None], [1001, None, "00ff"]]
        oracle.call("Clients.create", **at, partitions=1)
        for end in ("commit", "abort"):
            oracle.call("Clients.produce", **at, partition=0, end=end, settings={"transactional.id": "x"}, rows=rows)
        oracle.call("Clients.produce", **at, partition=0, settings={"compression.type": "zstd"}, rows=rows)
        oracle.call("Groups.consume", **at, group="classic", count=4, settings={"client.rack": "a"})
        oracle.call("Groups.consume", **at, group="new", count=4, settings={"group.protocol": "consumer"})
        oracle.call("Groups.commitInTransaction", **at, group="in-transaction", settings={"transactional.id": "y"})
        oracle.call("Groups.share", **at, group="share", count=4)
        while_running = rows_of(made.data)
    return Kafka(made.data, while_running)


def lines_of(oracle: Oracle, path: Path, *options: str) -> list[str]:
    printed = kafka_dump(oracle, *options, "--files", str(path)).splitlines()
    return [line for line in printed if not line.startswith(("Dumping", "Log starting", "Snapshot end")) and line]


def batch_fields(row: Batch) -> dict[str, str]:
    """A batch as Kafka prints it."""
    shown = {
        "baseOffset": row.base_offset,
        "lastOffset": row.last_offset,
        "count": row.record_count,
        "baseSequence": row.base_sequence,
        "lastSequence": row.last_sequence,
        "producerId": row.producer_id,
        "producerEpoch": row.producer_epoch,
        "partitionLeaderEpoch": row.leader_epoch,
        "isTransactional": str(row.is_transactional).lower(),
        "isControl": str(row.is_control).lower(),
        "deleteHorizonMs": f"OptionalLong[{row.delete_horizon_ms}]" if row.delete_horizon_ms else "OptionalLong.empty",
        "position": row.position,
        row.timestamp_type: row.max_timestamp,
        "size": row.size,
        "magic": 2,
        "compresscodec": row.codec,
        "crc": row.crc,
        "isvalid": "true",
    }
    return {name: str(value) for name, value in shown.items()}


def compare_batches(rows: list[Row], lines: list[str]) -> None:
    theirs = [dict(PAIR.findall(line)) for line in lines if line.startswith("baseOffset")]
    assert [batch_fields(row) for row in rows if isinstance(row, Batch)] == theirs
    assert theirs


def matches(theirs: Any, ours: Any) -> bool:
    """Whether we have every field that Kafka shows; it leaves out tagged ones that have their default."""
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(
            matches(value, ours[attribute(name[0].upper() + name[1:])]) for name, value in theirs.items()
        )
    if isinstance(theirs, list):
        return isinstance(ours, list) and len(ours) == len(theirs) and all(map(matches, theirs, ours))
    return bool(theirs == ours)


def compare_named(row: Record, line: str) -> None:
    """One record of Kafka's own logs: every field of key and value."""
    found = {**dict(PAIR.findall(line.partition("headerKeys")[0]))}
    assert found["offset"] == str(row.offset)
    assert found["CreateTime"] == str(row.timestamp)
    decode = json.JSONDecoder().raw_decode
    if row.control is not None and row.control in ("ABORT", "COMMIT"):
        assert isinstance(row.value, Named)
        assert f"endTxnMarker: {row.control} coordinatorEpoch: {row.value.fields['coordinator_epoch']}" in line
    elif row.control is not None:
        name = re.search(r"headerKeys: \[\] (\w+)", line)
        assert name is not None
        assert name[1] in CONTROL_NAMES
        assert name[1].upper() == row.control.replace("_", "").upper()
        assert isinstance(row.value, Named)
        assert matches(decode(line, line.index("{"))[0], row.value.fields)
    else:
        if " key: " in line:
            assert isinstance(row.key, Named)
            assert matches(decode(line, line.index(" key: ") + 6)[0]["data"], row.key.fields)
        if line.endswith("payload: <DELETE>"):
            assert row.value is None
            return
        theirs = decode(line, line.index(" payload: ") + 10)[0]
        assert isinstance(row.value, Named)
        assert int(theirs["version"]) == row.value.version
        assert matches(theirs["data"], row.value.fields)
        if "type" in theirs:
            assert theirs["type"].replace("_", "") == row.value.name.upper()


@pytest.mark.parametrize("folder", DECODERS)
def test_kafkas_own_topics_are_understood_as_kafka_understands_them(broker: Kafka, oracle: Oracle, folder: str) -> None:
    logs = sorted(broker.data.glob(f"{folder}/*.log"))
    assert logs
    for path in logs:
        rows, lines = rows_of(path), lines_of(oracle, path, DECODERS[folder])
        compare_batches(rows, lines)
        records = [row for row in rows if isinstance(row, Record)]
        theirs = [line for line in lines if line.startswith("| ")]
        assert len(records) == len(theirs)
        for row, line in zip(records, theirs):
            assert row.problem is None
            compare_named(row, line)


def test_metadata_snapshots_are_understood_as_kafka_understands_them(broker: Kafka, oracle: Oracle) -> None:
    snapshots = sorted(broker.data.glob("__cluster_metadata-0/*.checkpoint"))
    assert len(snapshots) > 1
    for snapshot in snapshots:
        rows, lines = rows_of(snapshot), lines_of(oracle, snapshot, "--cluster-metadata-decoder")
        compare_batches(rows, lines)
        records = [row for row in rows if isinstance(row, Record)]
        assert (records[0].control, records[-1].control) == ("SNAPSHOT_HEADER", "SNAPSHOT_FOOTER")
        for row, line in zip(records, [line for line in lines if line.startswith("| ")], strict=True):
            compare_named(row, line)


def test_the_snapshot_that_a_folder_is_formatted_with_is_understood(broker: Kafka) -> None:
    records = [row for row in rows_of(broker.data / "bootstrap.checkpoint") if isinstance(row, Record)]
    names = {row.value.name for row in records if isinstance(row.value, Named)}
    assert names >= {"SnapshotHeaderRecord", "FeatureLevelRecord", "SnapshotFooterRecord"}


def test_every_file_of_a_kafka_folder_is_shown(broker: Kafka) -> None:
    rows = rows_of(broker.data)
    files = {Path(row.file).relative_to(broker.data) for row in rows if isinstance(row, File)}
    there = {path.relative_to(broker.data) for path in broker.data.rglob("*") if path.is_file() and path.name != ".lock"}
    assert files == there
    assert not [row for row in rows if isinstance(row, Record) and row.problem]


def test_indexes_of_a_running_broker_end_in_room_to_come(broker: Kafka) -> None:
    zeros = {row.file for row in broker.while_running if isinstance(row, Zeros)}
    logs = broker.data.glob("__*/*.log")
    assert {str(log.with_suffix(suffix)) for log in logs for suffix in (".index", ".timeindex")} <= zeros
    assert not [row for row in rows_of(broker.data) if isinstance(row, Zeros)]


def test_classic_groups_show_what_their_members_subscribed_to(broker: Kafka) -> None:
    values = [row.value for row in rows_of(broker.data / "__consumer_offsets-0") if isinstance(row, Record)]
    groups = [value for value in values if isinstance(value, Named) and value.name == "GroupMetadataValue"]
    (member,) = next(group.fields["members"] for group in groups if group.fields["members"])
    assert member["subscription"]["topics"] == ["t1"]
    assert member["subscription"]["rack_id"] == "a"
    assert member["assignment"]["assigned_partitions"] == [{"topic": "t1", "partitions": [0]}]


def test_files_that_lie_elsewhere_are_understood_as_told(broker: Kafka, tmp_path: Path) -> None:
    copy = tmp_path / "copy.bin"
    for holds, folder in ((Holds.OFFSETS, "__consumer_offsets-0"), (Holds.TRANSACTIONS, "__transaction_state-0")):
        original = broker.data / folder / "00000000000000000000.log"
        copy.write_bytes(original.read_bytes())
        there = [row for row in rows_of(original) if isinstance(row, Record)]
        here = [row for row in rows_of(copy, holds=holds) if isinstance(row, Record)]
        assert [(row.key, row.value) for row in there] == [(row.key, row.value) for row in here]
        misunderstood = [row for row in rows_of(copy, holds=Holds.METADATA) if isinstance(row, Record) and row.control is None]
        assert all(row.problem for row in misunderstood if row.value is not None)


def test_segments_of_ours_show_what_kafka_shows(written: Path, oracle: Oracle) -> None:
    logs = sorted(written.glob("*.log"))
    assert len(logs) > 2
    for path in logs:
        rows, lines = rows_of(path), lines_of(oracle, path, "--deep-iteration", "--print-data-log")
        compare_batches(rows, lines)
        records = [row for row in rows if isinstance(row, Record)]
        for row, line in zip(records, [line for line in lines if line.startswith("| ")], strict=True):
            found = dict(PAIR.findall(line.replace(",", " ")))
            assert int(found["offset"]) == row.offset
            assert int(found["CreateTime"] if "CreateTime" in found else found["LogAppendTime"]) == row.timestamp
            if row.control is None:
                assert (found.get("key"), found.get("payload")) == (row.key, row.value)
            names = re.search(r"headerKeys: \[(.*?)\]", line)
            assert names is not None
            assert names[1] == ",".join(name for name, _ in row.headers)


def test_indexes_and_snapshots_of_ours_show_what_kafka_shows(written: Path, oracle: Oracle) -> None:
    for path in sorted(written.iterdir()):
        rows = rows_of(path)[1:]
        lines = [dict(PAIR.findall(line)) for line in lines_of(oracle, path) if not line.endswith("is empty.")]
        match path.suffix:
            case ".index":
                assert [{"offset": str(row.offset), "position": str(row.position)} for row in rows] == lines  # type: ignore[attr-defined]
            case ".timeindex":
                assert [{"timestamp": str(row.timestamp), "offset": str(row.offset)} for row in rows] == lines  # type: ignore[attr-defined]
            case ".txnindex":
                fields = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
                ours = [{"version": "0"} | {camel(name): str(getattr(row, name)) for name in fields} for row in rows]
                assert ours == lines
            case ".snapshot":
                assert [producer_fields(row) for row in rows] == lines
    assert {".index", ".timeindex", ".txnindex", ".snapshot"} <= {path.suffix for path in written.iterdir()}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def producer_fields(row: Any) -> dict[str, str]:
    open_from = row.transaction_first_offset
    shown = {
        "producerId": row.producer_id,
        "producerEpoch": row.producer_epoch,
        "coordinatorEpoch": row.coordinator_epoch,
        "currentTxnFirstOffset": f"OptionalLong[{open_from}]" if open_from >= 0 else "OptionalLong.empty",
        "lastTimestamp": row.timestamp,
    }
    if row.last_offset >= 0:
        shown |= {"firstSequence": row.first_sequence, "lastSequence": row.last_sequence, "lastOffset": row.last_offset}
        shown |= {"offsetDelta": row.offset_delta, "timestamp": row.timestamp}
    return {name: str(value) for name, value in shown.items()}

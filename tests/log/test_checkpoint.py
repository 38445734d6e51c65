"""The text files of a log folder: byte for byte, read back, damaged, and by Apache Kafka."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CorruptFile,
    read_clean_shutdown,
    read_offsets,
    read_partition_metadata,
    uuid_text,
    write_clean_shutdown,
    write_offsets,
    write_partition_metadata,
)
from odradek.log.disk import RealDisk, replace_file
from odradek.log.names import TopicPartition
from tests.kafka.oracle import Oracle, OracleError
from tests.log.disk import PowerLost, SimDisk

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)), st.integers(-(2**63), 2**63 - 1), max_size=5
)
PATH = "/disk/f"


def disk_with(content: bytes) -> SimDisk:
    disk = SimDisk()
    replace_file(disk, PATH, content)
    return disk


def test_offsets_are_written_as_kafka_writes_them() -> None:
    disk = SimDisk()
    write_offsets(disk, PATH, {TopicPartition("b", 1): 7, TopicPartition("a", 0): 0})
    assert disk.read(PATH) == b"0\n2\nb 1 7\na 0 0\n"
    write_offsets(disk, PATH, {})
    assert disk.read(PATH) == b"0\n0\n"
    assert disk.crash("strict").read(PATH) == b"0\n0\n"


@given(OFFSETS)
def test_offsets_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    disk = SimDisk()
    assert read_offsets(disk, PATH) == {}
    write_offsets(disk, PATH, offsets)
    assert read_offsets(disk, PATH) == offsets


def test_offsets_survive_a_power_loss_at_every_step() -> None:
    old, new = {TopicPartition("t", 0): 1}, {TopicPartition("t", 0): 2}
    for step in range(5):
        disk = SimDisk()
        write_offsets(disk, PATH, old)
        disk.stop_at(5 + step, kept_bytes=3)
        with pytest.raises(PowerLost):
            write_offsets(disk, PATH, new)
        for seed in range(20):
            assert read_offsets(disk.crash("mixed", seed=seed), PATH) in (old, new)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1\n0\n", 1),
        (b"x\n0\n", 1),
        (b"0\n-1\n", 2),
        (b"0\n2\nt 0 1\n", 2),
        (b"0\n0\nt 0 1\n", 2),
        (b"0\n1\nt 0\n", 3),
        (b"0\n1\n t 0 1\n", 3),
        (b"0\n1\nt 0 1 2\n", 3),
        (b"0\n1\nt x 1\n", 3),
        (b"0\n1\nt 0 9223372036854775808\n", 3),
        (b"0\n1\nt 2147483648 1\n", 3),
        (b"0\n1\nt 0 1_0\n", 3),
        (b"0\n2\nt 0 1\n\n", 4),
        (b"0\n1\n\xff 0 1\n", 3),
        (b"\0\0\0\0", 1),
    ],
)
def test_damaged_offsets_are_refused_with_the_line(oracle: Oracle, tmp_path: Path, content: bytes, line: int) -> None:
    with pytest.raises(CorruptFile, match=f"/disk/f, line {line}: ") as caught:
        read_offsets(disk_with(content), PATH)
    assert (caught.value.path, caught.value.line) == (PATH, line)
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(OracleError):
        oracle.call("LogFiles.readOffsets", path=str(tmp_path / "f"))


@pytest.mark.parametrize(
    "content", [b"", b"0", b"0\n", b"0\r\n1\r\nt 0 1", b"0\n1\nt \t 0 1  \n", b"+0\n01\nt 0 -5", b"0\n2\nt 0 1\nt 0 2\n"]
)
def test_what_kafka_reads_leniently_is_read_the_same(oracle: Oracle, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    theirs = oracle.call("LogFiles.readOffsets", path=str(tmp_path / "f"))
    assert read_offsets(disk_with(content), PATH) == {TopicPartition(topic, number): offset for topic, number, offset in theirs}


def test_kafka_reads_our_offsets_and_we_read_its(oracle: Oracle, tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "f")

    @given(OFFSETS)
    def check(offsets: dict[TopicPartition, int]) -> None:
        write_offsets(disk, path, offsets)
        rows = oracle.call("LogFiles.readOffsets", path=path)
        assert {TopicPartition(topic, number): offset for topic, number, offset in rows} == offsets
        ours = disk.read(path)
        oracle.call("LogFiles.writeOffsets", path=path, rows=[[*key, offset] for key, offset in offsets.items()])
        assert disk.read(path) == ours

    check()


def test_clean_shutdown_mark_is_kafkas(oracle: Oracle, tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / CLEAN_SHUTDOWN)
    assert read_clean_shutdown(disk, path) is None
    write_clean_shutdown(disk, path, 2**62)
    assert disk.read(path) == b'{"version":0,"brokerEpoch":4611686018427387904}'
    assert oracle.call("LogFiles.readCleanShutdown", path=str(tmp_path)) == 2**62
    oracle.call("LogFiles.writeCleanShutdown", path=str(tmp_path), epoch=17)
    assert disk.read(path) == b'{"version":0,"brokerEpoch":17}'
    assert read_clean_shutdown(disk, path) == 17


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"7",
        b'{"brokerEpoch":null}',
        b'{"brokerEpoch":"x"}',
        b'{"brokerEpoch":"12"}',
        b'{"version":9,"brokerEpoch":5,"more":[]}',
        b' {"brokerEpoch":5} and more',
        b'{"brokerEpoch":5',
        b"\xff\xfe",
        b"\0" * 20,
    ],
)
def test_any_clean_shutdown_mark_counts(oracle: Oracle, tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLEAN_SHUTDOWN).write_bytes(content)
    theirs = oracle.call("LogFiles.readCleanShutdown", path=str(tmp_path))
    assert read_clean_shutdown(disk_with(content), PATH) == (-1 if theirs is None else theirs)


def test_partition_metadata_is_kafkas(oracle: Oracle, tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "partition.metadata")
    assert read_partition_metadata(disk, path) is None

    @given(st.uuids())
    def check(topic_id: UUID) -> None:
        write_partition_metadata(disk, path, topic_id)
        assert read_partition_metadata(disk, path) == topic_id
        assert oracle.call("LogFiles.readPartition", path=path) == uuid_text(topic_id)
        ours = disk.read(path)
        oracle.call("LogFiles.writePartition", path=path, topic_id=uuid_text(topic_id))
        assert disk.read(path) == ours

    check()
    assert read_partition_metadata(disk_with(b"version: 3\ntopic_id:  AAAAAAAAAAAAAAAAAAAAAQ==\nmore"), PATH) == UUID(int=1)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"version: 0", 2),
        (b"version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 1),
        (b"version 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 1),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAA", 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAA+/AQ", 2),
        (b"version: 0\ntopic_id: ", 2),
        (b"\0" * 30, 1),
    ],
)
def test_damaged_partition_metadata_is_refused(oracle: Oracle, tmp_path: Path, content: bytes, line: int) -> None:
    with pytest.raises(CorruptFile, match=f"line {line}: "):
        read_partition_metadata(disk_with(content), PATH)
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(OracleError):
        oracle.call("LogFiles.readPartition", path=str(tmp_path / "f"))

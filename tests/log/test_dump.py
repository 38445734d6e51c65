"""What a dump shows of small files, of damaged ones and of parts; that it is right about whole logs is in test_dump_by_kafka."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.checkpoint import uuid_text, write_clean_shutdown, write_offsets, write_partition_metadata
from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.dump import Holds, NotOfALog, Selection, dump
from odradek.log.dump.disk import ReadOnlyDisk
from odradek.log.dump.names import Kind, recognise
from odradek.log.dump.rows import (
    Aborted,
    Batch,
    Damage,
    Encoded,
    File,
    IndexEntry,
    LeaderEpoch,
    Offset,
    Producer,
    Properties,
    Record,
    Row,
    TimeIndexEntry,
    Zeros,
)
from odradek.log.dump.values import control, shown, understood
from odradek.log.loading import open_log
from odradek.log.meta_properties import MetaProperties, write_meta_properties
from odradek.log.names import TopicPartition
from odradek.log.producer import ENTRY as PRODUCER_ENTRY
from odradek.log.producer import Producer as KnownProducer
from odradek.log.producer import encode_snapshot
from odradek.log.transaction_index import ENTRY as ABORTED_ENTRY
from odradek.wire.batch import assemble, read_header
from odradek.wire.records import Record as NewRecord
from odradek.wire.records import build

SEGMENT = "00000000000000000000.log"
TOPIC_ID = UUID(int=0x1234567890ABCDEF)


def rows_of(path: Path, wanted: Selection | None = None, holds: Holds | None = None) -> list[Row]:
    """All rows but the first, which says which file it is."""
    first, *rest = dump(ReadOnlyDisk(), str(path), wanted or Selection(records=True), holds)
    assert isinstance(first, File)
    return rest


def damage_of(path: Path) -> tuple[int, int, str]:
    """How many rows are shown, where the damage is and what it is."""
    *before, last = rows_of(path, Selection())
    assert isinstance(last, Damage)
    assert not [row for row in before if isinstance(row, Damage)]
    return len(before), last.position, last.damage


def batches(count: int, size: int = 10) -> list[bytes]:
    return [
        bytes(build([NewRecord(number, 1000 + number, b"key%d" % number, b"v" * size)], base_offset=number))
        for number in range(count)
    ]


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Ten batches of one record each."""
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batches(10)))
    return path


# -- parts of a segment


def test_batches_come_without_records_unless_they_are_wanted(segment: Path) -> None:
    assert [type(row) for row in rows_of(segment, Selection())] == [Batch] * 10
    assert [type(row) for row in rows_of(segment, Selection(records=True))] == [Batch, Record] * 10


def test_limit_counts_batches_or_records(segment: Path) -> None:
    assert [row.base_offset for row in rows_of(segment, Selection(limit=3)) if isinstance(row, Batch)] == [0, 1, 2]
    rows = rows_of(segment, Selection(limit=3, records=True))
    assert [row.offset for row in rows if isinstance(row, Record)] == [0, 1, 2]
    assert rows_of(segment, Selection(limit=0)) == []


def test_offset_leaves_out_what_lies_before_it(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    records = [NewRecord(at, 1000, b"k", b"v") for at in range(5)]
    path.write_bytes(build(records) + b"".join(batches(10)[5:]))
    rows = rows_of(path, Selection(offset=3, records=True))
    assert [row.offset for row in rows if isinstance(row, Record)] == [3, 4, 5, 6, 7, 8, 9]
    assert [row.base_offset for row in rows if isinstance(row, Batch)] == [0, 5, 6, 7, 8, 9]
    assert rows_of(path, Selection(offset=10)) == []


def test_a_batch_larger_than_a_chunk_is_shown(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.write_bytes(b"".join(batches(3, size=2_500_000)))
    assert [row.offset for row in rows_of(path) if isinstance(row, Record)] == [0, 1, 2]


def test_folder_leaves_out_segments_that_end_before_the_offset(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = open_log(RealDisk(), str(folder), LogConfig(segment_bytes=400), now_ms=0, clean=True)
    for _ in range(20):
        log.append(build([NewRecord(0, 1000, b"k", b"v" * 50)]), leader_epoch=0, now_ms=0)
    log.close(0)
    rows = list(dump(ReadOnlyDisk(), str(folder), Selection(offset=log.active.base_offset)))
    assert [row.base_offset for row in rows if isinstance(row, File) and row.kind == Kind.SEGMENT] == [log.active.base_offset]
    everything = list(dump(ReadOnlyDisk(), str(folder)))
    assert sum(isinstance(row, Batch) for row in everything) == 20


def test_log_folder_shows_its_partitions(tmp_path: Path) -> None:
    for name in ("t-0", "t-1.abc-delete", "not a partition"):
        (tmp_path / name).mkdir()
        (tmp_path / name / SEGMENT).write_bytes(batches(1)[0])
    (tmp_path / "stranger.txt").write_text("hello")
    files = [row.file for row in dump(ReadOnlyDisk(), str(tmp_path)) if isinstance(row, File)]
    assert files == [f"{tmp_path}/t-0/{SEGMENT}", f"{tmp_path}/t-1.abc-delete/{SEGMENT}"]


# -- damage


def test_truncated_segment_is_shown_up_to_the_batch_that_is_cut(segment: Path) -> None:
    whole = segment.read_bytes()
    starts = [sum(map(len, batches(10)[:number])) for number in range(11)]
    for cut in (1, 60, 61, 70, len(whole) - 1):
        segment.write_bytes(whole[:cut])
        shown_whole = max(number for number, start in enumerate(starts) if start <= cut)
        assert damage_of(segment)[:2] == (shown_whole, starts[shown_whole])


def test_every_flipped_bit_is_found_but_those_that_no_crc_covers(segment: Path) -> None:
    whole = segment.read_bytes()
    size = len(batches(1)[0])
    for byte in range(size):
        damaged = bytearray(whole)
        damaged[5 * size + byte] ^= 0x80
        segment.write_bytes(damaged)
        *before, last = rows_of(segment, Selection())
        if 12 <= byte < 16:  # the leader epoch
            assert isinstance(last, Batch)
            continue
        assert isinstance(last, Damage)
        if 0 < byte < 8:  # a base offset that is too high is found when the next one is lower
            assert (len(before), last.position) == (6, 6 * size)
        else:
            assert len(before) == 5
            assert 5 * size <= last.position < 6 * size


def test_zeros_at_the_end_of_a_segment_are_named(segment: Path) -> None:
    end = segment.stat().st_size
    for count in (1, 61, 5_000_000):
        segment.write_bytes(b"".join(batches(10)) + bytes(count))
        shown_before, position, reason = damage_of(segment)
        assert (shown_before, position) == (10, end)
        assert f"{count} zero bytes" in reason


def test_offsets_that_go_back_are_damage(segment: Path) -> None:
    segment.write_bytes(b"".join([*batches(3), batches(2)[1]]))
    assert damage_of(segment)[0] == 3
    moved = segment.with_name("00000000000000000005.log")
    moved.write_bytes(batches(1)[0])
    assert damage_of(moved)[:2] == (0, 0)


def test_records_that_are_wrong_behind_a_right_crc_are_damage(segment: Path) -> None:
    header = read_header(build([NewRecord(0, 1000, b"k", b"v")]))
    segment.write_bytes(assemble(header, b"\x7f" + bytes(7)))
    *_, last = rows_of(segment)
    assert isinstance(last, Damage)
    assert "records" in last.damage


@given(st.binary(max_size=300))
def test_garbage_is_never_more_than_damage(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "garbage"
    folder.mkdir(exist_ok=True)
    names = [SEGMENT, "0.index", "0.timeindex", "0.txnindex", "0.snapshot", "0-0.checkpoint", "recovery-point-offset-checkpoint"]
    names += ["leader-epoch-checkpoint", "partition.metadata", "meta.properties", ".kafka_cleanshutdown", "quorum-state"]
    for name in names:
        (folder / name).write_bytes(content)
        for number, row in enumerate(rows := rows_of(folder / name)):
            assert not isinstance(row, Damage) or (number == len(rows) - 1 and 0 <= row.position <= len(content))


def test_unreadable_file_of_a_folder_does_not_hide_the_others(segment: Path) -> None:
    class Locked(ReadOnlyDisk):
        def read(self, path: str) -> bytes:
            raise PermissionError(13, "Permission denied", path)

    (segment.parent / "meta.properties").write_text("version=1\n")
    rows = list(dump(Locked(), str(segment.parent)))
    assert [row.damage for row in rows if isinstance(row, Damage)] == ["cannot be read: Permission denied"]
    assert sum(isinstance(row, Batch) for row in rows) == 10


def test_what_vanishes_meanwhile_is_passed_over_and_what_is_locked_is_said(segment: Path) -> None:
    (segment.parent / "00000000000000000010.log").symlink_to(segment.parent / "gone")
    rows = list(dump(ReadOnlyDisk(), str(segment.parent)))
    assert [row.file for row in rows if isinstance(row, File)] == [str(segment)]

    for name in ("gone-0", "locked-0"):
        (segment.parent / name).mkdir()

    class Late(ReadOnlyDisk):
        def names(self, folder: str) -> list[tuple[str, int]]:
            if folder.endswith("gone-0"):
                raise FileNotFoundError(2, "No such file or directory", folder)
            if folder.endswith("locked-0"):
                raise PermissionError(13, "Permission denied", folder)
            return [*super().names(folder), ("00000000000000000010.log", 5)]

    rows = list(dump(Late(), f"{segment.parent}/"))
    assert [row.file for row in rows if isinstance(row, File)] == [str(segment)]
    assert [row.file for row in rows if isinstance(row, Damage)] == [str(segment.parent / "locked-0")]


def test_what_is_no_file_of_a_log_is_refused(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("hello")
    for path in (stranger, tmp_path):
        with pytest.raises(NotOfALog):
            rows_of(path)
    with pytest.raises(FileNotFoundError):
        rows_of(tmp_path / SEGMENT)


# -- indexes


def write_entries(path: Path, entries: list[tuple[int, int]], *, time: bool = False) -> None:
    sizes = (8, 4) if time else (4, 4)
    path.write_bytes(b"".join(number.to_bytes(size, "big") for entry in entries for number, size in zip(entry, sizes)))


def test_indexes_show_whole_offsets(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    write_entries(path, [(5, 4100), (9, 8300)])
    assert rows_of(path) == [
        IndexEntry(file=str(path), offset=105, position=4100),
        IndexEntry(file=str(path), offset=109, position=8300),
    ]
    path = tmp_path / "00000000000000000100.timeindex"
    write_entries(path, [(1000, 5), (2000, 9)], time=True)
    assert rows_of(path, Selection(offset=106)) == [TimeIndexEntry(file=str(path), timestamp=2000, offset=109)]


def test_room_that_a_running_node_set_aside_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    for entries in ([], [(5, 4100), (9, 8300)]):
        write_entries(path, entries)
        used = path.stat().st_size
        path.write_bytes(path.read_bytes() + bytes(10_000_000))
        *before, last = rows_of(path)
        assert len(before) == len(entries)
        assert last == Zeros(file=str(path), position=used, size=10_000_000)


def test_one_entry_of_zeros_is_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.timeindex"
    path.write_bytes(bytes(12))
    assert rows_of(path) == [TimeIndexEntry(file=str(path), timestamp=0, offset=0)]


def test_damaged_indexes_are_shown_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    write_entries(path, [(5, 100), (4, 200), (6, 300)])
    assert damage_of(path)[:2] == (1, 8)
    write_entries(path, [(5, 100), (0, 0), (6, 300)])
    assert damage_of(path)[:2] == (1, 8)
    path.write_bytes(path.read_bytes()[:8] + b"\x01\x02\x03")
    assert damage_of(path)[:2] == (1, 8)
    aborted = tmp_path / "00000000000000000000.txnindex"
    aborted.write_bytes(ABORTED_ENTRY.pack(0, 7, 1, 5, 6) + ABORTED_ENTRY.pack(3, 7, 7, 9, 10))
    assert rows_of(aborted)[0] == Aborted(file=str(aborted), producer_id=7, first_offset=1, last_offset=5, last_stable_offset=6)
    assert damage_of(aborted)[:2] == (1, 34)


def test_damaged_producer_snapshots_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000009.snapshot"
    producer = KnownProducer(5, 1)
    producer.add_batch(last_sequence=3, last_offset=8, offset_delta=3, timestamp=1000)
    whole = encode_snapshot([producer, KnownProducer(6, 0)])
    path.write_bytes(whole)
    first, _ = rows_of(path)
    assert isinstance(first, Producer)
    assert (first.producer_id, first.first_sequence, first.last_sequence, first.last_offset) == (5, 0, 3, 8)
    path.write_bytes(whole[:-1] + b"\x00")
    assert damage_of(path)[:2] == (2, 2)
    path.write_bytes(whole[: -PRODUCER_ENTRY.size])
    assert damage_of(path)[:2] == (1, 6)
    path.write_bytes(whole[:-3])
    assert damage_of(path)[:2] == (1, 10 + PRODUCER_ENTRY.size)
    path.write_bytes(b"")
    assert damage_of(path)[:2] == (0, 0)
    path.write_bytes(b"\x00\x09" + whole[2:])
    assert damage_of(path)[:2] == (0, 0)


def test_metadata_snapshot_without_its_footer_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000010-0000000001.checkpoint"
    path.write_bytes(batches(1)[0])
    assert damage_of(path)[:2] == (1, len(batches(1)[0]))
    partial = tmp_path / f"{path.name}.part"
    path.rename(partial)
    assert [type(row) for row in rows_of(partial, Selection())] == [Batch]


# -- small files


def test_small_files_are_shown(tmp_path: Path) -> None:
    disk = RealDisk()
    offsets, metadata = tmp_path / "recovery-point-offset-checkpoint", tmp_path / "partition.metadata"
    write_offsets(disk, str(offsets), {TopicPartition("a-b", 3): 77})
    assert rows_of(offsets) == [Offset(file=str(offsets), topic="a-b", partition=3, offset=77)]
    write_partition_metadata(disk, str(metadata), TOPIC_ID)
    properties = {"version": "0", "topic_id": uuid_text(TOPIC_ID)}
    assert rows_of(metadata) == [Properties(file=str(metadata), properties=properties)]
    clean = tmp_path / ".kafka_cleanshutdown"
    write_clean_shutdown(disk, str(clean), 14)
    assert rows_of(clean) == [Properties(file=str(clean), properties={"version": 0, "brokerEpoch": 14})]
    clean.write_bytes(b"")
    assert rows_of(clean) == [Properties(file=str(clean), properties={})]
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n1 0\n3 40\n")
    assert rows_of(epochs) == [
        LeaderEpoch(file=str(epochs), epoch=1, start_offset=0),
        LeaderEpoch(file=str(epochs), epoch=3, start_offset=40),
    ]
    meta = tmp_path / "meta.properties"
    write_meta_properties(disk, str(meta), MetaProperties(1, "c", 5, TOPIC_ID, {}), 0)
    (row,) = rows_of(meta)
    assert isinstance(row, Properties)
    assert row.properties == {"node.id": "5", "directory.id": uuid_text(TOPIC_ID), "version": "1", "cluster.id": "c"}


@pytest.mark.parametrize(
    ("name", "content", "before", "position"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n1 0\n3 x\n", 1, 8),
        ("leader-epoch-checkpoint", b"0\n3\n1 0\n3 40\n", 2, 2),
        ("leader-epoch-checkpoint", b"7\n0\n", 0, 0),
        ("log-start-offset-checkpoint", b"0\n2\nt 0 5\nt 1\n", 1, 10),
        ("log-start-offset-checkpoint", b"0\n1\n\xff\xfe 0 5\n", 0, 4),
        ("partition.metadata", b"version: 0\ntopic_id: no\n", 1, 11),
        ("partition.metadata", b"", 1, 0),
        ("meta.properties", b"version=1\nnode.id=x\ncluster.id=c\n", 1, 10),
        ("meta.properties", b"version=1\\u12\n", 0, 0),
        ("quorum-state", b'{"leaderId": 1,', 0, 15),
        ("quorum-state", b"", 0, 0),
        ("quorum-state", b"[1]", 0, 0),
        ("quorum-state", b'{"a": \xff}', 0, 6),
        (".kafka_cleanshutdown", b"{", 0, 1),
    ],
)
def test_damaged_small_files_are_shown_up_to_the_damage(
    tmp_path: Path, name: str, content: bytes, before: int, position: int
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert damage_of(path)[:2] == (before, position)


# -- names and values


@pytest.mark.parametrize(
    ("name", "kind", "base_offset", "state"),
    [
        ("00000000000000000042.log", Kind.SEGMENT, 42, ""),
        ("00000000000000000042.log.deleted", Kind.SEGMENT, 42, "deleted"),
        ("00000000000000000042.timeindex.cleaned", Kind.TIME_INDEX, 42, "cleaned"),
        ("00000000000000000042.index.swap", Kind.INDEX, 42, "swap"),
        ("00000000000000000042.snapshot.deleted", Kind.PRODUCER_SNAPSHOT, 42, "deleted"),
        ("00000000000000000042-0000000007.checkpoint", Kind.METADATA_SNAPSHOT, 42, ""),
        ("00000000000000000042-0000000007.checkpoint.deleted", Kind.METADATA_SNAPSHOT, 42, "deleted"),
        ("bootstrap.checkpoint", Kind.METADATA_SNAPSHOT, None, ""),
        ("copy.log", Kind.SEGMENT, None, ""),
        ("replication-offset-checkpoint.tmp", Kind.OFFSETS, None, "tmp"),
    ],
)
def test_files_are_known_by_their_names(name: str, kind: Kind, base_offset: int | None, state: str) -> None:
    known = recognise(name)
    assert known is not None
    assert (known.kind, known.base_offset, known.state) == (kind, base_offset, state)


@pytest.mark.parametrize("name", ["notes.txt", ".lock", ".log", "log", "a.log.gz", ""])
def test_other_names_are_no_files_of_a_log(name: str) -> None:
    assert recognise(name) is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, None),
        (b"", ""),
        ("grün\n".encode(), "grün\n"),
        (b"\xff", Encoded("/w==")),
        (b"a\x00b", Encoded("YQBi")),
        (b"\x1b[31m", Encoded("G1szMW0=")),
    ],
)
def test_bytes_are_text_only_where_a_person_can_read_them(data: bytes | None, text: str | Encoded | None) -> None:
    assert shown(data) == text


@given(st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=80), st.integers(0, 25), st.integers(0, 5))
def test_records_that_make_no_sense_are_shown_as_they_are(
    key: bytes | None, value: bytes | None, kind: int, version: int
) -> None:
    meant = (kind.to_bytes(2, "big") + (key or b""), version.to_bytes(2, "big") + (value or b""))
    framed = bytes([1, kind, version]) + (value or b"")
    for record in (NewRecord(0, 0, key, value), NewRecord(0, 0, *meant), NewRecord(0, 0, key, framed)):
        assert control(record)
        for holds in Holds:
            shown_key, shown_value, problem = understood(record, holds)
            if problem:
                assert (shown_key, shown_value) == (shown(record.key), shown(record.value))

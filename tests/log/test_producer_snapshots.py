"""Producer snapshots: their bytes, that Apache Kafka reads them, and what is loaded after every kind of accident."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.disk import DiskFull, RealDisk
from odradek.log.producer import CorruptSnapshot, Producer, decode_snapshot, encode_snapshot
from odradek.log.producer_state import ProducerState
from odradek.wire.batch import TRANSACTIONAL, BatchHeader
from tests.kafka.oracle import Oracle, OracleError
from tests.log.disk import PowerLost, SimDisk
from tests.log.medium import Manner

INT16, INT32, INT64 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)


@st.composite
def producers(draw: st.DrawFn) -> Producer:
    open_since = draw(st.just(-1) | INT64)
    producer = Producer(draw(INT64), draw(INT16), draw(st.just(-1) | INT32), draw(st.just(-1) | INT64), open_since)
    for _ in range(draw(st.integers(0, 2))):
        delta = draw(st.integers(0, 100))
        producer.add_batch(draw(INT32), draw(st.integers(delta, 2**63 - 1)), delta, draw(INT64))
    return producer


def fields(producer: Producer) -> list[object]:
    """As the oracle gives them; of the batches the last, which is what a snapshot keeps."""
    rows = [[*batch] for batch in producer.batches][-1:]
    head = [producer.producer_id, producer.epoch, producer.last_timestamp, producer.coordinator_epoch]
    return [*head, producer.transaction_first_offset, *rows]


def header_at(
    offset: int, *, producer_id: int = 7, sequence: int = 0, transactional: bool = False, timestamp: int = 5
) -> BatchHeader:
    attributes = TRANSACTIONAL if transactional else 0
    return BatchHeader(offset, 61, 0, 2, 0, attributes, 0, timestamp, timestamp, producer_id, 0, sequence, 1)


def state_with(disk: SimDisk, *snapshots: int) -> ProducerState:
    """A batch of producer 7 at every offset, and snapshots taken on the way."""
    state = ProducerState(disk, "/disk")
    for offset in range(max(snapshots, default=0)):
        state.append(header_at(offset, sequence=offset))
        state.map_end_offset = offset + 1
        if offset + 1 in snapshots:
            assert state.take_snapshot() == f"/disk/{offset + 1:020d}.snapshot"
    return state


def names(disk: SimDisk) -> list[str]:
    return [name for name, _ in disk.names("/disk")]


def test_bytes_are_those_of_the_format() -> None:
    producer = Producer(7, 3, 2, 1000, 40)
    producer.add_batch(11, 52, 4, 1000)
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 3, 11, 52, 4, 1000, 2, 40)
    assert encode_snapshot([producer]) == struct.pack(">hI", 1, crc32c(body)) + body
    empty = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, -1, -1, -1, 0, -1, -1, -1)
    assert encode_snapshot([Producer(7)])[6:] == empty


def test_kafka_reads_what_we_write(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000010.snapshot"

    @given(st.lists(producers(), max_size=4))
    def check(some: list[Producer]) -> None:
        content = encode_snapshot(some)
        path.write_bytes(content)
        assert oracle.call("LogFiles.readSnapshot", path=str(path)) == [fields(producer) for producer in some]
        assert [fields(producer) for producer in decode_snapshot(str(path), content)] == [fields(producer) for producer in some]

    check()


@given(st.lists(producers(), max_size=3), st.data())
def test_any_damage_is_seen(some: list[Producer], data: st.DataObject) -> None:
    content = bytearray(encode_snapshot(some))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot("f", bytes(content))


def test_kafka_sees_the_same_damage(oracle: Oracle, tmp_path: Path) -> None:
    whole = encode_snapshot([Producer(7)])
    wrong_count = struct.pack(">i", 2) + whole[10:]
    for content in (
        b"",
        whole[:-1],
        whole + b"\0",
        b"\0\2" + whole[2:],
        whole[:2] + struct.pack(">I", crc32c(wrong_count)) + wrong_count,
    ):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot("f", content)
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(OracleError):
            oracle.call("LogFiles.readSnapshot", path=str(tmp_path / "f"))


def test_snapshot_is_taken_once_for_an_offset() -> None:
    disk = SimDisk()
    state = state_with(disk, 3, 5)
    assert (state.snapshots, state.latest_snapshot_offset) == ([3, 5], 5)
    assert state.take_snapshot() is None
    assert ProducerState(disk, "/disk").snapshots == [3, 5]
    assert ProducerState(disk, "/disk", [5, 3]).snapshots == [3, 5]


def test_newest_snapshot_in_range_is_loaded() -> None:
    disk = SimDisk()
    state_with(disk, 3, 5, 9)
    state = ProducerState(disk, "/disk")
    state.truncate_and_reload(0, 7, now_ms=5)
    assert (state.map_end_offset, state.last_snapshot_offset, state.snapshots) == (5, 5, [3, 5])
    assert state.producers[7].last_sequence == 4
    state.truncate_and_reload(4, 5, now_ms=5)
    assert state.snapshots == [5]
    state = ProducerState(disk, "/disk")
    state.truncate_and_reload(5, 9, now_ms=5)
    assert (state.map_end_offset, state.snapshots, state.producers) == (5, [], {})


def test_corrupt_snapshot_is_removed_and_an_older_one_loaded() -> None:
    disk = SimDisk()
    state_with(disk, 3, 5, 9)
    disk.flip_bit("/disk/00000000000000000009.snapshot", 100)
    disk.remove("/disk/00000000000000000005.snapshot")
    disk.open("/disk/00000000000000000005.snapshot", create=True)
    state = ProducerState(disk, "/disk")
    state.truncate_and_reload(0, 20, now_ms=5)
    assert (state.map_end_offset, state.snapshots) == (3, [3])
    assert names(disk) == ["00000000000000000003.snapshot"]
    assert state.producers[7].last_offset == 2


def test_expired_producers_are_not_loaded_unless_in_a_transaction() -> None:
    disk = SimDisk()
    state = ProducerState(disk, "/disk", expiration_ms=100)
    state.append(header_at(0))
    state.append(header_at(1, producer_id=9, transactional=True))
    state.append(header_at(2, producer_id=8, transactional=True))
    state.append(header_at(3, producer_id=6, timestamp=105))
    state.map_end_offset = 4
    state.take_snapshot()
    state = ProducerState(disk, "/disk", expiration_ms=100)
    state.truncate_and_reload(0, 5, now_ms=105)
    assert sorted(state.producers) == [6, 8, 9]
    assert [*state.ongoing.items()] == [(1, 9), (2, 8)]
    assert state.first_unstable_offset == 1


def test_a_clock_that_was_set_ahead_has_nobody_forgotten_at_a_start() -> None:
    disk = SimDisk()
    state = ProducerState(disk, "/disk", expiration_ms=100)
    for offset, timestamp in enumerate((0, 100, 101, 150)):
        state.append(header_at(offset, producer_id=7 + offset, timestamp=timestamp))
    state.map_end_offset = 4
    state.take_snapshot()
    state = ProducerState(disk, "/disk", expiration_ms=100)
    state.truncate_and_reload(0, 5, now_ms=10_000)
    assert sorted(state.producers) == [8, 9, 10]


def test_log_that_begins_anew_has_no_producers() -> None:
    disk = SimDisk()
    state = state_with(disk, 3, 5)
    state.truncate_fully(100)
    assert (state.map_end_offset, state.producers, state.snapshots, names(disk)) == (100, {}, [], [])
    assert state.take_snapshot() == "/disk/00000000000000000100.snapshot"


def test_cut_off_snapshots_do_not_come_back_after_a_power_loss() -> None:
    disk = SimDisk()
    state = state_with(disk, 3, 9)
    disk.sync_folder("/disk")
    state.truncate_and_reload(0, 5, now_ms=5)
    assert names(disk.crash("strict")) == ["00000000000000000003.snapshot"]


def test_stray_snapshots_go_but_for_the_newest_past_all_segments() -> None:
    disk = SimDisk()
    state_with(disk, 3, 5, 7, 9)
    state = ProducerState(disk, "/disk")
    state.remove_stray_snapshots([0, 5])
    assert state.snapshots == [5, 9]
    state.remove_stray_snapshots([0, 5, 20])
    assert state.snapshots == [5]
    state.remove_stray_snapshots([])
    assert state.snapshots == [5]
    assert names(disk) == ["00000000000000000005.snapshot"]


def test_snapshots_after_an_offset_can_be_removed() -> None:
    disk = SimDisk()
    state = state_with(disk, 3, 5, 7, 9)
    state.remove_snapshots_after(7)
    assert state.snapshots == [3, 5, 7]


def test_dropped_snapshot_is_renamed_and_removed_later() -> None:
    disk = SimDisk()
    state = state_with(disk, 3, 5)
    remove = state.drop_snapshot(3)
    assert remove is not None
    assert names(disk) == ["00000000000000000003.snapshot.deleted", "00000000000000000005.snapshot"]
    assert ProducerState(disk, "/disk").snapshots == [5]
    remove()
    assert names(disk) == ["00000000000000000005.snapshot"]
    assert state.drop_snapshot(3) is None


def test_full_disk_leaves_no_half_snapshot() -> None:
    disk = SimDisk()
    state = state_with(disk, 3)
    state.map_end_offset = 5
    disk.room = 10
    with pytest.raises(DiskFull):
        state.take_snapshot()
    assert state.snapshots == ProducerState(disk, "/disk").snapshots == [3]
    disk.room = None
    assert state.take_snapshot() is not None


def test_after_any_power_loss_a_whole_snapshot_is_loaded() -> None:
    manners: list[Manner] = ["strict", "kept", "torn", "mixed"]
    for step in range(8):
        disk = SimDisk()
        state = state_with(disk, 3)
        disk.open("/disk/00000000000000000003.snapshot").sync()
        disk.sync_folder("/disk")
        state.append(header_at(3, sequence=3))
        state.map_end_offset = 4
        disk.stop_at(len(disk.steps) + step, kept_bytes=20)
        with suppress(PowerLost):
            state.take_snapshot()
            for file in state.snapshot_files():
                file.sync()
        for manner in manners:
            after = disk.crash(manner, seed=step, kept_bytes=10)
            loaded = ProducerState(after, "/disk")
            loaded.truncate_and_reload(0, 4, now_ms=5)
            assert loaded.map_end_offset in (3, 4)
            assert loaded.producers[7].last_offset == loaded.map_end_offset - 1


def test_real_disk_keeps_a_snapshot(tmp_path: Path) -> None:
    state = ProducerState(RealDisk(), str(tmp_path))
    state.append(header_at(0))
    state.map_end_offset = 1
    for _ in range(2):
        state.last_snapshot_offset = 0
        state.take_snapshot()
        loaded = ProducerState(RealDisk(), str(tmp_path))
        loaded.truncate_and_reload(0, 2, now_ms=5)
        assert fields(loaded.producers[7]) == fields(state.producers[7])

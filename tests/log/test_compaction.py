"""What compaction keeps and what it takes away, rule by rule."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from odradek.log.compaction import Job, Outcome, compact
from odradek.log.disk import RealDisk
from odradek.log.lookup import aborted_between
from odradek.log.names import FileKind
from odradek.log.producer import decode_snapshot
from odradek.log.producer_state import EXPIRATION_MS
from odradek.wire.batch import _write_crc, read_header
from odradek.wire.compression import Codec
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, build, payload, records, scan
from tests.log.compacting import HOUR_MS, Compacted, end
from tests.log.model import check_indexes
from tests.log.partition import add, produced


def begin(of: Compacted, key: bytes, value: bytes, sequence: int = 0, *, producer_id: int = 7) -> int:
    """A batch in a transaction."""
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
    return of.write((key, value), **fields)


# -- values


def test_the_last_value_of_every_key_stays_at_its_offset() -> None:
    of = Compacted()
    for number in range(3):
        of.write((b"a", b"%d" % number), (b"b", b"%d" % number))
    of.write((b"c", b"0"), (b"a", b"last"))
    of.compact()
    assert of.rows() == [(5, b"b", b"2"), (6, b"c", b"0"), (7, b"a", b"last")]
    check_indexes(of.log)


def test_what_is_in_the_active_segment_does_not_count_yet() -> None:
    of = Compacted()
    of.write((b"a", b"old"))
    of.settle()
    of.write((b"a", b"new"))
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    of.cleaner.finish(chosen[0], compact(of.disk, chosen[1]), of.now_ms)
    assert of.rows() == [(0, b"a", b"old"), (1, b"a", b"new")]


def test_records_without_a_key_go() -> None:
    of = Compacted()
    of.write((None, b"x"), (b"a", b"0"))
    of.write((None, b"y"))
    of.write((b"b", b"0"))
    of.compact()
    assert of.rows() == [(1, b"a", b"0"), (3, b"b", b"0")]


def test_an_empty_key_is_a_key_and_an_empty_value_is_no_deletion() -> None:
    of = Compacted(delete_retention_ms=0)
    of.write((b"", b"old"), (b"", b""))
    of.compact()
    of.write((b"z", b"0"))
    of.compact()
    assert of.rows() == [(1, b"", b""), (2, b"z", b"0")]


def test_headers_and_timestamps_stay_as_they_were() -> None:
    of = Compacted()
    rows = [Record(n, of.now_ms + 7 * n, b"k%d" % n, b"v", (("name", b"x"), ("null", None))) for n in range(3)]
    add(of.log, build(rows))
    of.write((b"k1", b"new"))
    of.compact()
    kept = [record for _, found in of.batches() for record in found]
    assert kept[:2] == [rows[0], rows[2]]


def test_a_batch_of_which_all_stays_is_copied_byte_for_byte() -> None:
    of = Compacted()
    batch = build([Record(0, of.now_ms, b"a", b"0")], codec=Codec.ZSTD)
    add(of.log, batch)
    of.compact()
    assert of.log.read(0, 1000, 1).read() == bytes(batch)


@pytest.mark.parametrize("codec", [*Codec])
def test_a_compressed_batch_stays_compressed_with_its_codec(codec: Codec) -> None:
    of = Compacted()
    of.write((b"a", b"0" * 50), (b"b", b"0" * 50), (b"c", b"0" * 50), codec=codec)
    of.write((b"b", b"1"))
    of.compact()
    header, found = of.batches()[0]
    assert header.codec == codec
    assert (header.base_offset, header.last_offset) == (0, 2)
    assert [record.key for record in found] == [b"a", b"c"]


def test_a_batch_keeps_its_offsets_sequence_producer_and_epoch() -> None:
    of = Compacted()
    of.write((b"a", b"0"), (b"b", b"0"), (b"c", b"0"), producer_id=9, producer_epoch=2, base_sequence=0)
    before = of.batches()[0][0]
    of.write((b"a", b"1"), (b"c", b"1"))
    of.compact()
    header, found = of.batches()[0]
    assert [record.offset for record in found] == [1]
    assert header[0:1] + header[2:4] + header[5:8] + header[9:12] == before[0:1] + before[2:4] + before[5:8] + before[9:12]
    assert header.max_timestamp == found[0].timestamp


# -- deletions


def test_a_deletion_stays_for_delete_retention_ms_after_a_compaction_first_met_it() -> None:
    of = Compacted()
    of.write((b"a", b"0"))
    of.write((b"a", None))
    of.pass_time(100 * HOUR_MS)  # its own age does not count
    of.compact()
    assert of.rows() == [(1, b"a", None)]
    header, found = of.batches()[0]
    assert header.has_delete_horizon
    assert header.base_timestamp == of.now_ms + HOUR_MS
    assert found[0].timestamp == of.now_ms - 100 * HOUR_MS
    of.pass_time(HOUR_MS - 1)
    of.write((b"b", b"0"))
    of.compact()
    assert of.rows() == [(1, b"a", None), (2, b"b", b"0")]
    assert of.batches()[0][0].base_timestamp == header.base_timestamp
    of.pass_time(1)
    of.write((b"c", b"0"))
    of.compact()
    assert of.rows() == [(2, b"b", b"0"), (3, b"c", b"0")]


def test_a_deletion_takes_no_value_back_when_it_goes() -> None:
    of = Compacted(delete_retention_ms=0)
    of.write((b"a", b"0"), (b"b", b"0"))
    of.write((b"a", None))
    of.compact()
    of.pass_time(1)
    of.write((b"c", b"0"))
    of.compact()
    assert of.rows() == [(1, b"b", b"0"), (3, b"c", b"0")]


@pytest.mark.parametrize("lag_ms", [-5 * HOUR_MS, 0, 5 * HOUR_MS])
def test_beside_a_deletion_records_keep_their_timestamps_in_a_batch_of_any_time(lag_ms: int) -> None:
    of = Compacted()
    rows = [Record(n, of.now_ms + lag_ms + n, b"k%d" % n, None if n == 1 else b"v") for n in range(3)]
    add(of.log, build(rows, codec=Codec.GZIP))
    of.compact()
    header, found = of.batches()[0]
    assert header.has_delete_horizon
    assert found == rows
    assert header.max_timestamp == rows[-1].timestamp


def test_a_batch_of_the_leader_s_time_keeps_it() -> None:
    of = Compacted()
    rows = [Record(n, of.now_ms, b"k%d" % n, None if n else b"v") for n in range(3)]
    of.log.append_as_follower(bytes(build(rows, log_append_time=of.now_ms + 77)), now_ms=of.now_ms)
    of.write((b"k1", b"new"))
    of.compact()
    header, found = of.batches()[0]
    assert header.is_log_append_time
    assert (header.max_timestamp, [record.offset for record in found]) == (of.now_ms + 77, [0, 2])
    assert {record.timestamp for record in found} == {of.now_ms + 77}
    data = payload(of.log.segments[0].file.read(0, header.size), 0, header)
    assert {header.base_timestamp + span[3] for span in scan(data, header)} == {of.now_ms + 77}  # as Kafka writes them
    of.pass_time(2 * HOUR_MS)
    of.write((b"z", b"0"))
    of.compact()
    header, found = of.batches()[0]
    assert [(record.offset, record.timestamp) for record in found] == [(0, of.now_ms - 2 * HOUR_MS + 77)]


# -- transactions


def test_committed_records_stay_and_so_does_their_marker() -> None:
    of = Compacted(delete_retention_ms=0)
    begin(of, b"a", b"0")
    end(of, commit=True)
    for _ in range(3):
        of.write((b"z", b"0"))
        of.pass_time(1)
        of.compact()
    assert of.rows()[0] == (0, b"a", b"0")
    assert of.markers() == [1]


def test_aborted_records_go_and_replace_nothing() -> None:
    of = Compacted()
    of.write((b"a", b"kept"))
    begin(of, b"a", b"aborted")
    of.write((b"b", b"0"))
    end(of, commit=False)
    of.compact()
    assert of.rows() == [(0, b"a", b"kept"), (2, b"b", b"0")]
    assert of.markers() == [3]


def test_the_marker_of_an_aborted_transaction_stays_for_delete_retention_ms_after_its_records_went() -> None:
    of = Compacted()
    begin(of, b"a", b"aborted")
    end(of, commit=False)
    of.write(*[(b"x", b"0")], producer_id=7, producer_epoch=0, base_sequence=1)
    of.compact()
    assert [entry.first_offset for entry in aborted_between(of.log, 0, 3)] == [0]
    of.write((b"b", b"0"))
    of.compact()  # nothing is left of it: from now on its time runs
    assert of.markers() == [1]
    horizon = next(header for header, found in of.batches() if header.is_control)
    assert (horizon.has_delete_horizon, horizon.base_timestamp) == (True, of.now_ms + HOUR_MS)
    of.pass_time(HOUR_MS - 1)
    of.write((b"c", b"0"))
    of.compact()
    assert of.markers() == [1]
    of.pass_time(1)
    of.write((b"d", b"0"))
    of.compact()
    assert of.markers() == []
    assert aborted_between(of.log, 0, of.log.end_offset) == []


@pytest.mark.parametrize("next_producer", [7, 8])
def test_a_transaction_whose_marker_is_gone_is_over_also_where_an_old_snapshot_says_that_it_is_open(next_producer: int) -> None:
    of = Compacted()
    begin(of, b"a", b"aborted")
    of.write((b"x", bytes(1500)))  # so that what follows stays in a segment of its own
    of.log.roll(of.now_ms)
    end(of, commit=False)
    of.write((b"y", bytes(1500)))
    for _ in range(5):
        of.compact()
        of.pass_time(EXPIRATION_MS)
        of.log.producers.remove_expired(of.now_ms)
        of.write((b"z", b"0"))
    assert of.markers() == []
    begun = begin(of, b"b", b"open", producer_id=next_producer)
    of.folder.close(of.now_ms)
    for offset in of.log.producers.snapshots[1:]:
        of.disk.remove(of.log.producers.snapshot_path(offset))
    assert next(iter(decode_snapshot("", of.disk.read(of.log.producers.snapshot_path(2))))).transaction_first_offset == 0
    of.restart()
    assert dict(of.log.producers.ongoing) == {begun: next_producer}
    assert of.log.last_stable_offset == begun


def test_the_marker_of_a_committed_transaction_goes_when_its_records_are_replaced() -> None:
    of = Compacted()
    begin(of, b"a", b"0")
    end(of, commit=True)
    of.write((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
    of.compact()
    assert of.markers() == [1]
    for _ in range(2):
        of.write((b"z", b"0"))
        of.compact()
        of.pass_time(HOUR_MS)
    assert of.markers() == []


def test_an_aborted_transaction_that_ends_in_a_later_segment_is_aborted_in_all_of_them() -> None:
    of = Compacted()
    begin(of, b"a", b"aborted")
    of.log.roll(of.now_ms)
    begin(of, b"b", b"aborted", 1)
    of.log.roll(of.now_ms)
    of.write((b"c", b"0"))
    end(of, commit=False)
    of.compact()
    assert of.rows() == [(2, b"c", b"0")]


def test_interleaved_transactions_are_told_apart() -> None:
    of = Compacted()
    for number in range(3):
        for producer_id in (7, 8, 9):
            begin(of, b"key %d" % producer_id, b"value %d" % number, number, producer_id=producer_id)
    end(of, commit=False, producer_id=8)
    end(of, commit=True, producer_id=9)
    end(of, commit=True, producer_id=7)
    of.compact()
    assert of.rows() == [(6, b"key 7", b"value 2"), (8, b"key 9", b"value 2")]


def test_a_transaction_that_was_aborted_before_says_nothing_of_the_next_one_of_its_producer() -> None:
    of = Compacted()
    of.write((b"a", b"0"))
    begin(of, b"b", b"aborted")
    end(of, commit=False)
    of.compact()
    begin(of, b"a", b"1", 1)
    end(of, commit=True)
    of.compact()
    assert of.rows() == [(3, b"a", b"1")]


def test_the_marker_of_an_aborted_transaction_whose_records_have_expired_goes_in_time() -> None:
    of = Compacted()
    begin(of, b"a", b"aborted")
    of.log.roll(of.now_ms)
    of.write((b"x", b"0"))
    end(of, commit=False)
    of.write((b"b", b"0"), producer_id=7, producer_epoch=0, base_sequence=1)
    of.settle()
    of.log.move_start(1)
    of.log.delete_expired(of.now_ms)
    of.compact()
    assert of.markers() == [2]
    of.pass_time(HOUR_MS)
    of.write((b"c", b"0"))
    of.compact()
    assert of.markers() == []


def test_an_open_transaction_is_not_touched() -> None:
    of = Compacted()
    of.write((b"a", b"0"))
    of.write((b"a", b"1"))
    of.log.roll(of.now_ms)
    begin(of, b"a", b"2")
    of.compact()
    assert of.rows() == [(1, b"a", b"1"), (2, b"a", b"2")]


# -- batches that stay without records


def test_the_last_batch_of_a_producer_stays_so_that_it_is_known_when_it_comes_again() -> None:
    of = Compacted()
    for number in range(3):
        of.write((b"a", b"%d" % number), producer_id=7, producer_epoch=0, base_sequence=number)
    of.write((b"a", b"plain"))
    of.write((b"b", b"plain"))
    of.compact()
    assert of.empty() == [2]
    header, _ = of.batches()[0]
    assert (header.producer_id, header.base_sequence, header.last_offset_delta, header.record_count) == (7, 2, 0, 0)
    of.restart()
    assert add(of.log, produced(2))[:3] == (2, 2, True)
    assert add(of.log, produced(3)).is_duplicate is False


def test_it_stays_also_when_it_was_aborted_and_goes_when_another_came() -> None:
    of = Compacted()
    begin(of, b"a", b"aborted")
    end(of, commit=False)
    of.compact()
    assert of.empty() == [0]
    of.write((b"c", b"0"), producer_id=7, producer_epoch=0, base_sequence=1)
    of.compact()
    assert of.empty() == []


def test_the_last_offset_stays() -> None:
    of = Compacted(delete_retention_ms=0)
    of.write((b"a", b"0"))
    of.write((None, b"no key"), (None, b"no key"))
    of.compact()
    assert of.empty() == [2]
    of.restart()
    assert of.log.end_offset == 3


# -- batches that nobody can decode


def lying(data: bytearray) -> bytearray:
    """Says that it has one record more than it has."""
    data[57:61] = (int.from_bytes(data[57:61], "big") + 1).to_bytes(4, "big")
    _write_crc(data, 0, len(data))
    return data


def garbled(data: bytearray) -> bytearray:
    data[61:] = b"\xff" * (len(data) - 61)
    _write_crc(data, 0, len(data))
    return data


@pytest.mark.parametrize("damage", [lying, garbled])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_that_cannot_be_decoded_is_copied_as_it_is(damage: type[bytearray], codec: Codec) -> None:
    of = Compacted()
    data = damage(build([Record(0, of.now_ms, b"a", b"0"), Record(1, of.now_ms, b"b", b"0")], codec=codec))
    of.log.append_as_follower(bytes(data), now_ms=of.now_ms)
    of.write((b"a", b"1"))
    of.compact()
    assert of.log.read(0, len(data), 3).read() == bytes(data)
    assert of.log.end_offset == 3


def test_a_batch_that_cannot_be_decoded_to_its_end_replaces_nothing() -> None:
    of = Compacted()
    first = of.write((b"a", b"0"))
    data = build([Record(1, of.now_ms, b"a", b"1"), Record(2, of.now_ms, b"b", b"1")], base_offset=1)
    of.log.append_as_follower(bytes(lying(data)), now_ms=of.now_ms)
    of.write((b"c", b"2"))
    of.compact()
    kept = of.log.read(first, 1, of.log.end_offset).read()
    assert [record.value for record in records(kept, 0, read_header(kept))] == [b"0"]


def test_a_damaged_segment_is_an_error_and_the_log_stays_as_it_was() -> None:
    of = Compacted()
    of.write((b"a", b"0"))
    of.write((b"a", b"1"))
    of.settle()
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    of.disk.flip_bit(of.log.segments[0].file.path, 8 * 70)  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError):
        compact(of.disk, chosen[1])
    of.cleaner.fail(*chosen[:1], "CRC")
    assert of.log.size == of.log.segments[0].size > 0


# -- segments


def test_small_neighbours_become_one_segment_up_to_segment_bytes() -> None:
    of = Compacted(segment_bytes=300)
    for number in range(24):
        of.write((b"key %d" % (number % 4), b"value"))
    before = len(of.log.segments)
    of.compact()
    of.write((b"z", b"0"))
    of.compact()
    assert before == 8
    assert len(of.log.segments) == 4  # of 1, 3 and 1 records, and the active one: two neighbours have more than 300 bytes
    assert all(segment.size <= 300 for segment in of.log.segments)
    check_indexes(of.log)


def test_they_do_not_when_the_indexes_would_be_too_large() -> None:
    of = Compacted(segment_bytes=10_000, segment_index_bytes=5 * 8)
    for number in range(24):
        of.write((b"key %d" % number, b"value"))
    before = of.log.bases[:]
    of.compact()
    assert of.log.bases[: len(before)] == before


@pytest.mark.parametrize("kind", [FileKind.INDEX, FileKind.TIME_INDEX])
def test_a_rotten_index_keeps_no_segment_from_being_compacted(kind: FileKind) -> None:
    of = Compacted()
    for number in range(6):
        of.write((b"key %d" % (number % 2), b"value"))
        of.settle()
    of.disk.open(of.log.segments[3].path(kind)).append([b"?"])
    of.restart()
    of.compact()
    assert [offset for offset, *_ in of.rows()] == [4, 5]
    check_indexes(of.log)


def test_they_do_not_when_the_offsets_are_too_far_apart() -> None:
    of = Compacted()
    for base in (0, 2**31 - 1, 2**32):
        of.log.append_as_follower(bytes(build([Record(base, of.now_ms, b"%d" % base, b"v")], base_offset=base)), now_ms=of.now_ms)
        of.log.roll(of.now_ms)
    of.compact()
    assert of.log.bases[:2] == [0, 2**31]
    assert [offset for offset, _, _ in of.rows()] == [0, 2**31 - 1, 2**32]


def test_old_segments_are_removed_after_the_delay_and_readers_of_them_go_on() -> None:
    of = Compacted(file_delete_delay_ms=1000)
    of.write((b"a", b"0"))
    of.write((b"a", b"1"))
    found = of.log.read(0, 1000, 2)
    expected = found.read()
    of.compact()
    assert found.read() == expected
    assert [name for name, _ in of.disk.names(of.log.folder) if name.endswith(".log.deleted")]
    of.log.delete_due(of.now_ms + 1000)
    assert not [name for name, _ in of.disk.names(of.log.folder) if name.endswith(".deleted")]


# -- limits


def history(of: Compacted) -> None:
    for number in range(60):
        value = None if number % 7 == 3 else b"%d" % number
        if number % 10 == 4:
            begin(of, b"key %d" % (number % 11), b"in transaction", number // 10)
        else:
            of.write((b"key %d" % (number % 11), value), (b"key %d" % (number % 5), b"x"))
        if number % 10 == 8:
            end(of, commit=number % 20 == 8)


def test_with_little_memory_many_rounds_come_to_what_one_does() -> None:
    whole, parts = Compacted(delete_retention_ms=10**12), Compacted(delete_retention_ms=10**12, memory_bytes=500)
    for of in (whole, parts):
        history(of)
    whole.compact()
    ends = [parts.compact().end_offset]
    assert ends[0] < parts.log.end_offset
    while ends[-1] < whole.log.bases[-1]:
        ends.append(parts.compact().end_offset)
        assert ends[-1] > ends[-2]
    assert len(ends) > 3
    assert parts.rows() == whole.rows()


def test_what_was_not_looked_at_for_want_of_memory_stays_as_it_is() -> None:
    of = Compacted(memory_bytes=200)
    of.write((b"a", b"0"), (b"b", b"0"))
    of.write((b"a", b"1"), (None, b"no key"))
    assert of.compact().end_offset == 2
    assert [offset for offset, _, _ in of.rows()] == [0, 1, 2, 3]
    assert of.compact().end_offset == 4
    assert [offset for offset, _, _ in of.rows()] == [1, 2]


def test_every_byte_read_or_written_is_told_to_the_throttle() -> None:
    of = Compacted()
    history(of)
    told: list[int] = []
    of.settle()
    size = of.log.size
    outcome = of.compact(told.append)
    assert outcome.bytes_read == size
    assert sum(told) == 2 * size + outcome.bytes_written  # once for the keys, once for the copy
    assert outcome.bytes_written == of.log.size


# -- elsewhere


def run_elsewhere(job: Job) -> Outcome:
    return compact(RealDisk(), job)


def test_it_runs_in_another_process(tmp_path: Path) -> None:
    of = Compacted(RealDisk(), str(tmp_path / "data"))
    history(of)
    plain = Compacted()
    history(plain)
    plain.compact()
    of.settle()
    chosen = of.cleaner.next_job(of.now_ms)
    assert chosen is not None
    assert pickle.loads(pickle.dumps(chosen[1])) == chosen[1]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        outcome = pool.submit(run_elsewhere, chosen[1]).result(30)
    assert of.cleaner.finish(chosen[0], outcome, of.now_ms)
    assert of.rows() == plain.rows()
    of.restart()
    assert of.rows() == plain.rows()

"""Decoding into Arrow: the plain decoder of the wire is the judge."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.arrow.columns import COLUMNS, TYPES, schema
from odradek.client.arrow.decode import ARROW_BYTES_MAX, decode
from odradek.wire.batch import HEADER_SIZE, CorruptBatch, InvalidBatch, empty_batch, headers, read_header, set_max_timestamp
from odradek.wire.compression import Codec
from odradek.wire.control import end_marker
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, build
from tests.client.arrow.logs import ALL, PARTITION, TOPIC, logs, next_offset, only, read_plain, rows


def batch_of(first: int, count: int, **settings: object) -> bytes:
    """A batch of records whose values are their offsets."""
    records = [Record(first + n, 1000 + n, b"k", b"%d" % (first + n)) for n in range(count)]
    return bytes(build(records, base_offset=first, **settings))  # type: ignore[arg-type]


def values(data: bytes, **options: object) -> list[int]:
    decoded = decode(data, TOPIC, PARTITION, columns=["value"], **options)  # type: ignore[arg-type]
    return [int(row["value"]) for row in rows(decoded)]


@given(logs(), st.sampled_from([1, 50, 10_000]))
@settings(max_examples=150)
def test_all_columns_are_those_of_the_plain_decoder(data: bytes, chunk_bytes_max: int) -> None:
    decoded = decode(data, TOPIC, PARTITION, columns=ALL, chunk_bytes_max=chunk_bytes_max)
    assert rows(decoded) == read_plain(data)
    assert decoded.byte_count == len(data)
    assert decoded.next_offset == next_offset(data)
    assert all(batch.schema == schema(ALL) for batch in decoded.batches)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_codec_and_every_kind_of_buffer_is_read(codec: Codec, kind: type) -> None:
    records = [Record(n, 1_700_000_000_000 + 7 * n, b"%d" % n, b"v" * (n % 300), (("h", None),)) for n in range(2000)]
    data = bytes(build(records, codec=codec) + batch_of(2000, 3))
    assert rows(decode(kind(data), TOPIC, PARTITION, columns=ALL)) == read_plain(data)


@given(logs(), st.data())
@settings(max_examples=60)
def test_a_range_of_offsets_gives_its_records_and_goes_on_after_it(data: bytes, drawn: st.DataObject) -> None:
    last = next_offset(data)
    start = drawn.draw(st.integers(0, last + 2))
    end = drawn.draw(st.integers(start, last + 5))
    decoded = decode(data, TOPIC, PARTITION, columns=ALL, fetch_offset=start, end_offset=end)
    assert rows(decoded) == [row for row in read_plain(data) if start <= row["offset"] < end]
    assert decoded.next_offset == max(start, min(end, last)) or decoded.byte_count < len(data)
    rest = decode(data[decoded.byte_count :], TOPIC, PARTITION, columns=ALL, fetch_offset=decoded.next_offset)
    assert decoded.byte_count == len(data) or rest.batches


@given(logs(), st.lists(st.sampled_from(list(TYPES)), unique=True, min_size=1))
@settings(max_examples=60)
def test_a_subset_of_columns_is_a_part_of_all(data: bytes, columns: list[str]) -> None:
    decoded = decode(data, TOPIC, PARTITION, columns=columns)
    assert all(batch.schema == schema(columns) for batch in decoded.batches)
    assert rows(decoded) == only(read_plain(data), columns)


@given(logs(codecs=[Codec.NONE, Codec.LZ4]), st.data())
@settings(max_examples=60)
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(data: bytes, drawn: st.DataObject) -> None:
    size = drawn.draw(st.integers(0, len(data)))
    whole = max((position + header.size for position, header in headers(data) if position + header.size <= size), default=0)
    decoded = decode(data[:size], TOPIC, PARTITION, columns=ALL, fetch_offset=1)
    assert decoded.byte_count == whole
    assert decoded.next_offset == max(1, next_offset(data[:whole]))
    assert rows(decoded) == [row for row in read_plain(data[:whole]) if row["offset"] >= 1]


def test_a_cut_header_that_no_batch_can_begin_with_is_refused() -> None:
    batch = batch_of(0, 3)
    with pytest.raises(InvalidBatch, match="magic 1"):
        decode(batch[:16] + b"\x01" + batch[17:30], TOPIC, PARTITION)
    with pytest.raises(CorruptBatch, match="record batch"):
        decode(batch[:8] + bytes(4) + batch[12:30], TOPIC, PARTITION)


def test_batches_of_many_partitions_make_one_table() -> None:
    batches = [batch for number in range(5) for batch in decode(batch_of(7, 10), TOPIC, number).batches]
    table = pa.Table.from_batches(batches, schema())
    assert table.column("partition").to_pylist() == [number for number in range(5) for _ in range(10)]
    assert table.schema.names == list(COLUMNS)
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_a_wrong_crc_is_refused_unless_it_is_not_to_be_checked() -> None:
    data = bytearray(batch_of(0, 3))
    data[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        decode(data, TOPIC, PARTITION)
    assert len(rows(decode(data, TOPIC, PARTITION, check_crcs=False))) == 3


def test_what_compaction_left_counts_for_the_next_offset() -> None:
    kept = batch_of(10, 5, last_offset=29)
    gone = bytes(empty_batch(read_header(batch_of(30, 20))))
    decoded = decode(kept + gone, TOPIC, PARTITION)
    assert [row["offset"] for row in rows(decoded)] == [10, 11, 12, 13, 14]
    assert decoded.next_offset == 50
    only_gone = decode(gone, TOPIC, PARTITION)
    assert only_gone.batches == []
    assert only_gone.next_offset == 50


def test_nothing_at_all_stays_where_it_is() -> None:
    assert decode(b"", TOPIC, PARTITION, fetch_offset=42) == ([], 42, 0)


def test_the_time_of_the_append_is_that_of_every_record() -> None:
    data = bytearray(batch_of(0, 3))
    set_max_timestamp(data, 0, 5_000, log_append_time=True)
    found = rows(decode(data + batch_of(3, 1), TOPIC, PARTITION, columns=["timestamp", "timestampType"]))
    assert [(row["timestamp"], row["timestampType"]) for row in found] == [(5_000_000, 1)] * 3 + [(1_000_000, 0)]


def test_a_moment_that_microseconds_cannot_hold_is_the_last_that_they_can() -> None:
    ends = [-(1 << 63), -(1 << 62), (1 << 62), (1 << 63) - 1]
    data = b"".join(bytes(build([Record(n, moment, None, None)], base_offset=n)) for n, moment in enumerate(ends))
    found = [row["timestamp"] for row in rows(decode(data, TOPIC, PARTITION))]
    assert found == [-(1 << 63), -(1 << 63), (1 << 63) - 1, (1 << 63) - 1]


def test_bad_utf8_in_the_key_of_a_header_is_replaced() -> None:
    data = bytearray(build([Record(0, 0, b"k", b"v", (("name", b"x"), ("é", None)))]))
    at = data.index(b"name")
    data[at] = 0xFF
    found = rows(decode(data, TOPIC, PARTITION, columns=["headers"], check_crcs=False))
    assert found == [{"headers": [{"key": "\ufffdame", "value": b"x"}, {"key": "é", "value": None}]}]


def test_no_chunk_has_more_bytes_than_it_may_but_for_one_batch() -> None:
    data = b"".join(batch_of(10 * n, 10) for n in range(20))
    size = len(batch_of(0, 10)) - HEADER_SIZE
    decoded = decode(data, TOPIC, PARTITION, columns=["value"], chunk_bytes_max=3 * size + 60)
    assert [batch.num_rows for batch in decoded.batches] == [30] * 6 + [20]
    alone = decode(data, TOPIC, PARTITION, columns=["value"], chunk_bytes_max=1)
    assert [batch.num_rows for batch in alone.batches] == [10] * 20
    assert rows(alone) == rows(decoded) == only(read_plain(data), ["value"])


def test_a_long_name_of_a_topic_splits_chunks_too() -> None:
    topic = "t" * 249
    decoded = decode(batch_of(0, 100), topic, PARTITION, chunk_bytes_max=249 * 30 + 248)
    assert [batch.num_rows for batch in decoded.batches] == [30, 30, 30, 10]
    found = rows(decoded)
    assert [row["offset"] for row in found] == list(range(100))
    assert {row["topic"] for row in found} == {topic}


@pytest.mark.parametrize("limit", ["payload_size_max", "chunk_bytes_max"])
def test_limits_are_those_of_arrows_offsets(limit: str) -> None:
    for size in (0, ARROW_BYTES_MAX + 1):
        with pytest.raises(ValueError, match=str(ARROW_BYTES_MAX)):
            decode(b"", TOPIC, PARTITION, **{limit: size})  # type: ignore[arg-type]
    decode(b"", TOPIC, PARTITION, **{limit: ARROW_BYTES_MAX})  # type: ignore[arg-type]


def test_a_payload_over_its_limit_is_refused() -> None:
    data = build([Record(0, 0, None, bytes(100_000))], codec=Codec.ZSTD)
    with pytest.raises(ProtocolError, match="5000 bytes allowed"):
        decode(data, TOPIC, PARTITION, payload_size_max=5000)


def test_columns_are_known_and_each_is_there_once_and_one_at_least() -> None:
    for columns in (["value", "nonsense"], ["value", "value"], []):
        with pytest.raises(ValueError, match="timestampType"):
            decode(b"", TOPIC, PARTITION, columns=columns)


def test_control_batches_are_no_records_but_count_for_the_next_offset() -> None:
    marker = bytes(end_marker(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=3))
    assert values(batch_of(0, 3) + marker) == [0, 1, 2]
    decoded = decode(marker, TOPIC, PARTITION, fetch_offset=3)
    assert decoded == ([], 4, len(marker))

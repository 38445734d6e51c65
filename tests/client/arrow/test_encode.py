"""Encoding of Arrow: the plain builder of the wire is the judge, and every form that a column may have is the same to it."""

import mmap
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.arrow.columns import COLUMNS_WITH_HEADERS, HEADERS, schema
from odradek.client.arrow.decode import decode
from odradek.client.arrow.encode import BATCH_SIZE_MAX, EncodedBatch, encode
from odradek.client.arrow.record_writer import RECORD_CONTENT_MAX
from odradek.wire.batch import HEADER_SIZE, check_produced, read_header, set_producer
from odradek.wire.compression import Codec
from odradek.wire.records import Record, RecordHeader, build, records
from tests.wire.samples import BYTES, TEXT
from tests.wire.samples import HEADERS as RECORD_HEADERS

NOW = 1_700_000_000_000
ROWS = st.lists(st.tuples(BYTES, BYTES, RECORD_HEADERS, st.one_of(st.none(), st.integers(-1, 1 << 41))), max_size=12)
Rows = list[tuple[bytes | None, bytes | None, tuple[RecordHeader, ...], int | None]]


def table_of(rows: Rows) -> pa.Table:
    keys, values, headers, timestamps = (list(column) for column in zip(*rows)) if rows else ([], [], [], [])
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[{"key": key, "value": value} for key, value in row] or None for row in headers], HEADERS),
            "timestamp": pa.array(timestamps, pa.timestamp("ms")),
        }
    )


def read(batch: EncodedBatch) -> list[Record]:
    header = read_header(batch.data)
    check_produced(batch.data, 0, header)
    assert header.record_count == batch.record_count
    return list(records(batch.data, 0, header))


def written(table: pa.Table, **options: Any) -> list[tuple[Any, ...]]:
    """Key, value and headers of all rows in one partition."""
    encoded = encode(table, 1, now_ms=NOW, **options)
    return [(record.key, record.value, record.headers) for batch in encoded.batches for record in read(batch)]


@given(ROWS.filter(bool))
@settings(max_examples=100)
def test_a_batch_is_byte_for_byte_that_of_the_plain_builder(rows: Rows) -> None:
    (batch,) = encode(table_of(rows), 1, now_ms=NOW).batches
    plain = [Record(n, NOW if t is None else t, key, value, headers) for n, (key, value, headers, t) in enumerate(rows)]
    assert batch.data == build(plain)


@given(ROWS, st.sampled_from(Codec), st.integers(1, 4), st.sampled_from([1, 100, 200, 1 << 20]))
@settings(max_examples=100)
def test_every_row_comes_back_in_the_order_of_its_partition(rows: Rows, codec: Codec, count: int, batch_size: int) -> None:
    numbered: Rows = [(key, b"%d" % number, headers, time) for number, (key, _, headers, time) in enumerate(rows)]
    batches = encode(table_of(numbered), count, now_ms=NOW, codec=codec, batch_size=batch_size, turn_rows=2).batches
    found: list[list[Record]] = [[] for _ in range(count)]
    for batch in batches:
        assert read_header(batch.data).codec == codec
        found[batch.partition] += read(batch)
    everything = [record for part in found for record in part]
    for part in found:
        order = [int(record.value or b"") for record in part]
        assert order == sorted(order)
    back = {int(record.value or b""): (record.key, record.headers, record.timestamp) for record in everything}
    assert back == {n: (key, headers, NOW if t is None else t) for n, (key, _, headers, t) in enumerate(numbered)}
    assert len(everything) == len(rows)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(1, 700))
def test_a_batch_is_as_full_as_its_size_allows(sizes: list[int], batch_size: int) -> None:
    table = pa.table({"value": [bytes(size) for size in sizes]})
    batches = [batch.data for batch in encode(table, 1, now_ms=NOW, batch_size=batch_size).batches]
    done = 0
    for data in batches:
        count = read_header(data).record_count
        assert len(data) <= batch_size or count == 1
        if done + count < len(sizes):
            more = build([Record(n, NOW, None, bytes(size)) for n, size in enumerate(sizes[done : done + count + 1])])
            assert len(more) > batch_size
        done += count


@given(ROWS, st.sampled_from(Codec))
@settings(max_examples=40)
def test_what_is_decoded_can_be_encoded_again(rows: Rows, codec: Codec) -> None:
    def decoded(batches: list[EncodedBatch]) -> pa.Table:
        found = [part for batch in batches for part in decode(batch.data, "t", 0, columns=COLUMNS_WITH_HEADERS).batches]
        return pa.Table.from_batches(found, schema(COLUMNS_WITH_HEADERS))

    once = decoded(list(encode(table_of(rows), 1, now_ms=NOW, codec=codec).batches))
    again = decoded(list(encode(once, 1, now_ms=0).batches))
    assert once.equals(again)


TEXTS: list[str | None] = ["a", None, "", "bcd", "é", "a", None, "long" * 50]
KINDS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.large_binary()),
]


def array_of(kind: pa.DataType, texts: list[str | None]) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(texts, pa.string()).cast(kind.value_type).dictionary_encode().cast(kind)
    return pa.array(texts, pa.string()).cast(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("name", ["key", "value"])
def test_bytes_may_have_any_type_and_be_chunked_and_sliced(kind: pa.DataType, name: str) -> None:
    other = "value" if name == "key" else "key"
    expected = [None if text is None else text.encode() for text in TEXTS]
    chunks = pa.chunked_array([array_of(kind, TEXTS[:3]), array_of(kind, []), array_of(kind, TEXTS[3:])])
    for column, start in ((chunks, 0), (chunks, 2), (array_of(kind, TEXTS), 0), (array_of(kind, TEXTS), 3)):
        table = pa.table({name: column, other: pa.array([b"o"] * len(TEXTS))}).slice(start, 4)
        at = 0 if name == "key" else 1
        assert [row[at] for row in written(table)] == expected[start : start + 4]
        assert [row[1 - at] for row in written(table)] == [b"o"] * 4


def test_a_column_of_a_fixed_size_or_of_nothing_is_bytes_too() -> None:
    table = pa.table({"key": pa.nulls(2), "value": pa.array([b"ab", None], pa.binary(2)), "headers": pa.nulls(2)})
    assert written(table) == [(None, b"ab", ()), (None, None, ())]


@given(st.lists(st.one_of(st.none(), st.lists(st.tuples(TEXT, BYTES), max_size=3)), min_size=1, max_size=8), st.data())
@settings(max_examples=40)
def test_headers_may_be_lists_or_maps_and_sliced(rows: list[list[RecordHeader] | None], drawn: st.DataObject) -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    turned = pa.struct([("value", pa.large_binary()), ("key", pa.dictionary(pa.int32(), pa.string()))])
    start = drawn.draw(st.integers(0, len(rows) - 1))
    expected = [tuple(row or ()) for row in rows[start:]]
    lists = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    for kind in (pa.list_(entry), pa.large_list(entry), pa.list_(turned), pa.map_(pa.string(), pa.binary())):
        column = pa.array(rows if pa.types.is_map(kind) else lists, kind)
        table = pa.table({"value": pa.array([b""] * len(rows)), "headers": column}).slice(start)
        assert [row[2] for row in written(table)] == expected


def test_headers_of_a_list_that_is_null_are_not_written() -> None:
    entries = pa.array([{"key": "hidden", "value": b""}, {"key": "seen", "value": b""}], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False]))
    assert [row[2] for row in written(pa.table({"value": ["", ""], "headers": lists}))] == [(), (("seen", b""),)]


def test_a_header_without_a_key_is_refused() -> None:
    column = pa.array([[{"key": "a", "value": None}], [{"key": None, "value": b""}]], HEADERS)
    with pytest.raises(ValueError, match="row 1 has a header without a key"):
        encode(pa.table({"value": ["", ""], "headers": column}), 1, now_ms=NOW)


TIMESTAMPS = [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns")]


@pytest.mark.parametrize("kind", TIMESTAMPS, ids=str)
def test_timestamps_may_have_any_unit_and_zone(kind: pa.DataType) -> None:
    column = pa.array([5_000, None, 7_000], pa.timestamp("ms")).cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    (batch,) = encode(pa.table({"value": ["", "", ""], "timestamp": column}).slice(1), 1, now_ms=NOW).batches
    assert [record.timestamp for record in read(batch)] == [NOW, 7_000]
    assert read_header(batch.data).max_timestamp == NOW


def test_a_timestamp_may_be_milliseconds_and_not_before_1970() -> None:
    (batch,) = encode(pa.table({"value": ["", ""], "timestamp": [17, 3]}), 1, now_ms=NOW).batches
    assert [record.timestamp for record in read(batch)] == [17, 3]
    with pytest.raises(ValueError, match="-2 ms"):
        encode(pa.table({"value": [""], "timestamp": [-2]}), 1, now_ms=NOW)


def test_a_record_larger_than_a_batch_has_its_own() -> None:
    table = pa.table({"value": [b"a", b"b" * 10_000, b"c", b"d"]})
    batches = list(encode(table, 1, now_ms=NOW, batch_size=500).batches)
    assert [batch.record_count for batch in batches] == [1, 1, 2]


def test_a_record_larger_than_any_batch_is_refused() -> None:
    pages = pa.py_buffer(mmap.mmap(-1, 1 << 31))  # none of which is touched
    offsets = pa.py_buffer(np.array([0, 1, 1 + RECORD_CONTENT_MAX], np.int64))
    values = pa.Array.from_buffers(pa.large_binary(), 2, [None, offsets, pages])
    with pytest.raises(ValueError, match="row 1 has a header without a key, or more bytes than a batch can have"):
        encode(pa.table({"value": values}), 1, now_ms=NOW)


def test_an_empty_table_has_no_batches() -> None:
    empty = pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.string()), "headers": pa.array([], HEADERS)})
    for table in (empty, empty.slice(0, 0), pa.table({"value": pa.chunked_array([], pa.binary())})):
        assert list(encode(table, 3, now_ms=NOW).batches) == []


def test_a_record_batch_is_taken_as_a_table() -> None:
    (batch,) = encode(pa.record_batch({"value": ["x"]}), 1, now_ms=NOW).batches
    assert [record.value for record in read(batch)] == [b"x"]


def test_what_cannot_be_bytes_is_refused_with_its_column() -> None:
    for table, name in (
        (pa.table({"value": [1]}), "column value is int64"),
        (pa.table({"value": [""], "key": [1.5]}), "column key is double"),
        (pa.table({"value": [""], "headers": ["x"]}), "column headers is string"),
        (pa.table({"value": [""], "headers": [[{"name": "x"}]]}), "have a key and a value"),
        (pa.table({"value": [""], "timestamp": ["x"]}), "column timestamp is string"),
    ):
        with pytest.raises(TypeError, match=name):
            encode(table, 1, now_ms=NOW)
    with pytest.raises(ValueError, match="a column value"):
        encode(pa.table({"key": [""]}), 1, now_ms=NOW)


def test_limits_that_make_no_sense_are_refused() -> None:
    table = pa.table({"value": [""]})
    wrong: list[dict[str, Any]] = [{"batch_size": 0}, {"batch_size": BATCH_SIZE_MAX + 1}, {"turn_rows": 0}, {"keyless_rows": -1}]
    for options in wrong:
        with pytest.raises(ValueError, match="1 partitions"):
            encode(table, 1, now_ms=NOW, **options)
    with pytest.raises(ValueError, match="0 partitions"):
        encode(table, 0, now_ms=NOW)


@pytest.mark.parametrize("codec", Codec)
def test_a_stamped_batch_is_that_which_its_producer_would_have_built(codec: Codec) -> None:
    (batch,) = encode(pa.table({"value": ["x", "y"]}), 1, now_ms=NOW, codec=codec).batches
    plain = [Record(0, NOW, None, b"x"), Record(1, NOW, None, b"y")]
    set_producer(batch.data, 0, 7, 2, 100, transactional=True)
    stamped = build(plain, codec=codec, producer_id=7, producer_epoch=2, base_sequence=100, transactional=True)
    assert batch.data == stamped
    set_producer(batch.data, 0, 7, 3, 0, transactional=False)
    assert batch.data == build(plain, codec=codec, producer_id=7, producer_epoch=3, base_sequence=0)
    assert len(batch.data) > HEADER_SIZE

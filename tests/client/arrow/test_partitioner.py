"""The partition of a row: Java's hash for keys, turns for rows without one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.client.arrow.encode import encode
from odradek.client.arrow.partitioner import murmur2
from odradek.wire.batch import read_header
from odradek.wire.records import records

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def partitions(table: pa.Table, count: int, **options: object) -> list[int]:
    """The partition of every row; values are the numbers of rows."""
    found: dict[int, int] = {}
    for batch in encode(table, count, now_ms=0, **options).batches:  # type: ignore[arg-type]
        for record in records(batch.data, 0, read_header(batch.data)):
            found[int(record.value or b"")] = batch.partition
    return [found[row] for row in range(table.num_rows)]


def keyless(count: int) -> pa.Table:
    return pa.table({"value": [b"%d" % row for row in range(count)]})


def plain_murmur2(key: bytes) -> int:
    """The same hash, written another way: whole words, then what is left as one number."""
    mixed = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * 0x5BD1E995 % (1 << 32)
        word = (word ^ word // (1 << 24)) * 0x5BD1E995 % (1 << 32)
        mixed = mixed * 0x5BD1E995 % (1 << 32) ^ word
    if key[whole:]:
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * 0x5BD1E995 % (1 << 32)
    mixed = (mixed ^ mixed // (1 << 13)) * 0x5BD1E995 % (1 << 32)
    mixed ^= mixed // (1 << 15)
    return mixed - (1 << 32) if mixed >= 1 << 31 else mixed


@pytest.mark.parametrize("key", JAVA)
def test_the_hash_is_javas(key: bytes) -> None:
    assert murmur2(key) == JAVA[key] == plain_murmur2(key)


@given(st.binary(max_size=40))
def test_the_hash_is_that_of_plain_python(key: bytes) -> None:
    assert murmur2(key) == plain_murmur2(key)


@given(st.lists(st.binary(max_size=20), min_size=1), st.integers(1, 50))
def test_a_keys_partition_is_that_of_javas_partitioner(keys: list[bytes], count: int) -> None:
    table = keyless(len(keys)).append_column("key", pa.array(keys, pa.binary()))
    assert partitions(table, count) == [(plain_murmur2(key) & 0x7FFFFFFF) % count for key in keys]


def test_a_row_goes_where_it_asks_to() -> None:
    keys = pa.array([b"21", None, b"21", None])
    asked = pa.array([2, 0, None, None], pa.int64())
    table = keyless(4).append_column("key", keys).append_column("partition", asked)
    assert partitions(table, 3, turns=[1]) == [2, 0, (JAVA[b"21"] & 0x7FFFFFFF) % 3, 1]


def test_rows_without_a_key_take_turns_in_runs() -> None:
    assert partitions(keyless(8), 3, turn_rows=2) == [0, 0, 1, 1, 2, 2, 0, 0]
    assert partitions(keyless(4), 3, turn_rows=2, turns=[2, 0]) == [2, 2, 0, 0]


def test_turns_go_on_in_the_next_table() -> None:
    table = keyless(5).append_column("key", pa.array([None, b"k", None, None, None], pa.binary()))
    first = encode(table, 3, now_ms=0, turn_rows=3)
    assert first.keyless_rows == 4
    assert partitions(keyless(4), 3, turn_rows=3, keyless_rows=4) == [1, 1, 2, 2]


def test_partitions_that_the_topic_does_not_have_are_refused() -> None:
    for asked in ([0, 3], [-1, 0]):
        with pytest.raises(ValueError, match="0 to 2"):
            encode(keyless(2).append_column("partition", pa.array(asked, pa.int32())), 3, now_ms=0)
    for turns in ([], [3], [-1]):
        with pytest.raises(ValueError, match="0 to 2"):
            encode(keyless(2), 3, now_ms=0, turns=turns)
    with pytest.raises(TypeError, match="partition is string"):
        encode(keyless(1).append_column("partition", pa.array(["0"])), 3, now_ms=0)

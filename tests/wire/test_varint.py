"""Variable-length integers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.wire import varint
from odradek.wire.errors import ProtocolError

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT32, st.binary(max_size=3))
def test_int32_comes_back_and_its_end_is_known(number: int, after: bytes) -> None:
    encoded = varint.encode(number)
    assert varint.decode(b"\xff" + encoded + after, 1) == (number, 1 + len(encoded))


@given(INT64)
def test_int64_comes_back(number: int) -> None:
    encoded = varint.encode(number)
    assert varint.decode(memoryview(encoded), 0, varint.BYTES_MAX_INT64) == (number, len(encoded))


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned_comes_back(number: int) -> None:
    encoded = varint.encode_unsigned(number)
    assert varint.decode_unsigned(encoded, 0) == (number, len(encoded))


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8190, "fc7f"),
        (8191, "fe7f"),
        (8192, "808001"),
        (-8193, "818001"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
        ((1 << 63) - 1, "feffffffffffffffff01"),
        (-(1 << 63), "ffffffffffffffffff01"),
    ],
)
def test_zigzag_takes_the_shortest_form(number: int, encoded: str) -> None:
    assert varint.encode(number).hex() == encoded


def test_a_padded_number_is_read_as_kafka_reads_it() -> None:
    assert varint.decode(b"\x82\x80\x00", 0) == (1, 3)


@pytest.mark.parametrize(
    ("data", "bytes_max", "reason"),
    [
        (b"", 5, "end inside a number"),
        (b"\x80", 5, "end inside a number"),
        (b"\x80\x80\x80\x80\x80\x00", 5, "more than 5 bytes"),
        (b"\xff\xff\xff\xff\x1f", 5, "does not fit"),
        (b"\xff" * 10 + b"\x00", 10, "more than 10 bytes"),
        (b"\xff" * 9 + b"\x02", 10, "does not fit"),
    ],
)
def test_over_long_and_cut_numbers_are_refused(data: bytes, bytes_max: int, reason: str) -> None:
    for decode in (varint.decode, varint.decode_unsigned):
        with pytest.raises(ProtocolError, match=f"^here at byte 1: .*{reason}"):
            decode(b"\x00" + data, 1, bytes_max, "here")

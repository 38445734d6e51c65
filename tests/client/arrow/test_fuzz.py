"""Bytes that are not sound: they are refused where the plain decoder refuses them, and none beyond them is read.

The bytes lie at the end of a page after which there is no memory: whoever reads on ends the process.
"""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.client.arrow.decode import decode
from odradek.wire.batch import HEADER_SIZE, BatchHeader, assemble
from odradek.wire.compression import Codec
from odradek.wire.errors import ProtocolError
from odradek.wire.records import Record, build, build_payload
from odradek.wire.varint import encode
from tests.client.arrow.logs import ALL, PARTITION, TOPIC, Row, logs, read_plain, rows
from tests.wire.samples import BYTES

SIZE_MAX = 32 * mmap.PAGESIZE
PROTECTION_NONE = 0


@contextmanager
def at_the_end_of_memory(data: bytes) -> Iterator[memoryview]:
    assert len(data) <= SIZE_MAX
    with mmap.mmap(-1, SIZE_MAX + mmap.PAGESIZE) as pages:
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(address + SIZE_MAX), mmap.PAGESIZE, PROTECTION_NONE) == 0
        pages[SIZE_MAX - len(data) : SIZE_MAX] = data
        with memoryview(pages) as all_pages, all_pages[SIZE_MAX - len(data) : SIZE_MAX] as view:
            yield view


def outcome(data: bytes, check_crcs: bool) -> list[Row] | None:
    """The rows, or None where the bytes are refused."""
    with at_the_end_of_memory(data) as view:
        try:
            return rows(decode(view, TOPIC, PARTITION, columns=ALL, check_crcs=check_crcs))
        except ProtocolError:
            return None


def plain_outcome(data: bytes) -> list[Row] | None:
    try:
        return read_plain(data, check_crcs=False)
    except ProtocolError:
        return None


def under_a_header(payload: bytes, count: int, last_delta: int, base_timestamp: int = 0) -> bytes:
    header = BatchHeader(5, 0, -1, 2, 0, 0, last_delta, base_timestamp, 0, -1, -1, -1, count)
    return bytes(assemble(header, payload))


def encode_bytes(data: bytes | None) -> bytes:
    return encode(-1) if data is None else encode(len(data)) + data


NUMBERS = st.one_of(
    st.integers(-3, 200),
    st.integers(-(1 << 33), 1 << 33),
    st.sampled_from([-(1 << 63), (1 << 63) - 1, (1 << 31) - 1, 1 << 31, -(1 << 31), -(1 << 31) - 1]),
)
# Numbers as no encoder writes them: padded, too long, or over what the field holds.
VARINTS = st.one_of(
    NUMBERS.map(encode),
    st.builds(lambda number, padding: encode(number)[:-1] + bytes([encode(number)[-1] | 0x80]) + b"\x80" * padding + b"\0",
              st.integers(-100, 100), st.integers(0, 9)),
    st.binary(min_size=1, max_size=11),
)  # fmt: skip


@given(st.lists(st.tuples(VARINTS, VARINTS, VARINTS, VARINTS, VARINTS, st.binary(max_size=6)), max_size=3), st.integers(0, 5),
       st.sampled_from([0, 5, (1 << 31) - 1]), st.sampled_from([0, (1 << 63) - 1, -(1 << 63)]))  # fmt: skip
@settings(max_examples=300)
def test_records_of_any_numbers_are_read_as_the_plain_decoder_reads_them(
    parts: list[tuple[bytes, ...]], count: int, last_delta: int, base_timestamp: int
) -> None:
    payload = b""
    for fields in parts:
        body = b"\0" + b"".join(fields)
        payload += encode(len(body)) + body
    data = under_a_header(payload, count, last_delta, base_timestamp)
    assert outcome(data, check_crcs=True) == plain_outcome(data)


@given(logs(codecs=[Codec.NONE], batches_max=2), st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=3))
@settings(max_examples=300)
def test_mutated_batches_are_read_or_refused_as_by_the_plain_decoder(data: bytes, changes: list[tuple[int, int]]) -> None:
    data = data[:SIZE_MAX]
    mutated = bytearray(data)
    for position, byte in changes:
        if mutated:
            mutated[position % len(mutated)] = byte
    found, plain = outcome(bytes(mutated), check_crcs=False), plain_outcome(bytes(mutated))
    assert plain is None or found == plain  # what is cut is refused by the plain decoder alone


@given(st.sampled_from(list(Codec)[1:]), st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=3))
@settings(max_examples=60)
def test_mutated_compressed_records_are_read_or_refused(codec: Codec, changes: list[tuple[int, int]]) -> None:
    mutated = build([Record(n, n, b"key", b"value" * n, (("h", b"x"),)) for n in range(5)], codec=codec)
    for position, byte in changes:
        mutated[HEADER_SIZE + position % (len(mutated) - HEADER_SIZE)] = byte
    assert outcome(bytes(mutated), check_crcs=False) == plain_outcome(bytes(mutated))


@given(st.binary(max_size=300))
@example(b"\0" * 300)
@example(b"\xff" * 300)
@settings(max_examples=100)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    outcome(data, check_crcs=True)
    outcome(data, check_crcs=False)
    outcome(under_a_header(data, 3, 1 << 30), check_crcs=True)


def test_a_count_of_billions_takes_no_room_and_no_time() -> None:
    billions = (1 << 31) - 1
    peak = pa.default_memory_pool().max_memory()
    assert outcome(under_a_header(b"", billions, billions), check_crcs=True) is None
    body = b"\0\0\0\0\0" + encode(billions) + b"\0" * 20
    assert outcome(under_a_header(encode(len(body)) + body, 1, 0), check_crcs=True) is None
    assert pa.default_memory_pool().max_memory() < peak + (1 << 20)


def test_records_that_are_cut_are_not_read_beyond_their_end() -> None:
    payload = build_payload([Record(200, 1 << 40, b"k" * 70, b"v" * 70, (("h" * 70, b"x" * 70),))], 0, 0)
    whole = under_a_header(payload, 1, 300)
    assert outcome(whole, check_crcs=True) == plain_outcome(whole) != []
    for size in range(len(payload)):
        cut = under_a_header(payload[:size], 1, 300)
        assert outcome(cut, check_crcs=True) is None
        assert plain_outcome(cut) is None


@given(
    st.lists(
        st.tuples(
            VARINTS,
            st.one_of(st.integers(-1, 4).map(encode), VARINTS),
            BYTES.map(encode_bytes),
            st.one_of(BYTES.map(encode_bytes), VARINTS),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, (1 << 63) - 1, -(1 << 63)]),
)
@settings(max_examples=300)
def test_records_with_one_odd_number_are_read_as_the_plain_decoder_reads_them(
    parts: list[tuple[bytes, ...]], base_timestamp: int
) -> None:
    payload = b"".join(encode(2 + sum(map(len, fields))) + b"\0" + b"".join(fields) + b"\0" for fields in parts)
    data = under_a_header(payload, len(parts), 3, base_timestamp)
    assert outcome(data, check_crcs=False) == plain_outcome(data)


ODD = {
    "offsets that do not grow": (b"\0", encode(1), b"\1\1"),
    "an offset after the last": (b"\0", encode(4), b"\1\1"),
    "an offset of 33 bits": (b"\0", b"\x84\x80\x80\x80\x10", b"\1\1"),
    "an offset of six bytes": (b"\0", b"\x84\x80\x80\x80\x80\0", b"\1\1"),
    "a time after the last": (encode((1 << 63) - 1), encode(2), b"\1\1"),
    "a time of 65 bits": (b"\x80" * 9 + b"\2", encode(2), b"\1\1"),
    "a time of eleven bytes": (b"\x80" * 10 + b"\0", encode(2), b"\1\1"),
    "a key of -2 bytes": (b"\0", encode(2), b"\3\1"),
    "a value of -2 bytes": (b"\0", encode(2), b"\1\3"),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_record_is_refused_for(odd: str) -> None:
    sound = encode(6) + b"\0\0" + encode(1) + b"\1\1\0"
    body = b"\0" + b"".join(ODD[odd]) + b"\0"
    data = under_a_header(sound + encode(len(body)) + body, 2, 3, base_timestamp=1)
    assert outcome(data, check_crcs=True) is None
    assert plain_outcome(data) is None
    padded = b"\0" + b"\x80\x80\x80\x80\0" + b"\x84\x80\x80\x80\0" + b"\1\1\0"  # as no encoder writes it, but sound
    data = under_a_header(sound + encode(len(padded)) + padded, 2, 3)
    assert outcome(data, check_crcs=True) == plain_outcome(data) != []


def test_a_fault_is_told_with_its_field() -> None:
    data = bytearray(build([Record(0, 0, b"key", b"value")]))
    data[data.index(b"\x06key")] = encode(100)[0]
    with pytest.raises(ProtocolError, match="key length at byte 4"):
        decode(data, TOPIC, PARTITION, check_crcs=False)

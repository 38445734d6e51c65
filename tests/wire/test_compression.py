"""The codecs: both ways with Apache Kafka's own streams, caps that hold while they stream, and malformed data."""

import gzip
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire.compression import (
    LEVEL_DEFAULT,
    LEVELS,
    XERIAL_BLOCK_SIZE,
    XERIAL_HEADER,
    Codec,
    compress,
    decompress,
)
from odradek.wire.errors import ProtocolError
from tests.kafka.oracle import Oracle

COMPRESSED = list(Codec)[1:]
MEGABYTE = 1 << 20
DATA = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda piece, times: piece * times, st.binary(min_size=1, max_size=50), st.integers(1, 5000)),
)


@pytest.mark.parametrize("codec", Codec)
@given(data=DATA)
@settings(max_examples=40)
def test_data_comes_back(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, memoryview(compress(codec, memoryview(data))), len(data))) == data


@pytest.mark.parametrize("codec", Codec)
@given(data=DATA)
@settings(max_examples=15)
def test_streams_pass_both_ways_with_kafka(oracle: Oracle, codec: Codec, data: bytes) -> None:
    ours = compress(codec, data)
    assert oracle.call("Batches.decompress", codec=codec, hex=ours.hex()) == data.hex()
    theirs = bytes.fromhex(oracle.call("Batches.compress", codec=codec, level=None, hex=data.hex()))
    assert bytes(decompress(codec, theirs, len(data))) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((Codec.GZIP, level) for level in (-1, 1, 9)),
        *((Codec.LZ4, level) for level in (1, 2, 9, 10, 17)),
        *((Codec.ZSTD, level) for level in (-131072, -1, 0, 3, 19)),
    ],
)
def test_every_level_is_read_by_kafka_and_its_by_us(oracle: Oracle, codec: Codec, level: int) -> None:
    data = bytes(n * n % 251 for n in range(200_000))
    assert oracle.call("Batches.decompress", codec=codec, hex=compress(codec, data, level).hex()) == data.hex()
    theirs = bytes.fromhex(oracle.call("Batches.compress", codec=codec, level=level, hex=data.hex()))
    assert bytes(decompress(codec, theirs, len(data))) == data


@pytest.mark.parametrize("codec", LEVELS)
def test_level_out_of_range_is_refused(codec: Codec) -> None:
    for level in (LEVELS[codec][0] - 1, LEVELS[codec][-1] + 1):
        if level != LEVEL_DEFAULT[codec]:
            with pytest.raises(ValueError, match=f"{codec.name.lower()} has levels .* not {level}"):
                compress(codec, b"", level)


def test_there_is_no_other_codec() -> None:
    with pytest.raises(ValueError, match="no codec 5"):
        compress(5, b"")
    with pytest.raises(ProtocolError, match="no codec 7"):
        decompress(7, b"", 10)


def test_snappy_is_written_in_xerial_frames_of_32_kb() -> None:
    data = bytes(70_000)
    stream = compress(Codec.SNAPPY, data)
    assert stream.startswith(XERIAL_HEADER)
    sizes, position = [], len(XERIAL_HEADER)
    while position < len(stream):
        size = int.from_bytes(stream[position : position + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(stream[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [XERIAL_BLOCK_SIZE, XERIAL_BLOCK_SIZE, 70_000 - 2 * XERIAL_BLOCK_SIZE]


def test_raw_snappy_is_read_as_kafka_reads_it(oracle: Oracle) -> None:
    for data in (b"a", b"abc" * 30_000):
        raw = bytes(cramjam.snappy.compress_raw(data))
        assert decompress(Codec.SNAPPY, raw, len(data)) == data
        assert oracle.call("Batches.decompress", codec=Codec.SNAPPY, hex=raw.hex()) == data.hex()


def test_joined_streams_are_read_as_kafka_reads_them(oracle: Oracle) -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        joined = compress(codec, b"one" * 100) + compress(codec, b"two" * 100)
        assert bytes(decompress(codec, joined, 600)) == b"one" * 100 + b"two" * 100
        assert oracle.call("Batches.decompress", codec=codec, hex=joined.hex()) == (b"one" * 100 + b"two" * 100).hex()


def test_many_small_gzip_members_take_no_time_in_the_square() -> None:
    members = compress(Codec.GZIP, b"") * 20_000 + compress(Codec.GZIP, b"end")
    assert decompress(Codec.GZIP, members, 100 * MEGABYTE) == b"end"


def test_linked_lz4_blocks_are_read() -> None:
    data = bytes(n % 7 for n in range(300_000))
    for options in ({"block_linked": True}, {"content_checksum": True, "block_checksum": True}, {"store_size": True}):
        assert decompress(Codec.LZ4, lz4.frame.compress(data, **options), len(data)) == data


def test_lz4_blocks_far_denser_than_usual_are_read() -> None:
    data = bytes(9 * MEGABYTE)
    for block_size in (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB):
        frame = lz4.frame.compress(data, block_size=block_size)
        for size_max in (9 * MEGABYTE, 100 * MEGABYTE):
            assert decompress(Codec.LZ4, frame, size_max) == data


def test_lz4_frames_have_independent_blocks_of_64_kb_and_no_sums() -> None:
    frame = compress(Codec.LZ4, bytes(200_000))
    flags, block = frame[4], frame[5]
    assert flags == 0b01_1_0_0_0_0_0  # version 1, independent, no block sum, no size, no content sum, no dictionary
    assert block == 4 << 4


def bomb(codec: Codec, size: int) -> bytes:
    """As few bytes as the codec can say `size` zeros in."""
    if codec is Codec.GZIP:
        return gzip.compress(bytes(size), 9, mtime=0)
    if codec is Codec.ZSTD:
        writer = zstandard.ZstdCompressor(level=19, write_content_size=False).compressobj()
        return writer.compress(bytes(size)) + writer.flush()
    return compress(codec, bytes(size))


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size_max", [0, 1000, MEGABYTE])
def test_bomb_is_refused_without_being_made(codec: Codec, size_max: int) -> None:
    data = bomb(codec, 64 * MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=f"more than the {size_max} bytes allowed"):
            decompress(codec, data, size_max)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size_max + 3 * MEGABYTE


WITHIN_BOUNDS = """
import resource, sys
from odradek.wire.compression import decompress
from odradek.wire.errors import ProtocolError
codec, bomb = int(sys.argv[1]), sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20), used + (96 << 20)))
try:
    decompress(codec, bomb, 8 << 20)
except ProtocolError as error:
    print(error.reason)
"""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bomb_fails_in_bounded_memory_of_the_libraries_too(codec: Codec) -> None:
    data = bomb(codec, 400 * MEGABYTE)
    if codec is Codec.LZ4:  # Kafka writes blocks of 64 KB, others may write them as big as the format allows
        data = lz4.frame.compress(bytes(400 * MEGABYTE), block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    command = [sys.executable, "-c", WITHIN_BOUNDS, str(int(codec))]
    child = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60)
    assert child.stdout.decode().strip() == f"the data decompresses to more than the {8 * MEGABYTE} bytes allowed"


@pytest.mark.parametrize("codec", Codec)
def test_cap_is_exact(codec: Codec) -> None:
    data = bytes(n % 251 for n in range(100_000))
    stream = compress(codec, data)
    assert bytes(decompress(codec, stream, 100_000)) == data
    with pytest.raises(ProtocolError, match="more than the 99999 bytes allowed"):
        decompress(codec, stream, 99_999)


def test_zstd_window_over_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = writer.compress(b"abc") + writer.flush()
    with pytest.raises(ProtocolError, match=r"no zstd data: .*memory"):
        decompress(Codec.ZSTD, frame, MEGABYTE)


def test_zstd_content_size_that_lies_allocates_nothing() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(MEGABYTE)))
    assert zstandard.frame_content_size(bytes(frame)) == MEGABYTE
    size_at = bytes(frame).index(MEGABYTE.to_bytes(4, "little"))
    frame[size_at : size_at + 4] = b"\xff\xff\xff\x7f"
    with pytest.raises(ProtocolError, match="records at byte"):
        decompress(Codec.ZSTD, frame, 2 * MEGABYTE)


def chunk(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


RAW = bytes(cramjam.snappy.compress_raw(b"abc" * 100))

MALFORMED_SNAPPY = {
    "no bytes": (b"", "no snappy data"),
    "no snappy": (b"\xff" * 20, "records at byte 0"),
    "declares too much for its bytes": (b"\xff\xff\x7f\x00a", "5 bytes of snappy data that declare 2097151"),
    "cut raw": (RAW[:-1], "no snappy data"),
    "cut header": (XERIAL_HEADER[:-1], "header of the snappy stream is cut"),
    "version 0": (XERIAL_HEADER[:8] + bytes(8) + chunk(RAW), "a snappy stream of version 0"),
    "chunk over the end": (XERIAL_HEADER + chunk(RAW)[:-1], "a snappy chunk of"),
    "chunk length cut": (XERIAL_HEADER + chunk(RAW) + b"\x00\x00", "a snappy chunk of 0 bytes"),
    "chunk negative": (XERIAL_HEADER + b"\xff\xff\xff\xff" + RAW, "a snappy chunk of -1 bytes"),
    "chunk of nothing": (XERIAL_HEADER + bytes(4), "a snappy chunk of 0 bytes"),
    "chunk malformed": (XERIAL_HEADER + chunk(b"\x05\xff\xff"), "no snappy data"),
}


@pytest.mark.parametrize("case", MALFORMED_SNAPPY)
def test_malformed_snappy_is_refused(case: str) -> None:
    data, reason = MALFORMED_SNAPPY[case]
    with pytest.raises(ProtocolError, match=reason):
        decompress(Codec.SNAPPY, data, 100 * MEGABYTE)


def test_sum_of_snappy_chunks_is_capped() -> None:
    stream = XERIAL_HEADER + chunk(RAW) * 10
    assert len(decompress(Codec.SNAPPY, stream, 3000)) == 3000
    with pytest.raises(ProtocolError, match="more than the 2999 bytes"):
        decompress(Codec.SNAPPY, stream, 2999)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_streams_are_refused_at_every_byte(codec: Codec) -> None:
    stream = compress(codec, bytes(range(200)) * 2)
    for size in range(len(stream)):
        if codec is Codec.SNAPPY and size == len(XERIAL_HEADER):
            continue  # a stream without chunks, which is whole
        with pytest.raises(ProtocolError):
            decompress(codec, stream[:size], MEGABYTE)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(ProtocolError):
        decompress(codec, compress(codec, b"abc" * 100) + b"after", MEGABYTE)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=100), mutations=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
@settings(max_examples=100)
def test_mutated_streams_give_data_or_a_protocol_error(codec: Codec, data: bytes, mutations: list[tuple[int, int]]) -> None:
    stream = bytearray(compress(codec, data * 3))
    for position, byte in mutations:
        stream[position % len(stream)] = byte
    with suppress(ProtocolError):
        assert len(decompress(codec, stream, 1000)) <= 1000


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=100))
def test_arbitrary_bytes_give_data_or_a_protocol_error(codec: Codec, data: bytes) -> None:
    with suppress(ProtocolError):
        assert len(decompress(codec, data, 1000)) <= 1000


def test_gzip_without_its_wrapping_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"no gzip data: .*header"):
        decompress(Codec.GZIP, zlib.compress(b"abc"), MEGABYTE)

"""The codecs of record batches, as Kafka writes them, and a decompressor that never gives more than it was allowed.

gzip, lz4 and zstd are streams: the input goes in slices so short that even the codec's densest form cannot fill more
than the room left. Snappy has no stream: every chunk declares its length in front, which is checked before any is made.

Invariants
 1. `decompress` gives `size_max` bytes at most, and on its way there makes at most one block of its codec more
 2. what is malformed, cut, or has bytes after its end is a ProtocolError, never a shorter result
 3. what `compress` writes, Kafka's own readers take: Xerial frames of 32 KB for snappy, independent blocks for lz4
"""

import zlib
from enum import IntEnum
from typing import Final, Protocol

import cramjam
import lz4.frame
import zstandard

from odradek.wire.errors import ProtocolError
from odradek.wire.varint import Buffer


class Codec(IntEnum):
    """The codec of a batch: the low three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Final = frozenset(Codec)

# The levels that Kafka's compression.<codec>.level settings take, besides the default, which is used when none is set.
LEVELS: Final = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
LEVEL_DEFAULT: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable by readers of version 1
XERIAL_BLOCK_SIZE: Final = 32 * 1024

# The most that one byte of input can become: 258 bytes in two bits for deflate, a match length's byte for lz4, an RLE
# block for zstd (128 KB in 4 bytes), a copy for snappy (64 bytes in 3, rounded up).
EXPANSION_MAX: Final = {Codec.GZIP: 1032, Codec.LZ4: 255, Codec.ZSTD: 32 * 1024}
SNAPPY_EXPANSION_MAX: Final = 32
SLICE_SIZE_MIN: Final = 32
SLICE_SIZE_MAX: Final = 128 * 1024

# The window of zstd's highest level, 22; what asks for more is refused, as Kafka's own reader does.
ZSTD_WINDOW_SIZE_MAX: Final = 1 << 27

LZ4_BLOCK_SIZE: Final = 64 * 1024
LZ4_LEVEL_HIGH_MIN: Final = 3
LZ4_LEVEL_HIGH_MAX: Final = 12


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """The bytes in a codec's form; `level` as in Kafka's compression.<codec>.level, None for its default."""
    if codec == Codec.NONE:
        return bytes(data)
    if level is not None:
        _check_level(Codec(codec), level)
    if codec == Codec.GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        return stream.compress(data) + stream.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    if codec == Codec.ZSTD:
        return zstandard.ZstdCompressor(level=LEVEL_DEFAULT[Codec.ZSTD] if level is None else level).compress(data)
    raise ValueError(f"there is no codec {codec}")


def _check_level(codec: Codec, level: int) -> None:
    levels = LEVELS.get(codec)
    if levels is not None and level not in levels and level != LEVEL_DEFAULT[codec]:
        raise ValueError(f"{codec.name.lower()} has levels {levels[0]} to {levels[-1]}, not {level}")


def _compress_xerial(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        chunk = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE]))
        parts += (len(chunk).to_bytes(4, "big"), chunk)
    return b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's default, 9, stands for lz4's fast mode and not for the ninth level of the thorough one.
    fast = level is None or level == LEVEL_DEFAULT[Codec.LZ4]
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast else min(max(level or 0, LZ4_LEVEL_HIGH_MIN), LZ4_LEVEL_HIGH_MAX),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Kafka's reader knows independent blocks only
        store_size=False,
    )
    return frame


def decompress(codec: int, data: Buffer, size_max: int) -> Buffer:
    """What the bytes of a codec stand for; ProtocolError when that is over `size_max`, or no such bytes."""
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise _over(size_max, 0)
        return data
    if codec not in CODECS:
        raise ProtocolError(f"there is no codec {codec}", "codec", 0)
    return _decompress_stream(Codec(codec), memoryview(data), size_max)


class Stream(Protocol):
    """One gzip member, lz4 frame or zstd frame on its way through its library."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: memoryview, /) -> bytes: ...


class Lz4Frame:
    """lz4's own decompressor makes buffers many times as big as what they hold, unless it is told how big in steps."""

    def __init__(self) -> None:
        self.frame = lz4.frame.LZ4FrameDecompressor()

    @property
    def eof(self) -> bool:
        return bool(self.frame.eof)

    @property
    def unused_data(self) -> bytes | None:
        unused: bytes | None = self.frame.unused_data
        return unused

    def decompress(self, data: memoryview) -> bytes:
        step = 4 * len(data) + LZ4_BLOCK_SIZE
        part: bytes = self.frame.decompress(data, step)
        if self.frame.eof or (self.frame.needs_input and len(part) < step):
            return part
        parts = [part]
        while not self.frame.eof and (not self.frame.needs_input or len(part) == step):
            part = self.frame.decompress(b"", step)
            parts.append(part)
        return b"".join(parts)


def _stream(codec: Codec) -> Stream:
    if codec is Codec.GZIP:
        return zlib.decompressobj(zlib.MAX_WBITS | 16)
    if codec is Codec.LZ4:
        return Lz4Frame()
    return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_SIZE_MAX).decompressobj()


def _decompress_stream(codec: Codec, data: memoryview, size_max: int) -> bytes:
    """Members or frames one after the other, as gzip and zstd allow; each must be whole."""
    parts: list[bytes] = []
    room = size_max
    position = 0
    stream = _stream(codec)
    while position < len(data) or not stream.eof:
        if position == len(data):
            raise ProtocolError(f"the {codec.name.lower()} data is cut", "records", position)
        if stream.eof:
            stream = _stream(codec)
        size = min(max(room // EXPANSION_MAX[codec], SLICE_SIZE_MIN), SLICE_SIZE_MAX)
        try:
            part = stream.decompress(data[position : position + size])
        except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
            raise ProtocolError(f"no {codec.name.lower()} data: {error}", "records", position) from None
        position = min(position + size, len(data))
        if stream.eof:
            position -= len(stream.unused_data or b"")
        room -= len(part)
        if room < 0:
            raise _over(size_max, position)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_chunk(data, 0, size_max, size_max)
    parts: list[bytes] = []
    room = size_max
    position = 0
    while position < len(data):
        if bytes(data[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:  # in the middle too: streams may be joined
            if len(data) - position < len(XERIAL_HEADER):
                raise ProtocolError("the header of the snappy stream is cut", "records", position)
            if (version := int.from_bytes(data[position + 8 : position + 12], "big", signed=True)) < 1:
                raise ProtocolError(f"a snappy stream of version {version}", "records", position)
            position += len(XERIAL_HEADER)
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(data) - position:
            raise ProtocolError(f"a snappy chunk of {size} bytes where {len(data) - position} are left", "records", position)
        part = _decompress_chunk(data[position : position + size], position, room, size_max)
        room -= len(part)
        position += size
        parts.append(part)
    return b"".join(parts)


def _decompress_chunk(chunk: memoryview, position: int, room: int, size_max: int) -> bytes:
    """One chunk of raw snappy, its declared length checked first: against the cap, and what its bytes can hold."""
    try:
        declared: int = cramjam.snappy.decompress_raw_len(chunk)
        if declared > room:
            raise _over(size_max, position)
        if declared > len(chunk) * SNAPPY_EXPANSION_MAX:
            raise ProtocolError(f"{len(chunk)} bytes of snappy data that declare {declared}", "records", position)
        return bytes(cramjam.snappy.decompress_raw(chunk))
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"no snappy data: {error}", "records", position) from None


def _over(size_max: int, position: int) -> ProtocolError:
    return ProtocolError(f"the data decompresses to more than the {size_max} bytes allowed", "records", position)

"""Record batches for the fuzzer: sound ones, ones with a wrong field and a right or a wrong CRC, and bombs."""

import random
import struct
from functools import cache

from crc32c import crc32c

from odradek.wire.batch import ATTRIBUTES_POSITION, HEADER_SIZE
from odradek.wire.compression import Codec, compress
from odradek.wire.records import Record, build

NOW_MS = 1_700_000_000_000
BOMB_BYTES = 200_000_000  # what a bomb becomes, if it is allowed to
BOMB_PART_BYTES = 10_000_000
CRC_POSITION = 17

# position and layout of every field of the header
FIELDS = (
    (0, ">q"),
    (8, ">i"),
    (12, ">i"),
    (16, ">b"),
    (21, ">h"),
    (23, ">i"),
    (27, ">q"),
    (35, ">q"),
    (43, ">q"),
    (51, ">h"),
    (53, ">i"),
    (57, ">i"),
)
EDGES = (0, 1, 2, 5, -1, 127, 255, 32767, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), NOW_MS)


def any_batch(dice: random.Random) -> bytes:
    made = sound(dice)
    chance = dice.random()
    if chance < 0.45:
        return bytes(made)
    if chance < 0.50:
        return bomb(dice.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY)))
    if chance < 0.55:
        return bytes(made) * dice.choice((0, 2))
    if chance < 0.80:
        spoil_field(made, dice)
    else:
        spoil_records(made, dice)
    if dice.random() < 0.8:
        seal(made)
    return bytes(made)


def sound(dice: random.Random) -> bytearray:
    count = dice.choice((1, 1, 2, 5, 50))
    key = dice.choice((None, b"", b"key", b"k" * 100))
    value = dice.choice((None, b"", b"value", b"v" * 300, dice.randbytes(50)))
    headers = dice.choice(((), (("name", b"value"),), (("name", None), ("", b""))))
    time_ms = dice.choice((NOW_MS, NOW_MS, NOW_MS, -1, 0))
    records = [Record(number, time_ms, key, value, headers) for number in range(count)]
    is_idempotent = dice.random() < 0.3
    return build(
        records,
        codec=dice.choice(tuple(Codec)),
        producer_id=dice.randrange(5) if is_idempotent else -1,
        producer_epoch=dice.randrange(2) if is_idempotent else -1,
        base_sequence=dice.choice((0, 0, 1, 50)) if is_idempotent else -1,
    )


def spoil_field(batch: bytearray, dice: random.Random) -> None:
    position, layout = dice.choice(FIELDS)
    size = struct.calcsize(layout)
    value = dice.choice(EDGES) & (1 << 8 * size) - 1
    batch[position : position + size] = value.to_bytes(size, "big")


def spoil_records(batch: bytearray, dice: random.Random) -> None:
    for _ in range(dice.randint(1, 3)):
        batch[dice.randrange(HEADER_SIZE, len(batch))] ^= 1 << dice.randrange(8)


def seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))


@cache
def bomb(codec: Codec) -> bytes:
    """A small batch that says it is one record, and whose records are two hundred megabytes of zeros."""
    if codec in (Codec.GZIP, Codec.ZSTD):  # both may be several streams, one behind the other
        packed = compress(codec, bytes(BOMB_PART_BYTES)) * (BOMB_BYTES // BOMB_PART_BYTES)
    elif codec is Codec.LZ4:
        packed = compress(codec, bytes(BOMB_BYTES))
    else:
        packed = b"\x80\x84\xaf\x5f" + bytes(100)  # raw snappy: a declared length of 200,000,000, and nothing behind it
    batch = build([Record(0, -1, b"key", b"value")])
    batch[HEADER_SIZE:] = packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    seal(batch)
    return bytes(batch)

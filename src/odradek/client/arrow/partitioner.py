"""The partition of every row: what it asks for, or its key's hash as Java's default partitioner has it, or a turn.

Rows without a key take turns in runs: a run of them goes to one partition, the next to the next, so that batches get full.

Invariants
 1. a key's partition is `(murmur2(key) & 0x7fffffff) % partition_count`, on all clients that follow Java's
 2. the turns depend on the number of keyless rows before, which the caller keeps from table to table
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numba import types

from odradek.client.arrow.kernel import INT32S, Int32s, kernel, part
from odradek.client.arrow.memory import byte_at, int64_at
from odradek.client.arrow.record_writer import BINARY_SOURCE, BinarySource, size_at

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
MASK_POSITIVE: Final = 0x7FFFFFFF


@part
def hash_at(address: int, size: int) -> int:
    """The hash of the bytes at an address, without a sign: products of 32 and 31 bits, which an int64 holds."""
    mixed = SEED ^ size
    end = address + (size & ~3)
    while address < end:
        word = byte_at(address) | byte_at(address + 1) << 8 | byte_at(address + 2) << 16 | byte_at(address + 3) << 24
        word = (word * MULTIPLIER) & MASK
        word = ((word ^ word >> 24) * MULTIPLIER) & MASK
        mixed = ((mixed * MULTIPLIER) & MASK) ^ word
        address += 4
    rest = size & 3
    if rest == 3:
        mixed ^= byte_at(address + 2) << 16
    if rest >= 2:
        mixed ^= byte_at(address + 1) << 8
    if rest >= 1:
        mixed = ((mixed ^ byte_at(address)) * MULTIPLIER) & MASK
    mixed = ((mixed ^ mixed >> 13) * MULTIPLIER) & MASK
    return mixed ^ mixed >> 15


@kernel(types.int64(BINARY_SOURCE, INT32S, types.int64, INT32S, types.int64, types.int64))
def assign(keys: BinarySource, partitions: Int32s, partition_count: int, turns: Int32s, turn_rows: int, keyless_rows: int) -> int:
    """A partition for every row that has none (-1); gives the number of keyless rows so far."""
    for row in range(len(partitions)):
        if partitions[row] >= 0:
            continue
        size = size_at(keys, row)
        if size < 0:
            partitions[row] = turns[keyless_rows // turn_rows % len(turns)]
            keyless_rows += 1
        else:
            hashed = hash_at(keys.data + int64_at(keys.offsets, row), size)
            partitions[row] = (hashed & MASK_POSITIVE) % partition_count
    return keyless_rows


@kernel(types.int64(types.int64, types.int64))
def hash_bytes(address: int, size: int) -> int:
    return hash_at(address, size)


def murmur2(key: bytes) -> int:
    """The hash of a key, with Java's sign."""
    buffer = pa.py_buffer(key)
    hashed = hash_bytes(buffer.address, buffer.size)
    return hashed - (1 << 32) if hashed >> 31 else hashed


def choose(
    keys: BinarySource,
    asked: pa.Array,
    partition_count: int,
    turns: Sequence[int] | None,
    turn_rows: int,
    keyless_rows: int,
) -> tuple[Int32s, int]:
    """Every row's partition, and the number of keyless rows so far. `turns` are the partitions that these go to."""
    order = np.arange(partition_count, dtype=np.int32) if turns is None else np.array(turns, np.int32)
    if not len(order) or order.min() < 0 or order.max() >= partition_count:
        raise ValueError(f"turns of partitions {order.tolist()}, of a topic that has 0 to {partition_count - 1}")
    partitions = np.array(asked, np.int32)
    return partitions, assign(keys, partitions, partition_count, order, turn_rows, keyless_rows)

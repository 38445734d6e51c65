"""Which partition of a coordinators' topic a group, or a transactional id, belongs to: Java's hash of the name, as Kafka has it.

Invariants
 1. A name belongs to one partition for as long as the topic keeps its number of partitions.
"""

from functools import lru_cache
from struct import unpack
from typing import Final

SIGN_BIT: Final = 0x8000_0000
LOWER_BITS: Final = 0x7FFF_FFFF
UINT32: Final = 0xFFFF_FFFF
NAMES_KNOWN: Final = 10_000  # that were asked for last: the same ones come again and again


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, in a signed int32."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & UINT32
    return value - (1 << 32) if value & SIGN_BIT else value


@lru_cache(NAMES_KNOWN)
def partition_of(name: str, partition_count: int) -> int:
    """Kafka's absolute value of the smallest int32 is 0."""
    value = java_hash(name)
    return (0 if value == -SIGN_BIT else abs(value)) % partition_count

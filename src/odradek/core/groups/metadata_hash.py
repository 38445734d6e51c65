"""The hash of what a group is subscribed to: another one means that topics or partitions came or went, and the group rebalances.

It stands in the group's record, so it is Kafka's to the bit: another hash would make every group rebalance when Kafka takes over.

Invariants
 1. A topic that does not exist does not count; a group without topics has the hash 0.
 2. Where a partition's replicas are counts by their racks, and their order does not.
"""

from collections.abc import Iterable, Mapping
from struct import Struct

from xxhash import xxh3_64_intdigest

from odradek.core.metadata.brokers import Broker
from odradek.core.metadata.topics import Partition, Topic

INT32 = Struct("<i")
INT64 = Struct("<q")
INT64_UNSIGNED = Struct("<Q")
FORMAT = b"\x00"


def topic_hash(topic: Topic, brokers: Mapping[int, Broker]) -> int:
    high, low = topic.id[:8], topic.id[8:]
    data = [FORMAT, high[::-1], low[::-1], text(topic.name), INT32.pack(len(topic.partitions))]
    for index in range(len(topic.partitions)):
        data.append(INT32.pack(index))
        for rack in racks(topic.partitions[index], brokers):
            data += (INT32.pack(units(rack)), text(rack))
    return xxh3_64_intdigest(b"".join(data))


def group_hash(topic_hashes: Iterable[tuple[str, int]]) -> int:
    """Of the hashes of topics, by name."""
    found = sorted(topic_hashes)
    if not found:
        return 0
    digest = xxh3_64_intdigest(b"".join(INT64_UNSIGNED.pack(value) for _, value in found))
    (signed,) = INT64.unpack(INT64_UNSIGNED.pack(digest))
    return int(signed)


def racks(partition: Partition, brokers: Mapping[int, Broker]) -> list[str]:
    found = (brokers[replica].rack for replica in partition.replicas if replica in brokers)
    return sorted(rack for rack in found if rack is not None)


def units(value: str) -> int:
    """The length of a string as Java counts it."""
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


def text(value: str) -> bytes:
    return value.encode("utf-16-le", "surrogatepass") + INT32.pack(units(value))

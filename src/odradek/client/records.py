"""What programs give and get: records, and the places where they are."""

from typing import Final, NamedTuple

import msgspec

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1

Headers = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(msgspec.Struct, gc=False):
    """One that was read. There may be millions of them: it holds no containers but the tuple of its headers, so the garbage
    collector need not look at it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Batches(NamedTuple):
    """Of one partition, as a broker sent them: whole record batches one after the other, for who decodes them otherwise.

    What lies below `offset` was read before, what is from `next_offset` on is not wanted; what `aborted` transactions wrote,
    from their first offset to their producer's next abort marker, is not to be read, and control batches never are.
    """

    partition: TopicPartition
    records: memoryview
    offset: int  # the first that is wanted
    next_offset: int  # where what comes next begins
    aborted: tuple[tuple[int, int], ...] = ()  # producer id and first offset


class Delivered(NamedTuple):
    """Where a record that was sent is. With acks=0 nobody knows the offset: NO_OFFSET."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class DeliveredBatch(NamedTuple):
    """Where records that were sent together are: so many from this offset on."""

    topic: str
    partition: int
    offset: int
    record_count: int


class Committed(msgspec.Struct, frozen=True):
    """How far a group is with a partition: the offset to go on from."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_EPOCH


class SharedTransaction(NamedTuple):
    """A transaction that producers of several processes write in, each to other partitions. One of them has begun it, and ends
    it when all have written what they had."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_implicit: bool  # brokers add partitions by themselves


class GroupMetadata(NamedTuple):
    """Who speaks for a group: a member, so that one that was replaced cannot. `generation` is its epoch in groups of the new
    protocol."""

    group: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

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

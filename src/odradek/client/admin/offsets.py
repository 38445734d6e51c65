"""Offsets of partitions: where they begin and end, and where a time is in them."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, outcome
from odradek.client.admin.ways import Leaders
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ListOffsetsRequest, ListOffsetsResponse

CONSUMER: Final = -1  # who asks is none of the replicas


class Offset(IntEnum):
    """Places of a partition that have a name; any other number is a time in milliseconds since 1970, UTC."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


SINCE: Final = {
    Offset.MAX_TIMESTAMP: 7,
    Offset.EARLIEST_LOCAL: 8,
    Offset.LATEST_TIERED: 9,
    Offset.EARLIEST_PENDING_UPLOAD: 11,
}


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FoundOffset(Struct, frozen=True):
    """NO_OFFSET and NO_TIMESTAMP where there is nothing: no record is so young, or no record is there."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Offsets(Asking):
    async def list_offsets(
        self,
        places: Mapping[TopicPartition, Offset | int],
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, FoundOffset]:
        """For each partition the offset of a named place, or of the first record that is not older than a time. With
        READ_COMMITTED, the latest is where the oldest open transaction begins."""
        kind = ListOffsetsRequest

        async def ask(connection: Connection, asked: list[TopicPartition]) -> Outcomes[TopicPartition, FoundOffset]:
            version = connection.version(kind.schema.key)
            found: dict[TopicPartition, FoundOffset | KafkaError] = {}
            topics: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = {}
            for key in asked:
                if any(places[key] == place and version < since for place, since in SINCE.items()):
                    found[key] = refused(ErrorCode.UNSUPPORTED_VERSION, f"{connection} does not know {Offset(places[key]).name}")
                else:
                    part = kind.ListOffsetsPartition(partition_index=key.partition, timestamp=places[key])
                    topics.setdefault(key.topic, []).append(part)
            request = kind(
                replica_id=CONSUMER,
                isolation_level=isolation,
                topics=[kind.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
                timeout_ms=self._patience_ms,
            )
            if not topics:
                return found
            answer = await connection.post(request, ListOffsetsResponse, self._patience_ms)
            for topic in answer.topics:
                for each in topic.partitions:
                    value = FoundOffset(each.offset, each.timestamp, each.leader_epoch)
                    found[TopicPartition(topic.name, each.partition_index)] = outcome(
                        value, each.error_code, topic=topic.name, partition=each.partition_index
                    )
            return found

        return await self._each("to find offsets", places, Leaders(), ask, timeout_ms)

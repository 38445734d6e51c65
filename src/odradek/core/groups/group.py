"""What the coordinator knows of a group of any type: offsets, listing and deletion ask these questions, and no others.

Classic groups and consumer groups are such; so will be the others. A group changes its type by records: tombstones of the one,
then the other's.
"""

from enum import StrEnum
from typing import Protocol

from odradek.core.groups.offsets import CommittedOffset
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(Protocol):
    """A group of any type."""

    group_id: str

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str:
        """As ListGroups and DescribeGroups say it."""
        ...

    @property
    def listed_protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """It has no members: it may be deleted, or become a group of another type."""
        ...

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, is_transactional: bool, version: int
    ) -> ErrorCode:
        """Whether this member, of this generation or epoch, may commit offsets now."""
        ...

    def check_partition_commit(self, member_id: str, generation_id: int, topic_id: bytes, partition: int) -> ErrorCode:
        """Whether it may commit the offset of this partition, once it may commit at all."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode: ...

    def check_offset_delete(self) -> ErrorCode: ...

    def check_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Its offsets of that topic neither expire nor may be deleted."""
        ...

    def retention_start_ms(self, offset: CommittedOffset) -> int | None:
        """Since when the offset is kept for nobody; None while somebody may want it."""
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, without its offsets."""
        ...

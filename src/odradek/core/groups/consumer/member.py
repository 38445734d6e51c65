"""A member of a consumer group, as its records say it is.

Invariants
 1. A member is a value: a change makes a new one.
 2. No topic without a partition is in `assigned` or `revoking`.
"""

from enum import IntEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from odradek.wire.messages import ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2  # a static member that means to come back
NO_TIMEOUT: Final = -1

OwnedPartitions: TypeAlias = dict[bytes, dict[int, int]]  # by topic id and partition, the epoch in which it was assigned
StoredPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


class MemberState(IntEnum):
    STABLE = 0  # it has what its epoch gives it
    UNREVOKED_PARTITIONS = 1  # it is to give some up before it comes to the next epoch
    UNRELEASED_PARTITIONS = 2  # it waits for some that others have not given up
    UNKNOWN = 127  # of a later version

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        del value
        return cls.UNKNOWN


class ClassicMetadata(Struct, frozen=True):
    """What a member said in a JoinGroup, which it sends instead of heartbeats. Its first protocol is the one it likes best."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(Struct, frozen=True, kw_only=True):
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()  # those it named
    regex: str = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = {}
    revoking: OwnedPartitions = {}  # those it is to give up, and may still own
    classic: ClassicMetadata | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def moved_to(self, epoch: int, state: MemberState, assigned: OwnedPartitions, revoking: OwnedPartitions) -> "ConsumerMember":
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """Since when it owns the partition; None when it does not."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        classic = None
        if value.classic_member_metadata is not None:
            protocols = tuple((found.name, found.metadata) for found in value.classic_member_metadata.supported_protocols)
            classic = ClassicMetadata(value.classic_member_metadata.session_timeout_ms, protocols)
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=classic,
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "ConsumerMember":
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=owned(value.assigned_partitions, value.member_epoch),
            revoking=owned(value.partitions_pending_revocation, value.member_epoch),
        )


def owned(topics: list[StoredPartitions], member_epoch: int) -> OwnedPartitions:
    """Records before 4.3 do not say in which epoch a partition was assigned."""
    found: OwnedPartitions = {}
    for topic in topics:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        if topic.partitions:
            found[topic.topic_id] = dict(zip(topic.partitions, epochs))
    return found

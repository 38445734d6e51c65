"""The records that a coordinator writes for offsets and classic groups, in the versions of Kafka 4.3."""

from typing import TYPE_CHECKING, Final

from odradek.core.groups.offsets import Place
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from odradek.core.groups.classic.group import ClassicGroup

GROUP_METADATA_VERSION: Final = 3
OFFSET_COMMIT_VERSION: Final = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY: Final = 1  # the only one that has an expire timestamp
NO_VALUE_VERSION: Final = -1
NO_EXPIRY: Final = -1


def offset_record(place: Place, value: OffsetCommitValue) -> CoordinatorRecord:
    version = OFFSET_COMMIT_VERSION if value.expire_timestamp == NO_EXPIRY else OFFSET_COMMIT_VERSION_WITH_EXPIRY
    return CoordinatorRecord(offset_key(place), value, version)


def offset_tombstone(place: Place) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(place), None, NO_VALUE_VERSION)


def offset_key(place: Place) -> OffsetCommitKey:
    return OffsetCommitKey(group=place.group_id, topic=place.topic, partition=place.partition)


def new_group_record(group: "ClassicGroup") -> CoordinatorRecord:
    """That the group exists: it has no member yet that was in a generation."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=group.state_timestamp_ms
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def group_record(group: "ClassicGroup", assignments: dict[str, bytes]) -> CoordinatorRecord:
    """A generation with its members, by member id what each is assigned."""
    protocol = group.protocol_name
    assert protocol is not None or not group.members
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(protocol or ""),
            assignment=assignments[member.member_id],
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group_id), None, NO_VALUE_VERSION)

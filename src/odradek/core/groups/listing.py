"""DescribeGroups, ListGroups and DeleteGroups."""

from odradek.core.coordinator.events import Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.member import ClassicMember
from odradek.core.groups.records import offset_tombstone
from odradek.core.groups.sequels import Answer
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUP_ID_NOT_FOUND_FROM = 6


def describe_groups(shard: Shard, message: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[describe(shard, group_id, version) for group_id in message.groups])


def describe(shard: Shard, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if version >= GROUP_ID_NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} {'not found' if group is None else 'is not a classic group'}."
        return described
    is_stable = group.state is State.STABLE
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.listed_protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[described_member(group, member, is_stable) for member in group.members.values()],
    )


def described_member(group: ClassicGroup, member: ClassicMember, is_stable: bool) -> DescribeGroupsResponse.DescribedGroupMember:
    """What a member said counts for a generation, and only a stable group has one to show."""
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name or "") if is_stable else b"",
        member_assignment=member.assignment,
    )


def list_groups(shard: Shard, message: ListGroupsRequest) -> ListGroupsResponse:
    states = {state.strip().lower() for state in message.states_filter}
    types = {kind.strip().lower() for kind in message.types_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in shard.groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]
    )


def delete_groups(shard: Shard, request: Request, message: DeleteGroupsRequest, turn: Turn) -> None:
    records: list[CoordinatorRecord] = []
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(message.groups_names):
        group = shard.groups.get(group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_delete()
        if group is not None and error is ErrorCode.NONE:
            records += map(offset_tombstone, shard.offsets.places_to_delete(group_id))
            records += group.tombstones()
        response.results.append(DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error))
    if records:
        return turn.write(records, Answer(request, response))
    return turn.reply(request.ticket, response)

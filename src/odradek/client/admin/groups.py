"""Groups: list, describe, delete, and members that are sent away.

A group has one of several protocols. Which one a group has is found out by asking for each: the newest, then the oldest, whose
brokers know no other, then the groups that share records.
"""

from collections.abc import Iterable

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, failure, outcome
from odradek.client.admin.ways import Coordinators
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.log_records import decode_consumer_protocol
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from odradek.wire.operations import Operation, operations

CONSUMER, CLASSIC, SHARE = "consumer", "classic", "share"  # types of groups
DEAD = "Dead"
CLASSIC_MEMBER = 0
MANY_LEAVE_SINCE = 3
NOT_THERE = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class ListedGroup(Struct, frozen=True):
    """`state` and `type` are empty where a broker is too old to tell."""

    name: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


class GroupMember(Struct, frozen=True):
    """`target` is what it is to have when the group has settled, None where its protocol has no such thing. `topics` and
    `assignment` of a member that speaks a protocol of its own are empty."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None
    topic_pattern: str | None = None
    rack: str | None = None
    epoch: int | None = None
    is_classic: bool = False


class Group(Struct, frozen=True):
    name: str
    type: str  # consumer, classic, share
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    operations: frozenset[Operation] | None = None


class Groups(Asking):
    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> dict[str, ListedGroup]:
        """All groups of the cluster, or those in some states ("Stable", "Empty") or of some types ("consumer", "classic")."""
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])

        async def ask(connection: Connection, asked: list[int]) -> Outcomes[int, list[ListedGroup]]:
            answer = await connection.post(request, ListGroupsResponse, self._patience_ms)
            found = [
                ListedGroup(each.group_id, each.protocol_type, each.group_state, each.group_type.lower(), asked[0])
                for each in answer.groups
            ]
            return dict.fromkeys(asked, failure(answer) or found)

        found = await self._each_broker("to list the groups", ask, timeout_ms)
        return {
            each.name: each for each in sorted([each for held in found.values() for each in held], key=lambda each: each.name)
        }

    async def describe_groups(
        self, names: Iterable[str], *, include_operations: bool = False, timeout_ms: float | None = None
    ) -> dict[str, Group]:
        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Group]:
            found: dict[str, Group | KafkaError] = {}
            for describe in (describe_consumer, describe_classic, describe_share):
                left = [name for name in asked if is_missing(found.get(name))]
                if left:
                    told = await describe(connection, left, include_operations, self._patience_ms)
                    found |= {name: each for name, each in told.items() if name not in found or not is_missing(each)}
            return found

        return await self._each("to describe groups", names, Coordinators(), ask, timeout_ms)

    async def delete_groups(self, names: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """With all their offsets; none of them may have members."""

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            request = DeleteGroupsRequest(groups_names=asked)
            answer = await connection.post(request, DeleteGroupsResponse, self._patience_ms)
            return {
                each.group_id: outcome(None, each.error_code, each.error_message, group=each.group_id) for each in answer.results
            }

        await self._each("to delete groups", names, Coordinators(), ask, timeout_ms)

    async def remove_members(
        self,
        group: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Sends static members away by their instance ids, or all members (None). Those that live come back by themselves."""
        kind = LeaveGroupRequest.MemberIdentity
        if instance_ids is not None:
            leaving = [kind(member_id="", group_instance_id=each, reason=reason) for each in instance_ids]
        else:
            found = (await self.describe_groups([group], timeout_ms=timeout_ms))[group]
            leaving = [kind(member_id=each.id, group_instance_id=each.instance_id, reason=reason) for each in found.members]

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, None]:
            if connection.version(LeaveGroupRequest.schema.key) < MANY_LEAVE_SINCE:
                return dict.fromkeys(asked, refused(ErrorCode.UNSUPPORTED_VERSION, f"{connection} lets members leave alone only"))
            request = LeaveGroupRequest(group_id=group, members=leaving)
            answer = await connection.post(request, LeaveGroupResponse, self._patience_ms)
            codes = [answer.error_code, *(each.error_code for each in answer.members)]
            refusals = [refused(code, group=group) for code in codes if code]
            return dict.fromkeys(asked, refusals[0] if refusals else None)

        if leaving:
            await self._each(f"to send members of {group} away", [group], Coordinators(), ask, timeout_ms)


def is_missing(found: Group | KafkaError | None) -> bool:
    return found is None or (isinstance(found, KafkaError) and found.code in NOT_THERE)


async def describe_consumer(
    connection: Connection, names: list[str], include_operations: bool, patience_ms: float
) -> dict[str, Group | KafkaError]:
    if not connection.serves(ConsumerGroupDescribeRequest.schema.key):
        return {}
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=include_operations)
    answer = await connection.post(request, ConsumerGroupDescribeResponse, patience_ms)
    found: dict[str, Group | KafkaError] = {}
    for each in answer.groups:
        members = tuple(
            GroupMember(
                id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                topics=tuple(member.subscribed_topic_names),
                assignment=places(member.assignment),
                target=places(member.target_assignment),
                topic_pattern=member.subscribed_topic_regex or None,
                rack=member.rack_id,
                epoch=member.member_epoch,
                is_classic=member.member_type == CLASSIC_MEMBER,
            )
            for member in each.members
        )
        found[each.group_id] = described(each, CONSUMER, "consumer", members)
    return found


def described(
    each: ConsumerGroupDescribeResponse.DescribedGroup | ShareGroupDescribeResponse.DescribedGroup,
    kind: str,
    protocol_type: str,
    members: tuple[GroupMember, ...],
) -> Group | KafkaError:
    """A group whose coordinator shares out, with its epochs."""
    group = Group(
        name=each.group_id,
        type=kind,
        state=each.group_state,
        protocol_type=protocol_type,
        assignor=each.assignor_name,
        members=members,
        epoch=each.group_epoch,
        assignment_epoch=each.assignment_epoch,
        operations=operations(each.authorized_operations),
    )
    return outcome(group, each.error_code, each.error_message, group=each.group_id)


async def describe_classic(
    connection: Connection, names: list[str], include_operations: bool, patience_ms: float
) -> dict[str, Group | KafkaError]:
    request = DescribeGroupsRequest(groups=names, include_authorized_operations=include_operations)
    answer = await connection.post(request, DescribeGroupsResponse, patience_ms)
    found: dict[str, Group | KafkaError] = {}
    for each in answer.groups:
        group = Group(
            name=each.group_id,
            type=CLASSIC,
            state=each.group_state,
            protocol_type=each.protocol_type,
            assignor=each.protocol_data,
            members=tuple(classic_member(member, each.protocol_type) for member in each.members),
            operations=operations(each.authorized_operations),
        )
        is_dead = each.group_state == DEAD and not each.error_code  # what older brokers say of a group that is not there
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_dead else each.error_code
        found[each.group_id] = outcome(group, code, each.error_message, group=each.group_id)
    return found


async def describe_share(
    connection: Connection, names: list[str], include_operations: bool, patience_ms: float
) -> dict[str, Group | KafkaError]:
    if not connection.serves(ShareGroupDescribeRequest.schema.key):
        return {}
    request = ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=include_operations)
    answer = await connection.post(request, ShareGroupDescribeResponse, patience_ms)
    found: dict[str, Group | KafkaError] = {}
    for each in answer.groups:
        members = tuple(
            GroupMember(
                id=member.member_id,
                instance_id=None,
                client_id=member.client_id,
                host=member.client_host,
                topics=tuple(member.subscribed_topic_names),
                assignment=places(member.assignment),
                rack=member.rack_id,
                epoch=member.member_epoch,
            )
            for member in each.members
        )
        found[each.group_id] = described(each, SHARE, "share", members)
    return found


def classic_member(member: DescribeGroupsResponse.DescribedGroupMember, protocol_type: str) -> GroupMember:
    """What consumers tell each other is understood; what others do is their own."""
    topics: tuple[str, ...] = ()
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == "consumer":
        try:
            if member.member_metadata:
                topics = tuple(decode_consumer_protocol(ConsumerProtocolSubscription, member.member_metadata).topics)
            if member.member_assignment:
                given = decode_consumer_protocol(ConsumerProtocolAssignment, member.member_assignment)
                assignment = tuple(
                    TopicPartition(each.topic, partition)
                    for each in sorted(given.assigned_partitions, key=lambda each: each.topic)
                    for partition in sorted(each.partitions)
                )
        except ProtocolError:
            topics, assignment = (), ()
    return GroupMember(
        id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=topics,
        assignment=assignment,
        is_classic=True,
    )


def places(
    assignment: ConsumerGroupDescribeResponse.Assignment | ShareGroupDescribeResponse.Assignment,
) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(each.topic_name, partition) for each in assignment.topic_partitions for partition in each.partitions
        )
    )

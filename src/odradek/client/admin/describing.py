"""Groups as their coordinators describe them: each type has a request of its own."""

from typing import Any

from msgspec import Struct

from odradek.client.admin.asking import outcome
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode, ProtocolError
from odradek.wire.log_records import decode_consumer_protocol
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from odradek.wire.operations import Operation, operations

CONSUMER, CLASSIC, SHARE, STREAMS = "consumer", "classic", "share", "streams"  # types of groups
DEAD = "Dead"
CLASSIC_MEMBER = 0


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
    type: str  # consumer, classic, share, streams
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None
    operations: frozenset[Operation] | None = None


async def groups_told(connection: Connection, request: Message, response: type[Any], patience_ms: float) -> list[Any]:
    """What a coordinator says of groups of a type; nothing where it does not know such groups."""
    if not connection.serves(request.schema.key):
        return []
    told: list[Any] = (await connection.post(request, response, patience_ms)).groups
    return told


async def describe_consumer(
    connection: Connection, names: list[str], include_operations: bool, patience_ms: float
) -> dict[str, Group | KafkaError]:
    request = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=include_operations)
    found: dict[str, Group | KafkaError] = {}
    for each in await groups_told(connection, request, ConsumerGroupDescribeResponse, patience_ms):
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
    request = ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=include_operations)
    found: dict[str, Group | KafkaError] = {}
    for each in await groups_told(connection, request, ShareGroupDescribeResponse, patience_ms):
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

"""The answer that says no to a whole request: its coordinator is elsewhere or loading, or its write failed."""

from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

SEVERAL_MEMBERS_FROM: Final = 3  # the version of LeaveGroup

COORDINATOR_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client of the coordinator is told about an error of its partition."""
    return COORDINATOR_ERRORS.get(error, error)


def join_answer(version: int, response: JoinGroupResponse) -> JoinGroupResponse:
    """No protocol is an empty name before version 7, and null since."""
    response.protocol_name = (response.protocol_name or "") if version < 7 else (response.protocol_name or None)
    return response


def join_refusal(version: int, error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    return join_answer(version, JoinGroupResponse(error_code=error, member_id=member_id))


def refusal(message: Message, error: ErrorCode, version: int) -> Message:
    """The answer to `message` that says `error` wherever it can."""
    error = coordinator_error(error)
    match message:
        case JoinGroupRequest():
            return join_refusal(version, error, message.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=error)
        case HeartbeatRequest():
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error)  # members' time starts after loading
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=error)
        case OffsetCommitRequest():
            return OffsetCommitResponse(topics=[refused_commit(topic, error) for topic in message.topics])
        case TxnOffsetCommitRequest():
            return TxnOffsetCommitResponse(topics=[refused_transactional(topic, error) for topic in message.topics])
        case OffsetFetchRequest():
            return refused_fetch(message, error, version)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=error)
        case DescribeGroupsRequest():
            described = DescribeGroupsResponse.DescribedGroup
            return DescribeGroupsResponse(groups=[described(group_id=name, error_code=error) for name in message.groups])
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=error)
        case ConsumerGroupDescribeRequest():
            shown = ConsumerGroupDescribeResponse.DescribedGroup
            return ConsumerGroupDescribeResponse(groups=[shown(group_id=name, error_code=error) for name in message.group_ids])
        case ListGroupsRequest():
            return ListGroupsResponse(error_code=error)
        case DeleteGroupsRequest():
            deleted = DeleteGroupsResponse.DeletableGroupResult
            return DeleteGroupsResponse(results=[deleted(group_id=name, error_code=error) for name in message.groups_names])
    raise AssertionError(f"{type(message).__name__} is not for a group coordinator")


def refused_commit(
    topic: OffsetCommitRequest.OffsetCommitRequestTopic, error: ErrorCode
) -> OffsetCommitResponse.OffsetCommitResponseTopic:
    partition = OffsetCommitResponse.OffsetCommitResponsePartition
    partitions = [partition(partition_index=found.partition_index, error_code=error) for found in topic.partitions]
    return OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def refused_transactional(
    topic: TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, error: ErrorCode
) -> TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic:
    partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
    partitions = [partition(partition_index=found.partition_index, error_code=error) for found in topic.partitions]
    return TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def refused_fetch(message: OffsetFetchRequest, error: ErrorCode, version: int) -> OffsetFetchResponse:
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        error = ErrorCode.NOT_COORDINATOR  # consumers before 3.9 do not retry the other one
    if version >= 8 or message.groups:  # the API asks the coordinator as version 8 does
        refused = OffsetFetchResponse.OffsetFetchResponseGroup
        return OffsetFetchResponse(groups=[refused(group_id=group.group_id, error_code=error) for group in message.groups])
    if version >= 2:
        return OffsetFetchResponse(error_code=error)
    partition = OffsetFetchResponse.OffsetFetchResponsePartition
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    partition(partition_index=index, committed_offset=-1, metadata="", error_code=error)
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ]
    )

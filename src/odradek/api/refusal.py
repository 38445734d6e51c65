"""The answer to a request that the controller refused as a whole: the error, for everything that was asked for."""

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.api.context import Context
from odradek.core.controller.controller import Controller
from odradek.core.controller.decision import Decision
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

WITH_MESSAGE: dict[type[Message], Callable[..., Message]] = {  # answers that have one error, for all that was asked
    AddRaftVoterRequest: AddRaftVoterResponse,
    ControllerRegistrationRequest: ControllerRegistrationResponse,
    DescribeQuorumRequest: DescribeQuorumResponse,
    ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
    RemoveRaftVoterRequest: RemoveRaftVoterResponse,
    UnregisterBrokerRequest: UnregisterBrokerResponse,
    UpdateFeaturesRequest: UpdateFeaturesResponse,
}
WITH_CODE: dict[type[Message], Callable[..., Message]] = {  # the same, without words
    AllocateProducerIdsRequest: AllocateProducerIdsResponse,
    AlterPartitionRequest: AlterPartitionResponse,
    AssignReplicasToDirsRequest: AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest: BrokerHeartbeatResponse,
    BrokerRegistrationRequest: BrokerRegistrationResponse,
}
ELECTION_ERROR_SINCE = 1  # before, partitions alone had one

Answer = TypeVar("Answer", bound=Message)


async def decide(request: Message, ctx: Context, decision: Callable[[Controller], Decision[Answer]]) -> Answer:
    """What the controller answers when its decision is committed, or why there is none. A broker hands the request on to where
    the controller is."""
    if not ctx.node.controller.is_active and not ctx.connection.is_controller:
        return await hand_on(request, ctx)  # type: ignore[return-value]  # it is the answer to this request
    try:
        return await ctx.node.controller.submit(decision)
    except Refused as refused:
        return refusal(request, refused, ctx.version)  # type: ignore[return-value]


async def hand_on(request: Message, ctx: Context) -> Message:
    """What the controller of another node answers, or why there is no answer."""
    try:
        return await ctx.node.forward(request, APIS[request.schema.key].response, ctx)
    except Refused as refused:
        return refusal(request, refused, ctx.version)


def refusal(request: Message, refused: Refused, version: int) -> Message:
    code, message = refused.code, refused.message
    match request:
        case CreateTopicsRequest():
            created = CreateTopicsResponse.CreatableTopicResult
            return CreateTopicsResponse(
                topics=[created(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
            )
        case DeleteTopicsRequest():
            deleted = DeleteTopicsResponse.DeletableTopicResult
            by_name = [deleted(name=name, error_code=code, error_message=message) for name in request.topic_names]
            by_id = [
                deleted(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
                for topic in request.topics
            ]
            return DeleteTopicsResponse(responses=by_name + by_id)
        case CreatePartitionsRequest():
            grown = CreatePartitionsResponse.CreatePartitionsTopicResult
            return CreatePartitionsResponse(
                results=[grown(name=topic.name, error_code=code, error_message=message) for topic in request.topics]
            )
        case ElectLeadersRequest():
            return elections(request, refused, version)
        case AlterConfigsRequest() | IncrementalAlterConfigsRequest():
            return alterations(request, refused)
        case AlterPartitionReassignmentsRequest():
            return reassignments(request, refused)
        case _ if (kind := WITH_MESSAGE.get(type(request))) is not None:
            return kind(error_code=code, error_message=message)
        case _ if (kind := WITH_CODE.get(type(request))) is not None:
            return kind(error_code=code)
        case _:
            raise refused


def elections(request: ElectLeadersRequest, refused: Refused, version: int) -> ElectLeadersResponse:
    result, partition = ElectLeadersResponse.ReplicaElectionResult, ElectLeadersResponse.PartitionResult
    results = [
        result(
            topic=topic.topic,
            partition_result=[
                partition(partition_id=index, error_code=refused.code, error_message=refused.message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    code = refused.code if version >= ELECTION_ERROR_SINCE else ErrorCode.NONE
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def alterations(request: AlterConfigsRequest | IncrementalAlterConfigsRequest, refused: Refused) -> Message:
    response: Any = AlterConfigsResponse if isinstance(request, AlterConfigsRequest) else IncrementalAlterConfigsResponse
    answers = [
        response.AlterConfigsResourceResponse(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=refused.code,
            error_message=refused.message,
        )
        for resource in request.resources
    ]
    return response(responses=answers)  # type: ignore[no-any-return]  # the two are alike but for their names


def reassignments(request: AlterPartitionReassignmentsRequest, refused: Refused) -> AlterPartitionReassignmentsResponse:
    topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
    partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
    code, message = refused.code, refused.message
    responses = [
        topic(
            name=wanted.name,
            partitions=[
                partition(partition_index=each.partition_index, error_code=code, error_message=message)
                for each in wanted.partitions
            ],
        )
        for wanted in request.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)

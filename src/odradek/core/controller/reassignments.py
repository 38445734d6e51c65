"""AlterPartitionReassignments (0-1), ListPartitionReassignments (0): partitions on their way to other brokers.

v1 of the first says whether the number of replicas may change.

A partition that moves has all its replicas, old and new; `adding` and `removing` say which come and go. It has moved when the new
ones are in the ISR, which its leader says with AlterPartition.

Invariants
 1. While it goes on, `replicas` are the wanted ones in their order, then those that leave.
 2. One that is cancelled leaves what there was before, in whatever order it has now.
"""

from collections.abc import Sequence

from odradek.core.controller.decision import RECORDS_MAX, Decision, Versioned
from odradek.core.controller.partition_change import Election
from odradek.core.controller.partitions import check_assignment
from odradek.core.controller.replication import ReplicationRules, may_elect_unclean, partition_change
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.locations import PartitionKey
from odradek.core.metadata.topics import Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

TOO_MANY = f"{RECORDS_MAX} partitions have been reassigned; ask again for the rest"

Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def alter_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, rules: ReplicationRules
) -> Decision[AlterPartitionReassignmentsResponse]:
    Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse  # noqa: N806
    Result = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse  # noqa: N806
    may_resize = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(error_message=None, allow_replication_factor_change=may_resize)
    records: list[Versioned] = []
    for wanted in request.topics:
        topic = Topic(name=wanted.name)
        response.responses.append(topic)
        for target in wanted.partitions:
            result = Result(partition_index=target.partition_index, error_message=None)
            topic.partitions.append(result)
            try:
                if len(records) >= RECORDS_MAX:
                    raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY)
                record = altered(image, wanted.name, target, rules, may_resize=may_resize)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message or None
            else:
                records += [] if record is None else [record]
    return Decision(records, response)


def altered(
    image: MetadataImage,
    name: str,
    target: AlterPartitionReassignmentsRequest.ReassignablePartition,
    rules: ReplicationRules,
    *,
    may_resize: bool,
) -> Versioned | None:
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    number = target.partition_index
    partition = topic.partitions.get(number)
    if partition is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
    if target.replicas is None:
        return cancelled(image, name, (topic.id, number), partition, rules)
    check_assignment(image, target.replicas, None)
    if not may_resize:
        check_factor(partition, target.replicas)
    return begun(image, (topic.id, number), partition, target.replicas, rules)


def check_factor(partition: Partition, wanted: Sequence[int]) -> None:
    factor = len(partition.replicas)
    if partition.is_reassigning:
        factor = len({*partition.replicas, *partition.adding} - set(partition.removing))
    if factor != len(wanted):
        reason = f"The replication factor is changed from {factor} to {len(wanted)}"
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


def begun(
    image: MetadataImage, key: PartitionKey, partition: Partition, wanted: Sequence[int], rules: ReplicationRules
) -> Versioned | None:
    """The record that begins a reassignment, or ends it where nothing has to be copied."""
    removing = sorted(set(partition.replicas) - set(wanted))
    adding = sorted(set(wanted) - set(partition.replicas))
    change = partition_change(image, key, rules, Election.ONLINE)
    change.replicas = [*wanted, *removing]
    change.removing = removing or partition.removing
    change.adding = adding or partition.adding
    return change.record()


def cancelled(
    image: MetadataImage, name: str, key: PartitionKey, partition: Partition, rules: ReplicationRules
) -> Versioned | None:
    if not partition.is_reassigning:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")  # the code says it all
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not replicas:
        reason = "Invalid replica assignment: addingReplicas contains all replicas."
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if not isr and not may_elect_unclean(image, name, rules):
        reason = f"Unable to revert partition assignment for {name}:{key[1]} because it would require an unclean leader election."
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    change = partition_change(image, key, rules)
    change.isr = isr or replicas[:1]
    change.replicas, change.removing, change.adding = replicas, (), ()
    return change.record()


def list_reassignments(image: MetadataImage, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Of the topics that are asked for, or of all."""
    if request.topics is None:
        ongoing_numbers: dict[bytes, list[int]] = {}
        for topic_id, number in image.locations.reassigning:
            ongoing_numbers.setdefault(topic_id, []).append(number)
        asked = [(image.topics_by_id[topic_id].name, sorted(numbers)) for topic_id, numbers in ongoing_numbers.items()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics if topic.name in image.topics]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for name, numbers in asked:
        found = image.topics[name].partitions
        ongoing = [reassignment(number, found[number]) for number in numbers if number in found and found[number].is_reassigning]
        if ongoing:
            topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=name, partitions=ongoing)
            response.topics.append(topic)
    return response


def reassignment(number: int, partition: Partition) -> Ongoing:
    return Ongoing(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )

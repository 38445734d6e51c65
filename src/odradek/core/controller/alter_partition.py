"""AlterPartition (2-3): a leader has a new ISR.

v3 names the epochs of the brokers in it (KIP-903), so that one that stopped and came back is not let in for what it had before.

Invariants
 1. Only the leader changes an ISR, in its leader epoch, and it is in it itself.
 2. A change names the partition epoch that it follows on; of two with the same one, the first counts.
 3. Whoever is in an ISR is registered, in the epoch that the leader knows, and neither fenced nor shutting down.
"""

from odradek.core.controller.brokers import check_epoch
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.replication import ReplicationRules, partition_change
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import NO_LEADER_CHANGE, RECOVERED, RECOVERING, Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import AlterPartitionRequest, AlterPartitionResponse, PartitionChangeRecord

WITH_EPOCHS_SINCE = 3
ANY_EPOCH = -1

Wanted = AlterPartitionRequest.PartitionData
BrokerState = AlterPartitionRequest.BrokerState
Answer = AlterPartitionResponse.PartitionData


def alter_partition(
    image: MetadataImage, request: AlterPartitionRequest, rules: ReplicationRules, *, version: int
) -> Decision[AlterPartitionResponse]:
    check_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Versioned] = []
    response = AlterPartitionResponse()
    for wanted in request.topics:
        answers = [
            altered(image, request.broker_id, wanted.topic_id, each, rules, version, records) for each in wanted.partitions
        ]
        response.topics.append(AlterPartitionResponse.TopicData(topic_id=wanted.topic_id, partitions=answers))
    return Decision(records, response, is_atomic=False)


def altered(
    image: MetadataImage,
    broker_id: int,
    topic_id: bytes,
    wanted: Wanted,
    rules: ReplicationRules,
    version: int,
    records: list[Versioned],
) -> Answer:
    """The answer for one partition; its record is added to the others."""
    answer = Answer(partition_index=wanted.partition_index)
    topic = image.topics_by_id.get(topic_id)
    partition = None if topic is None else topic.partitions.get(wanted.partition_index)
    if partition is None:
        answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer
    isr = wanted.new_isr_with_epochs
    if version < WITH_EPOCHS_SINCE:
        isr = [BrokerState(broker_id=broker, broker_epoch=ANY_EPOCH) for broker in wanted.new_isr]
    answer.error_code = fault(image, broker_id, partition, wanted, isr)
    if answer.error_code:
        return answer
    change = partition_change(image, (topic_id, wanted.partition_index), rules)
    change.isr = [state.broker_id for state in isr]
    change.recovery_state = wanted.leader_recovery_state
    made = change.record()
    if made is not None:
        records.append(made)
        record = made[0]
        assert isinstance(record, PartitionChangeRecord)
        if record.leader not in (NO_LEADER_CHANGE, broker_id):  # the end of a reassignment gave it to another
            answer.error_code = ErrorCode.NEW_LEADER_ELECTED
            return answer
        partition = partition.changed(record)
    answer.leader_id, answer.leader_epoch = partition.leader, partition.leader_epoch
    answer.isr, answer.partition_epoch = list(partition.isr), partition.partition_epoch
    answer.leader_recovery_state = partition.recovery_state
    return answer


def fault(image: MetadataImage, broker_id: int, partition: Partition, wanted: Wanted, isr: list[BrokerState]) -> ErrorCode:
    """Why a leader may not change its partition so."""
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # it knows of a newer controller's decision
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    brokers = [state.broker_id for state in isr]
    if len(set(brokers)) != len(brokers) or not set(brokers) <= set(partition.replicas) or broker_id not in brokers:
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RECOVERING and (len(brokers) > 1 or partition.recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    if not all(is_eligible(image, state) for state in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def is_eligible(image: MetadataImage, state: BrokerState) -> bool:
    broker = image.brokers.get(state.broker_id)
    return broker is not None and broker.is_active and state.broker_epoch in (ANY_EPOCH, broker.epoch)

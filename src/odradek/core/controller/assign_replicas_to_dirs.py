"""AssignReplicasToDirs (0): a broker says which of its folders replicas are in.

Invariants
 1. A broker speaks of its own replicas alone.
 2. A replica that turns out to be in a folder that failed leads nothing and is in no ISR.
 3. One that was lost and is there again, as Kafka's never are, leads where nobody does, and where it may.
"""

from odradek.core.controller.brokers import check_epoch
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.partition_change import Election
from odradek.core.controller.replication import ReplicationRules, changes, partition_change
from odradek.core.metadata.features import METADATA_VERSION, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.locations import PartitionKey
from odradek.core.metadata.topics import LOST_DIRECTORY
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


def assign_replicas_to_dirs(
    image: MetadataImage, request: AssignReplicasToDirsRequest, rules: ReplicationRules
) -> Decision[AssignReplicasToDirsResponse]:
    Directory, Topic = AssignReplicasToDirsResponse.DirectoryData, AssignReplicasToDirsResponse.TopicData  # noqa: N806
    if not RecordVersions(image.features[METADATA_VERSION]).has_directories:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Versioned] = []
    in_failed: dict[PartitionKey, None] = {}
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        answer = Directory(id=directory.id)
        response.directories.append(answer)
        for wanted in directory.topics:
            topic = Topic(topic_id=wanted.topic_id)
            answer.topics.append(topic)
            for number in [partition.partition_index for partition in wanted.partitions]:
                code = fault(image, wanted.topic_id, number, broker.id)
                topic.partitions.append(AssignReplicasToDirsResponse.PartitionData(partition_index=number, error_code=code))
                if code:
                    continue
                records += assigned(image, (wanted.topic_id, number), broker.id, directory.id, rules)
                if not broker.has_online(directory.id):
                    in_failed[wanted.topic_id, number] = None
    return Decision([*records, *changes(image, in_failed, rules, leaving=broker.id)], response, is_atomic=False)


def fault(image: MetadataImage, topic_id: bytes, number: int, broker_id: int) -> ErrorCode:
    topic = image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if number not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_replica = broker_id in topic.partitions[number].replicas
    return ErrorCode.NONE if is_replica else ErrorCode.NOT_LEADER_OR_FOLLOWER


def assigned(
    image: MetadataImage, key: PartitionKey, broker_id: int, directory: bytes, rules: ReplicationRules
) -> list[Versioned]:
    change = partition_change(image, key, rules, Election.ONLINE)
    if change.directories[broker_id] == LOST_DIRECTORY and image.brokers[broker_id].has_online(directory):
        change.returned = broker_id
    change.directories[broker_id] = directory
    record = change.record()
    return [] if record is None else [record]

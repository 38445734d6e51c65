"""An image as records again: what a snapshot of the metadata log holds.

The order is Kafka's: features first, because they say how to read the rest, then the cluster, topics, configurations, quotas,
producer ids, ACLs, SCRAM credentials and delegation tokens.

Invariants
 1. An image that replays its own snapshot is the same image.
 2. Every record is in the version of the image's metadata.version; what that cannot hold is left out, and Kafka does so too.
"""

from collections.abc import Iterator

from odradek.core.metadata.brokers import Broker, ControllerNode
from odradek.core.metadata.features import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_MIN, RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import Partition
from odradek.wire.message import Message
from odradek.wire.messages import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)


def snapshot_records(image: MetadataImage) -> Iterator[tuple[Message, int]]:
    """Every record and the version that it is written in."""
    versions = RecordVersions(image.features.get(METADATA_VERSION, METADATA_VERSION_MIN))
    has_elr = versions.has_elr and image.features.get(ELR_VERSION, 0) > 0
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=versions.metadata_version), 0
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield FeatureLevelRecord(name=name, feature_level=level), 0
    for broker in image.brokers.values():
        yield broker_record(broker, versions), versions.register_broker
    if versions.has_controllers:
        for controller in image.controllers.values():
            yield controller_record(controller), 0
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id), 0
        for number, partition in topic.partitions.items():
            yield partition_record(partition, topic.id, number, versions, has_elr=has_elr), versions.partition
    for (resource_type, resource_name), entries in image.configs.items():
        for key, value in entries.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value), 0
    yield from other_records(image, versions)


def other_records(image: MetadataImage, versions: RecordVersions) -> Iterator[tuple[Message, int]]:
    for entity, quotas in image.client_quotas.items():
        parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, quota in quotas.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=quota), 0
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
    for acl in image.acls.values():
        yield acl, 0
    if versions.has_scram:
        for credential in image.scram_credentials.values():
            yield credential, 0
    if versions.has_delegation_tokens:
        for token in image.delegation_tokens.values():
            yield token, 0


def partition_record(
    partition: Partition, topic_id: bytes, number: int, versions: RecordVersions, *, has_elr: bool
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if versions.has_directories else [],
        eligible_leader_replicas=list(partition.elr) or None if has_elr else None,
        last_known_elr=list(partition.last_known_elr) or None if has_elr else None,
    )


def broker_record(broker: Broker, versions: RecordVersions) -> RegisterBrokerRecord:
    cordoned = broker.cordoned_log_dirs if versions.has_cordoned_log_dirs else None
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and versions.has_zk_migration,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=name, host=point.host, port=point.port, security_protocol=point.security_protocol
            )
            for name, point in broker.listeners.items()
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs) if versions.has_directories else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def controller_record(controller: ControllerNode) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=name, host=point.host, port=point.port, security_protocol=point.security_protocol
            )
            for name, point in controller.listeners.items()
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in controller.features.items()
        ],
    )

"""What the metadata log says: topics, brokers, configurations, features and everything else that its records tell.

A controller has one that is ahead of the commit, a broker one of what is committed. What nobody serves yet is kept all the same,
so that a snapshot writes it again.

Invariants
 1. `replay` is the only thing that changes an image; the same records in the same order make the same image.
 2. Records between BeginTransaction and EndTransaction count when the transaction ends, all together; after AbortTransaction
    none of them does.
 3. `offset` is that of the last record that the image holds in full; it stands still while a transaction is open.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from odradek.core.metadata.brokers import Broker, ControllerNode
from odradek.core.metadata.delta import Delta
from odradek.core.metadata.locations import Locations
from odradek.core.metadata.topics import Partition, Topic
from odradek.wire.ids import id_text
from odradek.wire.message import Message
from odradek.wire.messages import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
)

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]  # kind and name of each part, in the order of the kinds


class MetadataError(Exception):
    """A record that cannot follow on what stands before it: the log is not one that a controller wrote."""


NOTED: Final = (
    "configs",
    "brokers",
    "controllers",
    "features",
    "client_quotas",
    "scram_credentials",
    "acls",
    "delegation_tokens",
)


class MetadataImage:
    def __init__(self) -> None:
        self.offset = -1
        self.epoch = -1
        self.timestamp_ms = 0
        self.features: dict[str, int] = {}
        self.brokers: dict[int, Broker] = {}
        self.controllers: dict[int, ControllerNode] = {}
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self._locations: Locations | None = None  # of the partitions
        self.configs: dict[tuple[int, str], dict[str, str]] = {}  # by type and name of the resource
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.next_producer_id = -1  # no block was given out yet
        self.acls: dict[bytes, AccessControlEntryRecord] = {}
        self.scram_credentials: dict[tuple[int, str], UserScramCredentialRecord] = {}  # by mechanism and user
        self.delegation_tokens: dict[str, DelegationTokenRecord] = {}
        self.transaction: list[Message] | None = None  # the records of one that is open
        self._delta: Delta | None = None

    def replay(self, record: Message) -> None:
        """Takes the next record of the log."""
        kind = record.schema.name
        if kind in ("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord"):
            self._replay_boundary(kind)
        elif self.transaction is not None:
            self.transaction.append(record)
        else:
            REPLAYS[kind](self, record)

    def _replay_boundary(self, kind: str) -> None:
        records = self.transaction
        if kind == "BeginTransactionRecord":
            if records is not None:
                raise MetadataError("a metadata transaction begins while another one is open")
            self.transaction = []
            return
        if records is None:
            raise MetadataError(f"{kind} stands where no metadata transaction is open")
        self.transaction = None
        if kind == "EndTransactionRecord":
            for record in records:
                self.replay(record)

    def advance(self, offset: int, epoch: int, timestamp_ms: int) -> None:
        """Says where in the log the last replayed record stands."""
        if self.transaction is None:
            self.offset, self.epoch, self.timestamp_ms = offset, epoch, timestamp_ms

    def changes(self) -> Delta:
        """What changed since the last call; all there is at the first."""
        delta = self._delta
        self._delta = Delta()
        return self._everything() if delta is None else delta

    def _everything(self) -> Delta:
        return Delta(
            topics_created=dict.fromkeys(self.topics_by_id),
            partitions={(topic.id, number): None for topic in self.topics.values() for number in topic.partitions},
            configs=dict.fromkeys(self.configs),
            brokers=dict.fromkeys(self.brokers),
            controllers=dict.fromkeys(self.controllers),
            features=dict.fromkeys(self.features),
            client_quotas=dict.fromkeys(self.client_quotas),
            scram_credentials=dict.fromkeys(self.scram_credentials),
            acls=dict.fromkeys(self.acls),
            delegation_tokens=dict.fromkeys(self.delegation_tokens),
        )

    @property
    def locations(self) -> Locations:
        """Which partitions a broker leads or has, and which a folder has."""
        if self._locations is None:
            self._locations = Locations(self.topics.values())
        return self._locations

    def _note(self, kind: str, key: object) -> None:
        if self._delta is not None:
            getattr(self._delta, kind)[key] = None

    def copy(self) -> "MetadataImage":
        """An image that goes its own way from here on. Values are shared, what holds them is not."""
        made = MetadataImage()
        made.__dict__.update(self.__dict__)
        for name, value in self.__dict__.items():
            if isinstance(value, dict | list):
                setattr(made, name, value.copy())
        made.topics = {name: Topic(name, topic.id, topic.partitions.copy()) for name, topic in self.topics.items()}
        made.topics_by_id = {topic.id: topic for topic in made.topics.values()}
        made._locations = None
        made.configs = {resource: entries.copy() for resource, entries in self.configs.items()}
        made.client_quotas = {entity: quotas.copy() for entity, quotas in self.client_quotas.items()}
        made._delta = None
        return made

    def become(self, other: "MetadataImage") -> None:
        """Takes another's place, as when a snapshot stands for records that never came. What differs is in the next `changes`."""
        delta = self._delta
        if delta is not None:
            for topic in self.topics.values():
                if topic.id not in other.topics_by_id:
                    delta.delete_topic(topic)
            for topic in other.topics.values():
                known = self.topics_by_id.get(topic.id)
                if known is None:
                    delta.topics_created[topic.id] = None
                for number, partition in topic.partitions.items():
                    if known is None or known.partitions.get(number) != partition:
                        delta.partitions[topic.id, number] = None
            for name in NOTED:
                ours, theirs = getattr(self, name), getattr(other, name)
                for key in {**ours, **theirs}:
                    if ours.get(key) != theirs.get(key):
                        self._note(name, key)
        for name, value in other.__dict__.items():
            if isinstance(value, dict):  # others hold on to these
                own = getattr(self, name)
                own.clear()
                own.update(value)
            elif name != "_delta":
                setattr(self, name, value)
        self._locations = None

    # -- topics

    def _topic(self, topic_id: bytes) -> Topic:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"a record of the topic with id {id_text(topic_id)}, which there is not")
        return topic

    def _set_partition(self, topic: Topic, number: int, partition: Partition) -> None:
        key = (topic.id, number)
        if self._locations is not None:
            self._locations.update(key, topic.partitions.get(number), partition)
        topic.partitions[number] = partition
        self._note("partitions", key)

    def _topic_record(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise MetadataError(f"the topic {record.name!r} is created a second time")
        topic = Topic(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        self._note("topics_created", record.topic_id)

    def _partition_record(self, record: PartitionRecord) -> None:
        self._set_partition(self._topic(record.topic_id), record.partition_id, Partition.of(record))

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise MetadataError(f"a change of partition {topic.name}-{record.partition_id}, which there is not")
        self._set_partition(topic, record.partition_id, partition.changed(record))

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.id]
        if self._locations is not None:
            for number, partition in topic.partitions.items():
                self._locations.update((topic.id, number), partition, None)
        resource = (TOPIC_RESOURCE, topic.name)
        had_configs = self.configs.pop(resource, None)
        if had_configs:
            self._note("configs", resource)
        if self._delta is not None:
            self._delta.delete_topic(topic)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        """Of one topic, or of all when it has no name."""
        if record.topic_name and record.topic_name not in self.topics:
            raise MetadataError(f"ClearElr of the topic {record.topic_name!r}, which there is not")
        topics = [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values())
        for topic in topics:
            for number, partition in list(topic.partitions.items()):
                if (cleared := partition.without_elr()) is not partition:
                    self._set_partition(topic, number, cleared)

    # -- brokers and controllers

    def _set_broker(self, broker_id: int, broker: Broker | None) -> None:
        if broker is None:
            self.brokers.pop(broker_id, None)
        else:
            self.brokers[broker_id] = broker
        self._note("brokers", broker_id)

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            found = "none" if broker is None else str(broker.epoch)
            raise MetadataError(f"a change of broker {broker_id} in epoch {epoch}, where it is registered in {found}")
        return broker

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._set_broker(record.broker_id, Broker.of(record))

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._set_broker(record.broker_id, None)

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        self._set_broker(record.broker_id, self._broker(record.broker_id, record.broker_epoch).changed(record))

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._set_broker(record.id, self._broker(record.id, record.epoch).with_fenced(True))

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._set_broker(record.id, self._broker(record.id, record.epoch).with_fenced(False))

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = ControllerNode.of(record)
        self._note("controllers", record.controller_id)

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self.controllers.pop(record.controller_id, None)
        self._note("controllers", record.controller_id)

    # -- settings

    def _config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        entries = self.configs.setdefault(resource, {})
        if record.value is None:
            entries.pop(record.name, None)
        else:
            entries[record.name] = record.value
        if not entries:
            del self.configs[resource]
        self._note("configs", resource)

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)
        self._note("features", record.name)

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self.client_quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.client_quotas[entity]
        self._note("client_quotas", entity)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    # -- security

    def _acl(self, record: AccessControlEntryRecord) -> None:
        self.acls[record.id] = record
        self._note("acls", record.id)

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if self.acls.pop(record.id, None) is None:
            raise MetadataError(f"the ACL with id {id_text(record.id)} is removed, which there is not")
        self._note("acls", record.id)

    def _scram(self, record: UserScramCredentialRecord) -> None:
        self.scram_credentials[record.mechanism, record.name] = record
        self._note("scram_credentials", (record.mechanism, record.name))

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        if self.scram_credentials.pop((record.mechanism, record.name), None) is None:
            raise MetadataError(f"SCRAM credentials of {record.name!r} are removed, which there are not")
        self._note("scram_credentials", (record.mechanism, record.name))

    def _token(self, record: DelegationTokenRecord) -> None:
        self.delegation_tokens[record.token_id] = record
        self._note("delegation_tokens", record.token_id)

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self.delegation_tokens.pop(record.token_id, None)
        self._note("delegation_tokens", record.token_id)

    def _nothing(self, record: Message) -> None:
        """NoOp, and the end of ZooKeeper, which says nothing to a cluster that never had one."""


REPLAYS: Final[dict[str, Callable[[MetadataImage, Any], None]]] = {
    "RegisterBrokerRecord": MetadataImage._register_broker,
    "UnregisterBrokerRecord": MetadataImage._unregister_broker,
    "TopicRecord": MetadataImage._topic_record,
    "PartitionRecord": MetadataImage._partition_record,
    "ConfigRecord": MetadataImage._config,
    "PartitionChangeRecord": MetadataImage._partition_change,
    "FenceBrokerRecord": MetadataImage._fence,
    "UnfenceBrokerRecord": MetadataImage._unfence,
    "RemoveTopicRecord": MetadataImage._remove_topic,
    "DelegationTokenRecord": MetadataImage._token,
    "UserScramCredentialRecord": MetadataImage._scram,
    "FeatureLevelRecord": MetadataImage._feature_level,
    "ClientQuotaRecord": MetadataImage._client_quota,
    "ProducerIdsRecord": MetadataImage._producer_ids,
    "BrokerRegistrationChangeRecord": MetadataImage._broker_change,
    "AccessControlEntryRecord": MetadataImage._acl,
    "RemoveAccessControlEntryRecord": MetadataImage._remove_acl,
    "NoOpRecord": MetadataImage._nothing,
    "ZkMigrationStateRecord": MetadataImage._nothing,
    "RemoveUserScramCredentialRecord": MetadataImage._remove_scram,
    "RemoveDelegationTokenRecord": MetadataImage._remove_token,
    "RegisterControllerRecord": MetadataImage._register_controller,
    "ClearElrRecord": MetadataImage._clear_elr,
    "UnregisterControllerRecord": MetadataImage._unregister_controller,
}

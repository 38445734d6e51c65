"""Snapshots of an image: what they hold, in Kafka's order and versions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.core.metadata.features import RecordVersions
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.snapshot import snapshot_records
from odradek.wire.log_records import encode_metadata_record
from odradek.wire.message import Message
from odradek.wire.messages import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
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
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from tests.kafka.oracle import Oracle

BROKERS = st.integers(1, 3)
TOPICS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b"])


def uuid(number: int) -> bytes:
    return (1000 + number).to_bytes(16, "big")


class History:
    """Records that follow on one another, and the image that they make."""

    def __init__(self, level: int) -> None:
        self.image = MetadataImage()
        self.versions = RecordVersions(level)
        self.records: list[tuple[Message, int]] = []
        self.add(FeatureLevelRecord(name="metadata.version", feature_level=level))
        if self.versions.has_elr:
            self.add(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))

    def add(self, record: Message, version: int = 0) -> None:
        self.image.replay(record)
        self.records.append((record, version))


def add_topic(history: History, draw: st.DrawFn) -> None:
    versions, number = history.versions, draw(TOPICS)
    if f"t{number}" in history.image.topics:
        history.add(RemoveTopicRecord(topic_id=history.image.topics[f"t{number}"].id))
        return
    topic_id = uuid(10 * len(history.records) + number)
    history.add(TopicRecord(name=f"t{number}", topic_id=topic_id))
    for partition in range(draw(st.integers(0, 2))):
        replicas = draw(st.lists(BROKERS, unique=True, min_size=1))
        record = PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas[:1],
            leader=replicas[0],
            leader_recovery_state=draw(st.integers(0, 1)),
            leader_epoch=draw(st.integers(0, 9)),
            partition_epoch=draw(st.integers(0, 9)),
            directories=[uuid(replica) for replica in replicas] if versions.has_directories else [],
            eligible_leader_replicas=replicas[1:] or None if versions.has_elr else None,
        )
        history.add(record, versions.partition)


def change_partition(history: History, draw: st.DrawFn) -> None:
    for topic in history.image.topics.values():
        for number, partition in topic.partitions.items():
            record = PartitionChangeRecord(
                partition_id=number,
                topic_id=topic.id,
                isr=draw(st.none() | st.just(list(partition.replicas))),
                leader=draw(st.sampled_from([-2, -1, partition.replicas[0]])),
                adding_replicas=draw(st.none() | st.just([partition.replicas[-1]])),
                removing_replicas=draw(st.none() | st.just([])),
                leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
            )
            if history.versions.has_elr:
                record.last_known_elr = draw(st.none() | st.just([partition.replicas[0]]))
            history.add(record, history.versions.partition)
            return


def clear_elr(history: History, draw: st.DrawFn) -> None:
    if history.versions.has_elr:
        history.add(ClearElrRecord(topic_name=draw(st.sampled_from(["", *history.image.topics]))))


def add_broker(history: History, draw: st.DrawFn) -> None:
    versions, number = history.versions, draw(BROKERS)
    record = RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=uuid(len(history.records)),
        broker_epoch=len(history.records),
        end_points=[RegisterBrokerRecord.BrokerEndpoint(name=name, host="h", port=9092, security_protocol=1) for name in "PQ"],
        features=[RegisterBrokerRecord.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
        rack=draw(st.none() | NAMES),
        fenced=draw(st.booleans()),
        log_dirs=[uuid(number)] if versions.has_directories else [],
        cordoned_log_dirs=draw(st.none() | st.just([uuid(number)])) if versions.has_cordoned_log_dirs else None,
    )
    history.add(record, versions.register_broker)


def change_broker(history: History, draw: st.DrawFn) -> None:
    for broker in history.image.brokers.values():
        if draw(st.integers(0, 4)) == 0:
            history.add(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
            return
        record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        record.fenced = draw(st.sampled_from([-1, 0, 1]))
        record.in_controlled_shutdown = draw(st.integers(0, 1))
        history.add(record, 1)
        return


def add_controller(history: History, draw: st.DrawFn) -> None:
    if history.versions.has_controllers:
        points = [RegisterControllerRecord.ControllerEndpoint(name="C", host="h", port=9093)]
        history.add(RegisterControllerRecord(controller_id=draw(BROKERS), incarnation_id=uuid(1), end_points=points))


def set_feature(history: History, draw: st.DrawFn) -> None:
    history.add(FeatureLevelRecord(name="group.version", feature_level=draw(st.integers(0, 1))))


def set_config(history: History, draw: st.DrawFn) -> None:
    name = draw(st.sampled_from(["", *history.image.topics]))
    value = draw(st.none() | NAMES)
    history.add(ConfigRecord(resource_type=2 if name else 4, resource_name=name, name=draw(NAMES), value=value))


def set_quota(history: History, draw: st.DrawFn) -> None:
    parts = [
        ClientQuotaRecord.EntityData(entity_type=kind, entity_name=draw(st.none() | NAMES)) for kind in ("user", "client-id")
    ]
    entity = parts[: draw(st.integers(1, 2))]
    history.add(ClientQuotaRecord(entity=entity, key=draw(NAMES), value=draw(st.floats(0, 9)), remove=draw(st.booleans())))


def take_producer_ids(history: History, draw: st.DrawFn) -> None:
    history.add(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=history.image.next_producer_id + 1001))


def set_acl(history: History, draw: st.DrawFn) -> None:
    number = uuid(draw(BROKERS))
    if number in history.image.acls:
        history.add(RemoveAccessControlEntryRecord(id=number))
        return
    record = AccessControlEntryRecord(id=number, resource_type=2, resource_name=draw(NAMES), pattern_type=3)
    record.principal, record.host, record.operation, record.permission_type = "User:a", "*", 3, 3
    history.add(record)


def set_scram(history: History, draw: st.DrawFn) -> None:
    name = draw(NAMES)
    if not history.versions.has_scram:
        return
    if (1, name) in history.image.scram_credentials:
        history.add(RemoveUserScramCredentialRecord(name=name, mechanism=1))
        return
    record = UserScramCredentialRecord(name=name, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
    history.add(record)


def set_token(history: History, draw: st.DrawFn) -> None:
    name = draw(NAMES)
    if not history.versions.has_delegation_tokens:
        return
    if name in history.image.delegation_tokens:
        history.add(RemoveDelegationTokenRecord(token_id=name))
        return
    history.add(DelegationTokenRecord(owner="User:a", requester="User:b", renewers=["User:c"], token_id=name))


ADDITIONS = (
    add_topic, change_partition, clear_elr, add_broker, change_broker, add_controller, set_feature, set_config, set_quota,
    take_producer_ids, set_acl, set_scram, set_token,
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> History:
    history = History(draw(st.sampled_from([7, 8, 11, 14, 15, 17, 23, 29, 30])))
    for add in draw(st.lists(st.sampled_from(ADDITIONS), max_size=25)):
        add(history, draw)
    return history


@given(histories())
def test_an_image_that_replays_its_snapshot_is_the_same(history: History) -> None:
    again = MetadataImage()
    for record, version in snapshot_records(history.image):
        again.replay(type(record).decode(record.to_bytes(version), version))
    assert again.__dict__ == history.image.__dict__


@settings(max_examples=200)
@given(histories())
def test_for_kafka_a_snapshot_says_what_its_log_said_in_the_same_order_and_versions(oracle: Oracle, history: History) -> None:
    def encoded(records: list[tuple[Message, int]]) -> list[str]:
        return [encode_metadata_record(record, version).hex() for record, version in records]

    snapshot = list(snapshot_records(history.image))
    answer = oracle.call("Images.compare", one=encoded(history.records), other=encoded(snapshot))
    assert answer["equal"], answer["images"]
    kinds = [[record.schema.key, version] for record, version in snapshot]
    assert sorted(kinds) == sorted(answer["kinds"])  # topics and their partitions come in any order
    assert list(dict.fromkeys(map(tuple, filter(is_no_partition, kinds)))) == list(
        dict.fromkeys(map(tuple, filter(is_no_partition, answer["kinds"])))
    )


def is_no_partition(kind: list[int]) -> bool:
    return kind[0] != PartitionRecord.schema.key


def test_without_the_feature_a_snapshot_has_no_eligible_leader_replicas() -> None:
    history = History(30)
    history.add(TopicRecord(name="t", topic_id=uuid(1)))
    partition = PartitionRecord(partition_id=0, topic_id=uuid(1), replicas=[1, 2], isr=[1], leader=1)
    partition.eligible_leader_replicas = [2]
    history.add(partition, 2)
    history.add(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
    written = [record for record, _ in snapshot_records(history.image) if isinstance(record, PartitionRecord)]
    assert [record.eligible_leader_replicas for record in written] == [None]

"""What records make of a metadata image."""

import pytest

from odradek.core.metadata.image import MetadataError, MetadataImage
from odradek.core.metadata.topics import MIGRATING_DIRECTORY
from odradek.wire.message import Message
from odradek.wire.messages import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ID = bytes(range(16))
OTHER_ID = bytes(range(16, 32))
FOLDER = b"f" * 16


def image_of(*records: Message) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(record)
    return image


def topic(name: str = "t", topic_id: bytes = ID, partitions: int = 1) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *[
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[FOLDER, FOLDER],
            )
            for number in range(partitions)
        ],
    ]


def test_a_new_leader_raises_both_epochs_and_a_new_isr_one() -> None:
    image = image_of(*topic())
    image.replay(PartitionChangeRecord(topic_id=ID, partition_id=0, isr=[1]))
    partition = image.topics["t"].partitions[0]
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ((1,), 0, 1)
    image.replay(PartitionChangeRecord(topic_id=ID, partition_id=0, leader=2))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch, partition.partition_epoch) == (2, (1,), 1, 2)


def test_replicas_of_a_partition_without_directories_are_migrating() -> None:
    image = image_of(TopicRecord(name="t", topic_id=ID), PartitionRecord(partition_id=0, topic_id=ID, replicas=[1, 2]))
    assert image.topics["t"].partitions[0].directories == (MIGRATING_DIRECTORY, MIGRATING_DIRECTORY)


def test_a_removed_topic_takes_its_configs_with_it() -> None:
    image = image_of(*topic(), ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    assert image.configs == {(2, "t"): {"retention.ms": "1"}}
    image.replay(RemoveTopicRecord(topic_id=ID))
    assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})


def test_a_config_without_a_value_is_gone() -> None:
    image = image_of(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"))
    image.replay(ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=None))
    assert image.configs == {}


def test_a_feature_at_level_0_is_none() -> None:
    image = image_of(FeatureLevelRecord(name="group.version", feature_level=1))
    assert image.features == {"group.version": 1}
    image.replay(FeatureLevelRecord(name="group.version", feature_level=0))
    assert image.features == {}


def test_clear_elr_changes_only_partitions_that_have_some() -> None:
    image = image_of(*topic(partitions=2))
    image.replay(PartitionChangeRecord(topic_id=ID, partition_id=0, eligible_leader_replicas=[2], last_known_elr=[1]))
    image.replay(ClearElrRecord(topic_name=""))
    first, second = image.topics["t"].partitions.values()
    assert (first.elr, first.last_known_elr, first.partition_epoch) == ((), (), 2)
    assert second.partition_epoch == 0


def test_a_broker_is_changed_in_its_own_epoch_only() -> None:
    image = image_of(RegisterBrokerRecord(broker_id=1, broker_epoch=5, incarnation_id=ID))
    image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1))
    assert not image.brokers[1].fenced
    image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=1))
    assert not image.brokers[1].is_active
    with pytest.raises(MetadataError, match="epoch 4"):
        image.replay(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=4, fenced=1))


def test_a_quota_belongs_to_its_entity_whatever_the_order_of_its_parts() -> None:
    parts = [
        ClientQuotaRecord.EntityData(entity_type="user", entity_name=None),
        ClientQuotaRecord.EntityData(entity_type="client-id", entity_name="a"),
    ]
    image = image_of(ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=1.5))
    assert image.client_quotas == {(("client-id", "a"), ("user", None)): {"producer_byte_rate": 1.5}}
    image.replay(ClientQuotaRecord(entity=parts[::-1], key="producer_byte_rate", remove=True))
    assert image.client_quotas == {}


def test_a_transaction_counts_when_it_ends_and_an_aborted_one_never() -> None:
    image = image_of(BeginTransactionRecord(), *topic())
    image.advance(3, 1, 0)
    assert (image.topics, image.offset) == ({}, -1)
    image.replay(EndTransactionRecord())
    image.advance(4, 1, 0)
    assert (list(image.topics), image.offset) == (["t"], 4)
    for record in [BeginTransactionRecord(), RemoveTopicRecord(topic_id=ID), AbortTransactionRecord()]:
        image.replay(record)
    assert list(image.topics) == ["t"]


@pytest.mark.parametrize("record", [EndTransactionRecord(), AbortTransactionRecord()])
def test_a_transaction_that_did_not_begin_cannot_end(record: Message) -> None:
    with pytest.raises(MetadataError, match="no metadata transaction is open"):
        image_of(record)


def test_a_transaction_does_not_begin_in_another() -> None:
    with pytest.raises(MetadataError, match="another one is open"):
        image_of(BeginTransactionRecord(), BeginTransactionRecord())


def test_the_first_look_shows_everything_and_the_next_what_changed_since() -> None:
    image = image_of(*topic(partitions=2), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"))
    first = image.changes()
    assert (list(first.topics_created), list(first.partitions)) == ([ID], [(ID, 0), (ID, 1)])
    assert list(first.configs) == [(2, "t")]
    assert not image.changes()
    image.replay(PartitionChangeRecord(topic_id=ID, partition_id=1, isr=[1]))
    image.replay(FeatureLevelRecord(name="group.version", feature_level=1))
    second = image.changes()
    assert (list(second.topics_created), list(second.partitions), list(second.features)) == ([], [(ID, 1)], ["group.version"])


def test_a_topic_that_came_and_went_between_two_looks_was_never_there() -> None:
    image = image_of()
    image.changes()
    for record in [*topic(), RemoveTopicRecord(topic_id=ID)]:
        image.replay(record)
    assert not image.changes()


def test_a_deleted_topic_can_be_looked_at_once_more() -> None:
    image = image_of(*topic(partitions=3))
    image.changes()
    image.replay(RemoveTopicRecord(topic_id=ID))
    for record in topic(topic_id=OTHER_ID):
        image.replay(record)
    delta = image.changes()
    assert [(found.name, len(found.partitions)) for found in delta.topics_deleted.values()] == [("t", 3)]
    assert list(delta.topics_created) == [OTHER_ID]


def test_a_copy_goes_its_own_way() -> None:
    image = image_of(*topic(), ConfigRecord(resource_type=2, resource_name="t", name="a", value="1"))
    copy = image.copy()
    copy.replay(PartitionChangeRecord(topic_id=ID, partition_id=0, isr=[2]))
    copy.replay(ConfigRecord(resource_type=2, resource_name="t", name="a", value="2"))
    copy.replay(TopicRecord(name="u", topic_id=OTHER_ID))
    assert image.topics["t"].partitions[0].isr == (1, 2)
    assert image.configs == {(2, "t"): {"a": "1"}}
    assert list(image.topics_by_id) == [ID]

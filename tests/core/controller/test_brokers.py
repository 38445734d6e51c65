"""Brokers register, are let in, stop, and are forgotten; partitions follow."""

import pytest

from odradek.core.controller.brokers import (
    fence,
    register_broker,
    register_controller,
    shut_down,
    unfence,
    unregister_broker,
)
from odradek.core.controller.elections import elect_leaders
from odradek.core.controller.producer_ids import BLOCK_SIZE, allocate_producer_ids
from odradek.core.controller.replication import ReplicationRules
from odradek.core.metadata.features import UnsupportedFeature, check_levels, supported_features
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import RECOVERING, Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    BrokerRegistrationRequest,
    ConfigRecord,
    ControllerRegistrationRequest,
    ElectLeadersRequest,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from tests.core.controller.cluster import cluster, folder_of, replayed

TOPIC = b"a topic with 16b"
RULES = ReplicationRules()


def with_topic(image: MetadataImage, *replicas: int, min_isr: int = 1) -> MetadataImage:
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    image.replay(ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=str(min_isr)))
    return with_partition(image, 0, *replicas)


def with_partition(image: MetadataImage, number: int, *replicas: int) -> MetadataImage:
    image.replay(
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[folder_of(replica) for replica in replicas],
        )
    )
    return image


def partition(image: MetadataImage) -> Partition:
    return image.topics["t"].partitions[0]


def request(
    image: MetadataImage, broker: int = 1, *, incarnation: bytes = b"n" * 16, previous_epoch: int = -1, folder: bytes = b""
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id="c",
        incarnation_id=incarnation,
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_features(image.features).items()
        ],
        log_dirs=[folder or folder_of(broker)],
        previous_broker_epoch=previous_epoch,
    )


def register(image: MetadataImage, asked: BrokerRegistrationRequest, next_offset: int = 100) -> int:
    decision = register_broker(image, asked, RULES, cluster_id="c", next_offset=next_offset)
    replayed(image, decision.records)
    return decision.response.broker_epoch


def test_the_epoch_of_a_broker_is_the_offset_of_its_registration_and_it_is_fenced_first() -> None:
    image = cluster([])
    assert register(image, request(image), 17) == 17
    assert image.brokers[1].fenced
    replayed(image, unfence(image, 1, 17, RULES).records)
    assert image.brokers[1].is_active
    assert unfence(image, 1, 17, RULES).records == []


def test_the_same_incarnation_amends_its_registration() -> None:
    image = cluster([])
    register(image, request(image), 17)
    replayed(image, unfence(image, 1, 17, RULES).records)
    assert register(image, request(image, folder=b"another folder16"), 20) == 17
    assert (image.brokers[1].fenced, image.brokers[1].log_dirs) == (False, (b"another folder16",))


def test_after_a_clean_stop_a_broker_leads_again_what_it_led() -> None:
    image = with_topic(cluster([1]), 1)
    replayed(image, shut_down(image, 1, 0, RULES).records)
    replayed(image, fence(image, 1, RULES).records)
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (-1, (), (1,))
    assert fence(image, 1, RULES).records == []
    epoch = register(image, request(image, previous_epoch=0))
    replayed(image, unfence(image, 1, epoch, RULES).records)
    found = partition(image)
    assert (found.leader, found.isr, found.elr, found.recovery_state) == (1, (1,), (), 0)


def test_after_an_unclean_stop_the_last_leader_leads_and_recovers() -> None:
    image = with_topic(cluster([1]), 1)
    epoch = register(image, request(image))
    assert (partition(image).leader, partition(image).isr, partition(image).elr) == (-1, (), ())
    replayed(image, unfence(image, 1, epoch, RULES).records)
    found = partition(image)
    assert (found.leader, found.isr, found.recovery_state) == (1, (1,), RECOVERING)


def test_another_leads_when_the_leader_stops_and_comes_back_to_nothing_at_once() -> None:
    image = with_topic(cluster([1, 2]), 1, 2)
    replayed(image, shut_down(image, 1, 0, RULES).records)
    assert (partition(image).leader, partition(image).isr) == (2, (2,))
    replayed(image, fence(image, 1, RULES).records)
    epoch = register(image, request(image, previous_epoch=0))
    replayed(image, unfence(image, 1, epoch, RULES).records)
    assert (partition(image).leader, partition(image).isr) == (2, (2,))


def test_below_the_minimum_who_leaves_stays_eligible() -> None:
    image = with_topic(cluster([1, 2, 3]), 1, 2, 3, min_isr=2)
    for broker in (1, 2):
        replayed(image, fence(image, broker, RULES).records)
    found = partition(image)
    assert (found.leader, found.isr, found.elr) == (3, (3,), (2,))


def test_who_stays_eligible_is_decided_by_the_replicas_of_its_own_partition() -> None:
    """A reassignment may give each partition of a topic as many as it likes; by those its leader knows how many have to be in
    sync."""
    image = with_partition(with_topic(cluster([1, 2]), 2, min_isr=2), 1, 1, 2)
    replayed(image, fence(image, 1, RULES).records)
    found = image.topics["t"].partitions[1]
    assert (found.leader, found.isr, found.elr) == (2, (2,), (1,))


def test_an_unclean_leader_is_elected_where_the_topic_allows_it() -> None:
    for enabled, leader in (("true", 2), ("false", -1)):
        image = with_topic(cluster([1, 2]), 1, 2)
        image.replay(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
        replayed(image, fence(image, 2, RULES).records)
        register(image, request(image, 2, previous_epoch=0))
        replayed(image, unfence(image, 2, 100, RULES).records)
        assert partition(image).isr == (1,)
        image.replay(ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value=enabled))
        replayed(image, fence(image, 1, RULES).records)
        assert partition(image).leader == leader


def test_the_preferred_leader_is_elected_on_demand() -> None:
    image = with_topic(cluster([1, 2]), 1, 2)
    replayed(image, fence(image, 1, RULES).records)
    asked = ElectLeadersRequest(topic_partitions=None)
    decision = elect_leaders(image, asked, RULES)
    result = decision.response.replica_election_results[0].partition_result[0]
    assert (decision.records, result.error_code) == ([], ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    image = with_topic(cluster([1, 2]), 1, 2)
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=2))
    decision = elect_leaders(image, asked, RULES)
    replayed(image, decision.records)
    assert decision.response.replica_election_results[0].partition_result[0].error_code == 0
    assert partition(image).leader == 1


def test_a_broker_that_is_forgotten_is_in_no_isr_and_no_elr() -> None:
    image = with_topic(cluster([1, 2]), 1, 2)
    replayed(image, unregister_broker(image, 1, RULES).records)
    assert list(image.brokers) == [2]
    assert (partition(image).leader, partition(image).isr) == (2, (2,))
    with pytest.raises(Refused) as refusal:
        unregister_broker(image, 9, RULES)
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "Expected cluster ID c"),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION, "No directories"),
        ({"log_dirs": [bytes(16)]}, ErrorCode.INVALID_REGISTRATION, "Reserved directory"),
        ({"log_dirs": [b"a" * 16, b"a" * 16]}, ErrorCode.INVALID_REGISTRATION, "Duplicate directory"),
        ({"log_dirs": [folder_of(2)]}, ErrorCode.INVALID_REGISTRATION, "Broker 2 is already registered"),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION, "do not contain 'metadata.version'"),
    ],
)
def test_a_registration_is_refused(change: dict[str, object], error: ErrorCode, message: str) -> None:
    image = cluster([2])
    asked = request(image)
    for name, value in change.items():
        setattr(asked, name, value)
    with pytest.raises(Refused, match=message) as refusal:
        register(image, asked)
    assert refusal.value.code is error


def test_a_broker_that_does_not_support_a_finalized_level_is_refused() -> None:
    image = cluster([])
    asked = request(image)
    image.replay(FeatureLevelRecord(name="share.version", feature_level=1))
    with pytest.raises(Refused, match=r"does not support finalized version 1 of share\.version") as refusal:
        register(image, asked)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_two_with_one_id_are_not_let_in_while_the_first_is_alive() -> None:
    image = cluster([1])
    with pytest.raises(Refused) as refusal:
        register_broker(image, request(image), RULES, cluster_id="c", next_offset=9, has_session=True)
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_what_names_another_epoch_is_refused() -> None:
    image = cluster([1])
    for decide in (
        lambda: unfence(image, 1, 5, RULES),
        lambda: shut_down(image, 2, 0, RULES),
        lambda: allocate_producer_ids(image, 1, 5),
    ):
        with pytest.raises(Refused) as refusal:
            decide()
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_controller_registers_where_the_metadata_version_knows_it() -> None:
    image = cluster([])
    asked = ControllerRegistrationRequest(controller_id=3, incarnation_id=b"i" * 16)
    replayed(image, register_controller(image, asked).records)
    assert list(image.controllers) == [3]
    with pytest.raises(Refused) as refusal:
        register_controller(cluster([], level=14), asked)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_no_producer_id_is_given_out_twice() -> None:
    image = cluster([1, 2])
    starts = []
    for broker in (1, 2, 1):
        decision = allocate_producer_ids(image, broker, 0)
        replayed(image, decision.records)
        starts.append(decision.response.producer_id_start)
        assert decision.response.producer_id_len == BLOCK_SIZE
    assert starts == [0, 1000, 2000]
    image.replay(ProducerIdsRecord(next_producer_id=2**63 - 10))
    with pytest.raises(Refused, match="Exhausted all"):
        allocate_producer_ids(image, 1, 0)


def test_levels_that_were_found_are_supported_and_newer_ones_stop_the_start() -> None:
    kept = {"metadata.version": 30, "share.version": 1}
    check_levels(kept)
    assert supported_features(kept)["share.version"] == (0, 1)
    assert "share.version" not in supported_features({"metadata.version": 30})
    for name, level in (("metadata.version", 31), ("transaction.version", 3), ("new.version", 1)):
        with pytest.raises(UnsupportedFeature, match=f"{name} at level {level}"):
            check_levels({name: level})

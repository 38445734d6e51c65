"""A leader changes its ISR: what it may, and what follows."""

import pytest

from odradek.core.controller.alter_partition import alter_partition
from odradek.core.controller.replication import ReplicationRules
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import RECOVERED, RECOVERING, Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.core.controller.cluster import cluster, folder_of, registration, replayed

TOPIC = b"a topic with 16b"
LEADER_EPOCH, PARTITION_EPOCH = 3, 7


def image_of(replicas: list[int], isr: list[int], *, recovering: bool = False) -> MetadataImage:
    """Partition 0 of "t", led by the first of its ISR. Brokers 1 to 4 are active in epochs 10 to 40, 5 is fenced, 6 leaves."""
    image = cluster([])
    for broker in range(1, 7):
        image.replay(registration(broker, fenced=broker == 5, epoch=broker * 10))
    image.replay(BrokerRegistrationChangeRecord(broker_id=6, broker_epoch=60, in_controlled_shutdown=1))
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    image.replay(
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=replicas,
            isr=isr,
            leader=isr[0],
            leader_epoch=LEADER_EPOCH,
            partition_epoch=PARTITION_EPOCH,
            leader_recovery_state=RECOVERING if recovering else RECOVERED,
            directories=[folder_of(replica) for replica in replicas],
        )
    )
    return image


def asked(isr: list[int], version: int = 3, **changes: int | bytes) -> AlterPartitionRequest:
    """Of broker 1, which leads partition 0."""

    def number(name: str, default: int) -> int:
        value = changes.get(name, default)
        assert isinstance(value, int)
        return value

    topic = changes.get("topic", TOPIC)
    assert isinstance(topic, bytes)
    partition = AlterPartitionRequest.PartitionData(
        partition_index=number("partition", 0),
        leader_epoch=number("leader_epoch", LEADER_EPOCH),
        partition_epoch=number("partition_epoch", PARTITION_EPOCH),
        leader_recovery_state=number("recovery_state", RECOVERED),
    )
    if version >= 3:
        State = AlterPartitionRequest.BrokerState  # noqa: N806
        partition.new_isr_with_epochs = [State(broker_id=broker, broker_epoch=broker * 10) for broker in isr]
    else:
        partition.new_isr = isr
    broker = number("broker", 1)
    return AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=broker * 10,
        topics=[AlterPartitionRequest.TopicData(topic_id=topic, partitions=[partition])],
    )


def answer(image: MetadataImage, request: AlterPartitionRequest, version: int = 3) -> AlterPartitionResponse.PartitionData:
    """What the leader is told, after the records were replayed."""
    decision = alter_partition(image, request, ReplicationRules(), version=version)
    replayed(image, decision.records)
    response = AlterPartitionResponse.decode(decision.response.to_bytes(version), version)
    return response.topics[0].partitions[0]


def partition(image: MetadataImage) -> Partition:
    return image.topics["t"].partitions[0]


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_changes_its_isr(version: int) -> None:
    image = image_of([1, 2, 3], [1, 2, 3])
    told = answer(image, asked([1, 3], version), version)
    assert (told.error_code, told.leader_id, told.isr) == (0, 1, [1, 3])
    assert (told.leader_epoch, told.partition_epoch) == (LEADER_EPOCH, PARTITION_EPOCH + 1)
    told = answer(image, asked([1, 3, 2], version, partition_epoch=PARTITION_EPOCH + 1), version)
    assert (partition(image).isr, partition(image).partition_epoch) == ((1, 3, 2), PARTITION_EPOCH + 2)


def test_an_isr_that_is_the_same_writes_nothing() -> None:
    image = image_of([1, 2], [1, 2])
    decision = alter_partition(image, asked([1, 2]), ReplicationRules(), version=3)
    told = decision.response.topics[0].partitions[0]
    assert (decision.records, told.isr, told.partition_epoch) == ([], [1, 2], PARTITION_EPOCH)


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ([1, 2], {"topic": b"z" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"topic": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": LEADER_EPOCH + 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": PARTITION_EPOCH + 1}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": LEADER_EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"broker": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"partition_epoch": PARTITION_EPOCH - 1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),  # not a replica
        ([1, 2, 2], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),  # without the leader
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1], {"recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),  # it had recovered
        ([1, 2], {"recovery_state": 9}, ErrorCode.INVALID_REQUEST),
        ([1, 5], {}, ErrorCode.INELIGIBLE_REPLICA),
        ([1, 6], {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
def test_what_a_leader_may_not_change_is_refused(
    isr: list[int], changes: dict[str, int | bytes], error: ErrorCode, version: int
) -> None:
    image = image_of([1, 2, 3, 5, 6], [1, 2])
    before = partition(image)
    assert answer(image, asked(isr, version, **changes), version).error_code == error
    assert partition(image) == before


def test_a_broker_that_came_back_in_another_epoch_is_not_let_in_for_what_it_had() -> None:
    image = image_of([1, 2], [1])
    request = asked([1, 2])
    request.topics[0].partitions[0].new_isr_with_epochs[1].broker_epoch = 19
    assert answer(image, request).error_code == ErrorCode.INELIGIBLE_REPLICA
    request.topics[0].partitions[0].new_isr_with_epochs[1].broker_epoch = -1
    assert answer(image, request).error_code == ErrorCode.NONE


def test_a_leader_of_another_broker_epoch_is_refused_as_a_whole() -> None:
    image = image_of([1, 2], [1, 2])
    request = asked([1])
    request.broker_epoch = 9
    with pytest.raises(Refused) as refusal:
        alter_partition(image, request, ReplicationRules(), version=3)
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_recovers_is_alone_until_it_has() -> None:
    image = image_of([1, 2], [1], recovering=True)
    assert answer(image, asked([1, 2], recovery_state=RECOVERING)).error_code == ErrorCode.INVALID_REQUEST
    told = answer(image, asked([1], recovery_state=RECOVERED))
    assert (told.error_code, told.leader_recovery_state) == (0, RECOVERED)
    assert partition(image).recovery_state == RECOVERED


def test_a_reassignment_ends_when_the_new_replicas_are_in_the_isr() -> None:
    image = image_of([1, 2, 3], [1, 2])
    moving = PartitionChangeRecord(topic_id=TOPIC, partition_id=0, adding_replicas=[3], removing_replicas=[2])
    image.replay(moving)
    told = answer(image, asked([1, 2, 3], partition_epoch=PARTITION_EPOCH + 1))
    assert (told.error_code, told.isr, told.leader_epoch) == (0, [1, 3], LEADER_EPOCH + 1)  # so that 2 is fenced
    assert (partition(image).replicas, partition(image).is_reassigning) == ((1, 3), False)


def test_a_leader_that_is_reassigned_away_learns_that_there_is_a_new_one() -> None:
    image = image_of([3, 2, 1], [1, 2])
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, adding_replicas=[3], removing_replicas=[1]))
    told = answer(image, asked([1, 2, 3], partition_epoch=PARTITION_EPOCH + 1))
    assert told.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (partition(image).leader, partition(image).replicas, partition(image).isr) == (3, (3, 2), (2, 3))

"""Partitions move to other brokers, and leaders to where they belong."""

import pytest

from odradek.core.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from odradek.core.controller.leadership import ELECTIONS_MAX, balance_leaders, elect_unclean_leaders
from odradek.core.controller.reassignments import alter_reassignments, list_reassignments
from odradek.core.controller.replication import ReplicationRules
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import LOST_DIRECTORY, NO_LEADER, RECOVERING, Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AssignReplicasToDirsRequest,
    ConfigRecord,
    ListPartitionReassignmentsRequest,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.core.controller.cluster import cluster, folder_of, replayed

TOPIC = b"a topic with 16b"
RULES = ReplicationRules()


def image_of(replicas: list[int], isr: list[int], leader: int | None = None, partitions: int = 1) -> MetadataImage:
    image = cluster([1, 2, 3, 4], level=30)
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    for number in range(partitions):
        image.replay(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=replicas,
                isr=isr,
                leader=isr[0] if leader is None else leader,
                directories=[folder_of(replica) for replica in replicas],
            )
        )
    return image


def partition(image: MetadataImage) -> Partition:
    return image.topics["t"].partitions[0]


def reassign(image: MetadataImage, replicas: list[int] | None, *, may_resize: bool = True) -> tuple[int, str | None]:
    target = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[target])
    request = AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=may_resize)
    decision = alter_reassignments(image, request, RULES)
    replayed(image, decision.records)
    result = decision.response.responses[0].partitions[0]
    return result.error_code, result.error_message


def test_what_leaves_stands_behind_what_is_wanted_while_it_moves() -> None:
    image = image_of([1, 2, 3], [1, 2, 3])
    assert reassign(image, [4, 1]) == (0, None)
    found = partition(image)
    assert (found.replicas, found.adding, found.removing) == ((4, 1, 2, 3), (4,), (2, 3))
    assert (found.leader, found.isr) == (1, (1, 2, 3))
    listed = list_reassignments(image, ListPartitionReassignmentsRequest(topics=None)).topics[0].partitions[0]
    assert (listed.replicas, listed.adding_replicas, listed.removing_replicas) == ([4, 1, 2, 3], [4], [2, 3])


def test_a_target_that_is_in_sync_already_is_reached_at_once() -> None:
    image = image_of([1, 2, 3], [1, 2, 3])
    assert reassign(image, [3, 2]) == (0, None)
    found = partition(image)
    assert (found.replicas, found.isr, found.is_reassigning, found.leader) == ((3, 2), (2, 3), False, 3)


def test_a_reassignment_that_is_cancelled_leaves_what_there_was() -> None:
    image = image_of([1, 2], [1, 2])
    reassign(image, [3, 4])
    assert reassign(image, None) == (0, None)
    assert (partition(image).replicas, partition(image).is_reassigning) == ((1, 2), False)
    assert reassign(image, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)


def test_a_cancellation_that_would_need_an_unclean_leader_is_refused() -> None:
    image = image_of([1], [1])
    reassign(image, [2])
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[2], leader=2))
    code, message = reassign(image, None)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "unclean leader election" in message


def test_the_number_of_replicas_changes_only_where_that_is_allowed() -> None:
    image = image_of([1, 2], [1, 2])
    assert reassign(image, [1], may_resize=False)[0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(image, [3, 4], may_resize=False) == (0, None)
    assert reassign(image, [1, 4], may_resize=False) == (0, None)


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9]])
def test_what_cannot_hold_a_partition_is_refused(replicas: list[int]) -> None:
    assert reassign(image_of([1], [1]), replicas)[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_leaders_go_back_to_the_preferred_ones_a_thousand_at_a_time() -> None:
    image = image_of([1, 2], [2, 1], partitions=ELECTIONS_MAX + 5)
    decision = balance_leaders(image, RULES)
    assert (len(decision.records), decision.response) == (ELECTIONS_MAX, True)
    replayed(image, decision.records)
    decision = balance_leaders(image, RULES)
    assert (len(decision.records), decision.response) == (5, False)
    replayed(image, decision.records)
    assert {found.leader for found in image.topics["t"].partitions.values()} == {1}
    assert balance_leaders(image, RULES).records == []


def test_a_preferred_leader_that_is_not_in_sync_stays_what_it_is() -> None:
    assert balance_leaders(image_of([1, 2], [2]), RULES).records == []


def test_unclean_leaders_are_elected_where_it_is_allowed_by_now() -> None:
    image = image_of([1, 2], [4], leader=-1)
    assert elect_unclean_leaders(image, RULES).records == []
    image.replay(ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true"))
    replayed(image, elect_unclean_leaders(image, RULES).records)
    assert (partition(image).leader, partition(image).isr, partition(image).recovery_state) == (1, (1,), RECOVERING)


def assign(image: MetadataImage, directory: bytes, *, topic: bytes = TOPIC, number: int = 0, broker: int = 1) -> int:
    Topic, Each = AssignReplicasToDirsRequest.TopicData, AssignReplicasToDirsRequest.PartitionData  # noqa: N806
    topics = [Topic(topic_id=topic, partitions=[Each(partition_index=number)])]
    directories = [AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=topics)]
    decision = assign_replicas_to_dirs(
        image, AssignReplicasToDirsRequest(broker_id=broker, broker_epoch=0, directories=directories), RULES
    )
    replayed(image, decision.records)
    return decision.response.directories[0].topics[0].partitions[0].error_code


def test_a_partition_learns_its_folder_and_one_in_a_failed_folder_has_another_leader() -> None:
    image = image_of([1, 2], [1, 2])
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=[bytes(15) + b"\x01", folder_of(2)]))
    assert assign(image, folder_of(1)) == 0
    assert (partition(image).directories[0], partition(image).leader) == (folder_of(1), 1)
    assert assign(image, b"a folder of none") == 0
    assert (partition(image).leader, partition(image).isr) == (2, (2,))


def test_a_replica_that_was_lost_and_is_there_again_leads_where_nobody_does() -> None:
    """As when a disk that was full has room: its broker was there all the time, and nothing else asks for an election."""
    image = image_of([1, 2], [1], leader=NO_LEADER)
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=[LOST_DIRECTORY, folder_of(2)]))
    assert assign(image, b"a folder of none") == 0
    assert partition(image).leader == NO_LEADER
    image.replay(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, directories=[LOST_DIRECTORY, folder_of(2)]))
    assert assign(image, folder_of(1)) == 0
    assert (partition(image).directories[0], partition(image).leader) == (folder_of(1), 1)


def test_a_broker_speaks_of_its_own_replicas_alone() -> None:
    image = image_of([1, 2], [1, 2])
    assert assign(image, folder_of(3), broker=3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert assign(image, folder_of(1), topic=b"z" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert assign(image, folder_of(1), number=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refused) as refusal:
        assign(cluster([1], level=16), folder_of(1))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION

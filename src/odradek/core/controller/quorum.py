"""DescribeQuorum (0-2): who votes on the metadata, who leads, and how far everybody is.

v1 adds when replicas last fetched, v2 their folders' ids, error messages and the voters' addresses.
"""

import msgspec

from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.core.raft.voters import VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse

UNKNOWN_PARTITION = "This server does not host this topic-partition."
NOT_LEADER = (
    "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
    "For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
)


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far another node is, as its leader knows it."""

    id: int
    directory_id: bytes = NIL_UUID
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class QuorumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where the quorum stands, as its leader knows it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    kraft_version: int
    voters: VoterSet
    now_ms: int
    replicas: tuple[ReplicaStatus, ...] = ()  # voters and observers that have fetched, without the leader
    is_leader: bool = True  # whether this node is


def describe_quorum(request: DescribeQuorumRequest, status: QuorumStatus, version: int) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return DescribeQuorumResponse(
            topics=[
                DescribeQuorumResponse.TopicData(topic_name=name, partitions=list(map(unknown, numbers)))
                for name, numbers in asked
            ],
        )
    if not status.is_leader:
        failed = failure(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADER)
        return DescribeQuorumResponse(topics=[DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[failed])])
    voters, observers = replica_states(status)
    for state in [*voters, *observers]:
        state.replica_directory_id = state.replica_directory_id if version >= 2 else NIL_UUID
    partition = DescribeQuorumResponse.PartitionData(
        partition_index=0,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=voters,
        observers=observers,
    )
    topic = DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=addresses(status.voters) if version >= 2 else [])


def replica_states(
    status: QuorumStatus,
) -> tuple[list[DescribeQuorumResponse.ReplicaState], list[DescribeQuorumResponse.ReplicaState]]:
    """Of the voters, also those that nobody has heard of, and of the observers."""
    voters, observed = [], {(replica.id, replica.directory_id): replica for replica in status.replicas}
    for voter in status.voters.voters:
        if voter.id == status.leader_id:
            now_ms = status.now_ms
            known = ReplicaStatus(
                id=voter.id, log_end_offset=status.log_end_offset, last_fetch_ms=now_ms, last_caught_up_ms=now_ms
            )
        else:
            known = observed.pop((voter.id, voter.directory_id), ReplicaStatus(id=voter.id))
        voters.append(replica_state(known, voter.directory_id))
    return voters, [replica_state(replica, replica.directory_id) for replica in observed.values()]


def replica_state(replica: ReplicaStatus, directory_id: bytes) -> DescribeQuorumResponse.ReplicaState:
    return DescribeQuorumResponse.ReplicaState(
        replica_id=replica.id,
        replica_directory_id=directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )


def unknown(number: int) -> DescribeQuorumResponse.PartitionData:
    return failure(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_PARTITION)


def failure(number: int, code: ErrorCode, message: str) -> DescribeQuorumResponse.PartitionData:
    return DescribeQuorumResponse.PartitionData(partition_index=number, error_code=code, error_message=message)


def addresses(voters: VoterSet) -> list[DescribeQuorumResponse.Node]:
    return [
        DescribeQuorumResponse.Node(
            node_id=voter.id,
            listeners=[DescribeQuorumResponse.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        )
        for voter in voters.voters
    ]

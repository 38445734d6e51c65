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


class QuorumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where the quorum of one voter stands."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    kraft_version: int
    voters: VoterSet
    now_ms: int


def describe_quorum(request: DescribeQuorumRequest, status: QuorumStatus, version: int) -> DescribeQuorumResponse:
    asked = [(topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA, [0])]:
        return DescribeQuorumResponse(
            topics=[
                DescribeQuorumResponse.TopicData(topic_name=name, partitions=list(map(unknown, numbers)))
                for name, numbers in asked
            ],
        )
    voters = [
        DescribeQuorumResponse.ReplicaState(
            replica_id=voter.id,
            replica_directory_id=voter.directory_id if version >= 2 else NIL_UUID,
            log_end_offset=status.log_end_offset,
            last_fetch_timestamp=status.now_ms,
            last_caught_up_timestamp=status.now_ms,
        )
        for voter in status.voters.voters
    ]
    partition = DescribeQuorumResponse.PartitionData(
        partition_index=0,
        leader_id=status.leader_id,
        leader_epoch=status.leader_epoch,
        high_watermark=status.high_watermark,
        current_voters=voters,
    )
    topic = DescribeQuorumResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return DescribeQuorumResponse(topics=[topic], nodes=addresses(status.voters) if version >= 2 else [])


def unknown(number: int) -> DescribeQuorumResponse.PartitionData:
    return DescribeQuorumResponse.PartitionData(
        partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error_message=UNKNOWN_PARTITION
    )


def addresses(voters: VoterSet) -> list[DescribeQuorumResponse.Node]:
    return [
        DescribeQuorumResponse.Node(
            node_id=voter.id,
            listeners=[DescribeQuorumResponse.Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints],
        )
        for voter in voters.voters
    ]

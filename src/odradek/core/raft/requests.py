"""The quorum's requests and answers as values: what the machine says, in Kafka's messages.

Each of them speaks of one partition, the metadata log's. The versions that carry addresses: Vote, BeginQuorumEpoch,
EndQuorumEpoch and FetchSnapshot 1, Fetch 17.

Invariants
 1. An answer names the leader and its epoch as this node knows them, and where the leader is when the version can say so.
"""

from typing import Final, TypeAlias

import msgspec

from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.core.raft.batches import SnapshotId
from odradek.core.raft.election import NOBODY
from odradek.core.raft.voters import Endpoints, ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
FETCH_WAIT_MS_MAX: Final = 500
ADDRESSES_SINCE: Final = 1  # the version of Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot
FETCH_ADDRESSES_SINCE: Final = 17

EpochRequest: TypeAlias = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
EpochResponse: TypeAlias = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse


class KnownLeader(msgspec.Struct, frozen=True):
    """Who leads, as far as a node knows or says."""

    leader_id: int
    epoch: int
    endpoints: Endpoints = ()

    def address(self, listener: str) -> tuple[str, int] | None:
        """Where it is by a listener; by its first one if it has none of that name."""
        if self.leader_id == NOBODY or not self.endpoints:
            return None
        _, host, port = next((point for point in self.endpoints if point[0] == listener), self.endpoints[0])
        return host, port


class Asked(msgspec.Struct, frozen=True):
    """How a request came: what its answer has to fit."""

    version: int
    listener: str


# -- the metadata partition of a message


def is_of_metadata(message: EpochRequest | EpochResponse) -> bool:
    topics = [(topic.topic_name, [part.partition_index for part in topic.partitions]) for topic in message.topics]
    return topics == [(CLUSTER_METADATA, [0])]


def fetch_is_of_metadata(request: FetchRequest) -> bool:
    if len(request.topics) != 1 or [part.partition for part in request.topics[0].partitions] != [0]:
        return False
    return request.topics[0].topic == CLUSTER_METADATA or request.topics[0].topic_id == METADATA_TOPIC_ID


def fetched_is_of_metadata(response: FetchResponse) -> bool:
    if len(response.responses) != 1 or [part.partition_index for part in response.responses[0].partitions] != [0]:
        return False
    return response.responses[0].topic == CLUSTER_METADATA or response.responses[0].topic_id == METADATA_TOPIC_ID


# -- requests


def vote_request(
    cluster_id: str, epoch: int, candidate: ReplicaKey, voter: ReplicaKey, last: tuple[int, int], *, pre_vote: bool
) -> VoteRequest:
    """`last` is the epoch of the log's last record, and the log's end."""
    partition = VoteRequest.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate.id,
        replica_directory_id=candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=last[0],
        last_offset=last[1],
        pre_vote=pre_vote,
    )
    topic = VoteRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return VoteRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic])


def begin_quorum_epoch_request(cluster_id: str, leader: KnownLeader, voter: ReplicaKey) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequest.PartitionData(
        partition_index=0, voter_directory_id=voter.directory_id, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    topic = BeginQuorumEpochRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    points = [BeginQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in leader.endpoints]
    return BeginQuorumEpochRequest(cluster_id=cluster_id, voter_id=voter.id, topics=[topic], leader_endpoints=points)


def end_quorum_epoch_request(cluster_id: str, leader: KnownLeader, successors: list[ReplicaKey]) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochRequest.PartitionData(
        partition_index=0,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        preferred_successors=[successor.id for successor in successors],
        preferred_candidates=[
            EndQuorumEpochRequest.ReplicaInfo(candidate_id=successor.id, candidate_directory_id=successor.directory_id)
            for successor in successors
        ],
    )
    topic = EndQuorumEpochRequest.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    points = [EndQuorumEpochRequest.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in leader.endpoints]
    return EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic], leader_endpoints=points)


def fetch_request(
    cluster_id: str, replica: ReplicaKey, epoch: int, last: tuple[int, int], high_watermark: int, bytes_max: int
) -> FetchRequest:
    partition = FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=last[1],
        last_fetched_epoch=last[0],
        log_start_offset=-1,
        partition_max_bytes=bytes_max,
        replica_directory_id=replica.directory_id,
        high_watermark=high_watermark,
    )
    topic = FetchRequest.FetchTopic(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=replica.id),
        max_wait_ms=FETCH_WAIT_MS_MAX,
        max_bytes=bytes_max,
        topics=[topic],
    )


def fetch_snapshot_request(
    cluster_id: str, replica: ReplicaKey, epoch: int, snapshot: SnapshotId, position: int, bytes_max: int
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequest.PartitionSnapshot(
        partition=0,
        current_leader_epoch=epoch,
        snapshot_id=FetchSnapshotRequest.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=replica.directory_id,
    )
    topic = FetchSnapshotRequest.TopicSnapshot(name=CLUSTER_METADATA, partitions=[partition])
    return FetchSnapshotRequest(cluster_id=cluster_id, replica_id=replica.id, max_bytes=bytes_max, topics=[topic])


# -- answers


def vote_response(leader: KnownLeader, asked: Asked, error: ErrorCode, *, granted: bool = False) -> VoteResponse:
    partition = VoteResponse.PartitionData(
        partition_index=0, error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch, vote_granted=granted
    )
    address = leader.address(asked.listener) if asked.version >= ADDRESSES_SINCE else None
    points = [VoteResponse.NodeEndpoint(node_id=leader.leader_id, host=address[0], port=address[1])] if address else []
    topic = VoteResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return VoteResponse(topics=[topic], node_endpoints=points)


def begin_quorum_epoch_response(leader: KnownLeader, asked: Asked, error: ErrorCode) -> BeginQuorumEpochResponse:
    partition = BeginQuorumEpochResponse.PartitionData(
        partition_index=0, error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    address = leader.address(asked.listener) if asked.version >= ADDRESSES_SINCE else None
    points = (
        [BeginQuorumEpochResponse.NodeEndpoint(node_id=leader.leader_id, host=address[0], port=address[1])] if address else []
    )
    topic = BeginQuorumEpochResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return BeginQuorumEpochResponse(topics=[topic], node_endpoints=points)


def end_quorum_epoch_response(leader: KnownLeader, asked: Asked, error: ErrorCode) -> EndQuorumEpochResponse:
    partition = EndQuorumEpochResponse.PartitionData(
        partition_index=0, error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    address = leader.address(asked.listener) if asked.version >= ADDRESSES_SINCE else None
    points = [EndQuorumEpochResponse.NodeEndpoint(node_id=leader.leader_id, host=address[0], port=address[1])] if address else []
    topic = EndQuorumEpochResponse.TopicData(topic_name=CLUSTER_METADATA, partitions=[partition])
    return EndQuorumEpochResponse(topics=[topic], node_endpoints=points)


def fetch_response(
    leader: KnownLeader, asked: Asked, error: ErrorCode, *, high_watermark: int = -1, log_start_offset: int = -1
) -> FetchResponse:
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        current_leader=FetchResponse.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        aborted_transactions=None,
        records=b"",
    )
    address = leader.address(asked.listener) if asked.version >= FETCH_ADDRESSES_SINCE else None
    points = [FetchResponse.NodeEndpoint(node_id=leader.leader_id, host=address[0], port=address[1])] if address else []
    topic = FetchResponse.FetchableTopicResponse(topic=CLUSTER_METADATA, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return FetchResponse(responses=[topic], node_endpoints=points)


def fetch_snapshot_response(
    leader: KnownLeader,
    asked: Asked,
    error: ErrorCode,
    snapshot: SnapshotId | None = None,
    *,
    size: int = 0,
    position: int = 0,
) -> FetchSnapshotResponse:
    partition = FetchSnapshotResponse.PartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=FetchSnapshotResponse.SnapshotId(
            end_offset=snapshot.offset if snapshot else 0, epoch=snapshot.epoch if snapshot else 0
        ),
        current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
        size=size,
        position=position,
        unaligned_records=b"",
    )
    address = leader.address(asked.listener) if asked.version >= ADDRESSES_SINCE else None
    points = [FetchSnapshotResponse.NodeEndpoint(node_id=leader.leader_id, host=address[0], port=address[1])] if address else []
    topic = FetchSnapshotResponse.TopicSnapshot(name=CLUSTER_METADATA, partitions=[partition])
    return FetchSnapshotResponse(topics=[topic], node_endpoints=points)

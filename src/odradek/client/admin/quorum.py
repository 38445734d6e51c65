"""The quorum that keeps the metadata: who leads it, who votes, who only reads; voters that come and go."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, failure, given_id
from odradek.client.admin.ways import Anywhere
from odradek.client.connection import Connection
from odradek.client.errors import refused
from odradek.client.metadata import NO_NODE
from odradek.wire.errors import ErrorCode
from odradek.wire.ids import id_text
from odradek.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

METADATA_TOPIC: Final = "__cluster_metadata"


class Endpoint(Struct, frozen=True):
    """Where a controller listens, by the name of its listener."""

    name: str
    host: str
    port: int


class QuorumReplica(Struct, frozen=True):
    """Times are None where the leader does not know them."""

    id: int
    directory_id: str
    log_end: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


class Quorum(Struct, frozen=True):
    leader: int | None
    leader_epoch: int
    high_watermark: int
    voters: dict[int, QuorumReplica]
    observers: dict[int, QuorumReplica]
    endpoints: dict[int, tuple[Endpoint, ...]]


class Voters(Asking):
    async def describe_quorum(self, *, timeout_ms: float | None = None) -> Quorum:
        kind = DescribeQuorumRequest
        topic = kind.TopicData(topic_name=METADATA_TOPIC, partitions=[kind.PartitionData(partition_index=0)])
        what = "to describe the quorum"

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Quorum]:
            answer = await connection.post(kind(topics=[topic]), DescribeQuorumResponse, self._patience_ms)
            refusal = failure(answer)
            if refusal is not None:
                return dict.fromkeys(asked, refusal)
            part = answer.topics[0].partitions[0]
            if part.error_code:  # a leader that is none any more
                lost = part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                return dict.fromkeys(asked, refused(ErrorCode.NOT_CONTROLLER if lost else part.error_code, part.error_message))
            return dict.fromkeys(asked, described(part, answer.nodes))

        return (await self._each(what, [what], Anywhere(), ask, timeout_ms))[what]

    async def add_voter(
        self,
        voter: int,
        directory_id: str,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Makes a controller that reads the metadata a voter. With a cluster's id, of no other cluster."""
        kind = AddRaftVoterRequest
        request = kind(
            cluster_id=cluster_id,
            timeout_ms=self._patience_ms,
            voter_id=voter,
            voter_directory_id=given_id(directory_id),
            listeners=[kind.Listener(name=each.name, host=each.host, port=each.port) for each in endpoints],
        )
        await self._one(f"to make node {voter} a voter", request, AddRaftVoterResponse, timeout_ms)

    async def remove_voter(
        self, voter: int, directory_id: str, *, cluster_id: str | None = None, timeout_ms: float | None = None
    ) -> None:
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter, voter_directory_id=given_id(directory_id))
        await self._one(f"to have node {voter} vote no more", request, RemoveRaftVoterResponse, timeout_ms)


def described(part: DescribeQuorumResponse.PartitionData, nodes: list[DescribeQuorumResponse.Node]) -> Quorum:
    return Quorum(
        leader=None if part.leader_id == NO_NODE else part.leader_id,
        leader_epoch=part.leader_epoch,
        high_watermark=part.high_watermark,
        voters=replicas(part.current_voters),
        observers=replicas(part.observers),
        endpoints={
            node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
            for node in sorted(nodes, key=lambda node: node.node_id)
        },
    )


def replicas(states: list[DescribeQuorumResponse.ReplicaState]) -> dict[int, QuorumReplica]:
    return {
        each.replica_id: QuorumReplica(
            each.replica_id,
            id_text(each.replica_directory_id),
            each.log_end_offset,
            None if each.last_fetch_timestamp < 0 else each.last_fetch_timestamp,
            None if each.last_caught_up_timestamp < 0 else each.last_caught_up_timestamp,
        )
        for each in sorted(states, key=lambda each: each.replica_id)
    }

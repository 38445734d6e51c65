"""What an administrator asks a cluster, over the network: who is there, who has what, and that it be moved.

Every request goes to any broker that answers, which hands it on where it has to.

Invariants
 1. Nothing is remembered: what there is to do is seen from the cluster each time.
 2. What a leader or controller that is about to change refuses is asked again, for ANSWER_SECONDS_MAX at most.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from odradek.core.controller.emptying import Placed
from odradek.core.metadata.topic_names import CLUSTER_METADATA
from odradek.node.machine import Machine
from odradek.node.peers import Channel, Unreachable
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

TIMEOUT_MS: Final = 30_000
ANSWER_SECONDS_MAX: Final = 60.0
AGAIN_SECONDS: Final = 0.2
PASSING: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)

Answer = TypeVar("Answer", bound=Message)


class Failed(Exception):
    """It cannot be done; says why, and what to do."""


class Member(msgspec.Struct, frozen=True):
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class Cluster(msgspec.Struct, frozen=True):
    brokers: dict[int, Member]
    partitions: list[Placed]

    @property
    def takers(self) -> dict[int, str | None]:
        """The racks of brokers that are there."""
        return {broker: member.rack for broker, member in self.brokers.items() if not member.is_fenced}

    def check(self, node: int) -> None:
        has_replicas = any(node in each.replicas for each in self.partitions)
        if node not in self.brokers and not has_replicas:
            raise Failed(f"node {node} is none of the brokers {', '.join(map(str, sorted(self.brokers)))}")


class Administration:
    def __init__(self, bootstrap: str) -> None:
        self.addresses = [parse_address(text) for text in bootstrap.split(",")]
        self.machine = Machine()
        self.channels: dict[tuple[str, int], Channel] = {}

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()

    async def _ask(self, request: Message, response: type[Answer], at: tuple[str, int] | None = None) -> Answer:
        """Of one broker, or of the first that answers."""
        reasons = []
        for host, port in [at] if at else list(self.addresses):
            channel = self.channels.setdefault((host, port), Channel(self.machine, host, port, "odradek-cluster"))
            try:
                return await channel.ask(request, response, TIMEOUT_MS)
            except Unreachable as error:
                reasons.append(str(error))
        raise Failed(f"--bootstrap-server: no broker answers ({'; '.join(reasons)}): name brokers that are running")

    async def _ask_until(self, request: Message, response: type[Answer], what: str) -> Answer:
        """The answer of whoever decides; Failed with the reason when it refuses."""
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS_MAX
        while True:
            answer = await self._ask(request, response)
            code = ErrorCode(answer.error_code)  # type: ignore[attr-defined]
            if code == ErrorCode.NONE:
                return answer
            if code not in PASSING or asyncio.get_running_loop().time() > deadline:
                raise Failed(f"{what}: {code.name}: {getattr(answer, 'error_message', None) or 'without a reason'}")
            await asyncio.sleep(AGAIN_SECONDS)

    # -- what there is

    async def look(self) -> Cluster:
        described = await self._ask_until(
            DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse, "the brokers are not told"
        )
        brokers = {
            each.broker_id: Member(each.host, each.port, each.rack, each.is_fenced)
            for each in sorted(described.brokers, key=lambda each: each.broker_id)
        }
        there = [(member.host, member.port) for member in brokers.values() if not member.is_fenced]
        self.addresses = list(dict.fromkeys([*self.addresses, *there]))  # should those that were named stop
        found = await self._ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
        partitions = [
            Placed(topic.name, part.partition_index, tuple(part.replica_nodes))
            for topic in found.topics
            if topic.name
            for part in topic.partitions
        ]
        return Cluster(brokers, partitions)

    async def size_of(self, cluster: Cluster, node: int) -> int | None:
        """Of all logs of a node; None when it does not say."""
        member = cluster.brokers.get(node)
        if member is None or member.is_fenced:
            return None
        with suppress(Failed):
            found = await self._ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, (member.host, member.port))
            return sum(part.partition_size for each in found.results for topic in each.topics for part in topic.partitions)
        return None

    # -- moves

    async def moves_from(self, node: int) -> set[tuple[str, int]]:
        """Partitions that are about to leave a node."""
        request = ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS)
        found = await self._ask_until(request, ListPartitionReassignmentsResponse, "moves are not listed")
        return {
            (topic.name, part.partition_index)
            for topic in found.topics
            for part in topic.partitions
            if node in part.removing_replicas
        }

    async def move(self, moves: Iterable[Placed]) -> None:
        await self._reassign({(move.topic, move.index): list(move.replicas) for move in moves})

    async def cancel_moves(self, node: int) -> int:
        """Takes moves away from a node back; gives their number."""
        found = await self.moves_from(node)
        await self._reassign(dict.fromkeys(found))
        return len(found)

    async def _reassign(self, wanted: dict[tuple[str, int], list[int] | None]) -> None:
        if not wanted:
            return
        kind = AlterPartitionReassignmentsRequest
        topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, index), replicas in wanted.items():
            topics.setdefault(topic, []).append(kind.ReassignablePartition(partition_index=index, replicas=replicas))
        request = kind(
            topics=[kind.ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
            timeout_ms=TIMEOUT_MS,
        )
        answer = await self._ask_until(request, AlterPartitionReassignmentsResponse, "partitions do not move")
        gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)  # since they were looked at
        for told in answer.responses:
            for part in told.partitions:
                if part.error_code not in (ErrorCode.NONE, *gone):
                    code = ErrorCode(part.error_code).name
                    raise Failed(f"{told.name}-{part.partition_index} does not move: {code}: {part.error_message}")

    # -- leaving

    async def check_others_vote(self, node: int) -> None:
        if [voter.replica_id for voter in await self._voters()] == [node]:
            raise Failed(
                f"node {node} is the only voter of the metadata quorum: start another controller and make it a voter, "
                "with kafka-metadata-quorum.sh add-controller or controller.quorum.auto.join.enable"
            )

    async def remove_voter(self, node: int) -> list[int] | None:
        """Takes a node out of the voters; gives those that are left, None when it was none of them."""
        voters = {voter.replica_id: voter for voter in await self._voters()}
        if node not in voters:
            return None
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=voters[node].replica_directory_id)
        await self._ask_until(request, RemoveRaftVoterResponse, f"node {node} stays a voter of the metadata quorum")
        return sorted(voters.keys() - {node})

    async def _voters(self) -> list[DescribeQuorumResponse.ReplicaState]:
        kind = DescribeQuorumRequest
        topic = kind.TopicData(topic_name=CLUSTER_METADATA, partitions=[kind.PartitionData(partition_index=0)])
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS_MAX
        while True:
            answer = await self._ask_until(kind(topics=[topic]), DescribeQuorumResponse, "the quorum is not told")
            partition = answer.topics[0].partitions[0]
            if partition.error_code == ErrorCode.NONE:
                return partition.current_voters
            if asyncio.get_running_loop().time() > deadline:
                raise Failed(f"the quorum has no leader: {ErrorCode(partition.error_code).name}: look at its controllers")
            await asyncio.sleep(AGAIN_SECONDS)

    async def unregister(self, node: int) -> None:
        await self._ask_until(UnregisterBrokerRequest(broker_id=node), UnregisterBrokerResponse, f"node {node} stays registered")


def parse_address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal():
        raise Failed(f"--bootstrap-server: {text!r} is no address; write HOST:PORT, several with commas")
    return host.removeprefix("[").removesuffix("]"), int(port)

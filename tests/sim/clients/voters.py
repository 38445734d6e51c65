"""Voters of the metadata quorum that leave and come back, as somebody would do who replaces machines.

Invariants
 1. One voter is away at a time, and comes back before another leaves; never one that is not known by its directory id.
"""

from contextlib import suppress
from typing import Final

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Program
from tests.sim.clients.view import View

CLUSTER_METADATA: Final = "__cluster_metadata"
VOTERS_MIN: Final = 3  # below which nobody is taken away
ANSWER_SECONDS_MAX: Final = 10.0
FLOORS: Final = {"DescribeQuorum": 2}  # addresses


class Voter(msgspec.Struct, frozen=True):
    id: int
    directory_id: bytes
    listeners: tuple[tuple[str, str, int], ...]


class Voters:
    def __init__(self, program: Program) -> None:
        program.era = program.era.with_floor(**FLOORS)
        self.program = program
        self.view = View(program)
        self.away: Voter | None = None
        self.changes = 0

    def close(self) -> None:
        self.view.close()

    async def change(self) -> None:
        """Takes one away, or brings back the one that is. Whatever becomes of it is seen the next time."""
        with suppress(Lost):
            voters = await self._voters()
            if self._is_away(voters):
                await self._add()
            elif len(voters) >= VOTERS_MIN:
                self.away = self.program.chance.choice(voters)
                await self._remove(self.away)

    async def bring_back(self) -> bool:
        """Whether nobody is away any more."""
        with suppress(Lost):
            if self.away is not None and self._is_away(await self._voters()):
                await self._add()
        return self.away is None

    def _is_away(self, voters: list[Voter]) -> bool:
        if self.away is not None and self.away.id in [voter.id for voter in voters]:
            self.away = None
        return self.away is not None

    async def _voters(self) -> list[Voter]:
        kind = DescribeQuorumRequest
        topic = kind.TopicData(topic_name=CLUSTER_METADATA, partitions=[kind.PartitionData(partition_index=0)])
        if not self.view.brokers:
            await self.view.refresh()
        node = self.program.chance.choice(sorted(self.view.brokers))
        answer = await self.view.ask(node, "quorum", kind(topics=[topic]), DescribeQuorumResponse)
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            raise Lost("the quorum is not told")
        listeners = {each.node_id: tuple((at.name, at.host, at.port) for at in each.listeners) for each in answer.nodes}
        return [
            Voter(each.replica_id, each.replica_directory_id, listeners.get(each.replica_id, ()))
            for each in answer.topics[0].partitions[0].current_voters
        ]

    async def _remove(self, voter: Voter) -> None:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter.id, voter_directory_id=voter.directory_id)
        node = self.program.chance.choice(sorted(self.view.brokers))
        answer = await self.view.ask(node, "quorum", request, RemoveRaftVoterResponse, ANSWER_SECONDS_MAX)
        self.changes += answer.error_code == ErrorCode.NONE

    async def _add(self) -> None:
        assert self.away is not None
        kind, voter = AddRaftVoterRequest, self.away
        request = kind(
            cluster_id=None,
            timeout_ms=5000,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[kind.Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        )
        node = self.program.chance.choice(sorted(self.view.brokers))
        answer = await self.view.ask(node, "quorum", request, AddRaftVoterResponse, ANSWER_SECONDS_MAX)
        self.changes += answer.error_code == ErrorCode.NONE
        if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self.away = None

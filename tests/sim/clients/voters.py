"""Voters of the metadata quorum that leave and come back, as somebody would do who replaces machines.

Somebody hasty asks for two changes at once, takes a change back before it is done, and now and then mistakes one folder for
another. What he is told then is looked at.

Invariants
 1. One voter is away at a time, and comes back before another leaves; in haste a second one may go. Never one that is not known
    by its directory id.
 2. Two remain.
"""

import asyncio
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
REGRETS_MAX: Final = 40
REGRET_SECONDS_MAX: Final = 0.05
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
        self.away: list[Voter] = []
        self.changes = 0
        self.wrong: list[str] = []  # what must not be

    def close(self) -> None:
        self.view.close()

    async def change(self) -> None:
        """Takes one away, or brings back the one that is. Whatever becomes of it is seen the next time."""
        with suppress(Lost):
            voters = await self._voters()
            if self._still_away(voters):
                await self._add(self.away[0])
            elif len(voters) >= VOTERS_MIN:
                self.away = [self.program.chance.choice(voters)]
                await self._remove(self.away[0])

    async def change_in_haste(self) -> None:
        """The same, by somebody who does not wait, changes his mind, and mixes things up."""
        with suppress(Lost):
            voters, chance = await self._voters(), self.program.chance
            if self._still_away(voters):
                await self._add(self.away[0])
            elif len(voters) >= VOTERS_MIN and chance.random() < 0.3:
                await self._mistake(chance.choice(voters))
            elif len(voters) > VOTERS_MIN and chance.random() < 0.6:
                self.away = chance.sample(voters, 2)
                await asyncio.gather(*map(self._remove, self.away), return_exceptions=True)
            elif len(voters) >= VOTERS_MIN:
                self.away = [chance.choice(voters)]
                await self._remove(self.away[0])
                await self._regret()

    async def _regret(self) -> None:
        for _ in range(REGRETS_MAX):
            if not self.away:
                return
            with suppress(Lost):
                await self._add(self.away[0])
            await asyncio.sleep(self.program.chance.random() * REGRET_SECONDS_MAX)

    async def _mistake(self, voter: Voter) -> None:
        """Nobody votes with that folder."""
        other = bytes(self.program.chance.randrange(256) for _ in voter.directory_id)
        if await self._remove(msgspec.structs.replace(voter, directory_id=other)):
            self.wrong.append(f"voter {voter.id} is removed by a folder that it does not have")

    async def bring_back(self) -> bool:
        """Whether nobody is away any more."""
        with suppress(Lost):
            if self.away and self._still_away(await self._voters()):
                await self._add(self.away[0])
        return not self.away

    def _still_away(self, voters: list[Voter]) -> bool:
        ids = [voter.id for voter in voters]
        self.away = [voter for voter in self.away if voter.id not in ids]
        return bool(self.away)

    async def _voters(self) -> list[Voter]:
        kind = DescribeQuorumRequest
        topic = kind.TopicData(topic_name=CLUSTER_METADATA, partitions=[kind.PartitionData(partition_index=0)])
        node = await self.view.any_broker()
        answer = await self.view.ask(node, "quorum", kind(topics=[topic]), DescribeQuorumResponse)
        if answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            raise Lost("the quorum is not told")
        listeners = {each.node_id: tuple((at.name, at.host, at.port) for at in each.listeners) for each in answer.nodes}
        return [
            Voter(each.replica_id, each.replica_directory_id, listeners.get(each.replica_id, ()))
            for each in answer.topics[0].partitions[0].current_voters
        ]

    async def _remove(self, voter: Voter) -> bool:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter.id, voter_directory_id=voter.directory_id)
        node = await self.view.any_broker()
        answer = await self.view.ask(node, "quorum", request, RemoveRaftVoterResponse, ANSWER_SECONDS_MAX)
        self.changes += answer.error_code == ErrorCode.NONE
        return answer.error_code == ErrorCode.NONE

    async def _add(self, voter: Voter) -> None:
        kind = AddRaftVoterRequest
        request = kind(
            cluster_id=None,
            timeout_ms=5000,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[kind.Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        )
        node = await self.view.any_broker()
        answer = await self.view.ask(node, "quorum", request, AddRaftVoterResponse, ANSWER_SECONDS_MAX)
        self.changes += answer.error_code == ErrorCode.NONE
        if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self.away.remove(voter)

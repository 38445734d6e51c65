"""What `odradek.Consumer` says and asks about the offsets of its group, told to the history as it goes over the wire.

Whatever makes it commit, a call of the program, an interval, or a partition that it gives up: each attempt is a commit.

Invariants
 1. An attempt that is not answered ends nobody knows how, and so does what an answer does not say for sure.
"""

from collections.abc import Callable
from typing import Any

from odradek.client.connection import Connection
from odradek.client.errors import KafkaError
from odradek.client.offsets import Offsets
from odradek.wire.message import Message
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from tests.checker.history import CommitBegun, CommitEnded, CommittedAsked, CommittedSeen, Position
from tests.sim.clients.commits import REFUSED
from tests.sim.clients.program import Place, Program


class ToldOffsets:
    def __init__(self, program: Program, offsets: Offsets, on_commit: Callable[[dict[Place, int]], None]) -> None:
        """`on_commit` is called when one begins."""
        self.program = program
        self.offsets = offsets
        self.on_commit = on_commit
        self.acknowledged: dict[Place, int] = {}
        self.commits = 0  # that were acknowledged
        self._post = offsets._post
        offsets._post = self._told  # type: ignore[method-assign]

    async def _told(self, connection: Connection, request: Message, response: type[Any], newest: int | None) -> Any:
        if isinstance(request, OffsetCommitRequest):
            return await self._commit(connection, request, response, newest)
        assert isinstance(request, OffsetFetchRequest)
        return await self._look(connection, request, response, newest)

    # -- commits

    async def _commit(
        self, connection: Connection, request: OffsetCommitRequest, response: type[Any], newest: int | None
    ) -> OffsetCommitResponse:
        program, number = self.program, self.program.history.next_id()
        names = self._names()
        offsets = {
            Place(topic.name or names[topic.topic_id], each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        self.on_commit(offsets)
        who, generation = request.member_id, request.generation_id_or_member_epoch
        program.tell(CommitBegun(program.at_ms, program.name, number, request.group_id, positions(offsets), who, generation))
        ended = CommitEnded(0, program.name, number)
        try:
            answer: OffsetCommitResponse = await self._post(connection, request, response, newest)
        except KafkaError as error:
            ended.error = str(error)
            raise
        else:
            self._take(answer, names, offsets, ended)
            return answer
        finally:
            ended.at_ms = program.at_ms
            program.tell(ended)

    def _take(self, answer: OffsetCommitResponse, names: dict[bytes, str], offsets: dict[Place, int], ended: CommitEnded) -> None:
        for topic in answer.topics:
            for told in topic.partitions:
                place = Place(topic.name or names[topic.topic_id], told.partition_index)
                position = Position(place.topic, place.index, offsets[place])
                if not told.error_code:
                    ended.acknowledged.append(position)
                    self.acknowledged[place] = offsets[place]
                elif told.error_code in REFUSED:
                    ended.refused.append(position)
        self.commits += len(ended.acknowledged) == len(offsets)

    # -- what is committed

    async def _look(
        self, connection: Connection, request: OffsetFetchRequest, response: type[Any], newest: int | None
    ) -> OffsetFetchResponse:
        program, number = self.program, self.program.history.next_id()
        names, group = self._names(), self.offsets.group
        program.tell(CommittedAsked(program.at_ms, program.name, number, group))
        answer: OffsetFetchResponse = await self._post(connection, request, response, newest)
        told = answer.groups[0] if answer.groups else answer
        if not told.error_code and not any(each.error_code for topic in told.topics for each in topic.partitions):
            seen = {
                Place(topic.name or names[getattr(topic, "topic_id", b"")], each.partition_index): each.committed_offset
                for topic in told.topics
                for each in topic.partitions
            }
            program.tell(CommittedSeen(program.at_ms, program.name, number, group, positions(seen)))
        return answer

    def _names(self) -> dict[bytes, str]:
        return dict(self.offsets.cluster.metadata.names)


def positions(offsets: dict[Place, int]) -> list[Position]:
    return [Position(place.topic, place.index, offset) for place, offset in sorted(offsets.items())]

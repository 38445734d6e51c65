"""Offsets of a group that are committed with a transaction, or not at all: TxnOffsetCommit, in the form of each era.

Invariants
 1. One commit is one attempt: it ends as acknowledged, refused for sure, or unknown, partition by partition. Nobody sees any of
    it before the transaction is committed.
"""

from typing import Final

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.checker.history import CommitBegun, CommitEnded, Position
from tests.sim.clients.commits import ELSEWHERE, REFUSED, Committed, Identity, by_topic, name_topics
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View

WITH_MEMBERS: Final = 3  # of TxnOffsetCommit: before it a zombie of a group is not fenced
WITH_IDS: Final = 6
ANSWER_SECONDS_MAX: Final = 5.0


class Author(msgspec.Struct, frozen=True):
    """Whose transaction it is, and by which name the history knows it."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction: int


async def commit(program: Program, view: View, author: Author, who: Identity, offsets: dict[Place, Committed]) -> ErrorCode:
    """One attempt; the first error, NETWORK_EXCEPTION when there was no answer."""
    number = program.history.next_id()
    positions = [Position(place.topic, place.index, each.offset) for place, each in sorted(offsets.items())]
    program.tell(
        CommitBegun(program.at_ms, program.name, number, who.group, positions, who.member, who.generation, author.transaction)
    )
    ended = CommitEnded(0, program.name, number)
    first = ErrorCode.NONE
    try:
        answer = await _ask(view, author, who, offsets)
    except Lost as error:
        first, ended.error = ErrorCode.NETWORK_EXCEPTION, str(error)
    else:
        for topic in answer.topics:
            for told in topic.partitions:
                code = ErrorCode(told.error_code)
                first = first or code
                if code == ErrorCode.NONE or code in REFUSED:
                    ends = ended.refused if code else ended.acknowledged
                    place = Place(topic.name, told.partition_index)
                    ends.append(Position(place.topic, place.index, offsets[place].offset))
        ended.error = first.name if first else ""
        if first in ELSEWHERE:
            view.coordinators.pop(who.group, None)
    ended.at_ms = program.at_ms
    program.tell(ended)
    return first


async def _ask(view: View, author: Author, who: Identity, offsets: dict[Place, Committed]) -> TxnOffsetCommitResponse:
    node = await view.coordinator(who.group)
    try:
        connection = await view.connection(node, f"group {who.group}")
        version = view.version(TxnOffsetCommitRequest, connection)
        kind, wanted = TxnOffsetCommitRequest, by_topic(offsets)
        ids = view.topic_ids(wanted, is_told=version >= WITH_IDS)
        request = kind(
            transactional_id=author.transactional_id,
            group_id=who.group,
            producer_id=author.producer_id,
            producer_epoch=author.epoch,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member,
            group_instance_id=who.instance,
            topics=[
                kind.TxnOffsetCommitRequestTopic(
                    name=topic if version < WITH_IDS else "",
                    topic_id=ids[topic],
                    partitions=[
                        kind.TxnOffsetCommitRequestPartition(
                            partition_index=place.index,
                            committed_offset=offsets[place].offset,
                            committed_leader_epoch=offsets[place].epoch,
                            committed_metadata="",
                        )
                        for place in places
                    ],
                )
                for topic, places in wanted.items()
            ],
        )
        answer = await connection.ask(request, version, TxnOffsetCommitResponse, ANSWER_SECONDS_MAX)
    except Lost:
        view.coordinators.pop(who.group, None)
        raise
    name_topics(answer.topics, ids)
    return answer

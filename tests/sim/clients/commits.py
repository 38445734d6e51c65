"""Offsets of groups: committed by members, and looked at by anybody, in the form of each era.

Invariants
 1. One commit is one attempt: it ends as acknowledged, refused for sure, or unknown, partition by partition.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from tests.checker.history import CommitBegun, CommitEnded, CommittedAsked, CommittedSeen, Ids, Position
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Place, Program
from tests.sim.clients.view import View

COMMIT_WITH_IDS: Final = 10
FETCH_OF_STABLE: Final = 7
FETCH_OF_GROUPS: Final = 8
FETCH_WITH_IDS: Final = 10
REFUSED: Final = frozenset(  # before anything was written
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Identity(msgspec.Struct, frozen=True):
    """Who speaks for a group. `generation` is the member epoch in the new protocol."""

    group: str
    member: str = ""
    generation: int = -1
    instance: str | None = None


class Committed(msgspec.Struct, frozen=True):
    offset: int
    epoch: int
    topic_id: bytes = NIL_UUID  # of the topic that it is of, where that is known


def by_topic(places: Iterable[Place]) -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place)
    return found


def told_ids(ids: dict[str, bytes]) -> Ids:
    """As a history tells them."""
    return {name: topic_id.hex() for name, topic_id in ids.items() if topic_id != NIL_UUID}


def name_topics(topics: Iterable[Any], ids: dict[str, bytes]) -> None:
    """Those of an answer that has ids, by the ids that were asked with."""
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic in topics:
        topic.name = topic.name or names[topic.topic_id]


async def commit(program: Program, view: View, who: Identity, offsets: dict[Place, Committed]) -> ErrorCode:
    """One attempt; the first error, NETWORK_EXCEPTION when there was no answer."""
    number = program.history.next_id()
    positions = [Position(place.topic, place.index, each.offset) for place, each in sorted(offsets.items())]
    ids = view.topic_ids(by_topic(offsets), is_told=False)
    begun = CommitBegun(program.at_ms, program.name, number, who.group, positions, who.member, who.generation)
    begun.ids = told_ids(ids) if program.era.has_ids("OffsetCommit") else {}
    program.tell(begun)
    ended = CommitEnded(0, program.name, number)
    first = ErrorCode.NONE
    try:
        answer = await _commit(view, who, offsets, ids)
    except Lost as error:
        first, ended.error = ErrorCode.NETWORK_EXCEPTION, str(error)
    else:
        for topic in answer.topics:
            for told in topic.partitions:
                code = ErrorCode(told.error_code)
                place = Place(topic.name, told.partition_index)
                first = first or code
                if code == ErrorCode.NONE or code in REFUSED:
                    ends = ended.refused if code else ended.acknowledged
                    ends.append(Position(topic.name, told.partition_index, offsets[place].offset))
        ended.error = first.name if first else ""
        if first in ELSEWHERE:
            view.coordinators.pop(who.group, None)
    ended.at_ms = program.at_ms
    program.tell(ended)
    return first


async def _commit(view: View, who: Identity, offsets: dict[Place, Committed], ids: dict[str, bytes]) -> OffsetCommitResponse:
    node = await view.coordinator(who.group)
    try:
        connection = await view.connection(node, f"group {who.group}")
        version = view.version(OffsetCommitRequest, connection)
        kind, wanted = OffsetCommitRequest, by_topic(offsets)
        if version >= COMMIT_WITH_IDS and NIL_UUID in ids.values():
            raise Lost(f"the ids of {sorted(ids)} are not all known")
        topics = [
            kind.OffsetCommitRequestTopic(
                name=topic if version < COMMIT_WITH_IDS else "",
                topic_id=ids[topic],
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=place.index,
                        committed_offset=offsets[place].offset,
                        committed_leader_epoch=offsets[place].epoch,
                    )
                    for place in places
                ],
            )
            for topic, places in wanted.items()
        ]
        request = kind(
            group_id=who.group,
            generation_id_or_member_epoch=who.generation,
            member_id=who.member,
            group_instance_id=who.instance,
            topics=topics,
        )
        answer = await connection.ask(request, version, OffsetCommitResponse, 5.0)
    except Lost:
        view.coordinators.pop(who.group, None)
        raise
    name_topics(answer.topics, ids)
    return answer


async def committed(program: Program, view: View, who: Identity, places: Sequence[Place]) -> dict[Place, Committed]:
    """What is committed for a group, as far as it is told; Lost when it is not."""
    number = program.history.next_id()
    program.tell(CommittedAsked(program.at_ms, program.name, number, who.group))
    node = await view.coordinator(who.group)
    try:
        connection = await view.connection(node, f"group {who.group}")
        version = view.version(OffsetFetchRequest, connection)
        ids = view.topic_ids(by_topic(places), is_told=version >= FETCH_WITH_IDS)
        request = _question(ids, who, places, version)
        answer = await connection.ask(request, version, OffsetFetchResponse, 5.0)
    except Lost:
        view.coordinators.pop(who.group, None)
        raise
    found: dict[Place, Committed] = {}
    told = answer.groups[0] if version >= FETCH_OF_GROUPS else answer
    codes = [ErrorCode(told.error_code)]
    name_topics(told.topics, ids)
    for topic in told.topics:
        for each in topic.partitions:
            codes.append(ErrorCode(each.error_code))
            if not each.error_code:
                place = Place(topic.name, each.partition_index)
                found[place] = Committed(each.committed_offset, each.committed_leader_epoch, ids[topic.name])
    bad = next((code for code in codes if code), ErrorCode.NONE)
    if bad in ELSEWHERE:
        view.coordinators.pop(who.group, None)
    if bad:
        raise Lost(f"OffsetFetch of {who.group}: {bad.name}")
    seen = [Position(place.topic, place.index, each.offset) for place, each in sorted(found.items())]
    told_by = told_ids(ids) if version >= FETCH_WITH_IDS else {}
    program.tell(CommittedSeen(program.at_ms, program.name, number, who.group, seen, told_by))
    return found


def _question(ids: dict[str, bytes], who: Identity, places: Sequence[Place], version: int) -> OffsetFetchRequest:
    kind = OffsetFetchRequest
    wanted = {topic: [place.index for place in found] for topic, found in by_topic(places).items()}
    if version < FETCH_OF_GROUPS:
        topics = [kind.OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in wanted.items()]
        return kind(group_id=who.group, topics=topics, require_stable=version >= FETCH_OF_STABLE)
    of_group = kind.OffsetFetchRequestGroup(
        group_id=who.group,
        member_id=who.member or None,
        member_epoch=who.generation,
        topics=[
            kind.OffsetFetchRequestTopics(
                name=name if version < FETCH_WITH_IDS else "", topic_id=ids[name], partition_indexes=indexes
            )
            for name, indexes in wanted.items()
        ],
    )
    return kind(groups=[of_group], require_stable=True)

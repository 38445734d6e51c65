"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, for groups of any type.

Topics come with their names, and with their ids where the client used ids: the API resolves the one from the other.

Invariants
 1. A commit is answered when it is committed; a fetch shows committed offsets.
 2. A fetch that requires stable offsets waits for commits that are on their way, and refuses those of open transactions.
"""

from typing import Any

from odradek.core.coordinator.events import Author, Request, Turn
from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.core.groups.classic.rebalance import restart_session
from odradek.core.groups.group import Group
from odradek.core.groups.offsets import CommittedOffset, Place
from odradek.core.groups.records import NO_EXPIRY, offset_record, offset_tombstone
from odradek.core.groups.refusals import refusal
from odradek.core.groups.sequels import Answer
from odradek.core.groups.shard import Shard
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import CoordinatorRecord
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

GROUP_ID_NOT_FOUND_FROM = 9
NO_RETENTION_TIME = -1
NO_OFFSET = -1
NO_EPOCH = -1

FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics


def commit_offsets(shard: Shard, request: Request, message: OffsetCommitRequest, turn: Turn) -> None:
    group = shard.groups.get(message.group_id)
    error = check_commit(group, message, request.version) or check_partitions(shard, group, message)
    if error is not ErrorCode.NONE:
        return turn.reply(request.ticket, refusal(message, error, request.version))
    if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.PREPARING_REBALANCE):
        restart_session(group, group.members[message.member_id], turn)
    kind = OffsetCommitResponse
    records, topics = taken(
        shard,
        message,
        turn.now.wall_ms,
        (kind.OffsetCommitResponseTopic, kind.OffsetCommitResponsePartition),
        message.retention_time_ms,
    )
    if records:
        return turn.write(records, Answer(request, kind(topics=topics)))
    return turn.reply(request.ticket, kind(topics=topics))


def commit_in_transaction(shard: Shard, request: Request, message: TxnOffsetCommitRequest, turn: Turn) -> None:
    """Offsets that nobody sees before the transaction is committed."""
    group = shard.groups.get(message.group_id)
    error = check_transactional_commit(shard, group, message, request.version)
    if error is not ErrorCode.NONE:
        return turn.reply(request.ticket, refusal(message, error, request.version))
    kind = TxnOffsetCommitResponse
    records, topics = taken(
        shard, message, turn.now.wall_ms, (kind.TxnOffsetCommitResponseTopic, kind.TxnOffsetCommitResponsePartition)
    )
    if records:
        author = Author(message.producer_id, message.producer_epoch, request.verification)
        return turn.write(records, Answer(request, kind(topics=topics)), author)
    return turn.reply(request.ticket, kind(topics=topics))


def taken(
    shard: Shard,
    message: OffsetCommitRequest | TxnOffsetCommitRequest,
    wall_ms: int,
    kinds: tuple[type[Any], type[Any]],
    retention_ms: int = NO_RETENTION_TIME,
) -> tuple[list[CoordinatorRecord], list[Any]]:
    """The records of the offsets that can be committed, and the answers about all of them: of topics and partitions of these
    kinds."""
    records, topics = [], []
    answer_of_topic, answer_of_partition = kinds
    for topic in message.topics:
        answers = []
        for partition in topic.partitions:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            if is_acceptable(shard, partition.committed_metadata):
                error = ErrorCode.NONE
                place = Place(message.group_id, topic.name, partition.partition_index)
                records.append(offset_record(place, committed_value(topic.topic_id, partition, wall_ms, retention_ms)))
            answers.append(answer_of_partition(partition_index=partition.partition_index, error_code=error))
        topics.append(answer_of_topic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return records, topics


def check_transactional_commit(shard: Shard, group: Group | None, message: TxnOffsetCommitRequest, version: int) -> ErrorCode:
    member_id, generation_id = message.member_id, message.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    error = group.check_offset_commit(member_id, message.group_instance_id, generation_id, True, version)
    error = error or check_partitions(shard, group, message)
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def check_commit(group: Group | None, message: OffsetCommitRequest, version: int) -> ErrorCode:
    generation_id = message.generation_id_or_member_epoch
    if group is not None:
        return group.check_offset_commit(message.member_id, message.group_instance_id, generation_id, False, version)
    if generation_id < 0:
        return ErrorCode.NONE  # the commit makes a simple group
    return ErrorCode.GROUP_ID_NOT_FOUND if version >= GROUP_ID_NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION


def check_partitions(shard: Shard, group: Group | None, message: OffsetCommitRequest | TxnOffsetCommitRequest) -> ErrorCode:
    """Why one of the partitions may not be committed by this member: then none is."""
    if group is None:
        return ErrorCode.NONE
    member_id, generation_id = message.member_id, message.generation_id_or_member_epoch
    for topic in message.topics:
        for partition in topic.partitions:
            if is_acceptable(shard, partition.committed_metadata):
                error = group.check_partition_commit(member_id, generation_id, topic.topic_id, partition.partition_index)
                if error is not ErrorCode.NONE:
                    return error
    return ErrorCode.NONE


def is_acceptable(shard: Shard, metadata: str | None) -> bool:
    return java_length(metadata) <= shard.config.offset_metadata_max_bytes


def java_length(metadata: str | None) -> int:
    """In UTF-16 units, which is what Kafka compares with offset.metadata.max.bytes."""
    if metadata is None:
        return 0
    return len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le", "surrogatepass")) // 2


def committed_value(
    topic_id: bytes,
    partition: OffsetCommitRequest.OffsetCommitRequestPartition | TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
    wall_ms: int,
    retention_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=wall_ms,
        expire_timestamp=NO_EXPIRY if retention_ms == NO_RETENTION_TIME else wall_ms + retention_ms,
        topic_id=topic_id,
    )


def fetch_offsets(shard: Shard, message: OffsetFetchRequest) -> OffsetFetchResponse:
    """For `groups`, as from version 8 on; a group without topics asks for all of its offsets."""
    groups = []
    for asked in message.groups:
        group = shard.groups.get(asked.group_id)
        error = ErrorCode.NONE if group is None else group.check_offset_fetch(asked.member_id, asked.member_epoch)
        answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error)
        if error is ErrorCode.NONE and asked.topics is None:
            answer.topics = all_offsets(shard, asked.group_id, message.require_stable)
        elif error is ErrorCode.NONE:
            for topic in asked.topics or ():
                partitions = [
                    fetched(shard, Place(asked.group_id, topic.name, index), topic.topic_id, message.require_stable)
                    for index in topic.partition_indexes
                ]
                answer.topics.append(FetchedTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        groups.append(answer)
    return OffsetFetchResponse(groups=groups)


def all_offsets(shard: Shard, group_id: str, require_stable: bool) -> list[FetchedTopic]:
    topics: dict[str, FetchedTopic] = {}
    found = shard.offsets.newest_of(group_id) if require_stable else shard.offsets.committed_of(group_id)
    for place, value in found:
        if is_of_other_topic(shard, place, value, NIL_UUID):
            continue
        topic = topics.setdefault(place.topic, FetchedTopic(name=place.topic))
        topic.partitions.append(fetched(shard, place, NIL_UUID, require_stable))
    return list(topics.values())


def fetched(shard: Shard, place: Place, topic_id: bytes, require_stable: bool) -> FetchedPartition:
    """A stable fetch is answered when the newest offsets are committed, so it may show them."""
    if require_stable and shard.offsets.is_open(place):
        return unknown_offset(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    value = shard.offsets.newest(place) if require_stable else shard.offsets.committed(place)
    if value is None or is_of_other_topic(shard, place, value, topic_id):
        return unknown_offset(place.partition, ErrorCode.NONE)
    return FetchedPartition(
        partition_index=place.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def unknown_offset(partition: int, error: ErrorCode) -> FetchedPartition:
    return FetchedPartition(
        partition_index=partition, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH, metadata="", error_code=error
    )


def is_of_other_topic(shard: Shard, place: Place, value: CommittedOffset, topic_id: bytes) -> bool:
    """It was committed for an earlier topic of the same name. Who asks by the name means the one that has it now, if any: of the
    deletion of the other a coordinator may hear later than its node, whose disk is slow, and never if it was loaded since."""
    if topic_id == NIL_UUID and (named := shard.image.topics.get(place.topic)) is not None:
        topic_id = named.id
    return value.topic_id not in (NIL_UUID, topic_id)


def delete_offsets(shard: Shard, request: Request, message: OffsetDeleteRequest, turn: Turn) -> None:
    group = shard.groups.get(message.group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.check_offset_delete()
    if not message.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if group is None or error is not ErrorCode.NONE:
        return turn.reply(request.ticket, OffsetDeleteResponse(error_code=error))
    records: list[CoordinatorRecord] = []
    response = OffsetDeleteResponse()
    for topic in message.topics:
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
        answers = []
        for partition in topic.partitions:
            place = Place(message.group_id, topic.name, partition.partition_index)
            answer = OffsetDeleteResponse.OffsetDeleteResponsePartition
            answers.append(answer(partition_index=place.partition, error_code=error))
            is_there = shard.offsets.newest(place) is not None or shard.offsets.is_open(place)
            if error is ErrorCode.NONE and is_there:
                records.append(offset_tombstone(place))
        response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    if records:
        return turn.write(records, Answer(request, response))
    return turn.reply(request.ticket, response)

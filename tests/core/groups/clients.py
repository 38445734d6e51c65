"""Members of classic groups, as a client library plays them: the requests, and the usual way into a group."""

from typing import cast

from odradek.core.groups.classic.group import ClassicGroup, State
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import encode_versioned
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.core.groups.host import Host

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH = 9, 5, 4, 5, 10, 10
SESSION_MS, REBALANCE_MS = 10_000, 60_000
GROUP = "g"


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 3)


def assignment(**partitions: list[int]) -> bytes:
    topics = [ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=found) for name, found in partitions.items()]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), 3)


def join_request(
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: dict[str, bytes] | None = None,
    protocol_type: str = "consumer",
    group: str = GROUP,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    given = {"range": subscription("t")} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in given.items()],
    )


class Clients:
    """Requests to one host; what is answered at once is given back, what waits is a ticket."""

    def __init__(self, host: Host, group: str = GROUP) -> None:
        self.host = host
        self.group_id = group

    @property
    def group(self) -> ClassicGroup:
        found = self.host.coordinator.shard.classic(self.group_id)
        assert found is not None
        return found

    def state(self) -> State:
        return self.group.state

    # Requests

    def send_join(self, request: JoinGroupRequest, version: int = JOIN) -> int:
        request.group_id = self.group_id
        return self.host.send(request, version)

    def joined(self, ticket: int) -> JoinGroupResponse:
        return cast("JoinGroupResponse", self.host.answer(ticket))

    def join(self, request: JoinGroupRequest, version: int = JOIN) -> JoinGroupResponse:
        return self.joined(self.send_join(request, version))

    def send_sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, version: int = SYNC, **more: str
    ) -> int:
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in (assignments or {}).items()
        ]
        request = SyncGroupRequest(group_id=self.group_id, generation_id=generation, member_id=member_id, assignments=given)
        for name, value in more.items():
            setattr(request, name, value)
        return self.host.send(request, version)

    def synced(self, ticket: int) -> SyncGroupResponse:
        return cast("SyncGroupResponse", self.host.answer(ticket))

    def beat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(cast("HeartbeatResponse", self.host.call(request, HEARTBEAT)).error_code)

    def leave(self, *members: tuple[str, str | None], version: int = LEAVE) -> LeaveGroupResponse:
        leaving = [LeaveGroupRequest.MemberIdentity(member_id=name, group_instance_id=instance) for name, instance in members]
        request = LeaveGroupRequest(group_id=self.group_id, members=leaving)
        return cast("LeaveGroupResponse", self.host.call(request, version))

    # Offsets

    def send_commit(
        self,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        topic: str = "t",
        topic_id: bytes = bytes(16),
        metadata: str | None = "",
        version: int = COMMIT,
        instance: str | None = None,
        retention_ms: int = -1,
    ) -> int:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        epoch = 5 if version >= 6 else -1
        partitions = [
            partition(partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata)
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=partitions)],
        )
        return self.host.send_as_it_is(request, version)

    def committed(self, ticket: int) -> list[ErrorCode]:
        response = cast("OffsetCommitResponse", self.host.answer(ticket))
        return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]

    def commit(self, offsets: dict[int, int], member_id: str = "", generation: int = -1, **more: object) -> list[ErrorCode]:
        return self.committed(self.send_commit(offsets, member_id, generation, **more))  # type: ignore[arg-type]

    def send_fetch(
        self, partitions: list[int] | None, *, topic: str = "t", topic_id: bytes = bytes(16), is_stable: bool = False
    ) -> int:
        topics = None
        if partitions is not None:
            asked = OffsetFetchRequest.OffsetFetchRequestTopics
            topics = [asked(name=topic, topic_id=topic_id, partition_indexes=partitions)]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=self.group_id, topics=topics)
        return self.host.send_as_it_is(OffsetFetchRequest(groups=[group], require_stable=is_stable), FETCH)

    def fetched(self, ticket: int) -> dict[tuple[str, int], int]:
        """By partition the offset, or minus a hundred minus the error code."""
        found = {}
        for topic in cast("OffsetFetchResponse", self.host.answer(ticket)).groups[0].topics:
            for partition in topic.partitions:
                value = -100 - partition.error_code if partition.error_code else partition.committed_offset
                found[topic.name, partition.partition_index] = value
        return found

    def fetch(self, partitions: list[int] | None, **more: object) -> dict[tuple[str, int], int]:
        return self.fetched(self.send_fetch(partitions, **more))  # type: ignore[arg-type]

    # The usual way

    def enter(self, *requests: JoinGroupRequest) -> list[str]:
        """All join for the first time, and the group becomes stable; their member ids, the leader's first."""
        named = []
        for request in requests:
            if request.group_instance_id is None:
                request.member_id = self.join(request).member_id
            named.append(self.send_join(request))
        self.host.wait_for(*named)
        answers = [self.joined(ticket) for ticket in named]
        return self.finish_sync(answers)

    def finish_sync(self, answers: list[JoinGroupResponse]) -> list[str]:
        members = sorted(answers, key=lambda answer: answer.member_id != answer.leader)
        ids = [answer.member_id for answer in members]
        generation = answers[0].generation_id
        given = {member_id: assignment(t=[index]) for index, member_id in enumerate(ids)}
        followers = [self.send_sync(member_id, generation) for member_id in ids[1:]]
        leader = self.send_sync(ids[0], generation, given)
        assert [self.synced(ticket).assignment for ticket in (leader, *followers)] == list(given.values())
        return ids

"""Members of consumer groups: the requests of one, and a consumer that does what a client library does with the answers."""

from typing import cast

from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.groups.events import TopicsChanged, TopicsDeleted
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.core.groups.clients import GROUP
from tests.core.groups.host import Host

REBALANCE_MS = 60_000
BEAT = 1

Partition = tuple[str, int]
Response = ConsumerGroupHeartbeatResponse


def topic_id(name: str, life: int = 0) -> bytes:
    return f"{name}-{life}".encode().rjust(16, b".")[-16:]


class Topics:
    """The topics of a host's metadata, and how they come and go."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.lives: dict[str, int] = {}

    def make(self, name: str, count: int) -> None:
        life = self.lives[name] = self.lives.get(name, -1) + 1
        self.host.image.replay(TopicRecord(name=name, topic_id=topic_id(name, life)))
        self._add(name, 0, count)
        self._changed(name, has_new=True)

    def grow(self, name: str, count: int) -> None:
        self._add(name, len(self.host.image.topics[name].partitions), count)
        self._changed(name, has_new=False)

    def delete(self, name: str) -> None:
        found = self.host.image.topics[name]
        self.host.image.replay(RemoveTopicRecord(topic_id=found.id))
        self.host.step(TopicsDeleted({name: found.id}))
        self._changed(name, has_new=False)

    def _add(self, name: str, start: int, end: int) -> None:
        for index in range(start, end):
            self.host.image.replay(
                PartitionRecord(
                    partition_id=index,
                    topic_id=self.host.image.topics[name].id,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    directories=[bytes(16)],
                )
            )

    def _changed(self, name: str, has_new: bool) -> None:
        self.host.image.advance(self.host.image.offset + 1, 1, 0)
        self.host.step(TopicsChanged(frozenset({name}), has_new))

    def name_of(self, found: bytes) -> str:
        return self.host.image.topics_by_id[found].name


def beat_request(
    member_id: str,
    epoch: int,
    *,
    owned: dict[bytes, list[int]] | None = None,
    topics: list[str] | None = None,
    regex: str | None = None,
    instance: str | None = None,
    assignor: str | None = None,
    rack: str | None = None,
    rebalance_ms: int = -1,
    group: str = GROUP,
) -> ConsumerGroupHeartbeatRequest:
    part = ConsumerGroupHeartbeatRequest.TopicPartitions
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None if owned is None else [part(topic_id=name, partitions=found) for name, found in owned.items()],
    )


def join_request(member_id: str, *topics: str, **more: str) -> ConsumerGroupHeartbeatRequest:
    named = None if "regex" in more and not topics else list(topics)
    return beat_request(member_id, 0, owned={}, topics=named, rebalance_ms=REBALANCE_MS, **more)


class Consumers:
    """Requests to one host."""

    def __init__(self, host: Host, group: str = GROUP) -> None:
        self.host = host
        self.group_id = group

    @property
    def group(self) -> ConsumerGroup:
        found = self.host.coordinator.shard.consumer(self.group_id)
        assert found is not None
        return found

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = BEAT) -> int:
        request.group_id = self.group_id
        return self.host.send(request, version)

    def call(self, request: ConsumerGroupHeartbeatRequest, version: int = BEAT) -> Response:
        return cast("Response", self.host.answer(self.send(request, version)))

    def error(self, request: ConsumerGroupHeartbeatRequest, version: int = BEAT) -> ErrorCode:
        answer = self.call(request, version)
        assert not answer.error_code or answer.error_message
        return ErrorCode(answer.error_code)

    def describe(self) -> ConsumerGroupDescribeResponse.DescribedGroup:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        return cast("ConsumerGroupDescribeResponse", self.host.call(request, 1)).groups[0]


def partitions_of(answer: Response) -> dict[bytes, list[int]] | None:
    if answer.assignment is None:
        return None
    return {topic.topic_id: list(topic.partitions) for topic in answer.assignment.topic_partitions}


class Consumer:
    """A client: it gives up what it is not assigned any more, takes what is new, and says so with the next heartbeat."""

    def __init__(self, consumers: Consumers, member_id: str, *topics: str, instance: str | None = None) -> None:
        self.consumers = consumers
        self.member_id = member_id
        self.topics = topics
        self.instance = instance
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    def join(self, **more: str) -> Response:
        self.epoch, self.owned = 0, {}
        if self.instance is not None:
            more["instance"] = self.instance
        return self.hear(self.consumers.call(join_request(self.member_id, *self.topics, **more)))

    def beat(self) -> Response:
        if self.epoch <= 0:
            return self.join()
        request = beat_request(self.member_id, self.epoch, owned=self.owned, instance=self.instance)
        return self.hear(self.consumers.call(request))

    def leave(self, epoch: int = -1) -> Response:
        return self.consumers.call(beat_request(self.member_id, epoch, instance=self.instance))

    def hear(self, answer: Response) -> Response:
        if answer.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
        elif not answer.error_code:
            self.epoch = answer.member_epoch
            found = partitions_of(answer)
            if found is not None:
                self.owned = found
        return answer

    @property
    def partitions(self) -> list[Partition]:
        topics = Topics(self.consumers.host)
        return sorted((topics.name_of(topic), index) for topic, found in self.owned.items() for index in found)


def settle(*consumers: Consumer, rounds: int = 12, pause_ms: int = 1_500) -> None:
    """All beat until everybody has what it should have."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
        consumers[0].consumers.host.pass_time(pause_ms)
        if consumers[0].consumers.group.state_name == "Stable" and all(found.epoch > 0 for found in consumers):
            return
    raise AssertionError(f"the group is {consumers[0].consumers.group.state_name}")

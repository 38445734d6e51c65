"""Groups of Kafka Streams: what their program is made of, and who does which of its tasks."""

from msgspec import Struct

from odradek.client.admin.asking import outcome
from odradek.client.admin.describing import STREAMS, Group, GroupMember, groups_told
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError
from odradek.client.records import TopicPartition
from odradek.wire.messages import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from odradek.wire.operations import operations


class Task(Struct, frozen=True, order=True):
    """A partition of all topics that a part of the program reads."""

    subtopology: str
    partition: int


class Tasks(Struct, frozen=True):
    """`standby` keep copies of state, `warmup` are about to have one."""

    active: tuple[Task, ...] = ()
    standby: tuple[Task, ...] = ()
    warmup: tuple[Task, ...] = ()


class InternalTopic(Struct, frozen=True):
    """One that the group makes for itself; `partitions` and `replication_factor` are 0 where the cluster decides."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class Subtopology(Struct, frozen=True):
    """A part of the program. Others send to it by way of its `repartition_topics`; it sends to `repartition_sinks`."""

    id: str
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_topics: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]


class StreamsMember(GroupMember, frozen=True, kw_only=True):
    """`assignment` and `target` are the partitions that its active tasks read. `process_id` is shared by the members of one
    process, which others ask for its state at `endpoint`."""

    tasks: Tasks
    target_tasks: Tasks
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    tags: dict[str, str]
    task_offsets: dict[Task, int]
    task_end_offsets: dict[Task, int]


class StreamsGroup(Group, frozen=True, kw_only=True):
    """`subtopologies` are none until a member has told them."""

    topology_epoch: int | None
    subtopologies: dict[str, Subtopology]


async def describe_streams(
    connection: Connection, names: list[str], include_operations: bool, patience_ms: float
) -> dict[str, Group | KafkaError]:
    request = StreamsGroupDescribeRequest(group_ids=names, include_authorized_operations=include_operations)
    told = await groups_told(connection, request, StreamsGroupDescribeResponse, patience_ms)
    return {each.group_id: described(each) for each in told}


def described(each: StreamsGroupDescribeResponse.DescribedGroup) -> Group | KafkaError:
    parts = each.topology.subtopologies if each.topology else None
    subtopologies = {part.subtopology_id: subtopology(part) for part in parts or ()}
    group = StreamsGroup(
        name=each.group_id,
        type=STREAMS,
        state=each.group_state,
        protocol_type=STREAMS,
        assignor=each.assignor_name or "",
        members=tuple(member_of(member, subtopologies) for member in each.members),
        epoch=each.group_epoch,
        assignment_epoch=each.assignment_epoch,
        operations=operations(each.authorized_operations),
        topology_epoch=each.topology.epoch if each.topology else None,
        subtopologies=subtopologies,
    )
    return outcome(group, each.error_code, each.error_message, group=each.group_id)


def subtopology(part: StreamsGroupDescribeResponse.Subtopology) -> Subtopology:
    return Subtopology(
        part.subtopology_id,
        tuple(part.source_topics),
        tuple(part.repartition_sink_topics),
        tuple(map(internal_topic, part.repartition_source_topics)),
        tuple(map(internal_topic, part.state_changelog_topics)),
    )


def internal_topic(topic: StreamsGroupDescribeResponse.TopicInfo) -> InternalTopic:
    configs = {each.key: each.value for each in topic.topic_configs}
    return InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def member_of(member: StreamsGroupDescribeResponse.Member, subtopologies: dict[str, Subtopology]) -> StreamsMember:
    tasks, target = tasks_of(member.assignment), tasks_of(member.target_assignment)
    return StreamsMember(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=tuple(sorted({topic for part in subtopologies.values() for topic in part.source_topics})),
        assignment=read_by(tasks.active, subtopologies),
        target=read_by(target.active, subtopologies),
        rack=member.rack_id,
        epoch=member.member_epoch,
        is_classic=member.is_classic,
        tasks=tasks,
        target_tasks=target,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        endpoint=(member.user_endpoint.host, member.user_endpoint.port) if member.user_endpoint else None,
        tags={each.key: each.value for each in member.client_tags},
        task_offsets=offsets(member.task_offsets),
        task_end_offsets=offsets(member.task_end_offsets),
    )


def tasks_of(assignment: StreamsGroupDescribeResponse.Assignment) -> Tasks:
    def named(ids: list[StreamsGroupDescribeResponse.TaskIds]) -> tuple[Task, ...]:
        return tuple(sorted(Task(each.subtopology_id, partition) for each in ids for partition in each.partitions))

    return Tasks(named(assignment.active_tasks), named(assignment.standby_tasks), named(assignment.warmup_tasks))


def read_by(tasks: tuple[Task, ...], subtopologies: dict[str, Subtopology]) -> tuple[TopicPartition, ...]:
    """Of tasks whose part of the program is known."""
    places = []
    for task in tasks:
        part = subtopologies.get(task.subtopology)
        if part is not None:
            topics = [*part.source_topics, *(topic.name for topic in part.repartition_topics)]
            places += [TopicPartition(topic, task.partition) for topic in topics]
    return tuple(sorted(places))


def offsets(told: list[StreamsGroupDescribeResponse.TaskOffset]) -> dict[Task, int]:
    return {Task(each.subtopology_id, each.partition): each.offset for each in told}

"""DescribeTopicPartitions (key 75), version 0: topics a page at a time, in the order of their names."""

from odradek.api.context import Context
from odradek.api.metadata import offline, partition
from odradek.api.operations import ON_TOPICS
from odradek.core.metadata.topic_names import INTERNAL_TOPICS
from odradek.core.metadata.topics import Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse

KEY = 75
LISTENER_ERRORS_SINCE = 6  # of Metadata, whose newest manner this API has

TopicAnswer = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionAnswer = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def handle(request: DescribeTopicPartitionsRequest, ctx: Context) -> DescribeTopicPartitionsResponse:
    topics = ctx.node.image.topics
    names = sorted({topic.name for topic in request.topics} or topics)
    cursor = request.cursor
    first_index = 0
    if cursor is not None:
        if cursor.partition_index < 0:
            failed = [TopicAnswer(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) for topic in request.topics]
            return DescribeTopicPartitionsResponse(topics=failed)
        names = [name for name in names if name >= cursor.topic_name]
        first_index = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    left = min(ctx.node.config.integer("max.request.partition.size.limit"), request.response_partition_limit)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        topic = topics.get(name)
        if topic is None:
            response.topics.append(unknown(name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first_index]
        if left <= 0 or len(indexes) > left:
            if left > 0:
                response.topics.append(describe(topic, indexes[:left], ctx))
            rest = indexes[max(left, 0)] if indexes else 0
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=rest)
            break
        response.topics.append(describe(topic, indexes, ctx))
        left -= len(indexes)
        first_index = 0
    return response


def unknown(name: str) -> TopicAnswer:
    return TopicAnswer(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=ON_TOPICS,
    )


def describe(topic: Topic, indexes: list[int], ctx: Context) -> TopicAnswer:
    image, listener = ctx.node.image, ctx.connection.listener
    answers = []
    for index in indexes:
        state = topic.partitions[index]
        basic = partition(index, state, image, listener, LISTENER_ERRORS_SINCE)
        answers.append(
            PartitionAnswer(
                error_code=basic.error_code,
                partition_index=index,
                leader_id=basic.leader_id,
                leader_epoch=state.leader_epoch,
                replica_nodes=basic.replica_nodes,
                isr_nodes=basic.isr_nodes,
                eligible_leader_replicas=list(state.elr),
                last_known_elr=list(state.last_known_elr),
                offline_replicas=offline(state, image),
            )
        )
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=answers,
        topic_authorized_operations=ON_TOPICS,
    )

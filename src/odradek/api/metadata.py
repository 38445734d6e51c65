"""Metadata (key 3), versions 0-13.

v0  no topics means all of them
v1  null means all, an empty list none; racks, the controller, internal topics
v2  cluster id
v4  whether topics may be created by asking for them
v5  offline replicas
v7  leader epochs
v8  which operations the client may do
v9  flexible encoding
v10 topic ids in the answer
v11 the cluster's operations are told by DescribeCluster instead
v12 topics by id
v13 an error of the whole answer
"""

from collections.abc import Iterable

from odradek.api.context import Context, Handled
from odradek.api.operations import ON_CLUSTER, ON_TOPICS
from odradek.core.metadata.brokers import Broker, Endpoint
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topic_names import INTERNAL_TOPICS, name_fault
from odradek.core.metadata.topics import Partition, Topic
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import MetadataRequest, MetadataResponse
from odradek.wire.operations import NOT_ASKED

KEY = 3
TOPIC_IDS_SINCE = 12
CLUSTER_OPERATIONS = range(8, 11)

TopicAnswer = MetadataResponse.MetadataResponseTopic
PartitionAnswer = MetadataResponse.MetadataResponsePartition
BrokerAnswer = MetadataResponse.MetadataResponseBroker


def handle(request: MetadataRequest, ctx: Context) -> Handled:
    image = ctx.node.image
    wanted = request.topics
    if wanted is None or (ctx.version == 0 and not wanted):
        return answer(request, ctx, [describe(topic, ctx) for topic in image.topics.values()])
    if ctx.version < TOPIC_IDS_SINCE and any(topic.name is None or topic.topic_id != NIL_UUID for topic in wanted):
        return MetadataResponse(
            topics=[
                TopicAnswer(error_code=ErrorCode.INVALID_REQUEST, name=topic.name, topic_id=topic.topic_id) for topic in wanted
            ]
        )
    if any(topic.topic_id != NIL_UUID for topic in wanted):
        return answer(request, ctx, [by_id(topic.topic_id, ctx) for topic in wanted if topic.topic_id != NIL_UUID])
    names = list(dict.fromkeys(topic.name for topic in wanted if topic.name is not None))
    unknown = [name for name in names if name not in image.topics]
    if unknown and request.allow_auto_topic_creation and ctx.node.config.flag("auto.create.topics.enable"):
        return create(request, ctx, names, unknown)
    return answer(request, ctx, by_name(names, ctx))


async def create(request: MetadataRequest, ctx: Context, names: list[str], unknown: list[str]) -> MetadataResponse:
    """Creates the topics that are not there, and answers when they are, or cannot be."""
    await ctx.node.create_topics_on_demand(unknown)
    return answer(request, ctx, by_name(names, ctx))


def by_name(names: Iterable[str], ctx: Context) -> list[TopicAnswer]:
    topics = ctx.node.image.topics
    return [describe(topics[name], ctx) if name in topics else failed(name, missing(name)) for name in names]


def missing(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if name_fault(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def by_id(topic_id: bytes, ctx: Context) -> TopicAnswer:
    topic = ctx.node.image.topics_by_id.get(topic_id)
    if topic is None:
        return TopicAnswer(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return describe(topic, ctx)


def failed(name: str, error: ErrorCode) -> TopicAnswer:
    return TopicAnswer(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)


def describe(topic: Topic, ctx: Context) -> TopicAnswer:
    image, listener = ctx.node.image, ctx.connection.listener
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[partition(index, state, image, listener, ctx.version) for index, state in topic.partitions.items()],
    )


def partition(index: int, state: Partition, image: MetadataImage, listener: str, version: int) -> PartitionAnswer:
    leader = image.brokers.get(state.leader)
    error = ErrorCode.NONE
    if leader is None or leader.fenced:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    elif listener not in leader.listeners:
        error = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionAnswer(
        error_code=error,
        partition_index=index,
        leader_id=-1 if error else state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline(state, image),
    )


def offline(state: Partition, image: MetadataImage) -> list[int]:
    """The replicas that nobody can reach: their brokers are gone, or their folders have failed."""
    found = []
    for replica, directory in zip(state.replicas, state.directories, strict=True):
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced or not broker.has_online(directory):
            found.append(replica)
    return found


def reachable(image: MetadataImage, listener: str) -> list[tuple[Broker, Endpoint]]:
    """The brokers that clients of a listener may talk to."""
    return [
        (broker, broker.listeners[listener])
        for broker in image.brokers.values()
        if not broker.fenced and listener in broker.listeners
    ]


def answer(request: MetadataRequest, ctx: Context, topics: list[TopicAnswer]) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = ON_TOPICS
    brokers = reachable(ctx.node.image, ctx.connection.listener)
    asks_cluster = ctx.version in CLUSTER_OPERATIONS and request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            BrokerAnswer(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in brokers
        ],
        cluster_id=ctx.node.cluster_id,
        controller_id=brokers[0][0].id if brokers else -1,
        topics=topics,
        cluster_authorized_operations=ON_CLUSTER if asks_cluster else NOT_ASKED,
    )

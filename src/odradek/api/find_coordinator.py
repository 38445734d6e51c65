"""FindCoordinator (key 10), versions 0-6.

v1  transactions besides groups; a message with an error; throttle time
v3  flexible encoding
v4  several keys
v5  clients know TRANSACTION_ABORTABLE
v6  share groups' state

The coordinator is the leader of the key's partition in the coordinators' topic, which is made when it is first asked for.
"""

from typing import Final, NamedTuple

from odradek.api.context import Context
from odradek.core.coordinator.partitioning import partition_of
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

KEY = 10
SEVERAL_KEYS_SINCE = 4
TOPICS: Final = {0: "__consumer_offsets", 1: "__transaction_state"}  # by type of key
NOT_AVAILABLE: Final = "The coordinator is not available: no broker leads the partition of its topic. Ask again."


class Found(NamedTuple):
    error: ErrorCode
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


async def handle(request: FindCoordinatorRequest, ctx: Context) -> FindCoordinatorResponse:
    topic = TOPICS.get(request.key_type)
    if topic is not None and topic not in ctx.node.image.topics:
        await ctx.node.create_topics_on_demand([topic])
    await ctx.node.followed()  # somebody else may have asked for it just now
    if ctx.version < SEVERAL_KEYS_SINCE:
        found = find(request.key_type, request.key, ctx)
        return FindCoordinatorResponse(
            error_code=found.error, error_message=found.message, node_id=found.node_id, host=found.host, port=found.port
        )
    coordinators = []
    for key in request.coordinator_keys:
        found = find(request.key_type, key, ctx)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
                error_code=found.error,
                error_message=found.message,
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def find(key_type: int, key: str, ctx: Context) -> Found:
    name = TOPICS.get(key_type)
    if name is None:
        return Found(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
    image = ctx.node.image
    topic = image.topics.get(name)
    if topic is None or not topic.partitions:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    partition = topic.partitions.get(partition_of(key, len(topic.partitions)))
    broker = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if broker is None or broker.fenced else broker.listeners.get(ctx.connection.listener)
    if broker is None or endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_AVAILABLE)
    return Found(ErrorCode.NONE, None, broker.id, endpoint.host, endpoint.port)

"""ListOffsets (key 2), versions 1-11.

v1  one offset for each partition, with its timestamp
v2  isolation level; throttle time
v4  leader epochs
v5  clients know OFFSET_NOT_AVAILABLE
v6  flexible encoding
v7  the offset of the greatest timestamp (-3)
v8  the earliest offset on this node's own disk (-4)
v9  the last offset in remote storage (-5)
v10 a time-out for remote storage
v11 the earliest offset that is not in remote storage (-6)
"""

from odradek.api.context import Context
from odradek.api.fetch import READ_COMMITTED, check_epoch
from odradek.api.services import Found, Partition
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ListOffsetsRequest, ListOffsetsResponse

KEY = 2

LATEST = -1
EARLIEST = -2
GREATEST_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SINCE = {LATEST: 1, EARLIEST: 1, GREATEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NEVER = 2**15
EPOCHS_SINCE = 4
NOT_AVAILABLE_SINCE = 5

CONSUMER = -1
DEBUGGER = -2

PartitionAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
NOTHING = Found(-1, -1, -1)


async def handle(request: ListOffsetsRequest, ctx: Context) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    asked: set[tuple[str, int]] = set()
    twice = {
        key
        for topic in request.topics
        for partition in topic.partitions
        if (key := (topic.name, partition.partition_index)) in asked or asked.add(key)  # type: ignore[func-returns-value]
    }
    for topic in request.topics:
        answer = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
        for partition in topic.partitions:
            if (topic.name, partition.partition_index) in twice:
                answer.partitions.append(failed(partition.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                answer.partitions.append(await look_up(topic.name, partition, request, ctx))
        response.topics.append(answer)
    return response


async def look_up(
    topic: str, wanted: ListOffsetsRequest.ListOffsetsPartition, request: ListOffsetsRequest, ctx: Context
) -> PartitionAnswer:
    index = wanted.partition_index
    partition = ctx.node.partitions.by_name.get(topic, {}).get(index)
    try:
        if wanted.timestamp < 0 and ctx.version < SINCE.get(wanted.timestamp, NEVER):
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} in version {ctx.version}")
        if partition is None:
            raise Refused(ctx.node.partitions.why_not(topic, index), "this node does not lead the partition")
        check_epoch(partition, wanted.current_leader_epoch)
        found = await find(partition, wanted.timestamp, request, ctx.version)
    except Refused as refused:
        return failed(index, refused.code)
    epoch = found.leader_epoch if ctx.version >= EPOCHS_SINCE else -1
    return PartitionAnswer(partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch)


async def find(partition: Partition, timestamp: int, request: ListOffsetsRequest, version: int) -> Found:
    """The offset for a timestamp, or for one of the special ones."""
    is_consumer, is_behind = request.replica_id == CONSUMER, partition.is_behind
    if is_consumer:
        end = partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark
    else:
        end = partition.log_end
    match timestamp:
        case -1:
            if is_consumer:
                check_end(partition, is_behind, version)
            return Found(-1, end, partition.leader_epoch)
        case -2 | -4:
            return Found(-1, partition.log_start, partition.epoch_of(partition.log_start))
        case -5 | -6:
            return NOTHING  # nothing is in remote storage
        case -3:
            found = await partition.offset_of_max_timestamp()
        case _:
            found = await partition.offset_for_timestamp(timestamp)
    if found is not None and found.offset < end:
        return found
    if is_consumer:
        check_end(partition, is_behind, version)
    return NOTHING


def check_end(partition: Partition, is_behind: bool, version: int) -> None:
    """Before a consumer is told where the partition ends, or that something is not there: refused when that may be less than
    another leader told."""
    partition.check_certain()
    if is_behind:
        raise not_available(version)


def not_available(version: int) -> Refused:
    """A new leader does not know yet what its predecessor had committed, and told consumers: to them its end, or that nothing is
    there, would go back (KIP-207)."""
    code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    return Refused(code, "the high watermark is still below the start of this leader's epoch")


def failed(index: int, code: ErrorCode) -> PartitionAnswer:
    return PartitionAnswer(partition_index=index, error_code=code, timestamp=-1, offset=-1)

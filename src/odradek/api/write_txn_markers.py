"""WriteTxnMarkers (key 27), versions 1-2: the coordinator of a transaction has its end written to the partitions led here.

v1  flexible encoding
v2  the transaction.version, by which a marker's epoch is looked at

Administrators use it too, to end a transaction that hangs.
"""

from collections.abc import Callable

from odradek.api.acknowledgement import Acknowledgement, Uncommitted
from odradek.api.context import Context
from odradek.api.services import Services
from odradek.wire.control import end_marker
from odradek.wire.errors import ErrorCode, ProtocolError, Refused
from odradek.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

KEY = 27
ALL = -1
GROUPS = "__consumer_offsets"

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


async def handle(request: WriteTxnMarkersRequest, ctx: Context) -> None:
    ctx.later()
    await write_markers(request, ctx.node, ctx.answer)


async def write_markers(
    request: WriteTxnMarkersRequest, node: Services, given: Callable[[WriteTxnMarkersResponse], None]
) -> None:
    """Writes markers to the partitions that are led here; the answer is given when all replicas in sync have them."""
    by_producer: dict[int, WriteTxnMarkersResponse.WritableTxnMarkerResult] = {}  # each is told of once, as in Kafka
    uncommitted: list[Uncommitted] = []
    for marker in request.markers:
        told = by_producer.get(marker.producer_id)
        if told is None:
            told = WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=marker.producer_id)
            by_producer[marker.producer_id] = told
        for topic in marker.topics:
            results = [await write(marker, topic.name, index, node, uncommitted) for index in topic.partition_indexes]
            told.topics.append(WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
    response = WriteTxnMarkersResponse(markers=list(by_producer.values()))
    if uncommitted:
        waiting = Acknowledgement(uncommitted, fail, lambda: given(response))
        waiting.wait(node.timers, node.config.integer("request.timeout.ms"))
    else:
        given(response)


async def write(marker: Marker, topic: str, index: int, node: Services, uncommitted: list[Uncommitted]) -> Result:
    result = Result(partition_index=index)
    partition = node.partitions.by_name.get(topic, {}).get(index)
    if partition is None:
        result.error_code = node.partitions.why_not(topic, index)
        return result
    now_ms, is_commit = node.now_ms(), marker.transaction_result
    batch = end_marker(
        commit=is_commit,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=now_ms,
    )
    try:
        partition.check_acks(ALL)
        appended = await partition.append_marker(batch, now_ms, marker.transaction_version)
        if topic == GROUPS and not appended.is_duplicate:  # at once: what the group writes next is behind it
            node.groups.marked(index, appended.first_offset, marker.producer_id, is_commit)
        await partition.sync()
    except Refused as refused:
        result.error_code = refused.code
    except ProtocolError:
        result.error_code = ErrorCode.CORRUPT_MESSAGE
    else:
        uncommitted.append(Uncommitted(result, partition, appended.last_offset + 1))
    return result


def fail(result: Result, code: ErrorCode) -> None:
    result.error_code = code

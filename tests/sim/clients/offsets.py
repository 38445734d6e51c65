"""Questions about offsets of a partition: where it begins and ends, and where an epoch of its leaders ended."""

from typing import Final

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tests.sim.clients.connection import Lost
from tests.sim.clients.program import Place
from tests.sim.clients.view import View

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
PURPOSE: Final = "offsets"


async def list_offset(view: View, place: Place, timestamp: int, *, is_committed: bool = False) -> int:
    """The offset for a time, EARLIEST or LATEST. Lost when the leader does not say; then it is looked for again."""
    led = await view.led(place)
    kind = ListOffsetsRequest
    partition = kind.ListOffsetsPartition(partition_index=place.index, current_leader_epoch=led.epoch, timestamp=timestamp)
    topic = kind.ListOffsetsTopic(name=place.topic, partitions=[partition])
    request = kind(replica_id=CONSUMER, isolation_level=int(is_committed), topics=[topic], timeout_ms=3000)
    answer = await view.ask(led.leader, PURPOSE, request, ListOffsetsResponse)
    (told,) = answer.topics[0].partitions
    if told.error_code:
        await view.refresh()
        raise Lost(f"ListOffsets of {place.topic}-{place.index}: {ErrorCode(told.error_code).name}")
    return told.offset


async def end_of_epoch(view: View, place: Place, epoch: int) -> tuple[int, int]:
    """The highest epoch up to this one that the leader has, and where it ended; -1, -1 when it has none."""
    led = await view.led(place)
    kind = OffsetForLeaderEpochRequest
    partition = kind.OffsetForLeaderPartition(partition=place.index, current_leader_epoch=led.epoch, leader_epoch=epoch)
    topic = kind.OffsetForLeaderTopic(topic=place.topic, partitions=[partition])
    answer = await view.ask(led.leader, PURPOSE, kind(replica_id=CONSUMER, topics=[topic]), OffsetForLeaderEpochResponse)
    (told,) = answer.topics[0].partitions
    if told.error_code:
        await view.refresh()
        raise Lost(f"OffsetForLeaderEpoch of {place.topic}-{place.index}: {ErrorCode(told.error_code).name}")
    return told.leader_epoch, told.end_offset

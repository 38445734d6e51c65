"""Ends of transactions that come late: sent once by a coordinator, and delivered when the next transaction is open.

    await come_late(view, place, producer_id, epoch, version)    # the answer, which must be an error; None where none could come

A marker of version 2 has the epoch in which the next transaction is written, and may come from the coordinator that there is. One
of version 1 has the epoch of all transactions of a life: it can be told only when its coordinator is an earlier one. Which wrote
the last marker there its leader is asked for.
"""

from typing import Final

from odradek.core.transactions.transaction import EPOCH_BUMPED_SINCE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.sim.clients.connection import Connection
from tests.sim.clients.program import Place
from tests.sim.clients.view import View

DESCRIBE_VERSION: Final = 0
MARKERS_VERSION: Final = 2
ANSWER_SECONDS_MAX: Final = 5.0
NO_EPOCH: Final = -1


async def come_late(view: View, place: Place, producer_id: int, epoch: int, version: int) -> ErrorCode | None:
    led = await view.led(place)
    connection = await view.connection(led.leader, "markers")
    coordinator_epoch = await last_coordinator(connection, place, producer_id, epoch)
    if version < EPOCH_BUMPED_SINCE:
        coordinator_epoch -= 1
    if coordinator_epoch <= NO_EPOCH:
        return None
    kind = WriteTxnMarkersRequest
    marker = kind.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[kind.WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.index])],
    )
    answer = await connection.ask(kind(markers=[marker]), MARKERS_VERSION, WriteTxnMarkersResponse, ANSWER_SECONDS_MAX)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


async def last_coordinator(connection: Connection, place: Place, producer_id: int, epoch: int) -> int:
    """Of which epoch it was; NO_EPOCH when there was none, or the transaction is not open."""
    kind = DescribeProducersRequest
    request = kind(topics=[kind.TopicRequest(name=place.topic, partition_indexes=[place.index])])
    answer = await connection.ask(request, DESCRIBE_VERSION, DescribeProducersResponse, ANSWER_SECONDS_MAX)
    for producer in answer.topics[0].partitions[0].active_producers:
        if (producer.producer_id, producer.producer_epoch) == (producer_id, epoch) and producer.current_txn_start_offset >= 0:
            return producer.coordinator_epoch
    return NO_EPOCH

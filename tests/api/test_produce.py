"""Produce where the answer takes longer than the call: what became of the partition meanwhile is what is told."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.api import produce
from odradek.api.context import Context
from odradek.core.partition.admission import Admission
from odradek.log.log import Appended
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response
from odradek.wire.messages import ProduceRequest, ProduceResponse
from tests.log.partition import sent

VERSION = 9
ALL, LEADER = -1, 1


class SlowPartition:
    """Leads nothing any more when its disk has synced; what others have committed since is past what it wrote."""

    index, is_plain, log_start, high_watermark = 0, False, 0, 0
    admission = cast("Admission", SimpleNamespace(admit=lambda batch, _: batch, stamps=False, is_plain=False))

    def __init__(self, code: ErrorCode | None) -> None:
        self.code = code
        self.readers: dict[Any, None] = {}

    def check_acks(self, acks: int) -> None:
        assert acks in (ALL, LEADER)

    async def append_later(self, *_: object, verification: object) -> Appended:
        assert verification is None
        return Appended(5, 5, False)

    async def sync(self) -> None:
        self.high_watermark = 10

    def outcome(self, end_offset: int) -> ErrorCode | None:
        assert end_offset == 6
        return self.code


def test_a_producer_comes_again_where_its_partition_was_not_added_for_the_sake_of_another() -> None:
    """The coordinator's node may not have heard of a new topic yet. For clients, OPERATION_NOT_ATTEMPTED is final."""
    told = produce.not_enlisted(ErrorCode.OPERATION_NOT_ATTEMPTED, produce.ADDS_PARTITIONS_SINCE)
    assert told.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("acks", "became", "told"),
    [
        (ALL, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ALL, ErrorCode.NONE, ErrorCode.NONE),
        (LEADER, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE),
    ],
)
def test_what_a_leader_wrote_that_is_none_any_more_is_not_acknowledged_by_all(
    acks: int, became: ErrorCode, told: ErrorCode
) -> None:
    async def look_into(function: Any) -> Any:
        return function()

    partition = SlowPartition(became)
    node = SimpleNamespace(
        now_ms=lambda: 0,
        partitions=SimpleNamespace(by_name={"t": {0: partition}}),
        look_into=look_into,
        timers=SimpleNamespace(after=lambda *_: SimpleNamespace(cancel=lambda: None)),
    )
    answered: list[Context] = []
    ctx = Context(
        cast("Any", node), cast("Any", SimpleNamespace(answered=answered.append, beginnings=None)), VERSION, 7, "client"
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(sent(0)))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])

    async def story() -> ProduceResponse:
        handled = produce.handle(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic]), ctx)
        response = await handled if isinstance(handled, Coroutine) else handled
        if response is None:
            assert answered == [ctx]
            (size, *frame) = cast("Any", ctx.buffers)
            response = decode_response(ProduceResponse, b"".join([size, *frame])[4:], VERSION)[1]
        return cast("ProduceResponse", response)

    answer = asyncio.run(story()).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (told, -1 if told else 5)

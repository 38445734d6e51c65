"""A producer and one broker, which answers when the story says, and what it says."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster, Timing
from odradek.client.errors import Closed, InvalidOption, KafkaError, Refused, refused
from odradek.client.producer import Producer, Topic
from odradek.client.records import TopicPartition
from odradek.client.sender import Sender
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ProduceRequest, ProduceResponse

TURNS = 3  # of the loop
PLACE = TopicPartition("t", 0)


class Broker:
    """And the way to it. It leads everything."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timing = Timing()
        self.machine = SimpleNamespace(random=Random(0))
        self.metadata = SimpleNamespace(leader=lambda topic, partition: 0, errors={})
        self.on_metadata: list[Callable[[], None]] = []
        self.refusal: KafkaError | None = None  # of requests that cannot be sent
        self.asked: asyncio.Queue[tuple[ProduceRequest, asyncio.Future[ProduceResponse]]] = asyncio.Queue()

    def connected(self, node: int) -> Any:
        return self

    def post(self, request: ProduceRequest, *how: Any) -> "asyncio.Future[ProduceResponse]":
        answer: asyncio.Future[ProduceResponse] = self.loop.create_future()
        if self.refusal is not None:
            answer.set_exception(self.refusal)
            return answer
        self.asked.put_nowait((request, answer))
        return answer

    def post_unanswered(self, request: ProduceRequest, *how: Any) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def write(self) -> None:
        """The next request."""
        request, answer = await self.asked.get()
        kind = ProduceResponse
        topics = [
            kind.TopicProduceResponse(
                name=topic.name,
                partition_responses=[kind.PartitionProduceResponse(index=each.index) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        answer.set_result(kind(responses=topics))

    async def close(self) -> None:
        """It takes a while."""
        for _ in range(TURNS):
            await asyncio.sleep(0)


def run(story: Callable[[Broker, Producer], Awaitable[None]], **options: Any) -> None:
    async def whole() -> None:
        broker, producer = Broker(), Producer(idempotent=False, linger_ms=0, **options)
        cluster = producer._cluster = cast("Cluster", broker)
        producer.now_s, producer.wall_ms = broker.loop.time, lambda: 0
        producer._sender = Sender(
            cluster,
            producer.accumulator,
            None,
            producer._compression,
            acks=producer.options.acks_number,
            request_bytes_max=producer.options.request_bytes_max,
            on_room=producer._let_in,
        )
        partitioner = SimpleNamespace(current=0, of_key=lambda key: 0, move_on=lambda: None)
        producer._topics["t"] = Topic(cast("Any", partitioner), {0: producer.accumulator.lane(PLACE)})
        async with asyncio.timeout(10):
            await story(broker, producer)

    asyncio.run(whole())


def test_a_record_that_waits_for_room_when_the_producer_is_closed_is_refused() -> None:
    """Also where it had been let in, and was about to be taken."""

    async def story(broker: Broker, producer: Producer) -> None:
        first = await producer.send("t", b"first")
        waiting = asyncio.ensure_future(producer.send("t", b"second"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(producer.close())
        await broker.write()
        await closing
        assert first.is_done
        with pytest.raises(Closed):
            await waiting

    run(story, buffer_memory=1)


@pytest.mark.parametrize("acks", [0, 1])
def test_a_request_that_cannot_be_sent_fails_its_records(acks: int) -> None:
    """A broker may serve no version of Produce that is known here."""

    async def story(broker: Broker, producer: Producer) -> None:
        broker.refusal = refused(ErrorCode.UNSUPPORTED_VERSION)
        sent = await producer.send("t", b"value")
        with pytest.raises(Refused, match="UNSUPPORTED_VERSION"):
            await sent
        broker.refusal = None
        await producer.send("t", b"value")
        if acks:
            await broker.write()
        await producer.close()

    run(story, acks=acks)


@pytest.mark.parametrize("given", [{"value": ["value"]}, {"key": [1]}, {"timestamp_ms": 1.5}, {"timestamp_ms": 2**63}])
def test_what_is_no_record_is_refused_at_once_and_others_go_on(given: dict[str, Any]) -> None:
    async def story(broker: Broker, producer: Producer) -> None:
        sent = await producer.send("t", b"value")
        with pytest.raises((TypeError, InvalidOption)):
            await producer.send("t", **given, partition=0)
        await broker.write()
        await sent
        await producer.close()

    run(story)


@pytest.mark.parametrize("turns", range(1, TURNS + 2))
def test_when_the_close_of_a_producer_is_cancelled_what_was_not_written_has_failed(turns: int) -> None:
    async def story(broker: Broker, producer: Producer) -> None:
        under_way = await producer.send("t", b"first")
        await broker.asked.get()
        unsent = await producer.send("t", b"second")
        closing = asyncio.ensure_future(producer.close(is_hasty=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        for each in (under_way, unsent):
            with pytest.raises(Closed):
                await each

    run(story)

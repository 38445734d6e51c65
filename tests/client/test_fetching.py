"""What is done of what the fetcher decides, on a broker that does not speak as it should."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster, Timing
from odradek.client.errors import KafkaError, Refused, refused
from odradek.client.fetcher import Fetcher, Taste
from odradek.client.fetching import Fetching
from odradek.client.records import NO_OFFSET, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from tests.client.model_cluster import TOPIC, ModelCluster

SECONDS_MAX = 5.0
PLACE = TopicPartition(TOPIC, 0)


class Broker:
    """And the way to it: it serves no version of an API that is known here, or none that says what is asked."""

    def __init__(self, *, is_version_known: bool) -> None:
        self.is_version_known = is_version_known
        self.loop = asyncio.get_running_loop()
        self.timing = Timing()
        self.machine = SimpleNamespace(random=Random(0))
        self.metadata = ModelCluster(1, 17).metadata()
        self.on_metadata: list[Callable[[], None]] = []
        self.asked = 0

    def connected(self, node: int, lane: str) -> Any:
        return self

    def version(self, key: int) -> int:
        if not self.is_version_known:
            self.asked += 1
            raise refused(ErrorCode.UNSUPPORTED_VERSION)
        return 17

    def post(self, request: Message, *how: Any) -> "asyncio.Future[Any]":
        self.asked += 1
        answer = self.loop.create_future()
        answer.set_exception(refused(ErrorCode.UNSUPPORTED_VERSION))
        return answer

    async def ask(self, node: int, request: Message, response: type[Any]) -> Any:
        return await self.post(request)

    def refresh_soon(self) -> "asyncio.Future[None]":
        return self.loop.create_future()


@pytest.mark.parametrize("offset", [0, NO_OFFSET])
@pytest.mark.parametrize("is_version_known", [True, False])
def test_what_cannot_be_said_to_a_broker_the_program_hears_each_time_that_it_is_tried(
    is_version_known: bool, offset: int
) -> None:
    async def story() -> None:
        broker, fetcher, news = Broker(is_version_known=is_version_known), Fetcher(Taste(backoff_s=0.001)), asyncio.Event()
        heard: list[KafkaError | BaseException] = []

        def hear(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                heard.append(error)

        fetching = Fetching(cast("Cluster", broker), fetcher, news.set, hear)
        fetcher.begin(PLACE, offset)
        fetcher.learn(broker.metadata)
        for _ in range(2):
            news.clear()
            fetching.go_on()
            async with asyncio.timeout(SECONDS_MAX):
                while not fetcher.failures:
                    await news.wait()
                    news.clear()
            failed = fetcher.failures.pop()
            assert isinstance(failed, Refused)
            assert failed.code is ErrorCode.UNSUPPORTED_VERSION
        assert heard == []
        await fetching.close()

    asyncio.run(story())

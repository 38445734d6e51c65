"""How a scenario of the Admin runs, and waits for what a broker is about to know."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from odradek.client.admin import Admin, NewTopic
from odradek.client.errors import KafkaError
from odradek.client.records import TopicPartition

SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.02

Result = TypeVar("Result")


class Served(Protocol):
    @property
    def bootstrap(self) -> str: ...


def administer(server: Served, scenario: Callable[[Admin], Awaitable[Result]], **options: Any) -> Result:
    async def run() -> Result:
        async with Admin(server.bootstrap, **options) as admin:
            return await scenario(admin)

    return asyncio.run(run())


async def seen(look: Callable[[], Awaitable[Result]], what: str, *, as_wanted: Callable[[Result], object] = bool) -> Result:
    """Looks until it is as wanted; what is not there yet may come."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS_MAX
    last: object = None
    while loop.time() < deadline:
        try:
            found = await look()
            if as_wanted(found):
                return found
            last = found
        except KafkaError as error:
            last = error
        await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"{what}: not within {SECONDS_MAX} s, last seen {last!r}")


async def made(admin: Admin, name: str, partitions: int = 1, **configs: str) -> list[TopicPartition]:
    """A topic that is there, and led."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await admin.create_topics([NewTopic(name, partitions, 1, settings)])
    await seen(
        lambda: admin.describe_topics([name]),
        "the topic",
        as_wanted=lambda found: all(each.leader is not None for each in found[name].partitions),
    )
    return [TopicPartition(name, index) for index in range(partitions)]

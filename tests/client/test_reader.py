"""How the parts of a consumer end."""

import asyncio
from typing import Any, cast

import pytest

from odradek.client.consumer import Consumer
from odradek.client.following import Following
from odradek.client.group.classic import ClassicMember
from odradek.client.group.member import Terms, Wanted
from odradek.client.reader import Reader
from odradek.client.records import TopicPartition

TURNS_MAX = 20  # of the loop


async def take_its_time(places: list[TopicPartition]) -> None:
    for _ in range(TURNS_MAX // 4):
        await asyncio.sleep(0)


def reading(group: str | None) -> Reader:
    """Of a cluster that it cannot reach, as a member or not."""
    made = Reader(Consumer("t", bootstrap="127.0.0.1:1", group=group, on_revoked=take_its_time)._options)
    made.fetcher.begin(TopicPartition("t", 0), 0)
    if made.commits is None:
        made.following = Following(made.cluster, made.fetching, Wanted(("t",)))
        made.following.start()
    else:
        made._committing = made.loop.create_task(made.commits.run(1, lambda: False))
        made.member = ClassicMember(made.cluster, made.holding, Terms(group="g"), Wanted(("t",)))
        made.member.start()
    return made


@pytest.mark.parametrize("group", ["g", None])
@pytest.mark.parametrize("turns", range(1, TURNS_MAX))
def test_a_consumer_whose_close_is_cancelled_anywhere_has_ended(turns: int, group: str | None) -> None:
    async def story() -> None:
        reader = reading(group)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(reader.close(is_done=True))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
        assert reader.cluster.is_closed
        left = [cast("Any", task.get_coro()).__qualname__ for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == []

    asyncio.run(story())

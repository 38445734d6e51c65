"""A fetcher of a follower, against a leader that has nothing new and holds requests back."""

import asyncio
from types import SimpleNamespace
from typing import cast

from odradek.core.metadata.brokers import Endpoint
from odradek.core.partition.fetcher import FetcherSettings
from odradek.node.replication import Replication, Source
from odradek.wire.frames import decode_request
from odradek.wire.messages import FetchRequest
from tests.core.partition.test_fetcher import follower_of, named, topic_id
from tests.node.inside import until
from tests.node.test_peers import Reader, Writer, other_side

HELD_BACK_MS = 600_000


def test_a_partition_that_is_added_does_not_wait_for_a_request_that_is_held_back() -> None:
    async def story() -> None:
        asked: list[FetchRequest] = []

        async def hold_back(reader: Reader, _: Writer) -> None:
            size = int.from_bytes(await reader.readexactly(4), "big")
            request = decode_request(await reader.readexactly(size))[1]
            assert isinstance(request, FetchRequest)
            asked.append(request)

        async with other_side(hold_back) as port:
            replication = SimpleNamespace(
                node_id=2,
                settings=FetcherSettings(wait_max_ms=HELD_BACK_MS),
                timeout_ms=HELD_BACK_MS,
                broker_epoch=lambda: 55,
                now_ms=lambda: 0,
                endpoint_of=lambda _: Endpoint("127.0.0.1", port, 0),
            )
            source = Source(cast("Replication", replication), 9, 0)
            source.add(follower_of(1))
            await until(lambda: len(asked) == 1)
            source.add(follower_of(2))
            await until(lambda: len(asked) == 2)
            source.add(follower_of(3))
            await until(lambda: len(asked) == 3)
            await source.close()
        keys = [(topic_id(number), 0) for number in (1, 2, 3)]
        assert [named(request) for request in asked] == [keys[:1], keys[:2], keys]

    asyncio.run(story())

"""What the scenarios of the consumer share: one that reads, impatient ones, and records of it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition

from odradek.client.consumer import Consumer
from odradek.client.records import Record
from tests.client.servers import Server
from tests.clients import waiting
from tests.clients.confluent import admin, create, fill
from tests.clients.confluent import consuming as confluent_consuming

SECONDS_MAX = 60.0
QUICK: dict[str, Any] = {
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 200,
    "fetch_max_wait_ms": 100,
    "metadata_max_age_ms": 500,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
GROUP_SETTINGS = {
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_assignment_interval_ms": "0",
    "group_min_session_timeout_ms": "1000",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_session_timeout_ms": "6000",
    "auto_create_topics_enable": "false",
}


def run(story: Coroutine[Any, Any, Any], seconds_max: float = SECONDS_MAX) -> Any:
    return asyncio.run(asyncio.wait_for(story, seconds_max))


def consumer(server: Server | str, *topics: str, **options: Any) -> Consumer:
    bootstrap = server if isinstance(server, str) else server.bootstrap
    return Consumer(*topics, bootstrap=bootstrap, **{**QUICK, **options})


async def take(reader: Consumer, count: int) -> list[Record]:
    """The next so many, by polls."""
    found: list[Record] = []
    while len(found) < count:
        found += await reader.poll(count - len(found))
    return found


def values(records: Iterable[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


async def until(look: Callable[[], Any], what: str) -> None:
    """The scenario's own deadline is the end of it."""
    try:
        while not look():  # noqa: ASYNC110 - what it looks at has no event
            await asyncio.sleep(0.01)
    except asyncio.CancelledError as error:
        error.add_note(f"it waited until {what}")
        raise


async def poll_until(look: Callable[[], Any], *readers: Consumer) -> list[Record]:
    """The same, while these go on reading."""
    found: list[Record] = []
    while not look():
        for each in readers:
            found += await each.poll(timeout_ms=20)
    return found


def committed_by_others(server: Server | str, group: str, topic: str, *partitions: int) -> list[int]:
    """As librdkafka sees it; -1001 where nothing is."""
    bootstrap = server if isinstance(server, str) else server.bootstrap
    with confluent_consuming(bootstrap, group) as other:
        found = other.committed([ConfluentPartition(topic, index) for index in partitions], timeout=SECONDS_MAX)
    return [each.offset for each in found]


async def make_anew(server: Server, topic: str, records: int) -> None:
    """Another topic under the same name, with so many records. Kafka may not have forgotten the old one at once."""

    def is_made() -> bool:
        with suppress(KafkaException):
            create(server.bootstrap, topic)
            return True
        return False

    client = admin(server.bootstrap)
    await asyncio.to_thread(client.delete_topics([topic])[topic].result)
    await asyncio.to_thread(waiting.until, is_made, "it is made anew")
    await asyncio.to_thread(fill, server.bootstrap, topic, records)

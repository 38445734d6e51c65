"""Topics of the tests: made, filled, and read by readers that know nothing of Spark."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Message
from confluent_kafka import TopicPartition as ConfluentPartition

from odradek import sync
from odradek.client.admin import NewTopic
from odradek.client.admin.offsets import Isolation, Offset
from odradek.client.records import TopicPartition
from tests.clients.confluent import consuming
from tests.clients.waiting import until

REPLICAS = 1


def made(bootstrap: str, topic: str, partitions: int = 1, replicas: int = REPLICAS, **configs: str) -> str:
    """A topic that is there, and led."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with sync.Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions, replicas, settings)])

        def is_led() -> bool:
            found = admin.list_topics(include_internal=True).get(topic)
            return found is not None and all(each.leader is not None for each in found.partitions)

        until(is_led, f"a leader of {topic}")
    return topic


def fill(bootstrap: str, topic: str, values: Iterable[Any], partition: int | None = None, **more: Any) -> None:
    """Sends values, numbers as texts, each with itself as its key."""
    with sync.Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, str(value), key=str(value), partition=partition, **more)


def ends(bootstrap: str, topic: str, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> dict[TopicPartition, int]:
    with sync.Admin(bootstrap) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
        wanted = {TopicPartition(topic, each.index): Offset.LATEST for each in partitions}
        return {place: each.offset for place, each in admin.list_offsets(wanted, isolation=isolation).items()}


def messages(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All of a topic, up to where it ends now, as librdkafka reads it. Whoever was told of a commit may be ahead of its markers:
    for what is committed, this waits until no transaction is open."""
    if isolation == "read_committed":
        until(lambda: ends(bootstrap, topic, Isolation.READ_COMMITTED) == ends(bootstrap, topic), f"all transactions of {topic}")
    with consuming(bootstrap, isolation_level=isolation) as consumer:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        last = {}
        for index in partitions:
            start, end = consumer.get_watermark_offsets(ConfluentPartition(topic, index), timeout=60)
            if end > start:
                last[index] = end
        consumer.assign([ConfluentPartition(topic, index, OFFSET_BEGINNING) for index in last])
        found: list[Message] = []

        def look() -> bool:
            found.extend(consumer.consume(10_000, 0.1))
            places = consumer.position([ConfluentPartition(topic, index) for index in last])
            return all(each.offset >= last[each.partition] for each in places)

        until(look, f"the end of {topic}")
    assert all(each.error() is None for each in found)
    return found


def values(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    return [(each.value() or b"").decode() for each in messages(bootstrap, topic, isolation)]


def numbers(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[int]:
    return sorted(int(each) for each in values(bootstrap, topic, isolation))


def group_offsets(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    with sync.Admin(bootstrap) as admin:
        found = admin.list_group_offsets([group], require_stable=True)[group]
    return {place: each.offset for place, each in found.items()}

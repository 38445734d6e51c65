"""aiokafka: a producer, a consumer and an administrator in an event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.clients.waiting import SECONDS_MAX
from tests.kafka.broker import Broker

QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200, "metadata_max_age_ms": 500}
WAIT_MS = 100


@asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def with_deadline() -> None:
        await asyncio.wait_for(story(), SECONDS_MAX)

    asyncio.run(with_deadline())


def producing(server: Broker, **settings: Any) -> Any:
    return started(AIOKafkaProducer(bootstrap_servers=server.bootstrap, **settings))


def consuming(server: Broker, **settings: Any) -> Any:
    base = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "check_crcs": True}
    return started(AIOKafkaConsumer(bootstrap_servers=server.bootstrap, **{**base, **settings}))


def administering(server: Broker) -> Any:
    return started(AIOKafkaAdminClient(bootstrap_servers=server.bootstrap))


async def create(server: Broker, topic: str, partitions: int = 1, **configs: str) -> None:
    async with administering(server) as admin:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        answer = await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
        assert [error for _, error, *_ in answer.topic_errors] == [0]


async def fill(server: Broker, topic: str, count: int, partition: int = 0, **settings: Any) -> None:
    async with producing(server, **settings) as producer:
        sent = [await producer.send(topic, b"%d" % number, partition=partition) for number in range(count)]
        await asyncio.gather(*sent)


async def values(consumer: Any, count: int) -> list[bytes | None]:
    return [(await consumer.getone()).value for _ in range(count)]


def numbers(*of: int) -> list[bytes]:
    return [b"%d" % number for number in range(*of)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_read_back_through_every_codec(server: Broker, name: str, codec: str | None, acks: int | str) -> None:
    async def story() -> None:
        await create(server, name)
        await fill(server, name, 200, compression_type=codec, acks=acks, linger_ms=20)
        async with consuming(server) as consumer:
            consumer.assign([TopicPartition(name, 0)])
            assert await values(consumer, 200) == numbers(200)

    run(story)


def test_an_idempotent_producer_keeps_the_order(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name, 2)
        await asyncio.gather(*(fill(server, name, 1000, index, enable_idempotence=True) for index in range(2)))
        async with consuming(server) as consumer:
            for index in range(2):
                consumer.assign([TopicPartition(name, index)])
                assert await values(consumer, 1000) == numbers(1000)

    run(story)


def test_keys_headers_null_values_and_timestamps_come_back(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name)
        async with producing(server) as producer:
            headers = [("a", b"1"), ("a", b"")]
            sent = await producer.send_and_wait(name, None, b"key", headers=headers, timestamp_ms=1_600_000_000_000)
            assert (sent.partition, sent.offset) == (0, 0)
        async with consuming(server) as consumer:
            consumer.assign([TopicPartition(name, 0)])
            found = await consumer.getone()
            assert (found.key, found.value, found.timestamp) == (b"key", None, 1_600_000_000_000)
            assert list(found.headers) == headers

    run(story)


def test_a_record_over_the_limit_is_refused(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name, max_message_bytes="1000")
        async with producing(server) as producer:
            with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
                await producer.send_and_wait(name, bytes(2000))
            assert (await producer.send_and_wait(name, bytes(100))).offset == 0

    run(story)


def test_positions_are_found_and_sought(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name)
        async with producing(server) as producer:
            for number in range(10):
                await producer.send_and_wait(name, b"%d" % number, timestamp_ms=1_600_000_000_000 + number)
        partition = TopicPartition(name, 0)
        async with consuming(server) as consumer:
            consumer.assign([partition])
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = await consumer.offsets_for_times({partition: 1_600_000_000_004})
            assert found[partition].offset == 4
            assert (await consumer.offsets_for_times({partition: 1_700_000_000_000}))[partition] is None
            consumer.seek(partition, 7)
            assert await values(consumer, 3) == numbers(7, 10)
            await consumer.seek_to_beginning(partition)
            assert await values(consumer, 2) == numbers(2)
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 10
            consumer.pause(partition)
            consumer.seek(partition, 0)
            assert await consumer.getmany(partition, timeout_ms=WAIT_MS) == {}
            consumer.resume(partition)
            assert await values(consumer, 1) == numbers(1)

    run(story)


def test_a_group_goes_on_where_it_committed(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name)
        await fill(server, name, 20)
        partition = TopicPartition(name, 0)
        settings = {"group_id": name, "isolation_level": "read_committed", **QUICK}
        async with consuming(server, **settings) as consumer:
            consumer.subscribe([name])
            assert await values(consumer, 8) == numbers(8)
            await consumer.commit({partition: (8, "so far")})
            assert await consumer.committed(partition) == 8
        async with consuming(server, **settings) as consumer:
            consumer.subscribe([name])
            assert await values(consumer, 12) == numbers(8, 20)

    run(story)


class Calls(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.assigned: list[int] = []
        self.revoked: list[int] = []

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self.assigned.append(len(assigned))

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        self.revoked.append(len(revoked))


def test_two_members_share_and_the_one_left_has_all(server: Broker, name: str) -> None:
    async def settled(consumers: list[Any], share: int) -> None:
        while any(len(consumer.assignment()) != share for consumer in consumers):
            for consumer in consumers:
                await consumer.getmany(timeout_ms=WAIT_MS)

    async def story() -> None:
        await create(server, name, 4)
        calls = Calls()
        async with consuming(server, group_id=name, **QUICK) as first:
            first.subscribe([name], listener=calls)
            await settled([first], 4)
            async with consuming(server, group_id=name, **QUICK) as second:
                second.subscribe([name])
                await settled([first, second], 2)
                assert not first.assignment() & second.assignment()
            await settled([first], 4)
        assert calls.assigned[0] == 4
        assert calls.assigned[-1] == 4
        assert 2 in calls.assigned

    run(story)


def test_an_administrator_goes_through_its_calls(server: Broker, name: str) -> None:
    async def story() -> None:
        await create(server, name, 2, retention_ms="1000")
        async with administering(server) as admin:
            assert name in await admin.list_topics()
            (topic,) = await admin.describe_topics([name])
            assert [partition["leader"] for partition in topic["partitions"]] == [1, 1]
            answer = await admin.create_topics([NewTopic(name, 1, 1)])
            assert [code for _, code, _ in answer.topic_errors] == [aiokafka.errors.TopicAlreadyExistsError.errno]
            cluster = await admin.describe_cluster()
            assert [broker["port"] for broker in cluster["brokers"]] == [server.port]
            resource = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})
            (described,) = await admin.describe_configs([resource])
            assert described.resources[0][4][0][:2] == ("retention.ms", "1000")
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7000"})])
            await admin.create_partitions({name: NewPartitions(3)})
            await fill(server, name, 9)
            deleted = await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(before_offset=4)})
            assert deleted == {TopicPartition(name, 0): 4}
            async with consuming(server, group_id=name) as consumer:
                consumer.assign([TopicPartition(name, 0)])
                await consumer.commit({TopicPartition(name, 0): 5})
            groups = dict(group[:2] for group in await admin.list_consumer_groups())
            assert groups[name] == ""
            offsets = await admin.list_consumer_group_offsets(name)
            assert offsets[TopicPartition(name, 0)].offset == 5
            (group,) = await admin.describe_consumer_groups([name])
            assert group.groups[0][:3] == (0, name, "Empty")
            deletion = await admin.delete_topics([name])
            assert [code for _, code in deletion.topic_error_codes] == [0]
            unknown = await admin.delete_topics([f"{name}-none"])
            assert [code for _, code in unknown.topic_error_codes] == [aiokafka.errors.UnknownTopicOrPartitionError.errno]

    run(story)

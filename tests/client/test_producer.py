"""The producer, on a node of ours and on Apache Kafka; confluent-kafka (librdkafka) reads what it writes."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import pytest
from confluent_kafka import Message

from odradek.client.errors import Closed, InvalidOption, KafkaError, Refused, TimedOut, TransactionFailed
from odradek.client.producer import Producer
from odradek.client.records import NO_OFFSET, TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.servers import Server
from tests.clients.confluent import create, read
from tests.clients.transactions import settled
from tests.cluster.cluster import Cluster

SETTINGS = {"auto_create_topics_enable": "false"}
PATIENT: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_a_record_arrives_as_it_was_sent(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> Any:
        async with Producer(server.bootstrap) as producer:
            headers = [("one", b"1"), ("one", None), ("é", b"")]
            return await producer.deliver(name, "välue", key=b"key", headers=headers, timestamp_ms=1_700_000_000_123)

    where = run(work())
    (message,) = read(server.bootstrap, name, 1)
    assert (where.topic, where.partition, where.offset, where.timestamp_ms) == (name, 0, 0, 1_700_000_000_123)
    assert (message.key(), message.value()) == (b"key", "välue".encode())
    assert message.headers() == [("one", b"1"), ("one", None), ("é", b"")]
    assert message.timestamp()[1] == 1_700_000_000_123


def test_nothing_and_a_tombstone_can_be_sent(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            await producer.send(name, b"", key=b"")
            await producer.send(name, None, key="k")

    run(work())
    assert [(each.key(), each.value()) for each in read(server.bootstrap, name, 2)] == [(b"", b""), (b"k", None)]


@pytest.mark.parametrize("codec", ["auto", "none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_arrive_in_order_in_every_codec(server: Server, name: str, codec: str) -> None:
    create(server.bootstrap, name, 3)

    async def work() -> list[Any]:
        async with Producer(server.bootstrap, compression=codec, batch_size=4_000, buffer_memory=50_000) as producer:
            sent = [await producer.send(name, b"%d" % number, partition=number % 3) for number in range(3_000)]
            return [await each for each in sent]

    places = run(work())
    assert [(each.partition, each.offset) for each in places] == [(number % 3, number // 3) for number in range(3_000)]
    found = read(server.bootstrap, name, 3_000, 3)
    for partition in range(3):
        of_it = [int(each.value() or b"") for each in found if each.partition() == partition]
        assert of_it == [*range(partition, 3_000, 3)]


def test_records_without_a_key_reach_all_partitions(server: Server, name: str) -> None:
    create(server.bootstrap, name, 3)

    async def work() -> set[int]:
        async with Producer(server.bootstrap, batch_size=500) as producer:
            sent = [await producer.send(name, b"%d" % number) for number in range(1_000)]
            return {(await each).partition for each in sent}

    assert run(work()) == {0, 1, 2}


def test_acks_that_are_less_than_all(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work(acks: int) -> list[int]:
        async with Producer(server.bootstrap, acks=acks) as producer:
            sent = [await producer.send(name, b"%d" % number) for number in range(10)]
            return [(await each).offset for each in sent]

    assert run(work(1)) == [*range(10)]
    assert run(work(0)) == [NO_OFFSET] * 10
    assert values(read(server.bootstrap, name, 20)) == [b"%d" % number for number in range(10)] * 2


def test_a_record_that_is_too_large_is_refused_and_others_go_on(server: Server, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes="2000")

    async def work() -> None:
        async with Producer(server.bootstrap, compression="none") as producer:
            first = await producer.send(name, b"before")
            await first
            large = await producer.send(name, bytes(5_000))
            with pytest.raises(Refused) as caught:
                await large
            assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert (caught.value.topic, caught.value.partition, caught.value.is_retriable) == (name, 0, False)
            assert (await producer.deliver(name, b"after")).offset == 1

    run(work())
    assert values(read(server.bootstrap, name, 2)) == [b"before", b"after"]


def test_a_batch_that_is_too_large_is_sent_in_parts(server: Server, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes="3000")

    async def work() -> list[int]:
        async with Producer(server.bootstrap, compression="none", batch_size=100_000) as producer:
            sent = [await producer.send(name, b"%04d" % number + bytes(200)) for number in range(300)]
            return [(await each).offset for each in sent]

    assert run(work()) == [*range(300)]
    assert [int((value or b"")[:4]) for value in values(read(server.bootstrap, name, 300))] == [*range(300)]


def test_a_failure_that_nobody_waited_for_is_raised_by_flush(server: Server, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes="2000")

    async def work() -> None:
        async with Producer(server.bootstrap, compression="none") as producer:
            await producer.send(name, bytes(5_000))
            with pytest.raises(Refused):
                await producer.flush()
            await producer.flush()  # once
        with pytest.raises(Refused):
            async with Producer(server.bootstrap, compression="none") as producer:
                await producer.send(name, bytes(5_000))

    run(work())


def test_a_topic_that_is_not_there_is_said_to_be_missing(server: Server, name: str) -> None:
    async def work() -> None:
        async with Producer(server.bootstrap, default_timeout_ms=300) as producer:
            with pytest.raises(TimedOut, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send(name, b"")
            with pytest.raises(Refused) as caught:
                await producer.send("no/name", b"")
            assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION

    run(work())


def test_a_partition_that_is_not_there_is_said_to_be_missing(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap, default_timeout_ms=300) as producer:
            with pytest.raises(TimedOut, match=f"{name}-7: UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.send(name, b"", partition=7)

    run(work())


def test_memory_is_bounded_and_who_gives_up_waiting_for_room_spoils_nothing(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap, buffer_memory=20_000, batch_size=5_000, compression="none") as producer:
            largest = 0

            async def send(number: int) -> None:
                nonlocal largest
                await producer.send(name, b"%05d" % number + bytes(1_000))
                largest = max(largest, producer.accumulator.held_bytes)

            tasks = [asyncio.create_task(send(number)) for number in range(200)]
            await asyncio.sleep(0)
            for task in tasks[100::7]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = sum(isinstance(each, asyncio.CancelledError) for each in ended)
            assert cancelled == len(tasks[100::7])
            assert largest <= 20_000 + 61 * 5
            await producer.flush()
            assert producer.accumulator.held_bytes == 0

    run(work())
    kept = [number for number in range(200) if number < 100 or (number - 100) % 7]
    assert [int((value or b"")[:5]) for value in values(read(server.bootstrap, name, len(kept)))] == kept


def test_whoever_stops_waiting_for_a_delivery_leaves_it_to_others(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap, linger_ms=50) as producer:
            sent = await producer.send(name, b"v")

            async def wait() -> int:
                return (await sent).offset

            first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
            await asyncio.sleep(0)
            first.cancel()
            assert await second == 0
            assert first.cancelled()

    run(work())


def test_a_send_that_is_cancelled_anywhere_leaves_the_producer_usable(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> int:
        async with Producer(server.bootstrap, linger_ms=0, batch_size=300, buffer_memory=1_000, compression="none") as producer:
            cancelled = 0
            for steps in range(60):
                task = asyncio.create_task(producer.deliver(name, f"try {steps}" + "." * 200))
                for _ in range(steps):
                    await asyncio.sleep(0)
                cancelled += task.cancel()
                await asyncio.wait([task])
                await producer.deliver(name, f"after {steps}")
            return cancelled

    assert run(work()) > 10
    found = [(message.value() or b"").decode().rstrip(".") for message in read(server.bootstrap, name, 60)]
    wanted = [f"after {steps}" for steps in range(60)]
    assert [each for each in found if each.startswith("after")] == wanted[: sum(each.startswith("after") for each in found)]
    assert len(set(found)) == len(found)


def test_a_transaction_that_is_cancelled_anywhere_is_aborted_and_the_next_one_is_not(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def transact(producer: Producer, value: str) -> None:
        async with producer.transaction():
            await producer.deliver(name, value)
            await producer.send_offsets({TopicPartition(name, 0): 1}, name)

    async def work() -> list[bool]:
        async with Producer(server.bootstrap, transactional_id=name, linger_ms=0, **PATIENT) as producer:
            were_cancelled = []
            for steps in range(0, 60, 3):
                task = asyncio.create_task(transact(producer, f"try {steps}"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                were_cancelled.append(task.cancelled())
                await transact(producer, f"after {steps}")
            return were_cancelled

    were_cancelled = run(work())
    assert any(were_cancelled)
    tries = {f"try {steps}": was for steps, was in zip(range(0, 60, 3), were_cancelled)}
    committed = {f"after {steps}" for steps in range(0, 60, 3)} | {each for each, was in tries.items() if not was}
    (found,) = settled(server.bootstrap, name, 1)
    assert len(set(found)) == len(found)
    assert committed <= set(found) <= committed | tries.keys()  # one that was cancelled while it was committed may be there


def test_a_transaction_of_which_a_record_failed_is_not_committed_and_the_next_one_is(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2, max_message_bytes="2000")

    async def work() -> None:
        async with Producer(server.bootstrap, transactional_id=name, compression="none", batch_size=500) as producer:
            await producer.begin_transaction()
            await producer.deliver(name, b"of the first", partition=0)
            await producer.send(name, bytes(5_000), partition=1)
            for number in range(50):
                await producer.send(name, b"%d" % number + bytes(400), partition=1)
            with pytest.raises(TransactionFailed, match="MESSAGE_TOO_LARGE"):
                await producer.commit_transaction()
            with pytest.raises(TransactionFailed):
                await producer.send(name, b"more")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(name, b"of the second", partition=0)
                await producer.send(name, b"of the second", partition=1)

    run(work())
    assert settled(server.bootstrap, name, 2) == [["of the second"], ["of the second"]]


def test_after_its_end_a_producer_takes_nothing(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            await producer.send(name, b"")
        with pytest.raises(Closed):
            await producer.send(name, b"")
        with pytest.raises(Closed):
            await Producer(server.bootstrap).send(name, b"")

    run(work())


def test_a_flush_that_takes_too_long_says_so_and_loses_nothing(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            sent = await producer.send(name, b"")
            with pytest.raises(TimedOut):
                await producer.flush(timeout_ms=0)
            assert (await sent).offset == 0

    run(work())


def test_nobody_there_is_said_in_one_line() -> None:
    async def work() -> None:
        with pytest.raises(TimedOut, match=r"127\.0\.0\.1:1 cannot be connected to"):
            await Producer("127.0.0.1:1", default_timeout_ms=200).start()

    run(work())


def test_a_host_that_cannot_be_one_is_a_broker_that_cannot_be_reached() -> None:
    async def work() -> None:
        with pytest.raises(TimedOut, match=r"127\.0\.0\.\.1:1 cannot be connected to"):
            await Producer("127.0.0..1:1", default_timeout_ms=200).start()

    run(work())


def test_options_have_the_names_of_librdkafka_too() -> None:
    made = Producer.of({"bootstrap.servers": "a:1,b:2", "linger.ms": "7", "acks": -1, "compression.type": "zstd"})
    assert (made.options.bootstrap, made.options.linger_ms, made.options.acks) == ("a:1,b:2", 7, "all")
    with pytest.raises(InvalidOption, match=r"did you mean 'linger\.ms'"):
        Producer.of({"linger.m": 7})
    with pytest.raises(InvalidOption, match="acks"):
        Producer(acks=1, idempotent=True)
    with pytest.raises(InvalidOption, match="batch_size=0"):
        Producer(batch_size=0)
    with pytest.raises(InvalidOption, match="compression"):
        Producer(compression="brotli")


def test_nothing_is_lost_or_twice_when_the_server_is_killed(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap, batch_size=1_000, **PATIENT) as producer:
            for number in range(2_000):
                await producer.send(name, b"%d" % number)
                if number == 700:
                    server.stop(signal.SIGKILL)
                    await asyncio.to_thread(server.start)

    run(work())
    assert [int(value or b"") for value in values(read(server.bootstrap, name, 2_000))] == [*range(2_000)]


def test_nothing_is_lost_or_twice_while_leaders_are_killed(cluster: Cluster, name: str) -> None:
    create(cluster.bootstrap, name, 3)

    async def work() -> list[Any]:
        async with Producer(cluster.bootstrap, batch_size=2_000, **PATIENT) as producer:
            sent = []
            for number in range(6_000):
                sent.append(await producer.send(name, b"%d" % number, partition=number % 3))
                if number in (1_000, 3_000):
                    leader = await asyncio.to_thread(cluster.leader, name, 0)
                    await asyncio.to_thread(cluster.kill, leader)
                    await asyncio.sleep(0)
                if number in (2_000, 4_000):
                    await asyncio.to_thread(cluster.heal)
            return [await each for each in sent]

    with cluster.explaining():
        places = run(work())
    found = read(cluster.bootstrap, name, 6_000, 3)
    for partition in range(3):
        of_it = [(each.offset(), int(each.value() or b"")) for each in found if each.partition() == partition]
        assert [value for _, value in of_it] == [*range(partition, 6_000, 3)]
        assert all(places[value].offset == offset for offset, value in of_it)


def test_errors_are_one_family() -> None:
    assert issubclass(TimedOut, KafkaError)
    assert issubclass(InvalidOption, KafkaError)
    assert Refused(ErrorCode.NOT_ENOUGH_REPLICAS).is_retriable
    assert not Refused(ErrorCode.INVALID_RECORD).is_retriable

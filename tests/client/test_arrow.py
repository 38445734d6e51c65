"""Whole tables to and from topics, on a cluster of ours and on Apache Kafka; other clients write and read the same."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pyarrow as pa
import pytest

from odradek.client.consumer import Consumer
from odradek.client.errors import Closed, Refused, TransactionFailed
from odradek.client.producer import Producer
from tests.client.servers import Server
from tests.clients.confluent import Sender, create, read
from tests.clients.transactions import settled

ROWS = 5_000
SMALL = 1_000  # the most that one topic takes in a batch


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 120))


def table_of(rows: int, **more: Any) -> pa.Table:
    keys = pa.array([b"key %d" % (number % 7) for number in range(rows)], pa.binary())
    values = pa.array([b"%d" % number for number in range(rows)], pa.binary())
    return pa.table({"key": keys, "value": values, **more})


async def rows_of(consumer: Consumer, count: int, **options: Any) -> pa.Table:
    found: list[pa.Table] = []
    while sum(each.num_rows for each in found) < count:
        found.append(await consumer.poll_arrow(**options))
    return pa.concat_tables(found)


@pytest.mark.parametrize("codec", ["auto", "none", "gzip", "snappy", "lz4", "zstd"])
def test_a_table_is_read_by_others_as_it_was_sent(server: Server, name: str, codec: str) -> None:
    create(server.bootstrap, name, 3)

    async def work() -> list[Any]:
        async with Producer(server.bootstrap, compression=codec) as producer:
            return await (await producer.send_arrow(name, table_of(ROWS)))

    parts = run(work())
    assert sum(part.record_count for part in parts) == ROWS
    found = read(server.bootstrap, name, ROWS, 3)
    assert sorted(int(message.value() or b"") for message in found) == [*range(ROWS)]
    places: dict[bytes | None, set[int | None]] = {}
    for message in found:
        places.setdefault(message.key(), set()).add(message.partition())
    assert all(len(each) == 1 for each in places.values())
    for partition in range(3):
        of_it = [int(message.value() or b"") for message in found if message.partition() == partition]
        assert of_it == sorted(of_it)


def test_keys_go_where_single_records_with_the_same_keys_go(server: Server, name: str) -> None:
    create(server.bootstrap, name, 5)

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            await producer.send_arrow(name, table_of(7))
            for number in range(7):
                await producer.send(name, b"again", key=b"key %d" % number)

    run(work())
    places: dict[bytes | None, set[int | None]] = {}
    for message in read(server.bootstrap, name, 14, 5):
        places.setdefault(message.key(), set()).add(message.partition())
    assert [len(each) for each in places.values()] == [1] * 7


def test_what_others_wrote_is_read_as_a_table(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    sender = Sender(server.bootstrap, compression_type="lz4")
    for number in range(ROWS):
        headers = [("n", b"%d" % number)] if number % 2 else None
        sender.send(
            name, b"%d" % number, b"k" if number % 3 else None, partition=number % 2, timestamp=1_000 + number, headers=headers
        )
    sender.all_delivered()

    async def work() -> tuple[pa.Table, pa.Table]:
        columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
        async with Consumer(name, bootstrap=server.bootstrap) as consumer:
            everything = await rows_of(consumer, ROWS, columns=columns)
        async with Consumer(name, bootstrap=server.bootstrap) as consumer:
            return everything, await rows_of(consumer, ROWS, columns=["value"], max_bytes=10_000)

    everything, values = run(work())
    for row in everything.to_pylist():
        number = int(row["value"])
        assert (row["topic"], row["partition"], row["offset"]) == (name, number % 2, number // 2)
        assert row["key"] == (b"k" if number % 3 else None)
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(1_000 + number)
        assert row["headers"] == ([{"key": "n", "value": b"%d" % number}] if number % 2 else None)
    assert values.column_names == ["value"]
    assert sorted(map(int, values["value"].to_pylist())) == [*range(ROWS)]


def test_tables_and_records_take_turns_without_a_gap(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> list[int]:
        async with Producer(server.bootstrap, batch_size=2_000, compression="none") as producer:
            await producer.send_arrow(name, table_of(ROWS).drop_columns(["key"]))
        offsets: list[int] = []
        async with Consumer(name, bootstrap=server.bootstrap, max_partition_fetch_bytes=20_000) as consumer:
            while len(offsets) < ROWS:
                offsets += [record.offset for record in await consumer.poll(7)]
                offsets += (await consumer.poll_arrow(max_bytes=1))["offset"].to_pylist() if len(offsets) < ROWS else []
        return offsets

    assert run(work()) == [*range(ROWS)]


def test_what_was_aborted_is_in_no_table(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> list[bytes]:
        async with Producer(server.bootstrap, transactional_id=name) as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_arrow(name, pa.table({"value": [b"%d" % number] * 100}))
                await (producer.commit_transaction() if number % 2 else producer.abort_transaction())
        async with Consumer(name, bootstrap=server.bootstrap) as consumer:
            return [value.as_py() for value in (await rows_of(consumer, 300))["value"]]

    assert run(work()) == [b"1"] * 100 + [b"3"] * 100 + [b"5"] * 100
    assert [len(each) for each in settled(server.bootstrap, name, 1)] == [300]


def test_a_batch_of_a_table_that_is_too_large_is_sent_in_parts(server: Server, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes=str(SMALL))

    async def work() -> list[Any]:
        async with Producer(server.bootstrap, compression="none") as producer:
            return await (await producer.send_arrow(name, table_of(300)))

    parts = run(work())
    assert len(parts) > 1
    assert [part.offset for part in parts] == sorted(part.offset for part in parts)
    assert [int(message.value() or b"") for message in read(server.bootstrap, name, 300)] == [*range(300)]


def test_a_row_that_is_too_large_is_told_and_fails_its_transaction(server: Server, name: str) -> None:
    create(server.bootstrap, name, max_message_bytes=str(SMALL))
    table = pa.table({"value": [b"small", bytes(3 * SMALL)]})

    async def work() -> None:
        async with Producer(server.bootstrap, compression="none") as producer:
            sent = await producer.send_arrow(name, table)
            with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
                await sent
        async with Producer(server.bootstrap, compression="none", transactional_id=name) as producer:
            await producer.begin_transaction()
            await producer.send_arrow(name, table)
            with pytest.raises(TransactionFailed):
                await producer.commit_transaction()
            await producer.abort_transaction()

    run(work())


def test_after_its_end_a_producer_takes_no_table(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            await producer.send_arrow(name, table_of(1))
        with pytest.raises(Closed):
            await producer.send_arrow(name, table_of(1))

    run(work())


def test_partitions_timestamps_and_headers_of_rows_are_theirs(server: Server, name: str) -> None:
    create(server.bootstrap, name, 3)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "value": [b"a", b"b", None],
            "partition": pa.array([2, 0, 2], pa.int32()),
            "timestamp": pa.array([1_000, 2_000, 3_000], pa.timestamp("ms")),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], kind),
        }
    )

    async def work() -> None:
        async with Producer(server.bootstrap) as producer:
            await producer.send_arrow(name, table)

    run(work())
    found = {(each.partition(), each.offset()): each for each in read(server.bootstrap, name, 3, 3)}
    seen = {place: (each.value(), each.timestamp()[1], each.headers()) for place, each in found.items()}
    assert seen == {(2, 0): (b"a", 1_000, [("h", b"1")]), (0, 0): (b"b", 2_000, None), (2, 1): (None, 3_000, None)}

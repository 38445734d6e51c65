"""One transaction that several producers write in, each to partitions of its own: visible as a whole, or not at all.

On three nodes of ours and on Apache Kafka, with both versions of transactions: in the second, brokers add partitions by
themselves, and every end gives the next epoch."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from odradek.client.admin import Admin, Upgrade
from odradek.client.arrow.encode import encode
from odradek.client.errors import Fenced, InvalidOption, KafkaError, Refused, TransactionFailed
from odradek.client.producer import Producer
from odradek.client.records import SharedTransaction
from tests.client.admin.scenario import seen
from tests.client.consuming import run
from tests.client.servers import Server, serving
from tests.clients.confluent import create
from tests.clients.transactions import SETTINGS as QUICK
from tests.clients.transactions import look, settled

FEATURE = "transaction.version"
SETTINGS = {"auto_create_topics_enable": "false", **QUICK}


@pytest.fixture(scope="module", params=["three-2", "three-1", "kafka-2", "kafka-1"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    kind, level = request.param.split("-")
    with serving(kind, tmp_path_factory.mktemp("place"), **SETTINGS) as server:
        run(lower(server, int(level)))
        yield server


async def lower(server: Server, level: int) -> None:
    """The version of transactions, on all brokers."""
    async with Admin(server.bootstrap) as admin:
        if (await admin.describe_features()).features[FEATURE].level != level:
            await admin.update_features({FEATURE: level}, upgrade=Upgrade.SAFE_DOWNGRADE)
    for address in server.bootstrap.split(","):
        async with Admin(address) as admin:
            await seen(admin.describe_features, "the level", as_wanted=lambda found: found.features[FEATURE].level == level)


def producer(server: Server, name: str, **options: Any) -> Producer:
    return Producer(server.bootstrap, transactional_id=name, linger_ms=0, **options)


def hasty(server: Server, name: str) -> Producer:
    return producer(server, name, delivery_timeout_ms=3_000, default_timeout_ms=3_000)


async def is_refused(work: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises((Refused, TransactionFailed)):
        await work


@pytest.mark.parametrize("is_commit", [True, False])
def test_what_several_producers_wrote_in_one_transaction_is_visible_together_or_not_at_all(
    server: Server, name: str, is_commit: bool
) -> None:
    create(server.bootstrap, name, 3)

    async def story() -> None:
        async with producer(server, name) as first, producer(server, name) as second, producer(server, name) as third:
            await first.begin_transaction()
            shared = first.share_transaction()
            for number, each in enumerate((second, third), 1):
                each.join_transaction(shared)
                for value in range(5):
                    await each.send(name, f"{number}-{value}", partition=number)
                await each.flush()
            await first.deliver(name, "0", partition=0)
            assert look(server.bootstrap, name, 3).values == [[], [], []]
            await (first.commit_transaction if is_commit else first.abort_transaction)()

    run(story())
    everything = [["0"], [f"1-{value}" for value in range(5)], [f"2-{value}" for value in range(5)]]
    assert settled(server.bootstrap, name, 3) == (everything if is_commit else [[], [], []])


def test_a_producer_of_another_process_joins(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)

    async def story() -> None:
        async with producer(server, name) as first:
            await first.begin_transaction()
            await first.deliver(name, "ours", partition=0)
            told = [server.bootstrap, name, repr(tuple(first.share_transaction()))]
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, *told, stderr=subprocess.PIPE)
            _, said = await process.communicate()
            assert process.returncode == 0, said.decode()
            await first.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 2) == [["ours"], ["theirs"]]


def test_many_transactions_one_after_the_other_with_the_same_producers(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)
    epochs = []

    async def story() -> None:
        async with producer(server, name) as first, producer(server, name) as second:
            for number in range(6):
                await first.begin_transaction()
                shared = first.share_transaction()
                epochs.append((shared.producer_id, shared.epoch))
                second.join_transaction(shared)
                await second.send(name, str(number), partition=number % 2)
                await second.flush()
                if number % 3 == 2:
                    await first.abort_transaction()
                else:
                    await first.deliver(name, f"{number}!", partition=(number + 1) % 2)
                    await first.commit_transaction()

    run(story())
    assert len(set(epochs)) == 6, "the next transaction has another epoch, so that numbers begin anew"
    assert settled(server.bootstrap, name, 2) == [["0", "1!", "3!", "4"], ["0!", "1", "3", "4!"]]


def test_who_has_joined_a_transaction_cannot_end_it(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def story() -> None:
        async with producer(server, name) as first, producer(server, name) as second:
            await first.begin_transaction()
            second.join_transaction(first.share_transaction())
            await second.deliver(name, "1", partition=0)
            for end in (second.commit_transaction, second.abort_transaction):
                with pytest.raises(InvalidOption, match="by the producer that has begun it"):
                    await end()
            await first.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 1) == [["1"]]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_late_write_to_a_transaction_that_has_ended_is_refused(server: Server, name: str, is_commit: bool) -> None:
    """To a partition that was in it, once the end is there (before that it would end with the transaction), and to one that was
    not, while the next transaction is open."""
    create(server.bootstrap, name, 2)

    async def story() -> None:
        quick = {"delivery_timeout_ms": 5_000, "default_timeout_ms": 5_000}
        async with (
            producer(server, name) as first,
            producer(server, name, **quick) as late,
            producer(server, name, **quick) as later,
        ):
            await first.begin_transaction()
            shared = first.share_transaction()
            late.join_transaction(shared)
            later.join_transaction(shared)
            await late.deliver(name, "in time", partition=0)
            await (first.commit_transaction if is_commit else first.abort_transaction)()
            assert settled(server.bootstrap, name, 2) == [["in time"] if is_commit else [], []]
            await first.begin_transaction()
            await is_refused(late.deliver(name, "late", partition=0))
            await is_refused(later.deliver(name, "late", partition=1))
            await first.deliver(name, "next", partition=0)
            await first.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 2) == [[*(["in time"] if is_commit else []), "next"], []]


def test_who_begins_anew_fences_everybody_in_a_shared_transaction(server: Server, name: str) -> None:
    create(server.bootstrap, name, 2)

    async def story() -> None:
        quick = {"delivery_timeout_ms": 5_000, "default_timeout_ms": 5_000}
        async with (
            producer(server, name, **quick) as old,
            producer(server, name, **quick) as joined,
            producer(server, name) as new,
        ):
            await old.begin_transaction()
            joined.join_transaction(old.share_transaction())
            await joined.deliver(name, "old", partition=0)
            await new.begin_transaction()
            await is_refused(joined.deliver(name, "old", partition=1))
            with pytest.raises(Fenced):
                await old.commit_transaction()
            await new.deliver(name, "new", partition=1)
            await new.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 2) == [[], ["new"]]


def test_whole_batches_are_sent_in_a_shared_transaction(server: Server, name: str) -> None:
    import pyarrow as pa

    create(server.bootstrap, name, 2)
    table = pa.table({"value": [b"%d" % number for number in range(10)], "partition": [number % 2 for number in range(10)]})

    async def story() -> None:
        async with producer(server, name) as first, hasty(server, name) as second:
            await first.begin_transaction()
            second.join_transaction(first.share_transaction())
            built = [(part, count, data) for part, count, data in encode(table, 2, now_ms=1).batches]
            await (await second.send_batches(name, built))
            with pytest.raises(KafkaError, match="the topic has 2 partitions"):
                await second.send_batches(name, [(7, count, data) for _, count, data in built])
            await first.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 2) == [["0", "2", "4", "6", "8"], ["1", "3", "5", "7", "9"]]


def test_one_that_has_a_transaction_of_its_own_open_joins_no_other(server: Server, name: str) -> None:
    create(server.bootstrap, name)

    async def story() -> None:
        async with producer(server, name) as first, producer(server, f"{name}-2") as other:
            await first.begin_transaction()
            shared = first.share_transaction()
            with pytest.raises(InvalidOption, match="is open already"):
                first.join_transaction(shared)
            with pytest.raises(InvalidOption, match=f"of {name}"):
                other.join_transaction(shared)
            with pytest.raises(InvalidOption):
                other.share_transaction()
            await first.abort_transaction()  # in which nobody has written anything
            await first.begin_transaction()
            await first.deliver(name, "1")
            await first.commit_transaction()

    run(story())
    assert settled(server.bootstrap, name, 1) == [["1"]]


async def join(bootstrap: str, topic: str, shared: SharedTransaction) -> None:
    async with Producer(bootstrap, transactional_id=shared.transactional_id) as joined:
        joined.join_transaction(shared)
        await joined.deliver(topic, "theirs", partition=1)


if __name__ == "__main__":
    import ast

    asyncio.run(join(sys.argv[1], sys.argv[2], SharedTransaction(*ast.literal_eval(sys.argv[3]))))

"""The consumer on a cluster of three processes, of which one is killed now and then."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.client.records import Record, TopicPartition
from tests.client.consuming import GROUP_SETTINGS, consumer, poll_until, run, take, until, values
from tests.clients.confluent import create, fill
from tests.cluster.cluster import Cluster, running

PARTITIONS = 3
SECONDS_MAX = 180.0
PATIENT: dict[str, Any] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 200}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        **GROUP_SETTINGS,
        "broker_rack": "rack-{node}",
        "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with running(tmp_path_factory.mktemp("cluster"), None, **settings) as found:
        yield found


class Source:
    """Writes numbers to all partitions, until it is told to end."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.counts = [0] * PARTITIONS
        self.is_ending = False

    async def run(self) -> None:
        async with Producer(self.cluster.bootstrap, linger_ms=1, **PATIENT) as producer:
            while not self.is_ending:
                for index in range(PARTITIONS):
                    await producer.send(self.topic, b"%d" % self.counts[index], partition=index)
                    self.counts[index] += 1
                await asyncio.sleep(0.001)


def test_nothing_is_skipped_or_twice_while_leaders_are_killed(cluster: Cluster, name: str) -> None:
    create(cluster.bootstrap, name, PARTITIONS)

    async def story() -> None:
        source = Source(cluster, name)
        writing = asyncio.create_task(source.run())
        found: list[list[int]] = [[] for _ in range(PARTITIONS)]
        async with consumer(cluster.bootstrap, name) as reader:

            async def read() -> None:
                async for record in reader:
                    assert record.offset == int(record.value or b"")
                    found[record.partition].append(record.offset)

            reading = asyncio.create_task(read())
            for index in range(2):
                seen = len(found[index])
                await until(lambda: len(found[index]) >= seen + 100, "some were read")  # noqa: B023
                leader = await asyncio.to_thread(cluster.leader, name, index)
                await asyncio.to_thread(cluster.kill, leader)
                seen = len(found[index])
                await until(lambda: len(found[index]) >= seen + 100, "it is read on")  # noqa: B023
                await asyncio.to_thread(cluster.heal)
            source.is_ending = True
            await writing
            await until(lambda: list(map(len, found)) == source.counts, "all was read")
            await reader.close()
            await reading
        assert found == [list(range(count)) for count in source.counts]

    with cluster.explaining():
        run(story(), SECONDS_MAX)


class Worker:
    """A member that reads, and notes what it got in each time that it had a partition."""

    def __init__(self, cluster: Cluster, name: str, **options: Any) -> None:
        self.turns: list[list[Record]] = []
        self.current: dict[TopicPartition, list[Record]] = {}
        self.losses = 0
        self.reader = consumer(
            cluster.bootstrap,
            name,
            group=name,
            on_assigned=self._assigned,
            on_revoked=lambda _: None,
            on_lost=self._lost,
            auto_commit_interval_ms=50,
            **options,
        )
        self.task = asyncio.create_task(self._run())

    def _assigned(self, places: list[TopicPartition]) -> None:
        for place in places:
            self.current[place] = []
            self.turns.append(self.current[place])

    def _lost(self, places: list[TopicPartition]) -> None:
        self.losses += 1

    async def _run(self) -> None:
        async for record in self.reader:
            self.current[TopicPartition(record.topic, record.partition)].append(record)

    async def stop(self) -> None:
        await self.reader.close()
        await self.task


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_whose_coordinator_is_killed_while_members_come_and_go_skips_nothing(
    cluster: Cluster, name: str, protocol: str
) -> None:
    create(cluster.bootstrap, name, PARTITIONS)

    async def story() -> None:
        source = Source(cluster, name)
        writing = asyncio.create_task(source.run())
        one, two = (Worker(cluster, name, group_protocol=protocol) for _ in range(2))
        workers = [one, two]

        def offsets(index: int) -> set[int]:
            turns = [turn for worker in workers for turn in worker.turns]
            return {record.offset for turn in turns for record in turn if record.partition == index}

        await until(lambda: len(one.turns) + len(two.turns) >= PARTITIONS, "both have joined")
        workers.append(Worker(cluster, name, group_protocol=protocol))
        await asyncio.to_thread(cluster.kill, await asyncio.to_thread(cluster.coordinator, name))
        seen = [max(offsets(index), default=0) for index in range(PARTITIONS)]
        await until(lambda: workers[2].turns, "the third has joined")
        await asyncio.to_thread(cluster.heal)
        await two.stop()
        await until(lambda: all(max(offsets(index), default=0) > seen[index] for index in range(PARTITIONS)), "all are read on")
        source.is_ending = True
        await writing
        await until(lambda: [len(offsets(index)) for index in range(PARTITIONS)] == source.counts, "all was read")
        for worker in (one, workers[2]):
            await worker.stop()
        for worker in workers:
            for turn in worker.turns:
                found = [record.offset for record in turn]
                assert found == list(range(found[0], found[0] + len(found))) if found else True, "in order, and none twice"
        if not sum(worker.losses for worker in workers):  # what was handed over was committed before
            counted = sum(len(turn) for worker in workers for turn in worker.turns)
            assert counted == sum(source.counts)
        async with Consumer(bootstrap=cluster.bootstrap, group=name) as looking:
            places = [TopicPartition(name, index) for index in range(PARTITIONS)]
            committed = await looking.committed(*places)
            assert [committed[place].offset for place in places] == source.counts

    with cluster.explaining():
        run(story(), SECONDS_MAX)


def test_records_are_fetched_from_the_replica_of_the_rack_and_from_the_leader_when_it_is_gone(
    cluster: Cluster, name: str
) -> None:
    create(cluster.bootstrap, name)
    fill(cluster.bootstrap, name, 50)
    leader = cluster.leader(name)
    near = next(number for number in cluster.brokers if number != leader)
    cluster.all_in_sync(name)

    async def story() -> None:
        async with consumer(cluster.bootstrap, name, rack=f"rack-{near}") as reader:
            assert values(await take(reader, 50)) == list(range(50))
            assert reader._reader is not None
            reading = reader._reader.reading(TopicPartition(name, 0))
            await poll_until(lambda: reading.replica == near, reader)
            await asyncio.to_thread(fill, cluster.bootstrap, name, 50)
            assert values(await take(reader, 50)) == list(range(50))
            assert reading.replica == near
            await asyncio.to_thread(cluster.kill, near)
            await asyncio.to_thread(fill, cluster.bootstrap, name, 50)
            assert values(await take(reader, 50)) == list(range(50))
            assert reading.replica != near
            await asyncio.to_thread(cluster.heal)

    with cluster.explaining():
        run(story(), SECONDS_MAX)

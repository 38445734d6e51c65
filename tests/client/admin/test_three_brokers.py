"""An Admin of three brokers: every request goes where it belongs, also when a broker has gone, and how that is shown."""

import json
from collections.abc import Iterator

import pytest

from odradek.client.admin import Admin, Election, NewTopic, Offset, Replica
from odradek.client.records import TopicPartition
from tests.cli.program import odradek
from tests.client.admin.scenario import administer, seen
from tests.clients.confluent import fill
from tests.cluster.cluster import Cluster, running
from tests.cluster.layout import Layout

BROKERS = {1, 2, 3}
PLACES = {0: [1, 2], 1: [2, 3], 2: [3, 1]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), Layout(3, 3), offsets_topic_num_partitions="6") as started:
        yield started


async def made(admin: Admin, name: str) -> list[TopicPartition]:
    """A topic with a partition for each of the brokers to lead, and all in sync."""
    await admin.create_topics([NewTopic(name, assignments=PLACES)])
    await seen(
        lambda: admin.describe_topics([name]),
        "all in sync",
        as_wanted=lambda found: (
            [part.leader for part in found[name].partitions] == [1, 2, 3]
            and all(part.is_healthy for part in found[name].partitions)
        ),
    )
    return [TopicPartition(name, index) for index in PLACES]


def test_each_leader_each_coordinator_and_each_broker_is_asked_for_its_own(cluster: Cluster, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        places = await made(admin, name)
        for place in places:
            fill(cluster.bootstrap, name, place.partition + 1, partition=place.partition)
        ends = await admin.list_offsets(dict.fromkeys(places, Offset.LATEST))
        assert [ends[place].offset for place in places] == [1, 2, 3]
        groups = [f"{name}-{number}" for number in range(12)]
        for number, group in enumerate(groups):
            await admin.alter_group_offsets(group, {places[0]: number % 2})
        listed = await admin.list_groups()
        assert {listed[group].coordinator for group in groups} == BROKERS
        assert set(await admin.describe_groups(groups)) == set(groups)
        offsets = await admin.list_group_offsets(groups)
        assert [offsets[group][places[0]].offset for group in groups] == [number % 2 for number in range(12)]
        folders = await admin.describe_log_dirs()
        held = {
            Replica(place.topic, place.partition, broker)
            for broker, found in folders.items()
            for each in found.values()
            for place in each.logs
            if place.topic == name
        }
        assert held == {Replica(name, index, broker) for index, brokers in PLACES.items() for broker in brokers}
        await admin.delete_groups(groups)

    administer(cluster, scenario)


def test_a_partition_moves_and_a_move_is_taken_back(cluster: Cluster, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        place, *_ = await made(admin, name)
        await admin.reassign_partitions({place: [3, 2]})

        async def replicas() -> tuple[int, ...]:
            return (await admin.describe_topics([name]))[name].partitions[0].replicas

        await seen(replicas, "the move", as_wanted=lambda found: found == (3, 2))
        await seen(admin.list_reassignments, "its end", as_wanted=lambda found: place not in found)
        cluster.stop(1)
        try:
            await admin.reassign_partitions({place: [3, 2, 1]})
            under_way = await seen(lambda: admin.list_reassignments([place]), "a move that cannot end")
            assert (under_way[place].adding, under_way[place].removing) == ((1,), ())
            await admin.reassign_partitions({place: None})
            await seen(replicas, "it is as it was", as_wanted=lambda found: sorted(found) == [2, 3])
        finally:
            cluster.start(1)
            cluster.heal()

    administer(cluster, scenario)


def test_what_a_broker_leaves_behind_is_seen_and_given_back_to_it(cluster: Cluster, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        place, *_ = await made(admin, name)
        cluster.stop(1)
        try:
            await seen(
                lambda: admin.describe_topics([name]),
                "another leader",
                as_wanted=lambda found: found[name].partitions[0].leader == 2,
            )
            assert (await admin.list_offsets({place: Offset.LATEST}))[place].offset == 0
            shown = json.loads(odradek("cluster", "describe", "--json", "--bootstrap", cluster.bootstrap).stdout)
            mine = {(each["partition"], each["state"]) for each in shown["unhealthy"] if each["topic"] == name}
            assert mine == {(0, "under min ISR"), (2, "under min ISR")}  # of these clusters that is 2
            assert [each["state"] for each in shown["nodes"]] == ["away", "up", "up"]
        finally:
            cluster.start(1)
            cluster.heal()

        async def elect() -> bool:
            return (await admin.elect_leaders(Election.PREFERRED, [place]))[place]

        async def leader() -> int | None:
            return (await admin.describe_topics([name]))[name].partitions[0].leader

        await seen(elect, "it is in sync again")
        await seen(leader, "it leads", as_wanted=lambda found: found == 1)
        assert await elect() is False

    administer(cluster, scenario)

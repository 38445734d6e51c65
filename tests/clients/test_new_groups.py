"""Groups of the new protocol (KIP-848), of confluent-kafka and of Kafka's own consumers, and of both protocols at once."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions

from tests.clients.confluent import admin, consuming, create, fill, rows
from tests.clients.test_confluent_groups import Member, poll_until, settle
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle

SETTINGS = {
    "group_consumer_heartbeat_interval_ms": "300",
    "group_consumer_min_heartbeat_interval_ms": "300",
    "group_consumer_assignment_interval_ms": "0",
}
NEW = {"group_protocol": "consumer"}
JAVA_NEW = {"group.protocol": "consumer"}
JAVA_CLASSIC = {
    "group.protocol": "classic",
    "heartbeat.interval.ms": "300",
    "session.timeout.ms": "6000",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


@pytest.fixture
def java(oracle: Oracle) -> Iterator[Oracle]:
    yield oracle
    oracle.call("ConsumerGroups.close", timeout=30_000)


def gather(java: Oracle, server: Broker, name: str, members: list[dict[str, str]], **more: Any) -> Any:
    at = {"bootstrap": server.bootstrap, "topic": name, "group": name}
    return java.call("ConsumerGroups.gather", **at, members=members, **more)


def view(java: Oracle, server: Broker, name: str) -> Any:
    return java.call("ConsumerGroups.views", bootstrap=server.bootstrap, groups=[name])[name]


def test_members_share_the_partitions_and_take_over_from_one_that_leaves(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 6)
    with consuming(server.bootstrap, name, **NEW) as one, consuming(server.bootstrap, name, **NEW) as two:
        first, second = Member(one, name), Member(two, name)
        settle([first, second], [3, 3])
        with consuming(server.bootstrap, name, **NEW) as three:
            third = Member(three, name)
            settle([first, second, third], [2, 2, 2])
        settle([first, second], [3, 3])
        assert not first.lost
        assert not first.errors


def test_a_group_goes_on_where_it_committed(server: Broker, name: str) -> None:
    create(server.bootstrap, name)
    sent = fill(server.bootstrap, name, 30)
    with consuming(server.bootstrap, name, **NEW) as consumer:
        consumer.subscribe([name])
        assert rows(consumer, 10) == sent[:10]
        consumer.commit(asynchronous=False)
    with consuming(server.bootstrap, name, **NEW) as consumer:
        consumer.subscribe([name])
        assert rows(consumer, 20) == sent[10:]


def test_new_partitions_are_found(server: Broker, name: str) -> None:
    create(server.bootstrap, name, 2)
    with consuming(server.bootstrap, name, **NEW) as consumer:
        member = Member(consumer, name)
        settle([member], [2])
        client = admin(server.bootstrap)  # must outlive its answer
        client.create_partitions([NewPartitions(name, 5)])[name].result()
        settle([member], [5])


def test_a_regular_expression_is_a_subscription(server: Broker, name: str) -> None:
    create(server.bootstrap, f"{name}-red", 2)
    create(server.bootstrap, f"{name}-blue", 1)
    with consuming(server.bootstrap, name, **NEW) as consumer:
        member = Member(consumer, f"^{name}-r.*")
        poll_until([member], lambda: len(consumer.assignment()) == 2, "the topics that match")
        assert {partition.topic for partition in consumer.assignment()} == {f"{name}-red"}


def test_kafkas_consumers_share_the_partitions_and_take_over(java: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name, 6)
    found = gather(java, server, name, [JAVA_NEW] * 3, partitions=6, leaving=1)
    assert [len(owned) for owned in found["before"]] == [2, 2, 2]
    assert [len(owned) for owned in found["after"]] == [3, 3]
    group = view(java, server, name)
    assert (group["type"], group["state"], group["assignor"], len(group["members"])) == ("Consumer", "Stable", "uniform", 2)
    assert sorted(row[6] for row in group["members"]) == sorted(found["after"])
    assert all(row[6] == row[7] for row in group["members"])


def test_kafkas_consumers_subscribe_by_a_pattern(java: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, f"{name}-red", 2)
    create(server.bootstrap, f"{name}-blue", 1)
    found = gather(java, server, name, [{**JAVA_NEW, "pattern": f"{name}-r.*"}], partitions=2)
    assert found["after"] == [[f"{name}-red-0", f"{name}-red-1"]]


def test_a_classic_group_becomes_a_new_one_while_it_works_and_a_classic_one_again(
    java: Oracle, server: Broker, name: str
) -> None:
    create(server.bootstrap, name, 4)
    found = gather(java, server, name, [JAVA_CLASSIC, JAVA_CLASSIC, JAVA_NEW], partitions=4, leaving=1)
    assert sorted(len(owned) for owned in found["before"]) == [1, 1, 2]
    assert [len(owned) for owned in found["after"]] == [2, 2]
    assert view(java, server, name)["type"] == "Classic"


def test_members_of_both_protocols_share_a_group(java: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name, 4)
    found = gather(java, server, name, [JAVA_NEW, JAVA_CLASSIC], partitions=4)
    assert [len(owned) for owned in found["after"]] == [2, 2]
    group = view(java, server, name)
    assert (group["type"], sorted(row[5] for row in group["members"])) == ("Consumer", [False, True])
    with consuming(server.bootstrap, name, **NEW) as consumer:
        member = Member(consumer, name)
        poll_until([member], lambda: len(view(java, server, name)["members"]) == 3, "a third member")


def test_a_group_survives_a_restart_of_the_server(java: Oracle, server: Broker, name: str) -> None:
    create(server.bootstrap, name, 4)
    gather(java, server, name, [JAVA_NEW, JAVA_NEW], partitions=4)
    before = view(java, server, name)
    server.stop()
    server.start()
    after = view(java, server, name)
    assert after["members"] == before["members"]
    assert after["epoch"] == before["epoch"]

"""Voters of ours and of Apache Kafka's that stand in the settings come into the log, whoever leads; and Kafka's controllers and
brokers come to a cluster that is ours."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.confluent import consuming, fill, rows
from tests.clients.members import FEATURES, TOPICS, Members
from tests.clients.waiting import until
from tests.kafka.oracle import Oracle

KAFKA, OURS, OTHER_OURS = 1, 2, 3
VOTERS = {KAFKA, OURS, OTHER_OURS}
UPGRADE = ("upgrade", "--feature", "kraft.version=1")
OUR_BROKER, KAFKA_BROKER = 11, 12


@pytest.mark.parametrize("leader", [KAFKA, OURS], ids=["Kafka leads", "we lead"])
def test_voters_of_the_settings_come_into_the_log_and_can_be_changed(oracle: Oracle, tmp_path: Path, leader: int) -> None:
    members = Members(tmp_path, oracle, VOTERS - {KAFKA}, {KAFKA}, static=True)
    for node_id in VOTERS:
        members[node_id].format_by(oracle)
    with members.running():
        members.start(*VOTERS)
        members.hand_over(leader)
        until(lambda: members.call(FEATURES, "describe")[0] == 0, "whoever is asked knows the metadata version")
        assert re.search(r"kraft.version\s.*FinalizedVersionLevel: 0", members.run(FEATURES, "describe"))
        until(lambda: members.call(FEATURES, *UPGRADE)[0] == 0, "all voters have told who they are")
        assert re.search(r"kraft.version\s.*FinalizedVersionLevel: 1", members.run(FEATURES, "describe"))
        members.check_told()
        members[OTHER_OURS].stop()
        members.start(OTHER_OURS)
        members.check_logs()
        for removed in VOTERS - {leader}:
            members.remove_voter(removed)
            assert removed in members.standing().observers
        assert members.standing().voters == {leader}


@pytest.fixture(scope="module")
def cluster(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    """Of ours a controller and a broker, to which come one each of Kafka's."""
    folder = tmp_path_factory.mktemp("cluster")
    settings = {"controller.quorum.auto.join.enable": "true"}
    members = Members(folder, oracle, {OURS, OUR_BROKER}, {KAFKA, KAFKA_BROKER}, settings=settings)
    members[OURS].format_by(oracle, "--standalone")
    members[KAFKA].format_by(oracle, "--no-initial-controllers")
    for broker in (OUR_BROKER, KAFKA_BROKER):
        members[broker].format_by(oracle)
    with members.running():
        members.start(OURS, OUR_BROKER)
        members.start(KAFKA, KAFKA_BROKER)
        yield members


@pytest.mark.parametrize(("leader", "follower"), [(OUR_BROKER, KAFKA_BROKER), (KAFKA_BROKER, OUR_BROKER)])
def test_kafkas_broker_takes_replicas_in_our_cluster(cluster: Members, name: str, leader: int, follower: int) -> None:
    cluster.run(TOPICS, "--create", "--topic", name, "--replica-assignment", f"{leader}:{follower}")
    sent = fill(cluster.brokers, name, 100)
    one, other = (cluster[broker].data / f"{name}-0" / f"{0:020}.log" for broker in (leader, follower))
    until(lambda: one.read_bytes() == other.read_bytes(), "both have it")
    for broker in (leader, follower):
        with consuming(cluster[broker].bootstrap, f"{name}-{broker}") as consumer:
            consumer.subscribe([name])
            assert [row.value for row in rows(consumer, 100)] == [row.value for row in sent]


def test_kafkas_controller_joins_our_quorum_by_itself(cluster: Members) -> None:
    until(lambda: cluster.standing().voters == {KAFKA, OURS}, "it votes")
    cluster.check_told()
    cluster.check_logs()

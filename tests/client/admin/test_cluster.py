"""Settings, brokers, features, folders, the quorum and the placement of partitions, of a node and of Apache Kafka."""

import pytest

from odradek.client.admin import (
    Admin,
    Change,
    ConfigChange,
    Election,
    Endpoint,
    Operation,
    Replica,
    Resource,
    ResourceKind,
    Source,
    Upgrade,
)
from odradek.client.errors import InvalidOption, KafkaError, Refused, SomeFailed, TimedOut
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from tests.client.admin.scenario import administer, made, seen
from tests.clients.confluent import fill
from tests.kafka.broker import Broker

SOME_ID = "AAAAAAAAAAAAAAAAAAAAQQ"


def test_settings_are_told_with_where_they_come_from(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name, retention_ms="4711")
        topic = Resource(ResourceKind.TOPIC, name)
        found = (await admin.describe_configs([topic], include_synonyms=True, include_documentation=True))[topic]
        retention, segment = found["retention.ms"], found["segment.bytes"]
        assert (retention.value, retention.source, retention.is_own) == ("4711", Source.TOPIC, True)
        assert (segment.source, segment.is_own) == (Source.DEFAULT, False)
        assert retention.documentation
        assert retention.synonyms[0].source == Source.TOPIC
        named = (await admin.describe_configs([topic], names=["retention.ms"]))[topic]
        assert set(named) == {"retention.ms"}
        assert named["retention.ms"].synonyms == ()

    administer(server, scenario)


def test_changes_of_settings_leave_all_others(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        await made(admin, name, retention_ms="4711", max_message_bytes="1000")
        topic = Resource(ResourceKind.TOPIC, name)
        changes = [ConfigChange("cleanup.policy", "compact", Change.APPEND), ConfigChange("retention.ms", change=Change.DELETE)]
        await admin.alter_configs({topic: changes}, validate_only=True)
        await admin.alter_configs({topic: [*changes, ConfigChange("segment.ms", "5000")]})

        async def own() -> dict[str, str | None]:
            found = (await admin.describe_configs([topic]))[topic]
            return {key: each.value for key, each in found.items() if each.source == Source.TOPIC}

        wanted = {"cleanup.policy": "delete,compact", "max.message.bytes": "1000", "segment.ms": "5000"}
        await seen(own, "the settings", as_wanted=lambda found: found == wanted)
        with pytest.raises(Refused) as caught:
            await admin.alter_configs({topic: [ConfigChange("retention.ms", "long")]})
        assert caught.value.code == ErrorCode.INVALID_CONFIG

    administer(server, scenario)


def test_brokers_their_loggers_and_groups_have_settings_too(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        broker, logger = Resource(ResourceKind.BROKER, "1"), Resource(ResourceKind.BROKER_LOGGER, "1")
        every, group = Resource(ResourceKind.BROKER, ""), Resource(ResourceKind.GROUP, name)
        found = await admin.describe_configs([broker, logger])
        assert found[broker]["node.id"].value == "1"
        assert found[logger]["root"].source == Source.BROKER_LOGGER
        await admin.alter_configs(
            {
                every: [ConfigChange("log.cleaner.threads", "1")],
                group: [ConfigChange("consumer.session.timeout.ms", "50000")],
                logger: [ConfigChange("root", "WARN")],
            }
        )
        changed = await seen(
            lambda: admin.describe_configs([every, group, logger]),
            "the settings",
            as_wanted=lambda found: (
                "log.cleaner.threads" in found[every] and found[group]["consumer.session.timeout.ms"].source == Source.GROUP
            ),
        )
        assert changed[every]["log.cleaner.threads"].source == Source.ALL_BROKERS
        assert changed[logger]["root"].value == "WARN"
        listed = await admin.list_config_resources([ResourceKind.GROUP, ResourceKind.BROKER])
        assert {group, broker} <= set(listed)

    administer(server, scenario)


def test_a_broker_that_is_not_there_fails_alone(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        here, gone = Resource(ResourceKind.BROKER, "1"), Resource(ResourceKind.BROKER, "9")
        with pytest.raises(SomeFailed) as caught:
            await admin.describe_configs([here, gone])
        assert (set(caught.value.done), set(caught.value.errors)) == ({here}, {gone})
        with pytest.raises(InvalidOption):
            await admin.describe_configs([Resource(ResourceKind.BROKER, "first")])

    administer(server, scenario)


def test_the_cluster_is_described(server: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        found = await admin.describe_cluster(include_fenced=True, include_operations=True)
        assert found.controller == 1
        (broker,) = found.brokers.values()
        assert (broker.id, broker.port, broker.is_fenced) == (1, server.port, False)
        assert Operation.ALTER in (found.operations or ())
        assert (await admin.describe_cluster()).operations is None
        with pytest.raises(Refused) as caught:
            await admin.unregister_broker(9)
        assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED

    administer(server, scenario)


def test_features_are_described_and_their_levels_checked(server: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        found = await admin.describe_features()
        assert found.features["metadata.version"].level == found.features["metadata.version"].level_max
        level = found.features["group.version"].level
        assert level is not None
        await admin.update_features({"group.version": level - 1}, upgrade=Upgrade.SAFE_DOWNGRADE, validate_only=True)
        with pytest.raises(Refused) as caught:
            await admin.update_features({"metadata.version": 9999})
        assert caught.value.code == ErrorCode.INVALID_UPDATE_VERSION

    administer(server, scenario)


def test_the_quorum_is_described_and_keeps_its_last_voter(server: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        found = await admin.describe_quorum()
        assert (found.leader, set(found.voters), found.observers) == (1, {1}, {})
        assert found.endpoints[1][0].port == server.controller_port
        with pytest.raises(Refused) as caught:
            await admin.remove_voter(9, SOME_ID)
        assert caught.value.code == ErrorCode.VOTER_NOT_FOUND
        with pytest.raises(Refused) as caught:
            await admin.add_voter(1, SOME_ID, [Endpoint("CONTROLLER", "127.0.0.1", server.controller_port)])
        assert caught.value.code == ErrorCode.DUPLICATE_VOTER

    administer(server, scenario)


def test_folders_are_described_with_what_is_in_them(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        places = await made(admin, name, 2)
        fill(server.bootstrap, name, 10, partition=1)
        found = (await admin.describe_log_dirs())[1]
        held = {place: log for each in found.values() for place, log in each.logs.items() if place.topic == name}
        assert set(held) == set(places)
        assert held[places[0]].size_bytes == 0 < held[places[1]].size_bytes
        some = (await admin.describe_log_dirs([1], partitions=[places[0]]))[1]
        assert [place for each in some.values() for place in each.logs] == [places[0]]
        assert all(each.error is None and each.total_bytes and not each.is_cordoned for each in found.values())

    administer(server, scenario)


def test_a_log_moves_to_another_folder(kafka: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        (place,) = await made(admin, name)

        async def path() -> list[str]:
            return [path for path, each in (await admin.describe_log_dirs())[1].items() if place in each.logs]

        (there,) = await seen(path, "the log")
        (other,) = set((await admin.describe_log_dirs())[1]) - {there}
        await admin.alter_replica_log_dirs({Replica(name, 0, 1): other})
        await seen(path, "the log there", as_wanted=lambda found: found == [other])
        with pytest.raises(Refused) as caught:
            await admin.alter_replica_log_dirs({Replica(name, 0, 1): "/nowhere"})
        assert caught.value.code == ErrorCode.LOG_DIR_NOT_FOUND

    administer(kafka, scenario)


def test_partitions_are_reassigned_where_that_can_be(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        first, second = await made(admin, name, 2)
        await admin.reassign_partitions({first: [1]})
        with pytest.raises(SomeFailed) as caught:
            await admin.reassign_partitions({first: [1], second: [9]})
        assert caught.value.errors[second].code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert set(caught.value.done) == {first}
        with pytest.raises(Refused) as alone:
            await admin.reassign_partitions({first: None})
        assert alone.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await admin.list_reassignments() == await admin.list_reassignments([first]) == {}

    administer(server, scenario)


def test_an_election_that_is_not_needed_is_none(server: Broker, name: str) -> None:
    async def scenario(admin: Admin) -> None:
        places = await made(admin, name, 2)
        assert await admin.elect_leaders(Election.PREFERRED, places) == dict.fromkeys(places, False)
        assert await admin.elect_leaders() == {}
        with pytest.raises(Refused) as caught:
            await admin.elect_leaders(Election.PREFERRED, [TopicPartition(name, 9)])
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    administer(server, scenario)


def test_what_a_broker_does_not_serve_is_refused_at_once(node: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        with pytest.raises(Refused) as caught:
            await admin.describe_acls()
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert not caught.value.is_retriable

    administer(node, scenario)


def test_who_cannot_be_reached_is_said_when_time_is_over(node: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        admin.cluster.bootstrap = [("127.0.0.1", 1)]
        with pytest.raises(TimedOut) as caught:
            await admin.describe_quorum(timeout_ms=1)
        assert isinstance(caught.value, KafkaError)
        assert caught.value.is_retriable

    administer(node, scenario)

"""kafka-python: its producer, its consumer, and every call of its administrator that a node serves."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import kafka.errors
import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, MemberToRemove, OffsetSpec
from kafka.structs import OffsetAndMetadata

from tests.clients.waiting import SECONDS_MAX, until
from tests.kafka.broker import Broker

QUICK = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 200, "metadata_max_age_ms": 500}
POLL_MS = 100
# kafka-python 3.0.12 forgets a join that is answered after poll() has given up, if new metadata was the reason for it, and sends
# no heartbeats from then on: whoever waits for records of a group polls until they are there.
PATIENT_POLL_MS = SECONDS_MAX * 1000


@pytest.fixture(scope="module")
def admin(server: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=server.bootstrap)) as client:
        yield client


def create(admin: Any, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
    admin.create_topics({topic: wanted}, wait_for_metadata=True)


def fill(server: Broker, topic: str, count: int, partition: int = 0, **settings: Any) -> list[int]:
    with closing(KafkaProducer(bootstrap_servers=server.bootstrap, **settings)) as producer:
        sent = [producer.send(topic, b"%d" % number, partition=partition) for number in range(count)]
        producer.flush()
        return [each.get(30).offset for each in sent]


def consuming(server: Broker, *topics: str, **settings: Any) -> Any:
    base = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "check_crcs": True}
    return closing(KafkaConsumer(*topics, bootstrap_servers=server.bootstrap, **{**base, **settings}))


def records(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []

    def look() -> bool:
        for some in consumer.poll(PATIENT_POLL_MS, max_records=count - len(found)).values():
            found.extend(some)
        return len(found) >= count

    until(look, f"{count} records")
    return found


def values(consumer: Any, count: int) -> list[bytes | None]:
    return [record.value for record in records(consumer, count)]


def numbers(*of: int) -> list[bytes]:
    return [b"%d" % number for number in range(*of)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_are_read_back_through_every_codec(
    server: Broker, admin: Any, name: str, codec: str | None, acks: int | str
) -> None:
    create(admin, name)
    offsets = fill(server, name, 200, compression_type=codec, acks=acks, linger_ms=20, enable_idempotence=acks == "all")
    if acks != 0:
        assert offsets == list(range(200))
    with consuming(server, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        assert values(consumer, 200) == numbers(200)


def test_keys_headers_null_values_and_timestamps_come_back(server: Broker, admin: Any, name: str) -> None:
    create(admin, name)
    headers = [("a", b"1"), ("a", b"")]
    with closing(KafkaProducer(bootstrap_servers=server.bootstrap)) as producer:
        producer.send(name, None, b"key", headers=headers, timestamp_ms=1_600_000_000_000).get(30)
    with consuming(server) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        (found,) = records(consumer, 1)
        assert (found.key, found.value, found.timestamp) == (b"key", None, 1_600_000_000_000)
        assert list(found.headers) == headers


def test_a_record_over_the_limit_is_refused(server: Broker, admin: Any, name: str) -> None:
    create(admin, name, max_message_bytes="1000")
    with closing(KafkaProducer(bootstrap_servers=server.bootstrap, enable_idempotence=False)) as producer:
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            producer.send(name, bytes(2000)).get(30)
        assert producer.send(name, bytes(100)).get(30).offset == 0


def test_positions_are_found_and_sought(server: Broker, admin: Any, name: str) -> None:
    create(admin, name)
    with closing(KafkaProducer(bootstrap_servers=server.bootstrap)) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number, timestamp_ms=1_600_000_000_000 + number).get(30)
    partition = TopicPartition(name, 0)
    with consuming(server) as consumer:
        consumer.assign([partition])
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        assert consumer.offsets_for_times({partition: 1_600_000_000_004})[partition].offset == 4
        assert consumer.offsets_for_times({partition: 1_700_000_000_000})[partition] is None
        consumer.seek(partition, 7)
        assert values(consumer, 3) == numbers(7, 10)
        consumer.seek_to_beginning(partition)
        assert values(consumer, 2) == numbers(2)
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 10
        consumer.pause(partition)
        consumer.seek(partition, 0)
        assert consumer.poll(POLL_MS) == {}
        consumer.resume(partition)
        assert values(consumer, 1) == numbers(1)


def test_a_topic_is_made_when_it_is_first_named(server: Broker, admin: Any, name: str) -> None:
    assert fill(server, name, 3) == [0, 1, 2]
    with consuming(server, f"{name}-read", group_id=name, **QUICK) as consumer:
        until(lambda: consumer.poll(POLL_MS) or f"{name}-read" in admin.list_topics(), "the topic")


class Calls(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.assigned: list[int] = []
        self.revoked: list[int] = []

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned.append(len(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked.append(len(revoked))


def settled(consumers: list[Any], share: int) -> None:
    """All poll at the same time: a join that is answered while its consumer does not poll is begun again."""
    with ThreadPoolExecutor(len(consumers)) as threads:

        def look() -> bool:
            list(threads.map(lambda consumer: consumer.poll(POLL_MS), consumers))
            return all(len(consumer.assignment()) == share for consumer in consumers)

        until(look, f"a share of {share} each")


def test_a_group_commits_and_shares(server: Broker, admin: Any, name: str) -> None:
    create(admin, name, 4)
    fill(server, name, 20)
    calls, reports, partition = Calls(), [], TopicPartition(name, 0)
    with consuming(server, group_id=name, **QUICK) as first:
        first.subscribe([name], listener=calls)
        assert values(first, 8) == numbers(8)
        first.commit({partition: OffsetAndMetadata(8, "so far", -1)})
        assert first.committed(partition) == 8
        first.commit_async({partition: OffsetAndMetadata(9, "", -1)}, callback=lambda *report: reports.append(report))
        until(lambda: (first.poll(POLL_MS), reports)[1], "the report of the commit")
        with consuming(server, name, group_id=name, **QUICK) as second:
            settled([first, second], 2)
            assert not first.assignment() & second.assignment()
        settled([first], 4)
        assert first.committed(partition) == 9
    assert [count for count in calls.assigned if count] == [4, 2, 4]


def test_an_administrator_goes_through_topics(server: Broker, admin: Any, name: str) -> None:
    create(admin, name, 2, retention_ms="1000")
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        create(admin, name)
    with pytest.raises(kafka.errors.InvalidTopicError):
        create(admin, "not/a/name")
    with pytest.raises(kafka.errors.InvalidReplicationFactorError):
        admin.create_topics({f"{name}-2": {"num_partitions": 1, "replication_factor": 2}})
    assert name in admin.list_topics()
    (topic,) = admin.describe_topics([name])
    assert [partition["leader_id"] for partition in topic["partitions"]] == [1, 1]
    admin.create_partitions({name: 3})
    until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3, "the new partition")
    assert [each["name"] for each in admin.describe_topic_partitions([name])["topics"]] == [name]
    fill(server, name, 9)
    partition = TopicPartition(name, 0)
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    for spec, offset in ((OffsetSpec.EARLIEST, 4), (OffsetSpec.LATEST, 9)):
        assert admin.list_partition_offsets({partition: spec})[partition].offset == offset
    (election,) = admin.elect_leaders(0, {name: [0]}).replica_election_results
    assert [each.error_code for each in election.partition_result] == [kafka.errors.ElectionNotNeededError.errno]
    assert admin.list_partition_reassignments() == {}
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics(), "the deletion")
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_an_administrator_goes_through_configurations(admin: Any, name: str) -> None:
    create(admin, name, retention_ms="1000")

    def described() -> dict[str, Any]:
        found: dict[str, Any] = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])["topic"][name]
        return found

    def alter(**configs: Any) -> Any:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, settings)])

    assert described()["retention.ms"]["value"] == "1000"
    alter(retention_ms="7000", cleanup_policy=(AlterConfigOp.APPEND, "compact"))
    until(lambda: described()["retention.ms"]["value"] == "7000", "the new retention")
    assert described()["cleanup.policy"]["value"] == "delete,compact"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})])
    until(lambda: "retention.ms" not in described(), "the default")
    resources = admin.list_config_resources()
    assert name in resources["topic"]
    assert resources["broker"] == ["1"]


def test_an_administrator_goes_through_groups(server: Broker, admin: Any, name: str) -> None:
    create(admin, name, 2)
    fill(server, name, 3)
    with consuming(server, name, group_id=name, client_id="reader", **QUICK) as consumer:
        records(consumer, 3)
        consumer.commit()
        group = admin.describe_groups([name])[name]
        assert (group["group_state"], len(group["members"])) == ("Stable", 1)
        assert [each["group_state"] for each in admin.list_groups() if each["group_id"] == name] == ["Stable"]
        assert admin.delete_groups([name])[name] == "NonEmptyGroupError"
        member = group["members"][0]["member_id"]
        assert list(admin.remove_group_members(name, [MemberToRemove(member_id=member)]).values()) == [kafka.errors.NoError]
    partition = TopicPartition(name, 0)
    until(lambda: admin.describe_groups([name])[name]["group_state"] == "Empty", "the end of the group")
    admin.alter_group_offsets(name, {partition: OffsetAndMetadata(1, "moved", -1)})
    assert admin.list_group_offsets({name: None})[name][partition].offset == 1
    admin.delete_group_offsets(name, [partition])
    assert partition not in admin.list_group_offsets({name: None})[name]
    assert admin.delete_groups([name])[name] == "OK"
    assert name not in [each["group_id"] for each in admin.list_groups()]


def test_an_administrator_sees_the_cluster(server: Broker, admin: Any, name: str) -> None:
    create(admin, name, 2)
    fill(server, name, 10)
    assert [broker["port"] for broker in admin.describe_cluster()["brokers"]] == [server.port]
    (of_broker,) = admin.describe_log_dirs({name: [0, 1]})
    (log_dir,) = of_broker["log_dirs"]
    assert log_dir["log_dir"] == str(server.data)
    sizes = {each["partition_index"]: each["partition_size"] for each in log_dir["topics"][0]["partitions"]}
    assert sizes[0] > 0
    assert sizes[1] == 0
    (quorum,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert (quorum["leader_id"], [voter["replica_id"] for voter in quorum["current_voters"]]) == (1, [1])
    levels = {"metadata.version": (30, 30), "kraft.version": (1, 1), "group.version": (1, 1)}
    features = admin.describe_features()
    assert {feature: features[feature]["finalized"] for feature in levels} == levels
    assert "Metadata" in str(admin.api_versions())

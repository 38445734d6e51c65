"""One data folder, served in turn by Apache Kafka and by a node of ours, each as the other left it or as the other was killed.

Both listen on the same ports, so that one idempotent producer lives through all of it and never learns who answered.
"""

import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    ConsumerGroupState,
    ConsumerGroupType,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from confluent_kafka.admin._resource import ResourceType

from odradek.wire.batch import headers
from tests.clients.confluent import POLL_SECONDS, Sender, admin, consuming, create, messages, patiently
from tests.clients.server import node_command
from tests.clients.waiting import SECONDS_MAX, until
from tests.kafka.broker import Broker
from tests.kafka.oracle import Oracle

PARTITIONS = 3
SETTINGS = {
    "broker_heartbeat_interval_ms": "500",  # a killed broker is let in again soon
    "broker_session_timeout_ms": "3000",
    "share_coordinator_state_topic_num_partitions": "3",
    "log_index_size_max_bytes": "12000",  # zeros that are compared again and again
}
CONFIGS = {"retention_ms": "-1", "max_message_bytes": "54321", "segment_bytes": "1048576"}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STATES = ("__transaction_state-0", "__share_group_state-*")
INDEX_ENTRY_BYTES = {".index": 8, ".timeindex": 12}
NOT_SERVED_YET = "features of this folder that are not served yet: "
PATIENT = {"message_timeout_ms": 120_000, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
HOW = pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])


class Folder(Broker):
    """Served by Kafka, or while `is_ours` by a node."""

    is_ours = False

    def _command(self) -> list[str]:
        return node_command(self._properties) if self.is_ours else super()._command()


class OurFolder(Folder):
    """One that a node formats when it first starts."""

    is_ours = True

    def _format(self, voters: tuple[str, ...]) -> None:
        pass


def seen(server: Folder, oracle: Oracle, topic: str, groups: list[str]) -> dict[str, Any]:
    """What must be the same whoever serves."""
    client = admin(server.bootstrap)
    described = client.describe_topics(TopicCollection([topic]))[topic].result()
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = client.describe_configs([resource])[resource].result().values()
    offsets = [offsets_of(server, group, topic) for group in groups]  # and so the coordinator has been loaded
    listed = client.list_consumer_groups().result()
    assert not listed.errors
    return {
        "id": str(described.topic_id),
        "configs": sorted(
            (entry.name, entry.value) for entry in configs if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
        ),
        "features": features_of(server, oracle),
        "offsets": offsets,
        "groups": sorted((each.group_id, each.type, each.state) for each in listed.valid if each.group_id in groups),
    }


def offsets_of(server: Folder, group: str, topic: str) -> list[tuple[int, int, str | None]]:
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with consuming(server.bootstrap, group) as consumer:
        found = patiently(lambda: consumer.committed(partitions, timeout=30))
    return [(each.partition, each.offset, each.metadata) for each in found]


def features_of(server: Folder, oracle: Oracle) -> dict[str, int]:
    features: dict[str, int] = oracle.call("Admins.cluster", bootstrap=server.bootstrap)["features"]
    return features


def read_all(server: Folder, topic: str) -> list[tuple[Any, ...]]:
    """All records that are not of aborted transactions, with everything that a record has."""
    partitions = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
    found: list[Message] = []
    ended: set[int | None] = set()
    settings: dict[str, Any] = {"enable_partition_eof": True, "isolation_level": "read_committed", "fetch_wait_max_ms": 10}
    with consuming(server.bootstrap, "nobody", **settings) as consumer:
        consumer.assign(partitions)

        def look() -> bool:
            for message in consumer.consume(1000, POLL_SECONDS):
                if message.error() is None:
                    found.append(message)
                else:
                    ended.add(message.partition())
            return len(ended) == PARTITIONS

        until(look, "the end of all partitions")
    rows = [(m.partition(), m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in found]
    return sorted(rows, key=lambda row: row[:2])


def leave_records(server: Folder, topic: str, label: str) -> None:
    senders = []
    for number, codec in enumerate(CODECS):
        sender = Sender(server.bootstrap, compression_type=codec, enable_idempotence=number % 2 == 0, **PATIENT)
        for index in range(PARTITIONS):
            headers = [("by", label.encode()), ("codec", codec.encode()), ("null", None)]
            sender.send(topic, f"{label} {codec}".encode(), b"key", partition=index, headers=headers)
            sender.send(topic, None, b"deleted", partition=index)
        senders.append(sender)
    for sender in senders:
        assert len(sender.all_delivered()) == 2 * PARTITIONS


def leave_offsets(server: Folder, topic: str, group: str, offset: int, **settings: str) -> None:
    """A group that has read, committed and left."""
    with consuming(server.bootstrap, group, **settings) as consumer:
        consumer.subscribe([topic])
        messages(consumer, 1)
        wanted = [TopicPartition(topic, index, offset + index, metadata=f"note {index}") for index in range(PARTITIONS)]
        patiently(lambda: consumer.commit(offsets=wanted, asynchronous=False))


def leave_transactions(server: Folder, topic: str) -> None:
    for is_committed in (True, False):
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": f"{topic}-{is_committed}"})
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce(topic, b"committed" if is_committed else b"aborted", partition=index)
        producer.flush(SECONDS_MAX)
        if is_committed:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)


def leave_a_share_group(server: Folder, topic: str, oracle: Oracle) -> None:
    """One whose state has been written down."""
    oracle.call("ShareGroups.read", bootstrap=server.bootstrap, group=f"{topic}-share", topic=topic)


def states(server: Folder) -> dict[str, bytes]:
    """What is in every file of the topics that only Kafka writes."""
    paths = [path for name in STATES for folder in server.data.glob(name) for path in folder.iterdir()]
    return {str(path.relative_to(server.data)): content(path) for path in paths}


def content(path: Path) -> bytes:
    """The bytes of a file, but for what Kafka itself drops or adds whenever it opens a log: an index's room for more entries,
    which is filled with zeros, and an epoch that begins at the end of the log."""
    data = path.read_bytes()
    if path.suffix in INDEX_ENTRY_BYTES:
        nothing = bytes(INDEX_ENTRY_BYTES[path.suffix])
        while data.endswith(nothing):
            data = data.removesuffix(nothing)
    elif path.name == "leader-epoch-checkpoint":
        _, _, *epochs = data.splitlines(keepends=True)
        data = b"".join(epoch for epoch in epochs if int(epoch.split()[1]) < end_of_log(path.parent))
    return data


def end_of_log(folder: Path) -> int:
    last = max(folder.glob("*.log"))
    return max((header.last_offset + 1 for _, header in headers(last.read_bytes())), default=int(last.stem))


def check_that_all_is_kept(left: dict[str, bytes], served: dict[str, bytes], how: signal.Signals) -> None:
    """Whoever is killed has not written the last entry of a time index, which stands for the youngest record: it is added. And
    what it knew of producers is built again from the batches."""
    is_killed = how is signal.SIGKILL
    missing = left.keys() - served.keys()
    assert not served.keys() - left.keys()
    assert all(is_killed and path.endswith(".snapshot") for path in missing), missing
    for path, data in served.items():
        is_longer = is_killed and path.endswith(".timeindex")
        assert (data[: len(left[path])] if is_longer else data) == left[path], path


def check_that_nothing_was_mended(left: dict[str, bytes], served: dict[str, bytes]) -> None:
    """Kafka reads what a node has left as it is."""
    for path, data in left.items():
        assert served[path] == data, path


@HOW
@pytest.mark.parametrize("static_voters", [False, True], ids=["voters in the log", "static voters"])
def test_a_node_takes_a_folder_over_from_kafka_and_gives_it_back(
    tmp_path: Path, oracle: Oracle, name: str, static_voters: bool, how: signal.Signals
) -> None:
    server = Folder(tmp_path, static_voters, **SETTINGS)
    server.start()
    try:
        groups = [f"{name}-classic", f"{name}-consumer"]
        create(server.bootstrap, name, PARTITIONS, **CONFIGS)
        constant = Sender(server.bootstrap, enable_idempotence=True, **PATIENT)
        leave_records(server, name, "kafka")
        leave_transactions(server, name)
        leave_a_share_group(server, name, oracle)
        leave_offsets(server, name, groups[0], 1)
        leave_offsets(server, name, groups[1], 4, group_protocol="consumer")
        constant.send(name, b"constant 0", partition=0)
        constant.all_delivered()
        before, records = seen(server, oracle, name, groups), read_all(server, name)
        assert [group[1:] for group in before["groups"]] == [
            (ConsumerGroupType.CLASSIC, ConsumerGroupState.EMPTY),
            (ConsumerGroupType.CONSUMER, ConsumerGroupState.EMPTY),
        ]
        served: dict[str, bytes] = {}
        for number in range(1, 4):
            server.stop(how)
            left = states(server)
            written = {path.rpartition("-")[0] for path, data in left.items() if path.endswith(".log") and data}
            assert written == {"__transaction_state", "__share_group_state"}
            if server.is_ours:
                assert left == served
            server.is_ours = not server.is_ours
            position = len(server.output())
            server.start()
            told = [line for line in server.output()[position:].splitlines() if NOT_SERVED_YET in line]
            assert len(told) == server.is_ours
            assert seen(server, oracle, name, groups) == before
            assert read_all(server, name) == records
            constant.send(name, f"constant {number}".encode(), partition=0)
            assert len(constant.all_delivered()) == number + 1
            leave_records(server, name, f"turn {number}")
            records = read_all(server, name)
            served = states(server)
            if server.is_ours:
                check_that_all_is_kept(left, served, how)
            else:
                check_that_nothing_was_mended(left, served)
        values = [record[3] for record in records if record[3] is not None]
        assert [value for value in values if value.startswith(b"constant")] == [b"constant %d" % number for number in range(4)]
        assert values.count(b"committed") == PARTITIONS
        assert b"aborted" not in values
    finally:
        server.stop()


@HOW
def test_kafka_takes_a_folder_over_from_a_node_and_gives_it_back(
    tmp_path: Path, oracle: Oracle, name: str, how: signal.Signals
) -> None:
    server = OurFolder(tmp_path, **SETTINGS)
    server.start()
    try:
        groups = [f"{name}-classic", f"{name}-consumer"]
        create(server.bootstrap, name, PARTITIONS, **CONFIGS)
        constant = Sender(server.bootstrap, enable_idempotence=True, **PATIENT)
        leave_records(server, name, "node")
        leave_offsets(server, name, groups[0], 1)
        leave_offsets(server, name, groups[1], 4, group_protocol="consumer")
        constant.send(name, b"constant 0", partition=0)
        constant.all_delivered()
        before, records = seen(server, oracle, name, groups), read_all(server, name)
        for number in range(1, 3):
            server.stop(how)
            server.is_ours = not server.is_ours
            server.start()
            assert seen(server, oracle, name, groups) == before
            assert read_all(server, name) == records
            constant.send(name, f"constant {number}".encode(), partition=0)
            assert len(constant.all_delivered()) == number + 1
            leave_records(server, name, f"turn {number}")
            records = read_all(server, name)
    finally:
        server.stop()

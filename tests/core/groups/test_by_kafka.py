"""Apache Kafka as the judge: we load its groups from its log, and it loads ours.

A broker has groups of all kinds and is stopped. A coordinator replays its __consumer_offsets, must see what Kafka's own
administration client saw, goes on with them and makes groups of its own. The broker starts again on that log, and must see what
the coordinator sees.
"""

from typing import Any, NamedTuple, cast

import pytest

from odradek.core.coordinator.events import Committed, Now, Write
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.groups.group import GroupType
from odradek.core.metadata.image import MetadataImage
from odradek.log.log import Log
from odradek.log.names import TopicPartition
from odradek.wire.control import ControlType, read_control_type
from odradek.wire.log_records import decode_consumer_protocol, decode_coordinator_record, encode_coordinator_record
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicRecord,
)
from odradek.wire.records import Record, build, records
from tests.clients.waiting import until
from tests.core.groups.clients import Clients, assignment, join_request
from tests.core.groups.host import TOPIC, Host
from tests.kafka.broker import Broker
from tests.kafka.folders import now, opened
from tests.kafka.oracle import Oracle

SESSION_MS = 1_800_000  # nobody is missed while brokers start and stop
TOPICS: dict[str, dict[str, str]] = {"t": {}}

Views = dict[str, Any]


def replay(log: Log, coordinator: GroupCoordinator) -> None:
    for segment, position, header in log.batches(log.start_offset):
        for record in records(segment.file.read(position, header.size), 0, header):
            assert record.key is not None
            if header.is_control:
                is_commit = read_control_type(record.key) == ControlType.COMMIT
                coordinator.replay_end_of_transaction(record.offset, header.producer_id, is_commit)
            else:
                key, value, _ = decode_coordinator_record(TOPIC, record.key, record.value)
                coordinator.replay(record.offset, key, value, header.producer_id if header.is_transactional else -1)


class LogHost(Host):
    """A host whose log is Kafka's."""

    def __init__(self, log: Log, image: MetadataImage | None = None) -> None:
        super().__init__(GroupConfig(group_initial_rebalance_delay_ms=0), image=image)
        self.now = Now(monotonic_ms=0, wall_ms=now())
        self.kafka_log = log
        self.coordinator = GroupCoordinator(self.config, self.new_id, log.end_offset, self.image)
        replay(log, self.coordinator)
        self._know_topics()
        self.do(self.coordinator.loaded(self.now))

    def _know_topics(self) -> None:
        """Those that have offsets, as the metadata of Kafka's folder has them."""
        for topics in self.coordinator.shard.offsets.by_group.values():
            for name, partitions in topics.items():
                ids = {value.topic_id for value in partitions.values()} - {NIL_UUID}
                if ids and name not in self.image.topics:
                    self.image.replay(TopicRecord(name=name, topic_id=ids.pop()))

    def _write(self, write: Write) -> None:
        rows = []
        for index, record in enumerate(write.records):
            rows.append(Record(index, self.now.wall_ms, *encode_coordinator_record(*record)))
        epoch = max(self.kafka_log.epochs.latest_epoch, 0)
        done = self.kafka_log.append(build(rows), leader_epoch=epoch, now_ms=self.now.wall_ms)
        self.coordinator.appended(write, done.first_offset)
        self.log += write.records

    def commit(self, high_watermark: int | None = None) -> None:
        self.high_watermark = len(self.log)
        self.step(Committed(self.kafka_log.end_offset))


def views(host: Host) -> Views:
    """The classic groups as Kafka's administration client tells them."""
    found: Views = {}
    for name, group in host.coordinator.shard.groups.items():
        if group.type is not GroupType.CLASSIC:
            continue
        answer = host.answer(host.send_as_it_is(DescribeGroupsRequest(groups=[name]), 6))
        described = cast("DescribeGroupsResponse", answer).groups[0]
        found[name] = {
            "type": "Classic",
            "protocol": group.listed_protocol_type,
            "state": described.group_state,
            "chosen": described.protocol_data,
            "members": sorted(
                [m.member_id, m.group_instance_id, m.client_id, m.client_host, assigned(m.member_assignment)]
                for m in described.members
            ),
            "offsets": offsets(host, name),
        }
    return found


def assigned(data: bytes) -> list[str]:
    topics = decode_consumer_protocol(ConsumerProtocolAssignment, data).assigned_partitions if data else []
    return sorted(f"{topic.topic}-{partition}" for topic in topics for partition in topic.partitions)


def offsets(host: Host, name: str) -> dict[str, list[Any]]:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)
    answer = cast("OffsetFetchResponse", host.answer(host.send_as_it_is(OffsetFetchRequest(groups=[asked]), 9)))
    return {
        f"{topic.name}-{part.partition_index}": [part.committed_offset, part.metadata, part.committed_leader_epoch]
        for topic in answer.groups[0].topics
        for part in topic.partitions
    }


class Story(NamedTuple):
    kafka_before: Views
    ours_before: Views
    ours_after: Views
    kafka_after: Views


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Story:
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    with broker.running():
        use_groups(oracle, {"bootstrap": broker.bootstrap, "topic": "t"})
        kafka_before = classic(oracle.call("GroupViews.all", bootstrap=broker.bootstrap))
    with opened(broker.data, TOPICS) as folder:
        host = LogHost(folder.logs[TopicPartition(TOPIC, 0)])
        ours_before = views(host)
        go_on(host)
        ours_after = views(host)
    with broker.running():
        kafka_after = classic(until(lambda: oracle.call("GroupViews.all", bootstrap=broker.bootstrap), "Kafka's groups, loaded"))
    return Story(kafka_before, ours_before, ours_after, kafka_after)


def classic(found: Views) -> Views:
    return {name: group for name, group in found.items() if group["type"] == "Classic"}


def use_groups(oracle: Oracle, at: dict[str, Any]) -> None:
    rows = [[1000, "6b", None], [1001, None, "00ff"]]
    oracle.call("Clients.create", **at, partitions=2)
    oracle.call("Clients.produce", **at, partition=0, rows=rows)
    oracle.call("Groups.consume", **at, group="left", count=2)
    static = {"group.instance.id": "i", "session.timeout.ms": str(SESSION_MS)}
    oracle.call("Groups.consume", **at, group="static", count=2, settings=static)
    oracle.call("Groups.consume", **at, group="new", count=2, settings={"group.protocol": "consumer"})
    oracle.call("Groups.commitInTransaction", **at, group="in-transaction", settings={"transactional.id": "x"})
    for name in ("simple", "deleted", "deleted by us"):
        oracle.call("GroupViews.alter", **at, group=name, partition=1, offset=7)
    oracle.call("GroupViews.delete", **at, group="deleted")


def go_on(host: Host) -> None:
    """What the coordinator does with Kafka's groups, and with its own."""
    member_id = next(iter(Clients(host, "static").group.members))
    generation = Clients(host, "static").group.generation_id
    assert not any(Clients(host, "static").commit({1: 5}, member_id, generation, metadata="näher"))
    assert not any(Clients(host, "simple").commit({0: 3}))
    call(host, DeleteGroupsRequest(groups_names=["deleted by us"]), 2)
    ours = Clients(host, "ours")
    requests = [join_request(instance=name, session_ms=SESSION_MS) for name in ("a", "b")]
    tickets = [ours.send_join(request) for request in requests]
    host.wait_for(*tickets)
    ids = ours.finish_sync([ours.joined(ticket) for ticket in tickets])
    assert not any(ours.commit({0: 1, 1: 2}, ids[0], ours.group.generation_id))
    empty = Clients(host, "ours, left")
    (member,) = empty.enter(join_request(session_ms=SESSION_MS))
    assert not any(empty.commit({0: 9}, member, 1))
    empty.leave((member, None))
    old = Clients(host, "ours, with a retention time")
    assert not any(old.commit({0: 4}, retention_ms=SESSION_MS, version=4))


def call(host: Host, request: Message, version: int) -> Message:
    return host.answer(host.send_as_it_is(request, version))


def test_we_see_kafkas_groups_as_kafka_sees_them(story: Story) -> None:
    assert story.kafka_before.keys() == {"left", "static", "in-transaction", "simple", "deleted by us"}
    assert story.kafka_before["static"]["members"][0][4] == ["t-0", "t-1"]
    assert {name: story.ours_before[name] for name in story.kafka_before} == story.kafka_before


def test_kafka_sees_our_groups_as_we_see_them(story: Story) -> None:
    assert story.ours_after["ours"]["state"] == "Stable"
    assert [row[4] for row in story.ours_after["ours"]["members"]] == [["t-0"], ["t-1"]]
    assert story.ours_after["static"]["offsets"]["t-1"] == [5, "näher", 5]
    assert {name: story.ours_after[name] for name in story.kafka_after} == story.kafka_after
    assert story.kafka_after.keys() > {"ours", "ours, left", "ours, with a retention time"}
    assert "deleted by us" not in story.kafka_after


def test_assignments_of_the_tests_are_those_of_kafkas_protocol() -> None:
    assert assigned(assignment(t=[0, 1])) == ["t-0", "t-1"]

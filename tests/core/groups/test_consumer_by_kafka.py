"""Apache Kafka as the judge of consumer groups: we load those that it left, and it loads what we made of them.

A broker has groups of the new protocol with members that stay, one with members of both protocols, and one that subscribes by a
regular expression. A coordinator replays its __consumer_offsets, must see what Kafka's administration client saw, and goes on
with them. The broker starts again on that log, and must see what the coordinator sees.
"""

from typing import Any, NamedTuple, cast

import pytest

from odradek.core.groups.consumer.group import ConsumerGroup
from odradek.core.metadata.image import MetadataImage
from odradek.log.names import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, PartitionRecord, TopicRecord
from tests.core.groups.clients import Clients
from tests.core.groups.consumers import Consumer, Consumers, beat_request, settle
from tests.core.groups.host import TOPIC, Host
from tests.core.groups.test_by_kafka import LogHost
from tests.kafka.broker import Broker
from tests.kafka.folders import opened
from tests.kafka.oracle import Oracle

PARTITIONS = 4
GROUPS = ["native", "mixed", "regex", "left"]
OURS = ["ours", "ours, by a regular expression"]
NEW = {"group.protocol": "consumer"}
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "session.timeout.ms": "1800000",
}
NOBODY_IS_MISSED = {"group_consumer_session_timeout_ms": "1800000", "group_consumer_max_session_timeout_ms": "1800000"}

Views = dict[str, Any]


def assigned(assignment: ConsumerGroupDescribeResponse.Assignment) -> list[str]:
    return sorted(f"{topic.topic_name}-{index}" for topic in assignment.topic_partitions for index in topic.partitions)


def views(host: Host, *names: str) -> Views:
    """The groups as Kafka's administration client tells them."""
    answer = cast("ConsumerGroupDescribeResponse", host.call(ConsumerGroupDescribeRequest(group_ids=list(names)), 1))
    found: Views = {}
    for group in answer.groups:
        members = [
            [
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.member_epoch,
                bool(member.member_type),
                assigned(member.assignment),
                assigned(member.target_assignment),
            ]
            for member in group.members
        ]
        found[group.group_id] = {
            "type": "Consumer",
            "state": group.group_state,
            "epoch": group.group_epoch,
            "targetEpoch": group.assignment_epoch,
            "assignor": group.assignor_name,
            "members": sorted(members),
        }
    return found


def image_of(topic_id: bytes) -> MetadataImage:
    image = MetadataImage()
    image.replay(TopicRecord(name="t", topic_id=topic_id))
    for index in range(PARTITIONS):
        record = PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, directories=[bytes(16)])
        image.replay(record)
    image.advance(1_000_000, 1, 0)
    return image


class Story(NamedTuple):
    kafka_before: Views
    ours_before: Views
    hashes: dict[str, tuple[int, int]]  # of each group with members: the one in the log, and ours
    regexes: dict[str, frozenset[str]]
    ours_after: Views
    kafka_after: Views


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Story:
    broker = Broker(tmp_path_factory.mktemp("kafka"), **NOBODY_IS_MISSED)
    at: dict[str, Any] = {"bootstrap": broker.bootstrap, "topic": "t"}
    with broker.running():
        oracle.call("Clients.create", **at, partitions=PARTITIONS)
        topic_id = bytes.fromhex(oracle.call("ConsumerGroups.topicId", **at))
        oracle.call("ConsumerGroups.gather", **at, group="native", members=[NEW, NEW, NEW], partitions=PARTITIONS, leaving=1)
        oracle.call("ConsumerGroups.gather", **at, group="mixed", members=[NEW, CLASSIC], partitions=PARTITIONS)
        oracle.call("ConsumerGroups.gather", **at, group="regex", members=[{**NEW, "pattern": "t+"}], partitions=PARTITIONS)
        oracle.call("ConsumerGroups.gather", **at, group="left", members=[NEW, NEW], partitions=PARTITIONS, leaving=1)
        kafka_before = oracle.call("ConsumerGroups.views", bootstrap=broker.bootstrap, groups=GROUPS)
    oracle.call("ConsumerGroups.close", timeout=0)
    with opened(broker.data, {"t": {}}) as folder:
        host = LogHost(folder.logs[TopicPartition(TOPIC, 0)], image_of(topic_id))
        ours_before = views(host, *GROUPS)
        shard = host.coordinator.shard
        groups = {name: group for name, group in shard.groups.items() if isinstance(group, ConsumerGroup)}
        hashes = {name: (group.metadata_hash, shard.metadata_hash(["t"])) for name, group in groups.items() if group.members}
        regexes = {regex: found.topics for regex, found in groups["regex"].regexes.items()}
        go_on(host)
        ours_after = views(host, *GROUPS, *OURS)
    with broker.running():
        kafka_after = oracle.call("ConsumerGroups.views", bootstrap=broker.bootstrap, groups=[*GROUPS, *OURS])
    return Story(kafka_before, ours_before, hashes, regexes, ours_after, kafka_after)


def go_on(host: Host) -> None:
    """What the coordinator does with Kafka's groups, and with its own."""
    native = Consumers(host, "native")
    first, second = list(native.group.members.values())
    assert native.error(beat_request(first.member_id, first.epoch)) is ErrorCode.NONE
    assert native.error(beat_request(second.member_id, -1)) is ErrorCode.NONE
    Consumer(native, "new", "t").join()  # which waits for what the first is to give up
    host.pass_time(1_000)
    beaten = native.call(beat_request(first.member_id, first.epoch, owned={}))
    assert beaten.error_code == ErrorCode.NONE
    mixed = Consumers(host, "mixed")
    classic = next(member for member in mixed.group.members.values() if member.is_classic)
    assert Clients(host, "mixed").beat(classic.member_id, classic.epoch) is ErrorCode.NONE
    left = Consumers(host, "left")
    for member_id in list(left.group.members):
        left.call(beat_request(member_id, -1))
    ours = Consumers(host, OURS[0])
    members = [Consumer(ours, "a", "t", instance="i"), Consumer(ours, "b", "t")]
    for member in members:
        member.join(rack="r")
    settle(*members)
    assert members[0].leave(-2).error_code == ErrorCode.NONE
    by_regex = Consumer(Consumers(host, OURS[1]), "c")
    by_regex.join(regex="t|u")
    settle(by_regex)


def test_we_see_kafkas_groups_as_kafka_sees_them(story: Story) -> None:
    assert {name: group["state"] for name, group in story.kafka_before.items()} == dict.fromkeys(GROUPS, "Stable")
    assert [row[5] for row in story.kafka_before["mixed"]["members"]].count(False) == 1
    assert story.ours_before == story.kafka_before


def test_kafkas_hash_of_the_topics_is_ours(story: Story) -> None:
    assert story.hashes.keys() == set(GROUPS)
    assert all(kafkas == ours for kafkas, ours in story.hashes.values())
    assert story.regexes == {"t+": frozenset({"t"})}


def test_kafka_sees_what_we_made_of_the_groups_as_we_see_it(story: Story) -> None:
    assert story.ours_after["left"]["state"] == "Empty"
    assert story.ours_after["ours"]["members"][0][4] == -2
    assert story.ours_after["ours, by a regular expression"]["members"][0][6] == ["t-0", "t-1", "t-2", "t-3"]
    assert len(story.ours_after["native"]["members"]) == 2
    assert story.kafka_after == story.ours_after

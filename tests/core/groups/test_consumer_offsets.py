"""Offsets, listing and deletion of consumer groups."""

from typing import cast

import pytest

from odradek.core.coordinator.events import TimerFired
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.coordinator import EXPIRY_TIMER
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.core.groups.clients import GROUP, Clients
from tests.core.groups.consumers import Consumer, Consumers, Topics, join_request, settle, topic_id
from tests.core.groups.host import Host

RETENTION_MS = 7 * 24 * 3_600_000


@pytest.fixture
def host() -> Host:
    return Host(GroupConfig(group_consumer_assignment_interval_ms=0))


@pytest.fixture
def member(host: Host) -> Consumer:
    Topics(host).make("t", 4)
    consumer = Consumer(Consumers(host), "a", "t")
    consumer.join()
    return consumer


def commit(host: Host, member_id: str, epoch: int, *partitions: int, version: int = 10) -> list[ErrorCode]:
    offsets = dict.fromkeys(partitions or (0,), 5)
    return Clients(host).commit(offsets, member_id, epoch, topic_id=topic_id("t"), version=version)


def commit_in_transaction(host: Host, member_id: str, epoch: int, *partitions: int) -> list[ErrorCode]:
    kind = TxnOffsetCommitRequest
    wanted = [kind.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions]
    request = kind(
        transactional_id="x",
        group_id=GROUP,
        producer_id=7,
        producer_epoch=0,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[kind.TxnOffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=wanted)],
    )
    response = cast("TxnOffsetCommitResponse", host.answer(host.send_as_it_is(request, 6)))
    return [ErrorCode(partition.error_code) for topic in response.topics for partition in topic.partitions]


def test_a_member_commits_with_its_epoch(host: Host, member: Consumer) -> None:
    assert commit(host, "a", 1) == [ErrorCode.NONE]
    assert commit(host, "a", 2) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit(host, "b", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(host, "", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_native_member_needs_version_9(host: Host, member: Consumer) -> None:
    assert commit(host, "a", 1, version=8) == [ErrorCode.UNSUPPORTED_VERSION]


def test_an_older_epoch_may_commit_what_it_has_owned_since(host: Host, member: Consumer) -> None:
    other = Consumer(member.consumers, "b", "t")
    other.join()
    settle(member, other)
    mine = [index for _, index in member.partitions]
    theirs = [index for _, index in other.partitions]
    assert member.epoch == 2
    assert commit(host, "a", 1, *mine) == [ErrorCode.NONE] * 2
    assert commit(host, "a", 1, mine[0], theirs[0]) == [ErrorCode.STALE_MEMBER_EPOCH] * 2, "all or none"
    assert commit(host, "b", 1, *theirs) == [ErrorCode.STALE_MEMBER_EPOCH] * 2


def test_a_transaction_of_an_older_epoch_commits_nothing_that_another_member_owns(host: Host, member: Consumer) -> None:
    other = Consumer(member.consumers, "b", "t")
    other.join()
    settle(member, other)
    (mine, *_), (theirs, *_) = ([index for _, index in each.partitions] for each in (member, other))
    assert commit_in_transaction(host, "a", 1, mine) == [ErrorCode.NONE]
    assert commit_in_transaction(host, "a", 1, theirs) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit_in_transaction(host, "a", 1, mine, theirs) == [ErrorCode.ILLEGAL_GENERATION] * 2
    assert commit_in_transaction(host, "a", 3, mine) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit_in_transaction(host, "", -1, theirs) == [ErrorCode.NONE], "an old producer says nothing of its consumer"


def test_what_is_being_given_up_may_still_be_committed(host: Host, member: Consumer) -> None:
    Consumer(member.consumers, "b", "t").join()
    member.beat()
    revoking = next(iter(member.consumers.group.members["a"].revoking.values()))
    assert commit(host, "a", 1, *revoking) == [ErrorCode.NONE] * 2


def test_an_administrator_commits_only_for_an_empty_group(host: Host, member: Consumer) -> None:
    member.leave()
    assert commit(host, "", -1) == [ErrorCode.NONE]
    assert Clients(host).fetch([0]) == {("t", 0): 5}


def fetch_error(host: Host, member_id: str | None, epoch: int) -> ErrorCode:
    asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=[])
    ticket = host.send_as_it_is(OffsetFetchRequest(groups=[asked]), 9)
    return ErrorCode(cast("OffsetFetchResponse", host.answer(ticket)).groups[0].error_code)


def test_a_member_fetches_with_its_epoch(host: Host, member: Consumer) -> None:
    assert fetch_error(host, "a", 1) is ErrorCode.NONE
    assert fetch_error(host, "a", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_error(host, "b", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_error(host, None, -1) is ErrorCode.NONE, "an administrator"


def test_offsets_of_topics_that_are_read_are_not_deleted(host: Host, member: Consumer) -> None:
    commit(host, "a", 1)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    part = OffsetDeleteRequest.OffsetDeleteRequestPartition
    request = OffsetDeleteRequest(group_id=GROUP, topics=[topic(name="t", partitions=[part(partition_index=0)])])
    answer = cast("OffsetDeleteResponse", host.call(request, 0))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    member.leave()
    answer = cast("OffsetDeleteResponse", host.call(request, 0))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert Clients(host).fetch([0]) == {("t", 0): -1}


def test_a_group_with_members_is_not_deleted_and_an_empty_one_goes_with_all_it_has(host: Host, member: Consumer) -> None:
    commit(host, "a", 1)
    request = DeleteGroupsRequest(groups_names=[GROUP])
    answer = cast("DeleteGroupsResponse", host.call(request, 2))
    assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    answer = cast("DeleteGroupsResponse", host.call(request, 2))
    assert answer.results[0].error_code == ErrorCode.NONE
    assert not host.coordinator.shard.groups
    assert not host.loaded_again().shard.groups
    assert not host.coordinator.shard.offsets.by_group


def test_offsets_expire_when_nobody_reads_the_topic_and_the_group_goes_with_the_last(host: Host, member: Consumer) -> None:
    commit(host, "a", 1)
    host.now = type(host.now)(host.now.monotonic_ms, host.now.wall_ms + RETENTION_MS)
    host.step(TimerFired(EXPIRY_TIMER))
    assert Clients(host).fetch([0]) == {("t", 0): 5}, "it is subscribed"
    member.leave()
    host.step(TimerFired(EXPIRY_TIMER))
    assert GROUP not in host.coordinator.shard.groups


def listed(host: Host, types: tuple[str, ...] = (), states: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
    request = ListGroupsRequest(types_filter=list(types), states_filter=list(states))
    answer = cast("ListGroupsResponse", host.call(request, 5))
    return [(found.group_id, found.protocol_type, found.group_state, found.group_type) for found in answer.groups]


def test_groups_are_listed_with_their_type_and_state(host: Host, member: Consumer) -> None:
    assert listed(host) == [(GROUP, "consumer", "Stable", "consumer")]
    assert listed(host, types=("Consumer",), states=("stable",)) == listed(host)
    assert listed(host, types=("classic",)) == []
    assert listed(host, states=("Empty",)) == []


def test_describe_groups_knows_classic_groups_only(host: Host, member: Consumer) -> None:
    new = cast("DescribeGroupsResponse", host.call(DescribeGroupsRequest(groups=[GROUP]), 6)).groups[0]
    assert (new.error_code, new.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "not a classic group" in (new.error_message or "")
    old = cast("DescribeGroupsResponse", host.call(DescribeGroupsRequest(groups=[GROUP]), 5)).groups[0]
    assert (old.error_code, old.group_state) == (ErrorCode.NONE, "Dead")


def test_a_consumer_group_is_described_with_what_members_have_and_should_have(host: Host, member: Consumer) -> None:
    other = Consumer(member.consumers, "b", "t", instance="i")
    other.join()
    member.beat()
    found = member.consumers.describe()
    assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == (
        "Reconciling", 2, 2, "uniform",
    )  # fmt: skip
    first, second = sorted(found.members, key=lambda one: one.member_id)
    assert (first.member_id, first.member_epoch, first.client_id, first.member_type) == ("a", 1, "client", 1)
    assert first.assignment.topic_partitions[0].partitions == [0, 1, 2, 3], "it has what it is to give up"
    assert first.assignment.topic_partitions[0].topic_name == "t"
    assert first.target_assignment.topic_partitions[0].partitions == [0, 1]
    assert (second.instance_id, second.assignment.topic_partitions) == ("i", [])
    assert second.subscribed_topic_names == ["t"]


def test_a_group_that_is_no_consumer_group_is_not_described(host: Host) -> None:
    Clients(host).commit({0: 1})
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP, "x"])
    answer = cast("ConsumerGroupDescribeResponse", host.call(request, 1))
    assert [found.error_code for found in answer.groups] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert answer.groups[0].error_message == f"Group {GROUP} is no consumer group."


def test_a_description_shows_only_what_is_committed() -> None:
    host = Host(is_replicated=True)
    Topics(host).make("t", 1)
    consumers = Consumers(host)
    ticket = host.send(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
    assert ticket in host.answers
    consumers.send(join_request("a", "t"))
    ticket = host.send(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1)
    assert ticket not in host.answers
    host.commit()
    assert ticket in host.answers

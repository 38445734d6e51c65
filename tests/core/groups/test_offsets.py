"""OffsetCommit, OffsetFetch and OffsetDelete, rule by rule."""

import pytest

from odradek.core.groups.classic.group import State
from odradek.core.groups.events import TopicsDeleted
from odradek.core.groups.offsets import Place
from odradek.wire.batch import NO_PRODUCER_ID
from odradek.wire.errors import ErrorCode
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import (
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicRecord,
)
from tests.core.groups.clients import Clients, join_request, subscription
from tests.core.groups.host import WALL_MS, Host

UNSTABLE = -100 - ErrorCode.UNSTABLE_OFFSET_COMMIT
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clients(host: Host) -> Clients:
    return Clients(host)


def delete(clients: Clients, topic: str = "t", partition: int = 0) -> OffsetDeleteResponse:
    found = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition)
    topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[found])]
    answer = clients.host.call(OffsetDeleteRequest(group_id=clients.group_id, topics=topics), 0)
    assert isinstance(answer, OffsetDeleteResponse)
    return answer


def test_what_is_committed_is_fetched_with_its_metadata_and_epoch(clients: Clients) -> None:
    assert clients.commit({0: 7, 3: 9}, metadata="näher") == [ErrorCode.NONE, ErrorCode.NONE]
    answer = clients.host.answer(clients.send_fetch([3, 4]))
    assert isinstance(answer, OffsetFetchResponse)
    known, unknown = answer.groups[0].topics[0].partitions
    assert (known.committed_offset, known.committed_leader_epoch, known.metadata) == (9, 5, "näher")
    assert (unknown.committed_offset, unknown.committed_leader_epoch, unknown.metadata) == (-1, -1, "")
    assert unknown.error_code == ErrorCode.NONE


def test_a_commit_writes_version_4_and_with_a_retention_time_version_1(host: Host, clients: Clients) -> None:
    clients.commit({0: 7}, topic_id=NEW_ID)
    clients.commit({0: 7}, retention_ms=1_000, version=4)
    (first, second) = host.log
    assert isinstance(first.value, OffsetCommitValue)
    assert isinstance(second.value, OffsetCommitValue)
    assert (first.version, first.value.topic_id, first.value.commit_timestamp) == (4, NEW_ID, WALL_MS)
    assert (second.version, second.value.expire_timestamp) == (1, WALL_MS + 1_000)


def test_a_group_that_does_not_exist_has_no_offsets_and_that_is_no_error(clients: Clients) -> None:
    assert clients.fetch([0]) == {("t", 0): -1}
    assert clients.fetch(None) == {}


def test_all_offsets_of_several_groups_come_in_one_answer(host: Host) -> None:
    for name in ("a", "b"):
        Clients(host, name).commit({0: 1, 1: 2})
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "c")]
    answer = host.call(OffsetFetchRequest(groups=groups), 9)
    assert isinstance(answer, OffsetFetchResponse)
    found = [[len(topic.partitions) for topic in group.topics] for group in answer.groups]
    assert found == [[2], [2], []]


def test_a_commit_is_answered_and_shown_when_it_is_committed() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    first, second = clients.send_commit({0: 1}), clients.send_commit({0: 2})
    assert not host.answers
    assert (clients.fetch([0]), clients.fetch(None)) == ({("t", 0): -1}, {})
    host.commit(1)
    assert clients.committed(first) == [ErrorCode.NONE]
    assert clients.fetch([0]) == clients.fetch(None) == {("t", 0): 1}
    host.commit(2)
    assert clients.committed(second) == [ErrorCode.NONE]
    assert clients.fetch([0]) == {("t", 0): 2}
    assert not host.coordinator.shard.offsets.before


def test_what_is_being_deleted_is_shown_until_that_is_committed(host: Host, clients: Clients) -> None:
    clients.commit({0: 1})
    host.is_replicated = True
    with pytest.raises(AssertionError, match="it waits"):
        delete(clients)
    assert clients.fetch([0]) == clients.fetch(None) == {("t", 0): 1}
    host.commit()
    assert clients.fetch([0]) == {("t", 0): -1}
    assert clients.fetch(None) == {}


def test_a_stable_fetch_waits_for_commits_on_their_way() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    clients.send_commit({0: 1})
    ticket = clients.send_fetch([0], is_stable=True)
    assert ticket not in host.answers
    clients.send_commit({0: 2})
    host.commit(1)
    assert clients.fetched(ticket) == {("t", 0): 1}


def test_a_stable_fetch_that_waits_too_long_is_sent_to_look_for_the_coordinator() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    commit, fetch = clients.send_commit({0: 1}), clients.send_fetch([0], is_stable=True)
    host.pass_time(host.config.offsets_commit_timeout_ms)
    assert clients.committed(commit) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    answer = host.answer(fetch)
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_refused_commit_changes_nothing(host: Host, clients: Clients) -> None:
    host.refusing = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert clients.commit({0: 1}) == [ErrorCode.NOT_COORDINATOR]
    assert not host.coordinator.shard.groups


def test_metadata_over_its_limit_is_refused_and_the_rest_is_committed(host: Host, clients: Clients) -> None:
    assert clients.commit({0: 1}, metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert clients.commit({0: 1}, metadata="🧵" * 2049) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert clients.commit({0: 1}, metadata="🧵" * 2048) == [ErrorCode.NONE]
    assert clients.commit({1: 1}, metadata=None) == [ErrorCode.NONE]
    assert len(host.log) == 2


def test_a_commit_without_a_group_makes_a_simple_group(clients: Clients) -> None:
    clients.commit({0: 1})
    assert clients.group.is_simple
    assert clients.state() is State.EMPTY


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_commit_of_a_generation_needs_its_group(clients: Clients, version: int, error: ErrorCode) -> None:
    assert clients.commit({0: 1}, "m", 1, version=version) == [error]


def test_a_commit_to_a_group_with_members_must_come_from_one_of_this_generation(clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    assert clients.commit({0: 1}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert clients.commit({0: 1}, "who", 1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert clients.commit({0: 1}, member, 0) == [ErrorCode.ILLEGAL_GENERATION]
    assert clients.commit({0: 1}, member, 1) == [ErrorCode.NONE]


def test_members_commit_before_they_rejoin_and_not_before_their_assignment(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    other = clients.send_join(join_request(), 3)
    assert clients.state() is State.PREPARING_REBALANCE
    assert clients.commit({0: 1}, member, 1) == [ErrorCode.NONE]
    clients.send_join(join_request(member))
    assert clients.joined(other).generation_id == 2
    assert clients.commit({0: 2}, member, 2) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_an_empty_group_takes_commits_without_a_generation(clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    clients.leave((member, None))
    assert clients.commit({0: 1}) == [ErrorCode.NONE]
    assert clients.commit({0: 1}, member, 1) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_offsets_of_topics_that_members_read_are_not_deleted(clients: Clients) -> None:
    (member,) = clients.enter(join_request(protocols={"range": subscription("t")}))
    clients.commit({0: 1}, member, 1)
    clients.commit({0: 1}, member, 1, topic="u")
    assert delete(clients, "t").topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(clients, "u").topics[0].partitions[0].error_code == ErrorCode.NONE
    assert clients.fetch(None) == {("t", 0): 1}


def test_offsets_of_a_group_that_is_no_consumer_are_deleted_only_when_it_is_empty(clients: Clients) -> None:
    (member,) = clients.enter(join_request(protocol_type="connect"))
    clients.commit({0: 1}, member, 1)
    assert delete(clients).error_code == ErrorCode.NON_EMPTY_GROUP
    clients.leave((member, None))
    assert delete(clients).error_code == ErrorCode.NONE
    assert clients.fetch(None) == {}


def test_deleting_needs_a_group(host: Host, clients: Clients) -> None:
    assert delete(clients).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(Clients(host, "")).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_offset_of_an_earlier_topic_of_the_name_is_not_shown(host: Host, clients: Clients) -> None:
    host.image.replay(TopicRecord(name="t", topic_id=OLD_ID))
    clients.commit({0: 1}, topic_id=OLD_ID)
    clients.commit({1: 2})
    assert clients.fetch([0, 1], topic_id=NEW_ID) == {("t", 0): -1, ("t", 1): 2}
    assert clients.fetch([0, 1]) == {("t", 0): 1, ("t", 1): 2}


def test_the_offsets_of_a_deleted_topic_go_with_it(host: Host, clients: Clients) -> None:
    host.image.replay(TopicRecord(name="t", topic_id=NEW_ID))
    clients.commit({0: 1}, topic_id=OLD_ID)
    clients.commit({1: 2}, topic_id=NEW_ID)
    clients.commit({2: 3})
    clients.commit({0: 4}, topic="u")
    host.step(TopicsDeleted({"t": OLD_ID, "v": NEW_ID}))
    assert clients.fetch(None) == {("t", 1): 2, ("u", 0): 4}


def test_offsets_of_an_earlier_topic_are_not_those_of_the_one_that_has_its_name(host: Host, clients: Clients) -> None:
    """Nor before the coordinator has heard that it was deleted."""
    clients.commit({0: 1}, topic_id=OLD_ID)
    clients.commit({1: 2}, topic_id=NEW_ID)
    host.image.replay(TopicRecord(name="t", topic_id=NEW_ID))
    assert clients.fetch([0, 1]) == {("t", 0): -1, ("t", 1): 2}
    assert clients.fetch(None) == {("t", 1): 2}


def test_offsets_of_a_topic_that_is_gone_are_not_shown_by_its_name(clients: Clients) -> None:
    """Also by a coordinator that was loaded after the deletion, and never heard of it."""
    clients.commit({0: 1}, topic_id=OLD_ID)
    clients.commit({1: 2})
    assert clients.fetch([0, 1]) == {("t", 0): -1, ("t", 1): 2}
    assert clients.fetch(None) == {("t", 1): 2}


def in_transaction(host: Host, producer_id: int, group: str, partition: int, offset: int, topic_id: bytes = NIL_UUID) -> None:
    value = OffsetCommitValue(offset=offset, commit_timestamp=WALL_MS, topic_id=topic_id)
    key = OffsetCommitKey(group=group, topic="t", partition=partition)
    host.coordinator.replay(host.coordinator.log_end, key, value, producer_id)
    host.commit(host.coordinator.log_end)


def end(host: Host, producer_id: int, is_commit: bool) -> None:
    host.coordinator.replay_end_of_transaction(host.coordinator.log_end, producer_id, is_commit)
    host.commit(host.coordinator.log_end)


@pytest.mark.parametrize("before", [OLD_ID, NIL_UUID])
def test_an_open_transaction_keeps_its_offset_of_a_topic_that_was_made_again(host: Host, clients: Clients, before: bytes) -> None:
    host.image.replay(TopicRecord(name="t", topic_id=NEW_ID))
    clients.commit({0: 1}, topic_id=before)
    in_transaction(host, 77, "g", 0, 5, NEW_ID)
    in_transaction(host, 78, "g", 1, 6, before)
    host.step(TopicsDeleted({"t": OLD_ID}))
    for producer_id in (77, 78):
        end(host, producer_id, True)
    assert clients.fetch(None) == {("t", 0): 5}


def test_an_offset_of_a_topic_that_was_made_again_outlives_an_older_one_in_an_open_transaction(
    host: Host, clients: Clients
) -> None:
    host.image.replay(TopicRecord(name="t", topic_id=NEW_ID))
    in_transaction(host, 77, "g", 0, 5, OLD_ID)
    in_transaction(host, NO_PRODUCER_ID, "g", 0, 1, NEW_ID)
    host.step(TopicsDeleted({"t": OLD_ID}))
    end(host, 77, True)
    assert clients.fetch(None) == {("t", 0): 1}


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 5), (False, -1)])
def test_an_offset_in_a_transaction_is_unstable_until_its_marker(
    host: Host, clients: Clients, is_commit: bool, offset: int
) -> None:
    host.is_replicated = True
    in_transaction(host, 77, "g", 0, 5)
    assert clients.fetch([0]) == {("t", 0): -1}
    assert clients.fetch([0, 1], is_stable=True) == {("t", 0): UNSTABLE, ("t", 1): -1}
    end(host, 77, is_commit)
    assert clients.fetch([0], is_stable=True) == clients.fetch([0]) == {("t", 0): offset}
    assert not host.coordinator.shard.offsets.open_places
    assert not host.coordinator.shard.offsets.transactions


def test_a_later_commit_outlives_the_transaction(host: Host, clients: Clients) -> None:
    host.is_replicated = True
    in_transaction(host, 77, "g", 0, 5)
    host.coordinator.replay(
        host.coordinator.log_end, OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=6)
    )
    host.commit(host.coordinator.log_end)
    end(host, 77, True)
    assert clients.fetch([0]) == {("t", 0): 6}


def test_the_marker_of_a_transaction_takes_effect_when_it_is_committed(host: Host, clients: Clients) -> None:
    host.is_replicated = True
    in_transaction(host, 77, "g", 0, 5)
    host.coordinator.replay_end_of_transaction(host.coordinator.log_end, 77, True)
    assert clients.fetch([0]) == {("t", 0): -1}
    host.commit(host.coordinator.log_end)
    assert clients.fetch([0]) == {("t", 0): 5}


def test_a_tombstone_ends_what_transactions_had_for_the_place(host: Host, clients: Clients) -> None:
    host.is_replicated = True
    in_transaction(host, 77, "g", 0, 5)
    in_transaction(host, 78, "g", 0, 6)
    in_transaction(host, 78, "g", 1, 7)
    host.coordinator.replay(host.coordinator.log_end, OffsetCommitKey(group="g", topic="t", partition=0), None)
    host.commit(host.coordinator.log_end)
    offsets = host.coordinator.shard.offsets
    assert list(offsets.open_places["g"]) == [Place("g", "t", 1)]
    end(host, 77, True)
    end(host, 78, True)
    assert clients.fetch(None) == {("t", 1): 7}

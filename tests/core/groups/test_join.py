"""JoinGroup, rule by rule."""

import pytest

from odradek.core.groups.classic.group import State
from odradek.core.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import GroupMetadataValue
from tests.core.groups.clients import GROUP, REBALANCE_MS, SESSION_MS, Clients, join_request, subscription
from tests.core.groups.host import Host

DELAY_MS = GroupConfig().group_initial_rebalance_delay_ms


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clients(host: Host) -> Clients:
    return Clients(host)


def errors(clients: Clients, *tickets: int) -> list[ErrorCode]:
    return [ErrorCode(clients.joined(ticket).error_code) for ticket in tickets]


def test_a_dynamic_member_is_asked_to_come_back_with_the_id_it_gets(clients: Clients) -> None:
    first = clients.join(join_request())
    assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    assert first.member_id.startswith("client-")
    ticket = clients.send_join(join_request(first.member_id))
    clients.host.pass_time(DELAY_MS)
    joined = clients.joined(ticket)
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, first.member_id)
    assert [member.member_id for member in joined.members] == [first.member_id]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_member_is_let_in_at_once(clients: Clients, version: int) -> None:
    ticket = clients.send_join(join_request(), version)
    clients.host.pass_time(DELAY_MS)
    assert errors(clients, ticket) == [ErrorCode.NONE]


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout(clients: Clients) -> None:
    clients.send_join(join_request(), 0)
    (member,) = clients.group.members.values()
    assert member.rebalance_timeout_ms == SESSION_MS


def test_the_first_join_writes_that_the_group_exists(host: Host, clients: Clients) -> None:
    clients.join(join_request())
    (record,) = host.log
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation, value.protocol, value.leader, value.members) == ("", 0, None, None, [])
    assert record.version == 3


def test_an_id_that_was_given_out_is_forgotten_after_the_session_timeout(host: Host, clients: Clients) -> None:
    member_id = clients.join(join_request()).member_id
    host.pass_time(SESSION_MS)
    assert clients.join(join_request(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_member_is_refused(clients: Clients) -> None:
    assert clients.join(join_request("who")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not clients.host.coordinator.shard.groups
    clients.enter(join_request())
    assert clients.join(join_request("who")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_range_is_refused(clients: Clients, session_ms: int) -> None:
    assert clients.join(join_request(session_ms=session_ms)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name(host: Host) -> None:
    assert Clients(host, "").join(join_request()).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_empty_group_takes_any_protocol_but_none(clients: Clients) -> None:
    for request in (join_request(protocols={}), join_request(protocol_type="")):
        assert clients.join(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_must_have_the_groups_type_and_a_common_protocol(clients: Clients) -> None:
    clients.enter(join_request(protocols={"range": b"", "roundrobin": b""}))
    for request in (join_request(protocol_type="connect"), join_request(protocols={"sticky": b""})):
        assert clients.join(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert clients.join(join_request(protocols={"sticky": b"", "roundrobin": b""})).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_the_protocol_is_the_one_that_most_like_best_among_those_that_all_have(clients: Clients) -> None:
    likes = [{"a": b"", "b": b"", "c": b""}, {"c": b"", "b": b""}, {"b": b"", "c": b""}, {"a": b"", "c": b"", "b": b""}]
    clients.enter(*(join_request(protocols=found) for found in likes))
    assert clients.group.protocol_name in ("b", "c")
    assert clients.group.elected_protocol() == "b"  # b, c, b, c: the first to be named


def test_only_the_leader_learns_who_the_members_are(clients: Clients) -> None:
    tickets = [clients.send_join(join_request(protocols={"range": subscription(name)}), 3) for name in ("x", "y")]
    clients.host.wait_for(*tickets)
    leader, follower = (clients.joined(ticket) for ticket in tickets)
    assert leader.member_id == leader.leader == follower.leader
    assert [member.metadata for member in leader.members] == [subscription("x"), subscription("y")]
    assert not follower.members


def test_the_first_rebalance_waits_and_waits_longer_while_members_come(host: Host, clients: Clients) -> None:
    first = clients.send_join(join_request(), 3)
    host.pass_time(DELAY_MS - 1)
    second = clients.send_join(join_request(), 3)
    host.pass_time(1)
    assert not host.answers
    host.pass_time(DELAY_MS)
    assert errors(clients, first, second) == [ErrorCode.NONE, ErrorCode.NONE]


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout(host: Host, clients: Clients) -> None:
    tickets = []
    for _ in range(4):
        tickets.append(clients.send_join(join_request(rebalance_ms=2 * DELAY_MS + 500), 3))
        host.pass_time(DELAY_MS - 100)
    assert errors(clients, *tickets[:3]) == [ErrorCode.NONE] * 3
    assert tickets[3] not in host.answers


def test_a_new_member_begins_a_rebalance_of_a_stable_group(host: Host, clients: Clients) -> None:
    (old,) = clients.enter(join_request())
    ticket = clients.send_join(join_request(), 3)
    assert clients.state() is State.PREPARING_REBALANCE
    assert clients.beat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = clients.send_join(join_request(old))
    assert errors(clients, ticket, again) == [ErrorCode.NONE, ErrorCode.NONE]
    assert clients.joined(ticket).generation_id == 2


def test_who_does_not_rejoin_in_time_is_removed(host: Host, clients: Clients) -> None:
    (old,) = clients.enter(join_request(session_ms=100_000))
    ticket = clients.send_join(join_request(), 3)
    host.pass_time(REBALANCE_MS)
    joined = clients.joined(ticket)
    assert joined.leader == joined.member_id
    assert list(clients.group.members) == [joined.member_id]
    assert clients.beat(old, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_rejoin_in_time_stays_and_the_leader_is_one_who_has(host: Host, clients: Clients) -> None:
    (static,) = clients.enter(join_request(instance="i", session_ms=100_000))
    ticket = clients.send_join(join_request(), 3)
    host.pass_time(REBALANCE_MS)
    joined = clients.joined(ticket)
    assert joined.leader == joined.member_id
    assert list(clients.group.members) == [static, joined.member_id]


def test_a_rebalance_that_nobody_joins_waits_for_the_sessions_to_end(host: Host, clients: Clients) -> None:
    clients.enter(join_request(instance="i", session_ms=100_000), join_request(instance="j", session_ms=100_000))
    clients.leave(("", "i"))
    host.pass_time(REBALANCE_MS)
    assert clients.state() is State.PREPARING_REBALANCE
    host.pass_time(100_000)
    assert clients.state() is State.EMPTY
    assert clients.group.generation_id == 2


def test_a_new_member_whose_join_waits_is_gone_after_five_minutes(host: Host, clients: Clients) -> None:
    (old,) = clients.enter(join_request(rebalance_ms=10 * NEW_MEMBER_JOIN_TIMEOUT_MS))
    ticket = clients.send_join(join_request(), 3)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS):
        assert clients.beat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        host.pass_time(SESSION_MS - 1)
    assert ticket not in host.answers
    clients.beat(old, 1)
    host.pass_time(SESSION_MS - 1)
    assert errors(clients, ticket) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(clients.group.members) == [old]


def test_a_member_that_waits_for_others_needs_no_heartbeat(host: Host, clients: Clients) -> None:
    first, second = clients.enter(join_request(), join_request())
    again = clients.send_join(join_request(first))
    for _ in range(5):
        assert clients.beat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        host.pass_time(SESSION_MS - 1)
    assert again not in host.answers
    clients.send_join(join_request(second))
    assert errors(clients, again) == [ErrorCode.NONE]


def test_the_leaders_rejoin_begins_a_rebalance_and_a_followers_does_not(clients: Clients) -> None:
    leader, follower = clients.enter(join_request(), join_request())
    told = clients.join(join_request(follower))
    assert (told.error_code, told.generation_id, told.leader, told.members) == (ErrorCode.NONE, 1, leader, [])
    assert clients.state() is State.STABLE
    clients.send_join(join_request(leader))
    assert clients.state() is State.PREPARING_REBALANCE


def test_a_follower_with_other_metadata_begins_a_rebalance(clients: Clients) -> None:
    _, follower = clients.enter(join_request(), join_request())
    clients.send_join(join_request(follower, protocols={"range": subscription("other")}))
    assert clients.state() is State.PREPARING_REBALANCE


def test_who_rejoins_unchanged_before_the_assignment_is_told_the_generation_again(host: Host, clients: Clients) -> None:
    member_id = clients.join(join_request()).member_id
    clients.send_join(join_request(member_id))
    host.pass_time(DELAY_MS)
    again = clients.join(join_request(member_id))
    assert (again.error_code, again.generation_id, len(again.members)) == (ErrorCode.NONE, 1, 1)
    assert clients.state() is State.COMPLETING_REBALANCE
    changed = clients.join(join_request(member_id, protocols={"range": subscription("other")}))
    assert (changed.error_code, changed.generation_id) == (ErrorCode.NONE, 2)


def test_a_join_that_is_sent_again_takes_the_place_of_the_first(host: Host, clients: Clients) -> None:
    first, _ = clients.enter(join_request(), join_request())
    lost = clients.send_join(join_request(first))
    again = clients.send_join(join_request(first))
    assert errors(clients, lost) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert again not in host.answers


def test_a_group_takes_no_more_than_its_size() -> None:
    clients = Clients(Host(GroupConfig(group_max_size=2)))
    first, _ = clients.enter(join_request(), join_request())
    refused = clients.join(join_request())
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    clients.send_join(join_request(first))
    assert clients.state() is State.PREPARING_REBALANCE
    clients.send_join(join_request(), 3)
    assert errors(clients, clients.send_join(join_request(), 3)) == [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_a_loaded_group_over_its_size_rebalances_and_keeps_the_first_to_rejoin() -> None:
    host = Host()
    clients = Clients(host)
    ids = clients.enter(join_request(), join_request(), join_request())
    host.config = GroupConfig(group_max_size=2)
    host.fail_over()
    assert clients.state() is State.PREPARING_REBALANCE
    tickets = [clients.send_join(join_request(member_id)) for member_id in ids]
    assert errors(clients, tickets[2]) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    host.pass_time(REBALANCE_MS)
    assert errors(clients, *tickets[:2]) == [ErrorCode.NONE, ErrorCode.NONE]


def test_a_group_whose_first_record_is_refused_does_not_come_to_be(host: Host, clients: Clients) -> None:
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert errors(clients, clients.send_join(join_request(), 3)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not host.coordinator.shard.groups
    assert not [key for key in host.timers if GROUP in key]


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_no_protocol_is_an_empty_name_in_old_versions(clients: Clients, version: int, name: str | None) -> None:
    assert clients.join(join_request("who"), version).protocol_name == name

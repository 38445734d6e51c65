"""SyncGroup, Heartbeat and LeaveGroup, rule by rule."""

import pytest

from odradek.core.groups.classic.group import State
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import GroupMetadataValue, LeaveGroupRequest, LeaveGroupResponse
from tests.core.groups.clients import REBALANCE_MS, SESSION_MS, Clients, join_request
from tests.core.groups.host import Host


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clients(host: Host) -> Clients:
    return Clients(host)


def join_two(clients: Clients, **more: int) -> tuple[str, str]:
    """Two members of a generation that has no assignment yet, the leader first."""
    tickets = [clients.send_join(join_request(**more), 3) for _ in range(2)]  # type: ignore[arg-type]
    clients.host.wait_for(*tickets)
    leader, follower = (clients.joined(ticket).member_id for ticket in tickets)
    assert clients.state() is State.COMPLETING_REBALANCE
    return leader, follower


def error(clients: Clients, ticket: int) -> ErrorCode:
    return ErrorCode(clients.synced(ticket).error_code)


def test_followers_wait_for_the_leaders_assignment(clients: Clients) -> None:
    leader, follower = join_two(clients)
    waiting = clients.send_sync(follower, 1)
    assert waiting not in clients.host.answers
    done = clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    assert (clients.synced(done).assignment, clients.synced(waiting).assignment) == (b"L", b"F")
    assert (clients.synced(done).protocol_type, clients.synced(done).protocol_name) == ("consumer", "range")
    assert clients.state() is State.STABLE
    assert clients.synced(clients.send_sync(follower, 1)).assignment == b"F"


def test_who_is_not_assigned_anything_gets_nothing(clients: Clients) -> None:
    leader, follower = join_two(clients)
    waiting = clients.send_sync(follower, 1)
    clients.send_sync(leader, 1, {leader: b"L", "somebody else": b"X"})
    assert clients.synced(waiting).assignment == b""


def test_a_group_is_stable_when_its_assignment_is_committed_and_no_sooner() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    leader, follower = join_two(clients)
    tickets = [clients.send_sync(follower, 1), clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})]
    assert clients.state() is State.COMPLETING_REBALANCE
    host.commit(len(host.log) - 1)
    assert not host.answers.keys() & set(tickets)
    host.commit()
    assert [error(clients, ticket) for ticket in tickets] == [ErrorCode.NONE, ErrorCode.NONE]
    assert clients.state() is State.STABLE


def test_the_record_of_a_generation_has_all_that_a_new_coordinator_needs(host: Host, clients: Clients) -> None:
    leader, follower = join_two(clients)
    clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    value = host.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.generation, value.leader) == ("consumer", "range", 1, leader)
    found = [(m.member_id, m.client_id, m.client_host, m.assignment) for m in value.members]
    assert found == [(leader, "client", "/127.0.0.1", b"L"), (follower, "client", "/127.0.0.1", b"F")]
    assert [(m.session_timeout, m.rebalance_timeout) for m in value.members] == [(SESSION_MS, REBALANCE_MS)] * 2


def test_a_refused_assignment_begins_the_rebalance_again(host: Host, clients: Clients) -> None:
    leader, follower = join_two(clients)
    waiting = clients.send_sync(follower, 1)
    host.refusing = ErrorCode.NOT_LEADER_OR_FOLLOWER
    done = clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    assert [error(clients, ticket) for ticket in (waiting, done)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert clients.state() is State.PREPARING_REBALANCE


def test_an_assignment_that_is_not_committed_in_time_begins_the_rebalance_again() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    leader, follower = join_two(clients)
    done = clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    host.pass_time(host.config.offsets_commit_timeout_ms)
    assert error(clients, done) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert clients.state() is State.PREPARING_REBALANCE
    host.commit()
    assert clients.state() is State.PREPARING_REBALANCE


def test_an_assignment_whose_generation_is_over_when_it_is_committed_is_nobodys() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    leader, follower = join_two(clients)
    done = clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    clients.send_join(join_request(), 3)
    assert error(clients, done) == ErrorCode.REBALANCE_IN_PROGRESS
    host.commit()
    assert clients.state() is State.PREPARING_REBALANCE


def test_a_sync_that_is_sent_again_takes_the_place_of_the_first(clients: Clients) -> None:
    leader, follower = join_two(clients)
    lost, again = clients.send_sync(follower, 1), clients.send_sync(follower, 1)
    assert error(clients, lost) == ErrorCode.REBALANCE_IN_PROGRESS
    clients.send_sync(leader, 1)
    assert error(clients, again) == ErrorCode.NONE


def test_who_does_not_sync_in_the_rebalance_timeout_is_removed(host: Host, clients: Clients) -> None:
    leader, follower = join_two(clients, session_ms=100_000)
    done = clients.send_sync(leader, 1, {leader: b"L", follower: b"F"})
    assert error(clients, done) == ErrorCode.NONE
    host.pass_time(REBALANCE_MS)
    assert list(clients.group.members) == [leader]
    assert clients.state() is State.PREPARING_REBALANCE


def test_syncs_of_all_stop_the_clock(host: Host, clients: Clients) -> None:
    clients.enter(join_request(session_ms=100_000), join_request(session_ms=100_000))
    host.pass_time(REBALANCE_MS + 1)
    assert clients.state() is State.STABLE


def test_a_sync_must_be_of_a_member_of_this_generation_and_protocol(clients: Clients) -> None:
    assert error(clients, clients.send_sync("who", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = join_two(clients)
    assert error(clients, clients.send_sync("who", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert error(clients, clients.send_sync(leader, 0)) == ErrorCode.ILLEGAL_GENERATION
    for more in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        assert error(clients, clients.send_sync(leader, 1, **more)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert error(clients, clients.send_sync(leader, 1, protocol_type="consumer", protocol_name="range")) == ErrorCode.NONE
    clients.send_join(join_request(), 3)
    assert error(clients, clients.send_sync(leader, 1)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert error(Clients(clients.host, ""), Clients(clients.host, "").send_sync(leader, 1)) == ErrorCode.INVALID_GROUP_ID


def test_heartbeats_keep_a_member_and_their_end_removes_it(host: Host, clients: Clients) -> None:
    leader, follower = clients.enter(join_request(), join_request())
    for _ in range(3):
        host.pass_time(SESSION_MS - 1)
        assert [clients.beat(member, 1) for member in (leader, follower)] == [ErrorCode.NONE] * 2
    host.pass_time(SESSION_MS)
    assert clients.state() is State.EMPTY
    assert clients.beat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_must_be_of_a_member_of_this_generation(host: Host, clients: Clients) -> None:
    assert clients.beat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert Clients(host, "").beat("who", 1) == ErrorCode.INVALID_GROUP_ID
    leader, follower = join_two(clients)
    assert clients.beat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients.beat(leader, 2) == ErrorCode.ILLEGAL_GENERATION
    assert clients.beat(follower, 1) == ErrorCode.NONE  # also before the assignment


def test_a_commit_is_as_good_as_a_heartbeat(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    for offset in range(3):
        host.pass_time(SESSION_MS - 1)
        assert clients.commit({0: offset}, member, 1) == [ErrorCode.NONE]
    assert clients.state() is State.STABLE


def test_who_leaves_begins_a_rebalance_and_the_last_one_empties_the_group(host: Host, clients: Clients) -> None:
    leader, follower = clients.enter(join_request(), join_request())
    assert [found.error_code for found in clients.leave((leader, None)).members] == [ErrorCode.NONE]
    assert clients.state() is State.PREPARING_REBALANCE
    assert clients.group.leader_id == follower
    clients.leave((follower, None))
    assert clients.state() is State.EMPTY
    value = host.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader, value.members, value.protocol_type) == (2, None, None, [], "consumer")
    assert not [key for key in host.timers if key[0].startswith("classic")]


def test_an_answer_to_leaving_waits_for_the_record_of_the_empty_group() -> None:
    host = Host(is_replicated=True)
    clients = Clients(host)
    ticket = clients.send_join(join_request(), 3)
    host.wait_for(ticket)
    member_id = clients.joined(ticket).member_id
    with pytest.raises(AssertionError, match="it waits"):
        clients.leave((member_id, None))
    host.commit()
    assert len(host.answers) == 2


def test_in_old_versions_the_one_members_error_is_the_answers(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    for member_id, expected in (("who", ErrorCode.UNKNOWN_MEMBER_ID), (member, ErrorCode.NONE)):
        left = host.call(LeaveGroupRequest(group_id="g", member_id=member_id), 2)
        assert isinstance(left, LeaveGroupResponse)
        assert left.error_code == expected


def test_each_of_several_gets_its_own_answer(clients: Clients) -> None:
    first, _ = clients.enter(join_request(instance="i"), join_request())
    pending = clients.join(join_request()).member_id
    left = clients.leave((first, "i"), ("", "j"), ("who", None), ("who", "i"), (pending, None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    expected = [ErrorCode.NONE, unknown, unknown, unknown, ErrorCode.NONE]
    assert [found.error_code for found in left.members] == expected
    assert clients.group.generation_id == 1
    assert Clients(clients.host, "none").leave(("who", None)).members[0].error_code == unknown
    assert Clients(clients.host, "").leave(("who", None)).error_code == ErrorCode.INVALID_GROUP_ID


def test_who_leaves_with_an_old_id_of_a_static_member_is_fenced(clients: Clients) -> None:
    clients.enter(join_request(instance="i"))
    assert clients.leave(("old", "i")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_administrator_removes_static_members_by_their_instance(clients: Clients) -> None:
    clients.enter(join_request(instance="i"))
    assert clients.leave(("", "i")).members[0].error_code == ErrorCode.NONE
    assert clients.state() is State.EMPTY


def test_a_sync_that_waits_is_answered_when_its_member_leaves(clients: Clients) -> None:
    _, follower = join_two(clients)
    waiting = clients.send_sync(follower, 1)
    clients.leave((follower, None))
    assert error(clients, waiting) == ErrorCode.UNKNOWN_MEMBER_ID

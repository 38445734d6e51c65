"""Static members: those who come back within their session keep their place (KIP-345, KIP-814)."""

import pytest

from odradek.core.groups.classic.group import State
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import GroupMetadataValue
from tests.core.groups.clients import Clients, assignment, join_request, subscription
from tests.core.groups.host import Host


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clients(host: Host) -> Clients:
    return Clients(host)


def test_a_static_member_is_let_in_at_once_under_the_name_of_its_instance(clients: Clients) -> None:
    (member_id,) = clients.enter(join_request(instance="i"))
    assert member_id.startswith("i-")


def test_a_static_follower_that_comes_back_begins_no_rebalance(host: Host, clients: Clients) -> None:
    leader, old = clients.enter(join_request(instance="i"), join_request(instance="j"))
    back = clients.join(join_request(instance="j"))
    assert (back.error_code, back.generation_id, back.leader, back.members) == (ErrorCode.NONE, 1, leader, [])
    assert clients.state() is State.STABLE
    assert back.member_id != old
    assert clients.synced(clients.send_sync(back.member_id, 1)).assignment == assignment(t=[1])
    value = host.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert [(member.member_id, member.assignment) for member in value.members][1] == (back.member_id, assignment(t=[1]))


def test_the_one_that_was_replaced_is_fenced(clients: Clients) -> None:
    _, old = clients.enter(join_request(instance="i"), join_request(instance="j"))
    clients.join(join_request(instance="j"))
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert clients.beat(old, 1, "j") == fenced
    assert clients.join(join_request(old, instance="j")).error_code == fenced
    assert clients.synced(clients.send_sync(old, 1, group_instance_id="j")).error_code == fenced
    assert clients.commit({0: 1}, old, 1, instance="j") == [fenced]


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_that_comes_back_does_not_assign_again(clients: Clients, version: int) -> None:
    old, other = clients.enter(join_request(instance="i"), join_request(instance="j"))
    back = clients.join(join_request(instance="i"), version)
    if version < 9:
        assert (back.leader, back.members) == (old, [])  # it does not know itself as the leader
    else:
        assert (back.leader, back.skip_assignment) == (back.member_id, True)
        assert [member.member_id for member in back.members] == [back.member_id, other]
    assert clients.group.leader_id == back.member_id
    assert clients.state() is State.STABLE


def test_a_static_member_that_changes_the_elected_protocol_begins_a_rebalance(clients: Clients) -> None:
    both = {"a": subscription("t"), "b": subscription("t")}
    clients.enter(join_request(instance="i", protocols=both))
    clients.send_join(join_request(instance="i", protocols={"b": subscription("t")}))
    assert clients.group.protocol_name == "b"
    assert clients.group.generation_id == 2


def test_a_static_member_that_comes_back_before_the_assignment_begins_a_rebalance(host: Host, clients: Clients) -> None:
    first = clients.send_join(join_request(instance="i"))
    host.wait_for(first)
    assert clients.state() is State.COMPLETING_REBALANCE
    back = clients.join(join_request(instance="i"))
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, 2)


def test_a_join_or_sync_of_the_replaced_that_waits_is_fenced(host: Host, clients: Clients) -> None:
    waiting_join = clients.send_join(join_request(instance="i"))
    tickets = [clients.send_join(join_request(instance=name)) for name in ("i", "j")]
    assert clients.joined(waiting_join).error_code == ErrorCode.FENCED_INSTANCE_ID
    host.wait_for(*tickets)
    _, follower = (clients.joined(ticket).member_id for ticket in tickets)
    waiting_sync = clients.send_sync(follower, 1)
    clients.send_join(join_request(instance="j"))
    assert clients.synced(waiting_sync).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_the_answer_to_one_that_comes_back_waits_for_its_record(host: Host, clients: Clients) -> None:
    clients.enter(join_request(instance="i"))
    host.is_replicated = True
    ticket = clients.send_join(join_request(instance="i"))
    assert ticket not in host.answers
    host.commit()
    assert clients.joined(ticket).error_code == ErrorCode.NONE


def test_a_rebalance_that_begins_meanwhile_answers_it_instead(host: Host, clients: Clients) -> None:
    clients.enter(join_request(instance="i"))
    host.is_replicated = True
    back = clients.send_join(join_request(instance="i"))
    clients.send_join(join_request(instance="j"))
    assert clients.joined(back).generation_id == 2
    host.commit()
    assert clients.state() is State.COMPLETING_REBALANCE


def test_when_its_record_is_refused_the_old_one_goes_on(host: Host, clients: Clients) -> None:
    (old,) = clients.enter(join_request(instance="i", rebalance_ms=50_000))
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = clients.join(join_request(instance="i", rebalance_ms=40_000))
    assert (refused.error_code, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert clients.beat(old, 1, "i") == ErrorCode.NONE
    assert clients.group.members[old].rebalance_timeout_ms == 50_000
    assert [key for key in host.timers if key[0] == "classic-session"] == [("classic-session", "g", old)]


def test_when_its_record_is_not_committed_in_time_the_new_one_is_in_the_log_and_stays(host: Host, clients: Clients) -> None:
    (old,) = clients.enter(join_request(instance="i"))
    host.is_replicated = True
    ticket = clients.send_join(join_request(instance="i"))
    host.pass_time(host.config.offsets_commit_timeout_ms)
    assert clients.joined(ticket).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert old not in clients.group.members
    assert list(clients.group.members) == list(member_ids(host))


def member_ids(host: Host) -> list[str]:
    fresh = host.loaded_again().shard.classic("g")
    assert fresh is not None
    return list(fresh.members)


def test_an_instance_nobody_knows_is_an_unknown_member(clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    assert clients.join(join_request(member, instance="i")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert clients.beat(member, 1, "i") == ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_comes_back_with_other_topics_keeps_their_offsets(clients: Clients) -> None:
    clients.enter(join_request(instance="i", protocols={"range": subscription("t")}))
    clients.join(join_request(instance="i", protocols={"range": subscription("u")}))
    assert clients.state() is State.STABLE
    assert clients.group.is_subscribed_to("u")
    assert not clients.group.is_subscribed_to("t")

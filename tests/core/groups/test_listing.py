"""DescribeGroups, ListGroups and DeleteGroups."""

from typing import cast

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    GroupMetadataKey,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.core.groups.clients import Clients, assignment, join_request, subscription
from tests.core.groups.host import Host


@pytest.fixture
def host() -> Host:
    """A stable group, a simple one, and one in its first rebalance."""
    host = Host()
    Clients(host, "rebalancing").send_join(join_request(), 3)
    stable = Clients(host, "stable")
    (member,) = stable.enter(join_request(instance="i"))
    stable.commit({0: 1}, member, 1)
    Clients(host, "rebalancing").send_join(join_request(), 3)
    Clients(host, "simple").commit({0: 1})
    return host


def describe(host: Host, name: str, version: int = 6) -> DescribeGroupsResponse.DescribedGroup:
    return cast("DescribeGroupsResponse", host.call(DescribeGroupsRequest(groups=[name]), version)).groups[0]


def listed(host: Host, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
    answer = cast("ListGroupsResponse", host.call(request, 5))
    return [(found.group_id, found.protocol_type, found.group_state, found.group_type) for found in answer.groups]


def delete(host: Host, *names: str) -> dict[str, ErrorCode]:
    answer = cast("DeleteGroupsResponse", host.call(DeleteGroupsRequest(groups_names=list(names)), 2))
    return {result.group_id: ErrorCode(result.error_code) for result in answer.results}


def test_a_stable_group_is_described_with_what_its_members_said_and_got(host: Host) -> None:
    found = describe(host, "stable")
    assert (found.error_code, found.group_state) == (ErrorCode.NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (member,) = found.members
    assert (member.group_instance_id, member.client_id, member.client_host) == ("i", "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), assignment(t=[0]))


def test_a_group_in_a_rebalance_has_no_protocol_to_show(host: Host) -> None:
    found = describe(host, "rebalancing")
    assert found.group_state in ("PreparingRebalance", "CompletingRebalance")
    assert (found.protocol_data, found.members[0].member_metadata) == ("", b"")


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_group_that_does_not_exist_is_dead(host: Host, version: int, error: ErrorCode) -> None:
    found = describe(host, "none", version)
    assert (found.group_state, found.error_code) == ("Dead", error)
    assert found.error_message == ("Group none not found." if version == 6 else None)


def test_groups_are_listed_by_state_and_type_whatever_the_case(host: Host) -> None:
    stable, simple = ("stable", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
    assert {stable, simple} < set(listed(host))
    assert listed(host, states=("sTABLE", "dead")) == [stable]
    assert listed(host, states=("Empty",), types=("CLASSIC",)) == [simple]
    assert listed(host, types=("consumer", "nonsense")) == []


def test_a_group_with_members_is_not_deleted(host: Host) -> None:
    found = delete(host, "stable", "simple", "none", "simple")
    non_empty, missing = ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
    assert found == {"stable": non_empty, "simple": ErrorCode.NONE, "none": missing}
    assert "simple" not in host.coordinator.shard.groups


def test_a_deleted_group_leaves_no_offset_and_no_transaction(host: Host) -> None:
    offsets = host.coordinator.shard.offsets
    for partition in (0, 5):
        key = OffsetCommitKey(group="simple", topic="t", partition=partition)
        host.coordinator.shard.replay(0, key, OffsetCommitValue(offset=2), 77)
    before = len(host.log)
    delete(host, "simple")
    keys = [record.key for record in host.log[before:]]
    places = [OffsetCommitKey(group="simple", topic="t", partition=partition) for partition in (0, 5)]
    assert keys == [*places, GroupMetadataKey(group="simple")]
    assert not any(record.value for record in host.log[before:])
    assert "simple" not in offsets.by_group
    assert not offsets.open_places


def test_a_deletion_is_answered_when_it_is_committed(host: Host) -> None:
    host.is_replicated = True
    with pytest.raises(AssertionError, match="it waits"):
        delete(host, "simple")
    answered = len(host.answers)
    host.commit()
    assert len(host.answers) == answered + 1

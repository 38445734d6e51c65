"""Which offsets expire when, and which groups go with them."""

import pytest

from odradek.core.groups.config import GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.groups.events import ConfigChanged
from odradek.core.groups.expiry import expired
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.core.groups.clients import SESSION_MS, Clients, join_request, subscription
from tests.core.groups.host import WALL_MS, Host

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS
CHECK_MS = GroupConfig().offsets_retention_check_interval_ms


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def clients(host: Host) -> Clients:
    return Clients(host)


def test_offsets_of_a_simple_group_expire_after_their_commit_and_the_group_with_the_last(host: Host, clients: Clients) -> None:
    clients.commit({0: 1})
    host.pass_time(DAY_MS)
    clients.commit({1: 2})
    host.pass_time(RETENTION_MS - DAY_MS - 1)
    assert len(clients.fetch(None)) == 2
    host.pass_time(CHECK_MS)
    assert clients.fetch(None) == {("t", 1): 2}
    host.pass_time(DAY_MS)
    assert clients.fetch(None) == {}
    assert not host.coordinator.shard.groups
    last = host.log[-1]
    assert (last.key, last.value) == (GroupMetadataKey(group="g"), None)


def test_offsets_of_an_empty_group_expire_after_its_last_member_went(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request(session_ms=1_800_000))
    clients.commit({0: 1}, member, 1)
    for _ in range(8 * 24 * 2):  # longer than the retention
        host.pass_time(1_800_000 - 1)
        assert clients.beat(member, 1) == ErrorCode.NONE
    clients.leave((member, None))
    host.pass_time(RETENTION_MS - CHECK_MS)
    assert clients.fetch(None) == {("t", 0): 1}
    host.pass_time(2 * CHECK_MS)
    assert not host.coordinator.shard.groups


def test_a_stable_group_keeps_what_it_reads_and_loses_what_it_has_left(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request(session_ms=1_800_000, protocols={"range": subscription("t")}))
    clients.commit({0: 1}, member, 1)
    clients.commit({0: 1}, member, 1, topic="u")
    for _ in range(8 * 24 * 2):
        host.pass_time(1_800_000 - 1)
        clients.beat(member, 1)
    assert clients.fetch(None) == {("t", 0): 1}


def test_a_group_whose_subscriptions_cannot_be_read_loses_nothing_while_it_has_members(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request(session_ms=1_800_000, protocols={"range": b"?"}))
    clients.commit({0: 1}, member, 1)
    for _ in range(8 * 24 * 2):
        host.pass_time(1_800_000 - 1)
        clients.beat(member, 1)
    assert clients.fetch(None) == {("t", 0): 1}


def test_a_commit_with_its_own_retention_time_keeps_to_it(host: Host, clients: Clients) -> None:
    clients.commit({0: 1}, retention_ms=DAY_MS, version=4)
    host.pass_time(DAY_MS - CHECK_MS)
    assert clients.fetch(None) == {("t", 0): 1}
    host.pass_time(2 * CHECK_MS)
    assert clients.fetch(None) == {}


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire(host: Host, clients: Clients) -> None:
    clients.commit({0: 1})
    key, value = OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=2, commit_timestamp=WALL_MS)
    host.coordinator.shard.replay(5, key, value, 77)
    host.pass_time(RETENTION_MS + CHECK_MS)
    assert clients.fetch(None) == {("t", 0): 1}
    host.coordinator.shard.offsets.replay_end_of_transaction(6, 77, False)
    host.pass_time(CHECK_MS)
    assert not host.coordinator.shard.groups


def test_a_group_of_old_records_without_a_timestamp_counts_from_the_commit() -> None:
    config = GroupConfig()
    shard = GroupCoordinator(config, str).shard
    group = GroupMetadataValue(protocol_type="consumer", generation=3, current_state_timestamp=-1)
    shard.replay(0, GroupMetadataKey(group="g"), group, -1)
    offset = OffsetCommitValue(offset=1, commit_timestamp=WALL_MS)
    shard.replay(1, OffsetCommitKey(group="g", topic="t", partition=0), offset, -1)
    assert expired(shard, WALL_MS + config.offsets_retention_ms - 1) == []
    assert len(expired(shard, WALL_MS + config.offsets_retention_ms)) == 2


def test_a_group_without_offsets_goes_at_the_next_check(host: Host, clients: Clients) -> None:
    (member,) = clients.enter(join_request())
    host.pass_time(CHECK_MS - 2 * SESSION_MS)
    assert not clients.group.members
    host.pass_time(2 * SESSION_MS)
    assert not host.coordinator.shard.groups
    assert clients.beat(member, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_retention_can_be_changed_while_running(host: Host, clients: Clients) -> None:
    clients.commit({0: 1})
    host.step(ConfigChanged(GroupConfig(offsets_retention_minutes=60)))
    host.pass_time(3_600_000 + CHECK_MS)
    assert clients.fetch(None) == {}


def test_many_tombstones_are_written_in_pieces(host: Host, clients: Clients) -> None:
    for start in range(0, 2_500, 500):
        clients.commit(dict.fromkeys(range(start, start + 500), 1))
    host.pass_time(RETENTION_MS + CHECK_MS)
    assert not host.coordinator.shard.groups
    assert len(host.log) == 2 * 2_500 + 1

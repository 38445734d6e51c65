"""Groups that change from the classic protocol to the new one while they work, and back; and classic members in between."""

import pytest

from odradek.core.groups.classic.group import State
from odradek.core.groups.config import GroupConfig
from odradek.core.groups.consumer.member import MemberState
from odradek.wire.errors import ErrorCode
from odradek.wire.log_records import decode_consumer_protocol, encode_versioned
from odradek.wire.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    JoinGroupRequest,
    JoinGroupResponse,
)
from tests.core.groups import clients as classic
from tests.core.groups.clients import GROUP, Clients
from tests.core.groups.consumers import Consumer, Consumers, Topics, join_request, settle
from tests.core.groups.host import Host

CONFIG = GroupConfig(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)


def made_host(**settings: object) -> Host:
    fields = {name: getattr(CONFIG, name) for name in CONFIG.__struct_fields__}
    host = Host(GroupConfig(**(fields | settings)))
    Topics(host).make("t", 4)
    return host


@pytest.fixture
def host() -> Host:
    return made_host()


class ClassicConsumer:
    """A classic client of the cooperative kind: it says what it owns when it joins."""

    def __init__(self, host: Host, *topics: str, instance: str | None = None, protocol: str = "cooperative-sticky") -> None:
        self.clients = Clients(host)
        self.topics = topics or ("t",)
        self.instance = instance
        self.protocol = protocol
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, list[int]] = {}

    def join_request(self) -> JoinGroupRequest:
        owned = [ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=found) for name, found in self.owned.items()]
        subscription = ConsumerProtocolSubscription(topics=list(self.topics), owned_partitions=owned)
        protocols = {self.protocol: encode_versioned(subscription, 1)}
        return classic.join_request(self.member_id, instance=self.instance, protocols=protocols)

    def join(self) -> JoinGroupResponse:
        answer = self.clients.join(self.join_request())
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.clients.join(self.join_request())
        assert answer.error_code == ErrorCode.NONE
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self) -> ErrorCode:
        answer = self.clients.synced(self.clients.send_sync(self.member_id, self.generation))
        if not answer.error_code:
            found = decode_consumer_protocol(ConsumerProtocolAssignment, answer.assignment).assigned_partitions
            self.owned = {topic.topic: topic.partitions for topic in found}
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        return self.clients.beat(self.member_id, self.generation, self.instance)

    def live(self) -> None:
        """What a client does at its heartbeat: it joins again when it is told to."""
        error = self.beat()
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()
        else:
            assert error is ErrorCode.NONE


def classic_group(host: Host, count: int) -> list[str]:
    """A stable classic group, in which the leader gave one partition to each."""
    requests = [classic.join_request(protocols={"range": classic.subscription("t")}) for _ in range(count)]
    return Clients(host).enter(*requests)


# Up


def test_a_classic_group_becomes_a_consumer_group_when_a_new_member_joins(host: Host) -> None:
    ids = classic_group(host, 2)
    generation = Clients(host).group.generation_id
    Clients(host).commit({0: 7}, ids[0], generation)
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    group = native.consumers.group
    assert group.members.keys() == {*ids, "n"}
    assert group.epoch == generation + 1
    assert [group.members[name].is_classic for name in (*ids, "n")] == [True, True, False]
    assert group.members[ids[0]].epoch == generation
    assert sum(len(found) for found in group.members[ids[0]].assigned.values()) == 1, "it keeps what its leader gave it"
    assert Clients(host).fetch([0]) == {("t", 0): 7}
    assert host.log[-1].key.schema.name.startswith("ConsumerGroup")
    assert any(isinstance(record.key, GroupMetadataKey) and record.value is None for record in host.log)


def test_classic_members_go_on_in_the_consumer_group(host: Host) -> None:
    a = ClassicConsumer(host)
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a.join()
    assert a.sync() is ErrorCode.NONE
    for _ in range(4):
        native.beat()
        a.live()
    assert sorted(a.owned["t"] + [index for _, index in native.partitions]) == [0, 1, 2, 3]
    assert native.consumers.group.state_name == "Stable"
    assert a.generation == native.consumers.group.epoch
    assert native.consumers.describe().members[-1].member_type == 0


def test_who_waits_in_the_classic_group_is_told_to_join_again(host: Host) -> None:
    ids = classic_group(host, 2)
    ticket = Clients(host).send_join(classic.join_request(ids[0], protocols={"range": classic.subscription("t")}))
    assert ticket not in host.answers
    Consumer(Consumers(host), "n", "t").join()
    assert Clients(host).joined(ticket).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_empty_classic_group_is_replaced(host: Host) -> None:
    (member_id,) = classic_group(host, 1)
    Clients(host).leave((member_id, None))
    native = Consumer(Consumers(host), "n", "t")
    assert native.join().member_epoch == 1
    assert native.consumers.group.members.keys() == {"n"}


def test_a_simple_group_is_replaced_and_keeps_its_offsets(host: Host) -> None:
    Clients(host).commit({0: 3})
    Consumer(Consumers(host), "n", "t").join()
    assert Clients(host).fetch([0]) == {("t", 0): 3}
    fresh = host.loaded_again().shard
    assert fresh.consumer(GROUP) is not None
    assert fresh.offsets.by_group == host.coordinator.shard.offsets.by_group


@pytest.mark.parametrize("policy", ["disabled", "DOWNGRADE"])
def test_the_policy_may_forbid_an_upgrade(policy: str) -> None:
    host = made_host(group_consumer_migration_policy=policy)
    classic_group(host, 1)
    assert Consumers(host).error(join_request("n", "t")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert Clients(host).state() is State.STABLE


def test_a_classic_group_that_is_no_consumers_or_is_too_large_stays() -> None:
    host = made_host(group_consumer_max_size=1)
    classic_group(host, 2)
    assert Consumers(host).error(join_request("n", "t")) is ErrorCode.GROUP_ID_NOT_FOUND
    host = made_host()
    clients = Clients(host)
    ticket = clients.send_join(classic.join_request(protocol_type="connect", instance="i"))
    host.wait_for(ticket)
    assert Consumers(host).error(join_request("n", "t")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(host: Host) -> None:
    ids = classic_group(host, 2)
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumers(host).call(join_request("n", "t")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.refusing = None
    assert Clients(host).state() is State.STABLE
    assert Clients(host).beat(ids[0], 1) is ErrorCode.NONE


# Classic members


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_conversion_that_does_not_come_about_leaves_who_waited_for_the_leader_a_session(is_refused: bool) -> None:
    """One that is refused after all had been told to join again, and one that cannot be written."""
    host = made_host(group_consumer_max_size=2 if is_refused else 3)
    clients = Clients(host)
    leader, other = classic_group(host, 2)
    tickets = [clients.send_join(classic.join_request(name)) for name in (leader, other)]
    generation = clients.joined(tickets[0]).generation_id
    waiting = clients.send_sync(other, generation)
    for _ in range(3):
        host.pass_time(classic.SESSION_MS // 2)
        assert clients.beat(leader, generation) is ErrorCode.NONE
    assert waiting not in host.answers
    host.refusing = None if is_refused else ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumers(host).call(join_request("n", "t")).error_code
    host.refusing = None
    assert clients.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    clients.send_sync(leader, generation, {other: classic.assignment(t=[0])})
    assert clients.group.members.keys() == {leader, other}
    for _ in range(2):
        host.pass_time(classic.SESSION_MS // 2)
        clients.beat(leader, generation)
    assert clients.group.members.keys() == {leader}


def test_a_conversion_that_does_not_come_about_leaves_who_waited_for_the_generation_a_session(host: Host) -> None:
    """A static member is kept when its group goes on without it: its session alone ends that."""
    clients = Clients(host)
    requests = [classic.join_request(instance=name) for name in ("i", "j")]
    ids = clients.enter(*requests)
    requests[0].member_id = ids[0]
    requests[0].protocols[0].metadata = classic.subscription("t", "u")
    waiting = clients.send_join(requests[0])
    host.pass_time(classic.SESSION_MS // 2)
    clients.beat(ids[1], 1, "j")
    host.pass_time(classic.SESSION_MS // 2)
    clients.beat(ids[1], 1, "j")
    assert waiting not in host.answers
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Consumers(host).call(join_request("n", "t")).error_code
    host.refusing = None
    assert clients.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(2):
        host.pass_time(classic.SESSION_MS // 2)
        clients.beat(ids[1], 1, "j")
    assert clients.group.members.keys() == {ids[1]}


def test_a_classic_member_is_told_to_join_when_the_epoch_rises_and_fenced_when_it_does_not(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a = ClassicConsumer(host)
    a.join()
    a.sync()
    second = Consumer(Consumers(host), "m", "t")
    second.join()
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.sync() is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(12):
        assert a.member_id in native.consumers.group.members
        host.pass_time(5_000)
        a.beat()
        native.beat()
        second.beat()
    assert a.member_id not in native.consumers.group.members, "its rebalance timeout is over"


def test_a_classic_member_that_does_not_sync_is_fenced(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a = ClassicConsumer(host)
    a.join()
    for _ in range(12):
        host.pass_time(5_000)
        a.beat()
        native.beat()
    assert a.member_id not in native.consumers.group.members


def test_a_classic_member_that_does_not_sync_and_could_not_be_fenced_is_fenced_later(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a = ClassicConsumer(host)
    a.join()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(12):
        host.pass_time(5_000)
        a.beat()
        native.beat()
    assert ("consumer-sync", "g", a.member_id) in host.timers
    host.refusing = None
    for _ in range(12):
        host.pass_time(5_000)
        a.beat()
        native.beat()
    assert native.consumers.group.members.keys() == {"n"}


def test_a_classic_member_has_the_session_timeout_that_it_asked_for(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a = ClassicConsumer(host)
    a.join()
    a.sync()
    host.pass_time(classic.SESSION_MS)
    assert native.consumers.group.members.keys() == {"n"}
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_with_another_generation_is_refused(host: Host) -> None:
    Consumer(Consumers(host), "n", "t").join()
    a = ClassicConsumer(host)
    a.join()
    clients = Clients(host)
    assert clients.beat(a.member_id, a.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert clients.beat("n", 1) is ErrorCode.UNKNOWN_MEMBER_ID, "it is none of the classic ones"
    answer = clients.synced(clients.send_sync(a.member_id, a.generation, protocol_name="other"))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert clients.commit({0: 1}, a.member_id, a.generation + 1) == [ErrorCode.ILLEGAL_GENERATION]


def test_a_classic_member_whose_protocols_the_others_do_not_have_is_refused(host: Host) -> None:
    Consumer(Consumers(host), "n", "t").join()
    ClassicConsumer(host).join()
    clients = Clients(host)
    other = ClassicConsumer(host, protocol="range").join_request()
    assert clients.join(other).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    connect = classic.join_request(protocol_type="connect")
    assert clients.join(connect).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_with_migration_disabled_no_classic_member_comes_in() -> None:
    host = made_host(group_consumer_migration_policy="disabled")
    Consumer(Consumers(host), "n", "t").join()
    assert Clients(host).join(ClassicConsumer(host).join_request()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_gives_up_before_others_get(host: Host) -> None:
    a = ClassicConsumer(host)
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a.join()
    a.sync()
    native.beat()
    native.beat()
    a.live()
    assert len(a.owned["t"]) == 2
    second = Consumer(Consumers(host), "m", "t")
    second.join()
    group = native.consumers.group
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    if group.members[a.member_id].state is MemberState.UNREVOKED_PARTITIONS:
        before = set(a.owned["t"])
        a.sync()
        assert set(a.owned["t"]) < before
    for _ in range(4):
        native.beat()
        second.beat()
        a.live()
    assert group.state_name == "Stable"
    owned = a.owned["t"] + [index for _, index in native.partitions + second.partitions]
    assert sorted(owned) == [0, 1, 2, 3]


def test_an_administrator_removes_members_of_either_kind(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t", instance="i")
    native.join()
    Consumer(Consumers(host), "m", "t").join()
    answer = Clients(host).leave(("", "i"), ("", "j"))
    assert [found.error_code for found in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert native.consumers.group.members.keys() == {"m"}


# Down


def mixed(host: Host) -> tuple[Consumer, ClassicConsumer]:
    native, a = Consumer(Consumers(host), "n", "t"), ClassicConsumer(host)
    native.join()
    a.join()
    a.sync()
    for _ in range(4):
        native.beat()
        a.live()
    return native, a


def test_the_group_becomes_a_classic_one_when_the_last_native_member_leaves(host: Host) -> None:
    native, a = mixed(host)
    epoch = native.consumers.group.epoch
    native.leave()
    group = Clients(host).group
    assert (group.state, group.generation_id) == (State.PREPARING_REBALANCE, epoch)
    assert group.members.keys() == {a.member_id}
    a.join()
    assert a.generation == epoch + 1
    assert Clients(host).state() is State.COMPLETING_REBALANCE
    given = {a.member_id: classic.assignment(t=[0, 1, 2, 3])}
    Clients(host).synced(Clients(host).send_sync(a.member_id, a.generation, given))
    assert Clients(host).state() is State.STABLE


def test_it_happens_too_when_the_last_native_member_is_not_heard_of(host: Host) -> None:
    _, a = mixed(host)
    for _ in range(9):
        host.pass_time(5_000)
        a.beat()
    assert host.coordinator.shard.classic(GROUP) is not None


def test_a_classic_group_made_so_is_loaded_as_such(host: Host) -> None:
    native, a = mixed(host)
    assigned = a.owned
    native.leave()
    host.fail_over()
    group = Clients(host).group
    assert group.members.keys() == {a.member_id}
    found = decode_consumer_protocol(ConsumerProtocolAssignment, group.members[a.member_id].assignment).assigned_partitions
    assert {topic.topic: topic.partitions for topic in found} == assigned


def test_a_downgrade_that_cannot_be_written_leaves_the_consumer_group(host: Host) -> None:
    native, a = mixed(host)
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert native.leave().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    host.refusing = None
    assert native.consumers.group.members.keys() == {"n", a.member_id}
    assert native.beat().error_code == ErrorCode.NONE
    assert a.beat() is ErrorCode.NONE
    assert not [key for key in host.timers if key[0] in ("classic-join", "classic-session")]


def test_a_downgrade_that_cannot_be_written_leaves_classic_members_the_time_they_had_to_sync(host: Host) -> None:
    native, a = Consumer(Consumers(host), "n", "t"), ClassicConsumer(host)
    native.join()
    a.join()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    Clients(host).leave(("n", None))
    host.refusing = None
    for _ in range(12):
        assert a.member_id in native.consumers.group.members
        native.beat()
        a.beat()
        host.pass_time(5_000)
    assert native.consumers.group.members.keys() == {"n"}, "who did not sync is gone"


def test_a_downgrade_that_cannot_be_written_leaves_native_members_the_time_they_had_to_give_up(host: Host) -> None:
    native, a = Consumer(Consumers(host), "n", "t"), ClassicConsumer(host)
    native.join()
    a.join()
    a.sync()
    everything = native.owned
    native.beat()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    native.leave()
    host.refusing = None
    for _ in range(12):
        assert native.consumers.group.members["n"].state is MemberState.UNREVOKED_PARTITIONS
        native.owned = everything
        native.beat()
        a.beat()
        host.pass_time(5_000)
    assert Clients(host).group.members.keys() == {a.member_id}, "who gave up nothing is gone"


def test_the_time_to_sync_ends_with_the_consumer_group_also_where_it_soon_is_one_again(host: Host) -> None:
    native, a = Consumer(Consumers(host), "n", "t"), ClassicConsumer(host)
    native.join()
    a.join()
    for _ in range(11):
        host.pass_time(5_000)
        native.beat()
        a.beat()
    native.leave()
    a.join()
    given = {a.member_id: classic.assignment(t=[0, 1, 2, 3])}
    Clients(host).synced(Clients(host).send_sync(a.member_id, a.generation, given))
    native.join()
    host.pass_time(5_000)
    assert a.beat() is ErrorCode.REBALANCE_IN_PROGRESS, "it has the whole of its rebalance timeout to join"


@pytest.mark.parametrize("unreadable", [b"", b"\0", b"\xff\xff"])
def test_what_a_member_says_for_its_second_protocol_is_in_nobodys_way(host: Host, unreadable: bytes) -> None:
    """The classic group elects that one: the other member has no other."""
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    requests = [
        classic.join_request(protocols={"range": classic.subscription("t"), "own": unreadable}, session_ms=120_000),
        classic.join_request(protocols={"own": classic.subscription("t")}, session_ms=120_000),
    ]
    clients = Clients(host)
    for request in requests:
        request.member_id = clients.join(request).member_id
        assert clients.join(request).error_code == ErrorCode.NONE
    host.pass_time(host.config.group_consumer_session_timeout_ms)
    assert clients.group.members.keys() == {request.member_id for request in requests}, "who was not heard of is gone"
    assert clients.group.protocol_name == "own"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_may_forbid_a_downgrade(policy: str) -> None:
    host = made_host()
    native, a = mixed(host)
    host.coordinator.shard.config = GroupConfig(group_consumer_migration_policy=policy, group_consumer_assignment_interval_ms=0)
    native.leave()
    assert native.consumers.group.members.keys() == {a.member_id}


def test_a_static_member_may_change_its_protocol_by_coming_back(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t", instance="i")
    native.join()
    a = ClassicConsumer(host)
    a.join()
    a.sync()
    for _ in range(4):
        native.beat()
        a.live()
    before = [index for _, index in native.partitions]
    native.leave(-2)
    back = ClassicConsumer(host, instance="i")
    back.join()
    group = Clients(host).group
    assert group.members.keys() == {a.member_id, back.member_id}, "all are classic now"
    assert (group.state, back.generation) == (State.STABLE, group.generation_id)
    answer = Clients(host).synced(Clients(host).send_sync(back.member_id, back.generation))
    found = decode_consumer_protocol(ConsumerProtocolAssignment, answer.assignment).assigned_partitions
    assert found[0].partitions == before


def test_a_static_classic_member_may_come_back_as_a_native_one(host: Host) -> None:
    a = ClassicConsumer(host, instance="i")
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    a.join()
    a.sync()
    for _ in range(4):
        native.beat()
        a.live()
    again = Consumer(Consumers(host), "a2", "t", instance="i")
    again.join()
    settle(native, again)
    assert native.consumers.group.members.keys() == {"n", "a2"}
    assert not native.consumers.group.members["a2"].is_classic
    assert sorted(native.partitions + again.partitions) == [("t", index) for index in range(4)]


def test_an_empty_consumer_group_gives_way_to_a_classic_one(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    native.leave()
    (member_id,) = classic_group(host, 1)
    assert Clients(host).group.members.keys() == {member_id}
    fresh = host.loaded_again().shard
    assert fresh.classic(GROUP) is not None
    assert fresh.groups.keys() == {GROUP}


def test_an_empty_consumer_group_comes_back_when_the_classic_one_could_not_be_stored(host: Host) -> None:
    native = Consumer(Consumers(host), "n", "t")
    native.join()
    native.leave()
    host.refusing = ErrorCode.NOT_ENOUGH_REPLICAS
    Clients(host).send_join(classic.join_request())
    host.refusing = None
    assert native.consumers.group.is_empty

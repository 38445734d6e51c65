"""The APIs of groups and offsets, with a coordinator behind them and no node: names, ids, versions, and what is put together."""

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.api import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from odradek.api.context import Context
from odradek.api.operations import ON_GROUPS
from odradek.core.config.broker import BrokerConfig
from odradek.core.coordinator.partitioning import partition_of
from odradek.core.metadata.brokers import Broker, Endpoint
from odradek.core.metadata.image import MetadataImage
from odradek.core.transactions.transaction import TopicIndex
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response
from odradek.wire.message import Message
from odradek.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    PartitionRecord,
    RemoveTopicRecord,
    SyncGroupRequest,
    TopicRecord,
    TxnOffsetCommitRequest,
)
from tests.core.groups.host import Host
from tests.node.inside import SETTINGS

TOPIC_ID, OTHER_ID = b"t" * 16, b"?" * 16
MODULES = (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)


class Groups:
    """One coordinator for all groups, or an error."""

    def __init__(self, image: MetadataImage) -> None:
        self.host = Host(image=image)
        self.error: ErrorCode | None = None

    def submit(self, group_id: str, request: Message, ctx: Context, failed: Callable[[ErrorCode], Message]) -> None:
        ctx.answer(failed(self.error) if self.error is not None else self.answer(request, ctx))

    async def ask(self, group_id: str, request: Message, ctx: Context) -> Message | ErrorCode:
        return self.answer(request, ctx) if self.error is None else self.error

    async def ask_all(self, request: Message, ctx: Context) -> tuple[list[Message], ErrorCode]:
        return [self.answer(request, ctx)], self.error or ErrorCode.NONE

    def place_of(self, _: str) -> tuple[Any, TopicIndex]:
        return SimpleNamespace(verify=lambda *_, **__: object()), ("__consumer_offsets", 0)

    async def ask_verified(self, group_id: str, request: Message, ctx: Context, _: object) -> Message | ErrorCode:
        return await self.ask(group_id, request, ctx)

    def answer(self, request: Message, ctx: Context) -> Message:
        return self.host.answer(self.host.send_as_it_is(request, ctx.version))


class Node:
    def __init__(self) -> None:
        self.config = BrokerConfig(SETTINGS)
        self.image = MetadataImage()
        self.groups = Groups(self.image)
        self.created: list[str] = []
        self.meanwhile: list[Callable[[], None]] = []  # happens while a coordinator of transactions is asked
        self.make_topic("t", TOPIC_ID, 2)
        broker = Broker(id=1, epoch=1, incarnation_id=bytes(16), listeners={}, features={}, fenced=False)
        broker.listeners["PLAINTEXT"] = Endpoint("here", 9092, 0)
        self.image.brokers[1] = broker

    def make_topic(self, name: str, topic_id: bytes, partitions: int) -> None:
        self.image.replay(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            self.image.replay(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1],
                    isr=[1],
                    leader=1 if index < 40 else 9,
                    directories=[bytes(16)],
                )
            )

    async def create_topics_on_demand(self, topics: list[str]) -> dict[str, ErrorCode]:
        for name in topics:
            self.created.append(name)
            self.make_topic(name, name[-16:].encode(), 50)
        return {}

    async def enlist(self, _id: str, _producer: int, _epoch: int, places: list[TopicIndex], **_: bool) -> dict[Any, ErrorCode]:
        for happen in self.meanwhile:
            happen()
        return dict.fromkeys(places, ErrorCode.NONE)

    async def followed(self) -> None:
        pass  # what is in the image is there

    def call(self, module: Any, request: Message, version: int) -> Any:
        """What a client gets that sends the request in that version."""
        api = APIS[module.KEY]
        answered: list[Context] = []
        connection = SimpleNamespace(client_host="127.0.0.1", listener="PLAINTEXT", answered=answered.append)
        ctx = Context(cast("Any", self), cast("Any", connection), version, 7, "client")
        handled = module.handle(api.request.decode(request.to_bytes(version), version), ctx)
        if handled is None:
            assert ctx.is_waiting
            assert answered == [ctx]
        else:
            ctx.answer(handled if isinstance(handled, Message) else run(handled))
        buffers = cast("list[bytes]", ctx.buffers)
        return decode_response(api.response, b"".join(buffers)[4:], version)[1]


def run(coroutine: Coroutine[Any, Any, Message]) -> Message:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("Message", done.value)
    raise AssertionError("it waits")


@pytest.fixture
def node() -> Node:
    return Node()


def commit_request(version: int, *partitions: int, topic: str = "t", topic_id: bytes = TOPIC_ID) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition
    asked = OffsetCommitRequest.OffsetCommitRequestTopic(
        name=topic if version < 10 else "",
        topic_id=topic_id if version >= 10 else bytes(16),
        partitions=[partition(partition_index=index, committed_offset=5, committed_metadata="m") for index in partitions],
    )
    return OffsetCommitRequest(group_id="g", topics=[asked])


def commit(node: Node, version: int, *partitions: int, **more: Any) -> dict[int, ErrorCode]:
    answer = node.call(offset_commit, commit_request(version, *partitions, **more), version)
    return {found.partition_index: ErrorCode(found.error_code) for topic in answer.topics for found in topic.partitions}


def commit_transactionally(node: Node, version: int, *topics: tuple[str, bytes]) -> dict[str | bytes, ErrorCode]:
    kind = TxnOffsetCommitRequest
    partition = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
    has_ids = version >= 6
    asked = [
        kind.TxnOffsetCommitRequestTopic(
            name="" if has_ids else name, topic_id=topic_id if has_ids else bytes(16), partitions=[partition]
        )
        for name, topic_id in topics
    ]
    request = kind(transactional_id="x", group_id="g", producer_id=7, producer_epoch=0, topics=asked)
    answer = node.call(txn_offset_commit, request, version)
    return {
        topic.topic_id if has_ids else topic.name: ErrorCode(found.error_code)
        for topic in answer.topics
        for found in topic.partitions
    }


def test_every_version_that_kafka_advertises_is_served() -> None:
    for module in MODULES:
        api = APIS[module.KEY]
        assert (module.__doc__ or "").startswith(f"{api.name} (key {api.key})")
        assert f"{api.served[-1]}" in (module.__doc__ or "").split("\n")[0]


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_with_the_topics_id_in_every_version(node: Node, version: int) -> None:
    assert commit(node, version, 0) == {0: ErrorCode.NONE}
    (record,) = node.groups.host.log
    assert cast("Any", record.key).topic == "t"
    assert cast("Any", record.value).topic_id == TOPIC_ID


@pytest.mark.parametrize("is_made_anew", [True, False])
@pytest.mark.parametrize("version", [5, 6])
def test_no_offset_is_committed_for_a_topic_that_goes_while_its_transaction_is_looked_for(
    node: Node, version: int, is_made_anew: bool
) -> None:
    """Under the id of the old topic it would hide what is committed for the new one."""
    node.make_topic("u", OTHER_ID, 1)
    node.meanwhile.append(lambda: node.image.replay(RemoveTopicRecord(topic_id=TOPIC_ID)))
    if is_made_anew:
        node.meanwhile.append(lambda: node.make_topic("t", b"n" * 16, 2))
    found = commit_transactionally(node, version, ("t", TOPIC_ID), ("u", OTHER_ID))
    if version >= 6:
        assert found == {TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_ID, OTHER_ID: ErrorCode.NONE}
    else:
        assert found == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "u": ErrorCode.NONE}
    assert [cast("Any", record.key).topic for record in node.groups.host.log] == ["u"]
    node.meanwhile[:] = [lambda: node.image.replay(RemoveTopicRecord(topic_id=OTHER_ID))]
    assert ErrorCode.NONE not in commit_transactionally(node, version, ("u", OTHER_ID)).values()
    assert len(node.groups.host.log) == 1


def test_what_does_not_exist_is_refused_and_the_rest_committed(node: Node) -> None:
    assert commit(node, 9, 0, 2) == {0: ErrorCode.NONE, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(node, 9, 0, topic="u") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(node, 10, 0, topic_id=OTHER_ID) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
    assert len(node.groups.host.log) == 1


def test_a_commit_elsewhere_is_refused_for_each_partition(node: Node) -> None:
    node.groups.error = ErrorCode.NOT_COORDINATOR
    assert commit(node, 9, 0, 1) == {0: ErrorCode.NOT_COORDINATOR, 1: ErrorCode.NOT_COORDINATOR}
    assert commit(node, 9, 0, 5) == {0: ErrorCode.NOT_COORDINATOR, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_one_group_are_fetched_in_old_versions(node: Node, version: int) -> None:
    commit(node, 9, 0)
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answer = node.call(offset_fetch, OffsetFetchRequest(group_id="g", topics=topics), version)
    found = [(part.partition_index, part.committed_offset, part.metadata) for part in answer.topics[0].partitions]
    assert found == [(0, 5, "m"), (1, -1, "")]
    if version >= 2:
        answer = node.call(offset_fetch, OffsetFetchRequest(group_id="g", topics=None), version)
        assert [len(topic.partitions) for topic in answer.topics] == [1]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_several_groups_are_fetched_in_new_versions(node: Node, version: int) -> None:
    commit(node, 9, 0)
    topic = OffsetFetchRequest.OffsetFetchRequestTopics
    asked = topic(name="t", partition_indexes=[0]) if version < 10 else topic(topic_id=TOPIC_ID, partition_indexes=[0])
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[group(group_id="g", topics=[asked]), group(group_id="g", topics=None)])
    answer = node.call(offset_fetch, request, version)
    for found in answer.groups:
        assert (found.group_id, found.error_code) == ("g", ErrorCode.NONE)
        assert found.topics[0].partitions[0].committed_offset == 5
        assert (found.topics[0].name, found.topics[0].topic_id) == (("t", bytes(16)) if version < 10 else ("", TOPIC_ID))


def test_an_unknown_topic_id_is_said_so(node: Node) -> None:
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=OTHER_ID, partition_indexes=[3])
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic])
    answer = node.call(offset_fetch, OffsetFetchRequest(groups=[group]), 10)
    (partition,) = answer.groups[0].topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_that_is_gone_is_not_told_of(node: Node, version: int) -> None:
    commit(node, 9, 0)
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    assert len(node.call(offset_fetch, OffsetFetchRequest(groups=[group]), version).groups[0].topics) == 1
    del node.image.topics["t"]
    assert node.call(offset_fetch, OffsetFetchRequest(groups=[group]), version).groups[0].topics == []


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_where_there_is_no_coordinator_a_fetch_says_so_where_its_version_can(node: Node, version: int) -> None:
    node.groups.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)]
    request = OffsetFetchRequest(group_id="g", topics=topics) if version < 8 else OffsetFetchRequest(groups=groups)
    answer = node.call(offset_fetch, request, version)
    if version == 1:
        found = answer.topics[0].partitions[0].error_code
    else:
        found = answer.error_code if version < 8 else answer.groups[0].error_code
    assert found == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_offsets_of_partitions_that_do_not_exist_cannot_be_deleted(node: Node) -> None:
    commit(node, 9, 0)
    partition = OffsetDeleteRequest.OffsetDeleteRequestPartition
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [topic(name=name, partitions=[partition(partition_index=index) for index in (0, 7)]) for name in ("t", "u")]
    answer = node.call(offset_delete, OffsetDeleteRequest(group_id="g", topics=topics), 0)
    found = {(topic.name, part.partition_index): part.error_code for topic in answer.topics for part in topic.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("t", 0): ErrorCode.NONE, ("t", 7): unknown, ("u", 0): unknown, ("u", 7): unknown}
    missing = node.call(offset_delete, OffsetDeleteRequest(group_id="none", topics=topics), 0)
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_groups_are_described_listed_and_deleted_in_every_version(node: Node) -> None:
    commit(node, 9, 0)
    for version in range(7):
        answer = node.call(describe_groups, DescribeGroupsRequest(groups=["g", "none"]), version)
        assert [(group.group_id, group.group_state) for group in answer.groups] == [("g", "Empty"), ("none", "Dead")]
    for version in range(6):
        assert [group.group_id for group in node.call(list_groups, ListGroupsRequest(), version).groups] == ["g"]
    for version in range(3):
        commit(node, 9, 0)
        answer = node.call(delete_groups, DeleteGroupsRequest(groups_names=["g", "g", "none"]), version)
        errors = [(found.group_id, found.error_code) for found in answer.results]
        assert errors == [("g", ErrorCode.NONE), ("none", ErrorCode.GROUP_ID_NOT_FOUND)]


def test_operations_are_told_of_groups_that_are_there_to_those_who_ask(node: Node) -> None:
    commit(node, 9, 0)
    request = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    found = node.call(describe_groups, request, 6).groups
    assert [group.authorized_operations for group in found] == [ON_GROUPS, -(2**31)]


def test_where_a_coordinator_loads_the_list_is_refused_as_a_whole(node: Node) -> None:
    commit(node, 9, 0)
    node.groups.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    answer = node.call(list_groups, ListGroupsRequest(), 5)
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


@pytest.mark.parametrize(
    ("module", "request_", "is_silent"),
    [
        (join_group, JoinGroupRequest(group_id="g", member_id="m"), False),
        (sync_group, SyncGroupRequest(group_id="g", member_id="m"), False),
        (leave_group, LeaveGroupRequest(group_id="g"), False),
        (heartbeat, HeartbeatRequest(group_id="g", member_id="m"), True),
    ],
)
def test_while_groups_are_loaded_members_ask_again_and_heartbeats_are_well(
    node: Node, module: Any, request_: Message, is_silent: bool
) -> None:
    for version in APIS[module.KEY].served:
        for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            node.groups.error = error
            expected = ErrorCode.NONE if is_silent and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
            assert node.call(module, request_, version).error_code == expected


def test_members_reach_their_coordinator(node: Node) -> None:
    for module, request in (
        (sync_group, SyncGroupRequest(group_id="g", member_id="m")),
        (heartbeat, HeartbeatRequest(group_id="g", member_id="m")),
        (join_group, JoinGroupRequest(group_id="g", member_id="m", session_timeout_ms=10_000)),
    ):
        for version in APIS[module.KEY].served:
            assert node.call(module, request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_coordinator_leads_the_partition_of_the_key_and_its_topic_is_made_when_needed(node: Node) -> None:
    here, elsewhere = (name_of(lambda partition: partition < 40), name_of(lambda partition: partition >= 40))
    for version in range(4):
        answer = node.call(find_coordinator, FindCoordinatorRequest(key=here), version)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (ErrorCode.NONE, 1, "here", 9092)
        answer = node.call(find_coordinator, FindCoordinatorRequest(key=elsewhere), version)
        assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    for version in range(4, 7):
        answer = node.call(find_coordinator, FindCoordinatorRequest(coordinator_keys=[here, elsewhere]), version)
        found = [(row.key, row.node_id, row.error_code) for row in answer.coordinators]
        assert found == [(here, 1, ErrorCode.NONE), (elsewhere, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert node.created == ["__consumer_offsets"]


def name_of(fits: Callable[[int], bool]) -> str:
    return next(f"group-{number}" for number in range(1000) if fits(partition_of(f"group-{number}", 50)))


def test_transactions_have_their_own_coordinators_and_other_keys_none(node: Node) -> None:
    key = name_of(lambda partition: partition < 40)
    answer = node.call(find_coordinator, FindCoordinatorRequest(key=key, key_type=1), 3)
    assert (answer.error_code, node.created) == (ErrorCode.NONE, ["__transaction_state"])
    answer = node.call(find_coordinator, FindCoordinatorRequest(coordinator_keys=["x"], key_type=7), 6)
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST

"""Every API that clients use, in every version that is served: Apache Kafka gets the same requests and gives the same answers.

Requests are made from one list of steps and sent to both, in each version that has what the step needs. What must differ is made
equal before answers are compared: ids, ports, sessions, member ids, and the words of error messages.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from odradek.wire.apis import APIS
from odradek.wire.compression import Codec
from odradek.wire.frames import decode_response
from odradek.wire.message import NIL_UUID, Message
from odradek.wire.messages import (
    ApiVersionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from odradek.wire.records import Record, build
from tests.clients.server import Node
from tests.kafka.broker import Broker
from tests.node.socket_client import SocketClient

TIME_MS = 1_700_000_000_000
LEAD_SECONDS_MAX = 30
WORDS = {"error_message", "batch_index_error_message"}
NUMBERS: dict[str, Callable[[int], bool]] = {  # by name of the field: what both have, and only its being there is compared
    "session_id": bool,
    "producer_id": bool,
    "port": bool,
    "log_append_time_ms": lambda value: value > 0,
    "last_timestamp": lambda value: value > 0,
    "finalized_features_epoch": bool,
}


class Both(NamedTuple):
    kafka: "Side"
    odradek: "Side"


class Side:
    """One of the two, with what is different about it."""

    def __init__(self, server: Broker) -> None:
        self.server = server
        self.client = SocketClient(server.port)
        self.ids: dict[str, bytes] = {}
        self.names: dict[str, str] = {}  # of members, in the order in which they came

    def learn_topics(self) -> None:
        deadline = time.monotonic() + LEAD_SECONDS_MAX
        while True:
            answer = self.client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
            self.ids = {topic.name or "": topic.topic_id for topic in answer.topics}
            if answer.topics and not any(each.error_code for topic in answer.topics for each in topic.partitions):
                return
            assert time.monotonic() < deadline

    def ask(self, request: Message, version: int) -> Any:
        self.client.send_request(request, version)
        _, answer = decode_response(APIS[request.schema.key].response, self.client.frame(), version)
        return self.plain(answer)

    def plain(self, value: Any, name: str = "") -> Any:
        """A value with everything made equal that must differ."""
        if isinstance(value, msgspec.Struct):
            return {field: self.plain(getattr(value, field), field) for field in value.__struct_fields__}
        if isinstance(value, list):
            return [self.plain(each, name) for each in value]
        if name in WORDS:
            return None
        if name in NUMBERS and isinstance(value, int):
            return NUMBERS[name](value)
        if name == "cluster_id":
            return bool(value)
        if isinstance(value, bytes) and value != NIL_UUID and value in self.ids.values():
            return f"the id of {next(topic for topic, known in self.ids.items() if known == value)}"
        if name in ("member_id", "leader") and value:
            return self.names.setdefault(value, f"member {len(self.names)}")
        return bytes(value) if isinstance(value, memoryview) else value


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    kafka = Broker(tmp_path_factory.mktemp("kafka"))
    odradek = Node(tmp_path_factory.mktemp("odradek"))
    with kafka.running(), odradek.running():
        sides = Both(Side(kafka), Side(odradek))
        for side in sides:
            create(side)
            coordinate(side)
        yield sides
        for side in sides:
            side.client.socket.close()


def create(side: Side) -> None:
    def topic(name: str, partitions: int, **configs: str) -> CreateTopicsRequest.CreatableTopic:
        entries = [
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        return CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)

    wanted = [
        topic("plain", 3),
        topic("read", 2),
        topic("compacted", 1, cleanup_policy="compact"),
        topic("stamped", 1, message_timestamp_type="LogAppendTime"),
        topic("zipped", 1, compression_type="lz4"),
        topic("small", 1, max_message_bytes="200"),
        topic("recent", 1, message_timestamp_before_max_ms="1000"),
    ]
    answer = side.client.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, CreateTopicsResponse)
    assert not any(each.error_code for each in answer.topics), answer
    side.learn_topics()
    for number in range(4):
        data = batch(number * 10, 3, codec=Codec.GZIP if number == 2 else Codec.NONE)
        answered = side.ask(produce("read", data), 9)
        assert answered["responses"][0]["partition_responses"][0]["error_code"] == 0


def coordinate(side: Side) -> None:
    """Until the coordinator answers."""
    deadline = time.monotonic() + LEAD_SECONDS_MAX
    while True:
        side.ask(FindCoordinatorRequest(key="g"), 1)
        answer = side.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        started = side.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
        if not answer["error_code"] and not started["error_code"]:
            side.learn_topics()
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def batch(time_ms: int, count: int, key: bytes | None = b"k", codec: int = Codec.NONE, **more: int) -> bytearray:
    return build(
        [Record(number, TIME_MS + time_ms + number, key, b"value") for number in range(count)],
        codec=codec,
        **more,  # type: ignore[arg-type]
    )


def versions(request: Message, since: int = 0, until: int = 99) -> list[int]:
    return [version for version in APIS[request.schema.key].served if since <= version <= until]


def compare(both: Both, make: Callable[[Side], Message], since: int = 0, until: int = 99, times: int = 1) -> None:
    """The same request to both, in all versions."""
    for version in versions(make(both.odradek), since, until):
        for _ in range(times):
            theirs = both.kafka.ask(make(both.kafka), version)
            ours = both.odradek.ask(make(both.odradek), version)
            assert differences(ours, theirs) == [], f"version {version}"


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two answers are not the same: ours, and Kafka's."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [line for name in ours for line in differences(ours[name], theirs[name], f"{path}.{name}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for number, (one, other) in pairs for line in differences(one, other, f"{path}[{number}]")]
    return [] if ours == theirs else [f"{path}: {ours!r}, Kafka {theirs!r}"]


# -- produce and fetch


def produce(topic: str, data: bytes | bytearray, index: int = 0, acks: int = -1, topic_id: bytes = NIL_UUID) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(index=index, records=data)
    wanted = ProduceRequest.TopicProduceData(name=topic, topic_id=topic_id, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[wanted])


PRODUCED: dict[str, tuple[str, int, Callable[[], bytearray]]] = {
    "plain": ("plain", 0, lambda: batch(0, 2)),
    "gzip": ("plain", 1, lambda: batch(0, 3, codec=Codec.GZIP)),
    "snappy": ("plain", 1, lambda: batch(0, 3, codec=Codec.SNAPPY)),
    "lz4": ("plain", 1, lambda: batch(0, 3, codec=Codec.LZ4)),
    "zstd": ("plain", 1, lambda: batch(0, 3, codec=Codec.ZSTD)),
    "no such topic": ("none", 0, lambda: batch(0, 1)),
    "no such partition": ("plain", 7, lambda: batch(0, 1)),
    "keys in a compacted topic": ("compacted", 0, lambda: batch(0, 2)),
    "no keys in a compacted topic": ("compacted", 0, lambda: batch(0, 2, key=None)),
    "no keys, compressed": ("compacted", 0, lambda: batch(0, 2, key=None, codec=Codec.LZ4)),
    "stamped": ("stamped", 0, lambda: batch(0, 2)),
    "stamped, compressed": ("stamped", 0, lambda: batch(0, 2, codec=Codec.GZIP)),
    "compressed anew": ("zipped", 0, lambda: batch(0, 2, codec=Codec.GZIP)),
    "compressed by the broker": ("zipped", 0, lambda: batch(0, 2)),
    "too large": ("small", 0, lambda: batch(0, 20)),
    "too old": ("recent", 0, lambda: batch(0, 2)),
    "too far ahead": ("plain", 0, lambda: batch(2**42, 2)),
    "an idempotent producer": ("plain", 2, lambda: batch(0, 2, producer_id=9000, producer_epoch=1, base_sequence=0)),
    "one with a gap": ("plain", 2, lambda: batch(0, 2, producer_id=9000, producer_epoch=1, base_sequence=8)),
    "one of an old epoch": ("plain", 2, lambda: batch(0, 2, producer_id=9000, producer_epoch=0, base_sequence=0)),
}


@pytest.mark.parametrize("case", PRODUCED)
def test_produce(both: Both, case: str) -> None:
    topic, index, make = PRODUCED[case]
    compare(both, lambda side: produce(topic, make(), index, topic_id=side.ids.get(topic, b"\7" * 16)))


@pytest.mark.parametrize("case", ["plain", "gzip", "stamped", "compressed anew", "compressed by the broker"])
def test_what_was_produced_is_read_back_alike(both: Both, case: str) -> None:
    """Byte for byte, but for compressed bytes and the time of an append, which are each one's own."""
    topic, index, make = PRODUCED[case]
    headers = []
    for side in both:
        side.ask(produce(topic, make(), index), 9)
        (answer,) = side.ask(fetch([(topic, index, 0)], side), 12)["responses"]
        records = answer["partitions"][0]["records"]
        attributes = int.from_bytes(records[21:23], "big")
        headers.append((records[:8], records[16:17], attributes, records[23:27], records[43:61]))
    assert headers[0] == headers[1]


def fetch(wanted: list[tuple[str, int, int]], side: Side, **more: Any) -> FetchRequest:
    partition = {name: more.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in more}
    bytes_max = more.pop("partition_max_bytes", 1_000_000)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=10_000_000, session_epoch=-1)
    for topic, index, offset in wanted:
        entry = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max, **partition)
        request.topics.append(FetchRequest.FetchTopic(topic=topic, topic_id=side.ids.get(topic, b"\7" * 16), partitions=[entry]))
    for name, value in more.items():
        setattr(request, name, value)
    return request


FETCHED: dict[str, tuple[list[tuple[str, int, int]], dict[str, Any]]] = {
    "everything": ([("read", 0, 0)], {}),
    "from the middle of a batch": ([("read", 0, 4)], {}),
    "a compressed batch": ([("read", 0, 6)], {}),
    "the end": ([("read", 0, 12)], {}),
    "past the end": ([("read", 0, 13)], {}),
    "before the begin": ([("read", 0, -1)], {}),
    "an empty partition": ([("read", 1, 0)], {}),
    "both partitions": ([("read", 0, 0), ("read", 1, 0)], {}),
    "only what is committed": ([("read", 0, 0)], {"isolation_level": 1}),
    "one byte": ([("read", 0, 0)], {"partition_max_bytes": 1}),
    "one byte in all": ([("read", 0, 0), ("read", 0, 0)], {"max_bytes": 1}),
    "less than a batch": ([("read", 0, 0)], {"partition_max_bytes": 100}),
    "a batch and a half": ([("read", 0, 0)], {"partition_max_bytes": 150}),
    "no such topic": ([("none", 0, 0)], {}),
    "no such partition": ([("read", 9, 0)], {}),
    "the right epoch": ([("read", 0, 0)], {"current_leader_epoch": 0}),
    "an epoch to come": ([("read", 0, 0)], {"current_leader_epoch": 9}),
    "a last epoch": ([("read", 0, 0)], {"last_fetched_epoch": 0, "since": 12}),
    "a last epoch past the end": ([("read", 0, 40)], {"last_fetched_epoch": 0, "since": 12}),
    "nothing": ([], {}),
    "a session that is not there": ([("read", 0, 0)], {"session_id": 77, "session_epoch": 3}),
    "a new session": ([("read", 0, 0), ("read", 1, 0)], {"session_epoch": 0}),
    "minimum of nothing": ([("read", 1, 0)], {"min_bytes": 0, "max_wait_ms": 10_000}),
}


@pytest.mark.parametrize("case", FETCHED)
def test_fetch(both: Both, case: str) -> None:
    wanted, more = FETCHED[case]
    rest = {name: value for name, value in more.items() if name != "since"}
    compare(both, lambda side: fetch(wanted, side, **rest), since=more.get("since", 0))


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_fetch_session_tells_what_is_new(both: Both, version: int) -> None:
    told = []
    for side in both:
        steps = [side.ask(fetch([("read", 0, 0), ("read", 1, 0)], side, session_epoch=0), version)]
        session = side_session(side, version)
        for epoch, changes in enumerate([[], [("read", 0, 12)], [], [("plain", 0, 0)]], start=1):
            steps.append(side.ask(fetch(changes, side, session_id=session, session_epoch=epoch), version))
        steps.append(side.ask(fetch([], side, session_id=session, session_epoch=2), version))
        steps.append(side.ask(fetch([("read", 0, 0)], side, session_id=session, session_epoch=-1), version))
        steps.append(side.ask(fetch([], side, session_id=session, session_epoch=5), version))
        told.append(steps)
    assert differences(told[1], told[0]) == []


def side_session(side: Side, version: int) -> int:
    """A new session of the same partitions, with its real id."""
    side.client.send_request(fetch([("read", 0, 0), ("read", 1, 0)], side, session_epoch=0), version)
    _, answer = decode_response(APIS[1].response, side.client.frame(), version)
    session_id: int = answer.session_id  # type: ignore[attr-defined]
    return session_id


# -- offsets


@pytest.mark.parametrize("timestamp", [-1, -2, -3, -4, -5, -6, -7, 0, TIME_MS + 11, TIME_MS + 21, TIME_MS + 9999])
@pytest.mark.parametrize(("topic", "index"), [("read", 0), ("read", 1), ("none", 0)])
def test_list_offsets(both: Both, topic: str, index: int, timestamp: int) -> None:
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])], replica_id=-1)
    compare(both, lambda _: request)


@pytest.mark.parametrize(("epoch", "current"), [(0, -1), (0, 0), (5, -1), (-1, -1), (0, 7)])
def test_offset_for_leader_epoch(both: Both, epoch: int, current: int) -> None:
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    topics = [
        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted]) for topic in ("read", "none", "small")
    ]
    compare(both, lambda _: OffsetForLeaderEpochRequest(replica_id=-2, topics=topics))


@pytest.mark.parametrize("offset", [-2, 99, 0, 1, -1])
def test_delete_records(both: Both, offset: int) -> None:
    wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [
        DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])
        for topic in ("stamped", "none", "compacted", "__consumer_offsets")
    ]
    for version in versions(DeleteRecordsRequest()):
        theirs, ours = (ordered(side.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000), version)) for side in both)
        assert differences(ours, theirs) == [], f"version {version}"


# -- the cluster


def ordered(answer: Any) -> Any:
    """Topics and groups come in any order."""
    if isinstance(answer, dict) and isinstance(answer.get("topics"), list):
        answer["topics"].sort(key=lambda topic: topic["name"] or "")
        for topic in answer["topics"]:
            topic.get("partitions", []).sort(key=lambda each: each["partition_index"])
    if isinstance(answer, dict) and isinstance(answer.get("results"), list):
        answer["results"].sort(key=lambda result: result["group_id"])
    return answer


@pytest.mark.parametrize("names", [None, [], ["read"], ["none", "read"], ["in valid"]])
def test_metadata(both: Both, names: list[str] | None) -> None:
    topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    for version in versions(MetadataRequest()):
        if topics is None and version == 0:
            continue
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=version < 4)
        if version < 4 and names and "none" in names:
            continue  # would create it
        theirs, ours = (ordered(side.ask(request, version)) for side in both)
        assert differences(ours, theirs) == [], f"version {version}"


def test_metadata_by_id(both: Both) -> None:
    for version in versions(MetadataRequest(), since=10):
        theirs, ours = (
            ordered(
                side.ask(
                    MetadataRequest(
                        topics=[
                            MetadataRequest.MetadataRequestTopic(topic_id=side.ids["read"], name=None if version > 11 else "x"),
                            MetadataRequest.MetadataRequestTopic(topic_id=b"\7" * 16, name=None if version > 11 else "y"),
                        ],
                        allow_auto_topic_creation=False,
                        include_topic_authorized_operations=True,
                    ),
                    version,
                )
            )
            for side in both
        )
        assert differences(ours, theirs) == [], f"version {version}"


@pytest.mark.parametrize("endpoints", [1, 2, 9])
def test_describe_cluster(both: Both, endpoints: int) -> None:
    compare(both, lambda _: DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=endpoints), since=1)


@pytest.mark.parametrize("limit", [1, 2, 5, 2000])
@pytest.mark.parametrize("names", [[], ["read", "none", "plain"]])
def test_describe_topic_partitions(both: Both, names: list[str], limit: int) -> None:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    cursor = None
    for _ in range(30):
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
        theirs, ours = (side.ask(request, 0) for side in both)
        assert differences(ours, theirs) == []
        if theirs["next_cursor"] is None:
            return
        at = theirs["next_cursor"]
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=at["topic_name"], partition_index=at["partition_index"])


def test_describe_producers(both: Both) -> None:
    make = PRODUCED["an idempotent producer"][2]
    for side in both:
        side.ask(produce("plain", make(), 2), 9)
    topics = [
        DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0, 2, 9]) for name in ("plain", "none", "in valid")
    ]
    compare(both, lambda _: DescribeProducersRequest(topics=topics))


def test_init_producer_id(both: Both) -> None:
    compare(both, lambda _: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1))
    compare(both, lambda _: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))


def test_api_versions_of_what_is_served(both: Both) -> None:
    for version in versions(ApiVersionsRequest()):
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
        theirs, ours = (side.ask(request, version) for side in both)
        known = {entry["api_key"]: entry for entry in theirs["api_keys"]}
        assert all(known[entry["api_key"]] == entry for entry in ours["api_keys"])
        supported = {entry["name"]: entry for entry in theirs["supported_features"]}
        assert all(supported[entry["name"]] == entry for entry in ours["supported_features"])
        finalized = {entry["name"]: entry for entry in theirs["finalized_features"]}
        assert all(finalized[entry["name"]] == entry for entry in ours["finalized_features"])


# -- groups


def test_offsets_of_a_group_without_members(both: Both) -> None:
    for topic in ("read", "none"):
        entry = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_leader_epoch=0, committed_metadata="note"
        )
        compare(
            both,
            lambda side, topic=topic, entry=entry: OffsetCommitRequest(  # type: ignore[misc]
                group_id="offsets",
                generation_id_or_member_epoch=-1,
                topics=[
                    OffsetCommitRequest.OffsetCommitRequestTopic(
                        name=topic, topic_id=side.ids.get(topic, b"\7" * 16), partitions=[entry]
                    )
                ],
            ),
        )
    single = [OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1]) for name in ("read", "small")]
    compare(both, lambda _: OffsetFetchRequest(group_id="offsets", topics=single), until=7)
    compare(both, lambda _: OffsetFetchRequest(group_id="nobody", topics=single), until=7)
    compare(both, lambda _: OffsetFetchRequest(group_id="offsets", topics=None), since=2, until=7)

    def several(side: Side) -> OffsetFetchRequest:
        wanted = [
            OffsetFetchRequest.OffsetFetchRequestTopics(
                name=name, topic_id=side.ids.get(name, b"\7" * 16), partition_indexes=[0, 1]
            )
            for name in ("read", "small", "none")
        ]
        groups = [
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="offsets", topics=wanted),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="nobody", topics=wanted),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="offsets", topics=None),
        ]
        return OffsetFetchRequest(groups=groups)

    compare(both, several, since=8)
    delete = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name="read", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
        )
    ]
    compare(both, lambda _: OffsetDeleteRequest(group_id="offsets", topics=delete))
    compare(both, lambda _: OffsetDeleteRequest(group_id="nobody", topics=delete))


def test_a_member_joins_beats_and_leaves_in_every_version(both: Both) -> None:
    for version in versions(JoinGroupRequest()):
        told = [list(life(side, version)) for side in both]
        assert differences(told[1], told[0]) == [], f"version {version}"


def life(side: Side, version: int) -> Iterator[Any]:
    """One member from its first join to the deletion of its group."""
    side.names.clear()
    group = f"life-{version}"
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]

    def join(member: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member,
            protocol_type="consumer",
            protocols=protocols,
        )

    sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
    answer = side.ask(join(""), version)
    yield answer
    member = next(iter(side.names))
    if answer["error_code"]:
        answer = side.ask(join(member), version)
        yield answer
    generation = answer["generation_id"]
    yield side.ask(HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), beat_version)
    assignments = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=b"mine")]
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )
    yield side.ask(sync, sync_version)
    yield side.ask(sync, sync_version)
    for wrong in (generation + 1, generation):
        yield side.ask(HeartbeatRequest(group_id=group, generation_id=wrong, member_id=member), beat_version)
    yield side.ask(HeartbeatRequest(group_id=group, generation_id=generation, member_id="nobody"), beat_version)
    for described in versions(DescribeGroupsRequest()):
        request = DescribeGroupsRequest(groups=[group, "nobody"], include_authorized_operations=described >= 3)
        yield side.ask(request, described)
    for listed in versions(ListGroupsRequest()):
        listing = ListGroupsRequest(states_filter=["Stable"] if listed >= 4 else [])
        yield [each for each in side.ask(listing, listed)["groups"] if each["group_id"] == group]
    yield ordered(side.ask(DeleteGroupsRequest(groups_names=[group, "nobody"]), min(version, 2)))
    identity = LeaveGroupRequest.MemberIdentity(member_id=member)
    for _ in range(2):
        leave = (
            LeaveGroupRequest(group_id=group, member_id=member)
            if leave_version < 3
            else LeaveGroupRequest(group_id=group, members=[identity])
        )
        yield side.ask(leave, leave_version)
    yield side.ask(sync, sync_version)
    yield side.ask(DeleteGroupsRequest(groups_names=[group]), min(version, 2))
    yield side.ask(DescribeGroupsRequest(groups=[group]), 5)


@pytest.mark.parametrize("key_type", [0, 9])
def test_find_coordinator(both: Both, key_type: int) -> None:
    compare(both, lambda _: FindCoordinatorRequest(key="g"), until=0)
    compare(both, lambda _: FindCoordinatorRequest(key="g", key_type=key_type), since=1, until=3)
    compare(both, lambda _: FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g", "h"]), since=4)

"""What brokers and people ask a controller: Apache Kafka's and ours get the same requests, and answer the same.

The test plays broker 2 towards both: it registers, sends heartbeats, leads a partition, changes its ISR, and stops.
"""

import time
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.api import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_topics,
    unregister_broker,
)
from odradek.api.context import Context
from odradek.core.controller.controller import Controller, ControllerConfig
from odradek.core.metadata.features import KNOWN
from odradek.core.metadata.image import MetadataImage
from odradek.wire.apis import APIS
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import decode_response
from odradek.wire.message import Message
from odradek.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    CreateTopicsRequest,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRequest,
)
from tests.core.controller.cluster import cluster, folder_of, rules
from tests.kafka.asking import ask
from tests.kafka.broker import Broker

HANDLERS = {
    module.KEY: module
    for module in (
        allocate_producer_ids,
        alter_partition,
        alter_partition_reassignments,
        assign_replicas_to_dirs,
        broker_heartbeat,
        broker_registration,
        controller_registration,
        create_topics,
        unregister_broker,
    )
}
FOLDER = b"a folder, 16 byt"
ANSWER_SECONDS_MAX = 30


class Kafka:
    def __init__(self, broker: Broker, cluster_id: str) -> None:
        self.broker = broker
        self.cluster_id = cluster_id
        self.epoch = -1  # of broker 2
        self.topic_id = b""

    def ask(self, request: Message, version: int) -> Any:
        return ask(self.broker.controller_port, request, version, APIS[request.schema.key].response)


class Odradek:
    """A controller behind its handlers, without a log: what it decides is committed at once."""

    is_active = True

    def __init__(self, image: MetadataImage, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self.epoch = -1
        self.topic_id = b""
        self.active = Controller(image, ControllerConfig(node_id=1, cluster_id=cluster_id, topics=rules()))
        self.active.next_offset = 1_000
        self.controller = self
        self.image = image

    async def submit(self, decide: Any) -> Any:
        decision = decide(self.active)
        for batch in decision.batches():
            self.active.replay(batch)
        return decision.response

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    async def followed(self) -> None:
        """There are no logs that could follow."""

    def broker_lost(self, broker_id: int, _: int) -> None:
        raise AssertionError(f"nobody closes the connection of broker {broker_id}")

    def ask(self, request: Message, version: int) -> Any:
        api = APIS[request.schema.key]
        connection = SimpleNamespace(answered=lambda _: None, close=pytest.fail)
        ctx = Context(cast("Any", self), cast("Any", connection), version, 7, "client")
        ctx.answer(run(HANDLERS[api.key].handle(api.request.decode(request.to_bytes(version), version), ctx)))
        return decode_response(api.response, b"".join(cast("list[bytes]", ctx.buffers))[4:], version)[1]


def run(coroutine: Coroutine[Any, Any, Message]) -> Message:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("Message", done.value)
    raise AssertionError("it waits")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Odradek]]:
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    image = cluster([])
    for name, (_, high) in KNOWN.items():
        if name != "kraft.version":
            image.replay(FeatureLevelRecord(name=name, feature_level=high))
    image.replay(RegisterBrokerRecord(broker_id=1, fenced=False, log_dirs=[folder_of(1)], features=[]))
    with broker.running():
        meta = dict(line.split("=", 1) for line in (broker.data / "meta.properties").read_text().splitlines() if "=" in line)
        yield Kafka(broker, meta["cluster.id"]), Odradek(image, meta["cluster.id"])


def registration(side: Kafka | Odradek, version: int = 4, **changes: Any) -> BrokerRegistrationRequest:
    request = BrokerRegistrationRequest(
        broker_id=2,
        cluster_id=side.cluster_id,
        incarnation_id=b"an incarnation16",
        listeners=[BrokerRegistrationRequest.Listener(name="PLAINTEXT", host="nowhere", port=9)],
        features=[
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in KNOWN.items()
        ],
        log_dirs=[FOLDER] if version >= 2 else [],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def same(both: tuple[Kafka, Odradek], request: Message, version: int) -> Any:
    theirs, ours = [side.ask(request, version) for side in both]
    assert ours == theirs, request
    return ours


def test_requests_of_a_broker_that_is_not_registered_are_refused_as_by_kafka(both: tuple[Kafka, Odradek]) -> None:
    Topic, Partition = AlterPartitionRequest.TopicData, AlterPartitionRequest.PartitionData  # noqa: N806
    altered = AlterPartitionRequest(broker_id=9, topics=[Topic(topic_id=b"t" * 16, partitions=[Partition(partition_index=3)])])
    for version in (2, 3):
        assert same(both, altered, version).error_code == ErrorCode.STALE_BROKER_EPOCH
    for version in (0, 1, 2):
        told = same(both, BrokerHeartbeatRequest(broker_id=9, want_shut_down=True), version)
        assert told.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert same(both, AllocateProducerIdsRequest(broker_id=9), 0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert same(both, AssignReplicasToDirsRequest(broker_id=9), 0).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert same(both, UnregisterBrokerRequest(broker_id=9), 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert same(both, ControllerRegistrationRequest(controller_id=7, incarnation_id=b"i" * 16), 0).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_registrations_are_refused_as_by_kafka(both: tuple[Kafka, Odradek], version: int) -> None:
    faults: list[dict[str, Any]] = [{"cluster_id": "another"}, {"features": []}]
    faults += [{"log_dirs": []}, {"log_dirs": [FOLDER, FOLDER]}, {"log_dirs": [bytes(16)]}] if version >= 2 else [{}]
    for fault in faults:
        assert same(both, registration(both[0], version, **fault), version).error_code != 0


def answers(both: tuple[Kafka, Odradek], request: Any, version: int) -> Any:
    """The same answers to the same request, in which each has its own epochs and ids."""
    found = []
    for side in both:
        request.broker_epoch = side.epoch
        for topic in getattr(request, "topics", []):
            topic.topic_id = side.topic_id
            for partition in topic.partitions:
                for state in partition.new_isr_with_epochs:
                    state.broker_epoch = side.epoch if state.broker_id == 2 else -1
        told = side.ask(request, version)
        for topic in getattr(told, "topics", []):
            topic.topic_id = b""
        found.append(told)
    assert found[0] == found[1], request
    return found[0]


def test_a_broker_lives_through_its_life_as_with_kafka(both: tuple[Kafka, Odradek]) -> None:
    for side in both:
        registered = side.ask(registration(side), 4)
        assert registered.error_code == 0
        side.epoch = registered.broker_epoch

    def beat(offset: int = 2**62, **wants: Any) -> Any:
        return answers(both, BrokerHeartbeatRequest(broker_id=2, current_metadata_offset=offset, **wants), 2)

    told = beat(0)
    assert (told.is_caught_up, told.is_fenced) == (False, True)
    assert beat(want_fence=True).is_fenced
    assert not beat().is_fenced
    refused = same(both, registration(both[0], incarnation_id=b"another incarn16"), 4)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    assigned = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned])
    for side in both:
        created = side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert created.topics[0].error_code == 0
        side.topic_id = created.topics[0].topic_id

    def alter(isr: list[int], partition_epoch: int, leader_epoch: int = 0) -> Any:
        State = AlterPartitionRequest.BrokerState  # noqa: N806
        partition = AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            new_isr_with_epochs=[State(broker_id=broker) for broker in isr],
        )
        topics = [AlterPartitionRequest.TopicData(topic_id=b"", partitions=[partition])]
        return answers(both, AlterPartitionRequest(broker_id=2, topics=topics), 3).topics[0].partitions[0]

    assert alter([2], 0).isr == [2]
    for isr, partition_epoch, leader_epoch in (([2, 1], 0, 0), ([1], 1, 0), ([2, 3], 1, 0), ([2, 1], 9, 0), ([2, 1], 1, 5)):
        assert alter(isr, partition_epoch, leader_epoch).error_code != 0
    assert alter([2, 1], 1).isr == [2, 1]
    told = beat(want_shut_down=True)
    assert (told.is_fenced, told.should_shut_down) == (False, False)
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not both[0].ask(heartbeat_of(both[0]), 2).should_shut_down:  # until Kafka's own broker has read it
        assert time.monotonic() < deadline
    both[1].ask(BrokerHeartbeatRequest(broker_id=1, broker_epoch=0, current_metadata_offset=2**62), 2)
    assert both[1].ask(heartbeat_of(both[1]), 2).should_shut_down
    assert same(both, UnregisterBrokerRequest(broker_id=2), 0).error_code == 0
    assert beat().error_code == ErrorCode.STALE_BROKER_EPOCH


def heartbeat_of(side: Kafka | Odradek) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=2, broker_epoch=side.epoch, current_metadata_offset=2**62, want_shut_down=True)


@pytest.mark.parametrize("version", [0, 1])
def test_reassignments_are_altered_and_refused_as_by_kafka(both: tuple[Kafka, Odradek], version: int) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="moved", num_partitions=2, replication_factor=1)
    for side in both:
        side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    Topic, Partition = (  # noqa: N806
        AlterPartitionReassignmentsRequest.ReassignableTopic,
        AlterPartitionReassignmentsRequest.ReassignablePartition,
    )
    targets: list[list[int] | None] = [None, [1], [], [1, 1], [1, 9], [9]]
    asked = [Topic(name="unknown", partitions=[Partition(partition_index=0, replicas=[1])])]
    asked += [
        Topic(name="moved", partitions=[Partition(partition_index=number, replicas=replicas) for number in (1, 5)])
        for replicas in targets
    ]
    for may_resize in (True, False) if version else (True,):
        request = AlterPartitionReassignmentsRequest(topics=asked, timeout_ms=10_000, allow_replication_factor_change=may_resize)
        theirs, ours = [side.ask(request, version).responses for side in both]
        for wanted, told, expected in zip(asked, ours, theirs, strict=True):
            assert told == expected, wanted

"""Transactions on one node: what its partitions and its coordinator have to agree on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from odradek.core.transactions.transaction import State, TopicIndex
from odradek.node import markers
from odradek.node.groups import CONSUMER_OFFSETS
from odradek.node.node import Node
from odradek.node.transactions import TRANSACTION_STATE
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.records import Record, build
from tests.node.disks import Gate, SlowDisk
from tests.node.inside import NOW_MS, Client, connected, new_node, running, until

NAME, GROUP, TOPIC = "orders", "readers", "things"
OF_TRANSACTIONS = 1  # a type of coordinator
SETTINGS = {
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "transaction_state_log_num_partitions": "1",
}

Producer = tuple[int, int]


async def begun(client: Client) -> Producer:
    for keys, kind in ((NAME, OF_TRANSACTIONS), (GROUP, 0)):
        await client.ask(FindCoordinatorRequest(coordinator_keys=[keys], key_type=kind), 4, FindCoordinatorResponse)
    request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
    answer = await client.ask(request, 5, InitProducerIdResponse)
    assert not answer.error_code, ErrorCode(answer.error_code)
    return answer.producer_id, answer.producer_epoch


async def send(client: Client, producer: Producer) -> None:
    """A first batch, which adds its partition to the transaction."""
    batch = build(
        [Record(0, NOW_MS, None, b"a")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])]
    request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=1000, topic_data=topics)
    answer = await client.ask(request, 12, ProduceResponse)
    assert not answer.responses[0].partition_responses[0].error_code


async def send_offset(client: Client, producer: Producer) -> None:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = TxnOffsetCommitRequest(
        transactional_id=NAME,
        group_id=GROUP,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    answer = await client.ask(request, 5, TxnOffsetCommitResponse)
    assert not answer.topics[0].partitions[0].error_code


async def end(client: Client, producer: Producer) -> ErrorCode:
    request = EndTxnRequest(transactional_id=NAME, producer_id=producer[0], producer_epoch=producer[1], committed=True)
    return ErrorCode((await client.ask(request, 5, EndTxnResponse)).error_code)


@asynccontextmanager
async def in_transaction(folder: Path) -> AsyncIterator[tuple[Node, Client, Producer]]:
    """A producer that has written to the topic."""
    node = new_node(folder, **SETTINGS)
    async with running(node), connected(node) as client:
        assert not await client.create(TOPIC)
        producer = await begun(client)
        await send(client, producer)
        yield node, client, producer


def is_complete(node: Node) -> bool:
    (shard,) = node.transactions.shards.values()
    return shard.coordinator.entries[NAME].transaction.state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("give", [send, send_offset])
def test_partitions_are_added_to_a_transaction_also_where_none_is_verified(
    tmp_path: Path, give: Callable[[Client, Producer], Awaitable[None]]
) -> None:
    """Nobody else adds them in version 2: they would never get their end."""

    async def story() -> None:
        node = new_node(tmp_path, **SETTINGS, transaction_partition_verification_enable="false")
        async with running(node), connected(node) as client:
            assert not await client.create(TOPIC)
            producer = await begun(client)
            await give(client, producer)
            assert await end(client, producer) is ErrorCode.NONE
            await until(lambda: is_complete(node))

    asyncio.run(story())


def test_markers_are_written_by_who_leads_again_after_another_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose epoch this node has never heard of, as it follows the metadata late."""
    known = markers.results_of
    refused: list[ErrorCode] = []

    def results_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicIndex], ErrorCode]:
        found = known(response)
        refused.extend(code for code in found.values() if code)
        return found

    monkeypatch.setattr(markers, "results_of", results_of)

    async def story() -> None:
        async with in_transaction(tmp_path) as (node, client, producer):
            partition, coordinated = node.partitions.by_name[TOPIC][0], node.partitions.by_name[TRANSACTION_STATE][0]
            partition.log.producers.producers[producer[0]].coordinator_epoch = coordinated.leader_epoch + 1
            assert await end(client, producer) is ErrorCode.NONE
            await until(lambda: ErrorCode.TRANSACTION_COORDINATOR_FENCED in refused)
            state = node.image.topics[TRANSACTION_STATE].partitions[0]
            coordinated.lead(replace(state, leader_epoch=state.leader_epoch + 2))
            await until(lambda: is_complete(node))

    asyncio.run(story())


async def add_partitions(client: Client, producer: Producer, *topics: str) -> list[ErrorCode]:
    """As a client does it that knows the first version of transactions alone."""
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=NAME,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[kind(name=topic, partitions=[0]) for topic in topics],
    )
    answer = await client.ask(request, 3, AddPartitionsToTxnResponse)
    results = [result for topic in answer.results_by_topic_v3_and_below for result in topic.results_by_partition]
    return [ErrorCode(result.partition_error_code) for result in results]


def test_a_client_adds_no_partition_of_the_brokers_to_its_transaction(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_transaction(tmp_path) as (_, client, producer):
            for internal in (TRANSACTION_STATE, CONSUMER_OFFSETS):
                assert await add_partitions(client, producer, TOPIC, internal) == [
                    ErrorCode.OPERATION_NOT_ATTEMPTED,
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ]
            assert await add_partitions(client, producer, TOPIC) == [ErrorCode.NONE]

    asyncio.run(story())


async def write_marker(client: Client, topic: str) -> ErrorCode:
    kind = WriteTxnMarkersRequest
    topics = [kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    marker = kind.WritableTxnMarker(producer_id=7, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0)
    answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_a_coordinator_is_loaded_that_has_the_end_of_a_transaction_in_its_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_transaction(tmp_path) as (_, client, producer):
            assert await write_marker(client, TRANSACTION_STATE) is ErrorCode.NONE
        node = new_node(tmp_path, **SETTINGS)
        async with running(node), connected(node) as client:
            await until(lambda: all(shard.is_loaded for shard in node.transactions.shards.values()))
            assert await end(client, producer) is ErrorCode.NONE

    asyncio.run(story())


def test_the_end_of_a_transaction_takes_no_room_that_is_kept_for_the_metadata(tmp_path: Path) -> None:
    async def story() -> None:
        async with in_transaction(tmp_path) as (node, client, _):
            (writing,) = node.partitions.writings.values()
            writing.reserve(True)
            for topic in (TOPIC, CONSUMER_OFFSETS):
                end_before = node.partitions.by_name[topic][0].log.end_offset
                assert await write_marker(client, topic) is ErrorCode.KAFKA_STORAGE_ERROR
                assert node.partitions.by_name[topic][0].log.end_offset == end_before

    asyncio.run(story())


def test_the_end_of_a_transaction_waits_for_a_topic_that_may_have_been_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may have heard that it was, and taken records: who coordinates hears of the deletion first."""

    async def story() -> None:
        async with in_transaction(tmp_path) as (node, client, producer):
            sender, asked = node.transactions.sender, list[TopicIndex]()
            with monkeypatch.context() as patched:
                patched.setattr(sender, "_leader", asked.append)  # who gives None
                assert await end(client, producer) is ErrorCode.NONE
                await until(lambda: len(asked) > 2)
                assert not is_complete(node)
            await until(lambda: is_complete(node))
            assert node.partitions.by_name[TOPIC][0].last_stable_offset == 2

    asyncio.run(story())


def test_the_end_of_a_transaction_is_told_to_nobody_whose_topic_stays_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "GONE_MS", 200)

    async def story() -> None:
        async with in_transaction(tmp_path) as (node, client, producer):
            request = DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000)
            assert not (await client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code
            assert await end(client, producer) is ErrorCode.NONE
            await until(lambda: is_complete(node))

    asyncio.run(story())


def test_a_group_knows_the_end_of_a_transaction_before_it_is_synced(tmp_path: Path) -> None:
    """What the group writes while the sync is under way comes behind it."""
    gate = Gate(lambda done, path: done == "sync" and "/__consumer_offsets-" in path and path.endswith(".log"))

    async def story() -> None:
        node = new_node(tmp_path, lambda: SlowDisk(gate), **SETTINGS, log_flush_interval_messages="1")
        async with running(node), connected(node) as client:
            try:
                assert not await client.create(TOPIC)
                producer = await begun(client)
                await send_offset(client, producer)
                gate.close()
                assert await end(client, producer) is ErrorCode.NONE
                await until(lambda: gate.waiting == 1)
                (shard,) = [each for each in node.groups.shards.values() if each.partition.log_end]
                assert shard.coordinator.log_end == shard.partition.log_end
                assert not is_complete(node)
            finally:
                gate.open()
            await until(lambda: is_complete(node))

    asyncio.run(story())


def test_a_replica_tells_of_its_producers_also_where_it_does_not_lead(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(new_node(tmp_path)) as node, connected(node) as client:
            await client.create(TOPIC)
            assert await client.produce(TOPIC, b"a", b"b", sequence=0) == ErrorCode.NONE
            led = node.partitions.by_name[TOPIC].pop(0)
            topics = [DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0, 1])]
            answer = await client.ask(DescribeProducersRequest(topics=topics), 0, DescribeProducersResponse)
            here, nowhere = answer.topics[0].partitions
            assert [(found.producer_id, found.last_sequence) for found in here.active_producers] == [(7, 1)]
            assert (here.error_code, nowhere.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            node.partitions.by_name[TOPIC][0] = led

    asyncio.run(run())

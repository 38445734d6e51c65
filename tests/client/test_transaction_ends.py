"""How the transactions of a producer end, as its coordinator answers."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster
from odradek.client.errors import Fenced, InvalidOption, KafkaError, TimedOut, TransactionFailed, refused
from odradek.client.producer import Producer, Topic
from odradek.client.records import Committed, GroupMetadata, TopicPartition
from odradek.client.transaction import FEATURE, IMPLICIT_SINCE, Transactions
from odradek.wire.errors import ErrorCode
from odradek.wire.message import Message
from odradek.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

PLACE = TopicPartition("t", 0)


class Coordinator:
    """Of one transactional id: it answers with these codes, and then with none."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = [*codes]
        self.of_offsets = self.of_partitions = ErrorCode.NONE
        self.version = IMPLICIT_SINCE
        self.tries = 1
        self.is_quick = asyncio.Event()  # to answer about offsets
        self.is_quick.set()
        self.asked: list[Message] = []
        self.epoch = 0
        self.loop = asyncio.get_running_loop()

    async def ask_coordinator(self, of: int, name: str, request: Message, response: type[Any], **how: Any) -> Any:
        self.asked.append(request)
        if isinstance(request, TxnOffsetCommitRequest):
            await self.is_quick.wait()
            offsets = TxnOffsetCommitResponse
            told = offsets.TxnOffsetCommitResponsePartition(error_code=self.of_offsets)
            return offsets(topics=[offsets.TxnOffsetCommitResponseTopic(name=PLACE.topic, partitions=[told])])
        if isinstance(request, AddPartitionsToTxnRequest):
            kind = AddPartitionsToTxnResponse
            added = kind.AddPartitionsToTxnPartitionResult(partition_error_code=self.of_partitions)
            topic = kind.AddPartitionsToTxnTopicResult(name=PLACE.topic, results_by_partition=[added])
            return kind(results_by_topic_v3_and_below=[topic])
        code = self.codes.pop(0) if self.codes and isinstance(request, EndTxnRequest) else ErrorCode.NONE
        self.epoch += not code
        kinds = {EndTxnRequest: EndTxnResponse, InitProducerIdRequest: InitProducerIdResponse}
        return kinds[type(request)](error_code=code, producer_id=1, producer_epoch=self.epoch)

    async def insist(self, what: str, attempt: Callable[[], Any]) -> Any:
        for _ in range(self.tries - 1):
            try:
                return await attempt()
            except KafkaError as error:
                if not error.is_retriable:
                    raise
                await asyncio.sleep(0)
        return await attempt()

    async def coordinator(self, kind: int, name: str) -> int:
        return 0

    def forget_coordinator(self, kind: int, name: str) -> None:
        """There is no other."""

    async def connection(self, node: int, lane: str) -> Any:
        return SimpleNamespace(features={FEATURE: self.version})


async def begun(coordinator: Coordinator) -> Transactions:
    """One that a batch has left for."""
    made = Transactions(cast("Cluster", coordinator), "mine", 1_000, lambda: None, lambda _: None)
    await made.begin()
    assert made.admits(PLACE)
    return made


def test_a_transaction_that_the_cluster_has_aborted_failed_and_the_next_one_begins_in_another_epoch() -> None:
    async def story() -> None:
        coordinator = Coordinator(ErrorCode.INVALID_TXN_STATE)
        transactions = await begun(coordinator)
        with pytest.raises(TransactionFailed, match="transaction_timeout_ms=1000"):
            await transactions.end(is_commit=True)
        await transactions.begin()
        assert [type(each) for each in coordinator.asked] == [InitProducerIdRequest, EndTxnRequest, InitProducerIdRequest]
        assert transactions.owner == (1, 2)

    asyncio.run(story())


@pytest.mark.parametrize("what", ["batch", "offsets"])
def test_who_is_refused_by_its_epoch_aborts_and_goes_on_unless_the_coordinator_says_that_it_was_fenced(what: str) -> None:
    async def fail(coordinator: Coordinator) -> Transactions:
        transactions = await begun(coordinator)
        coordinator.of_offsets = ErrorCode.INVALID_PRODUCER_EPOCH
        if what == "batch":
            transactions.failed(PLACE, transactions.judged(refused(ErrorCode.INVALID_PRODUCER_EPOCH)))
        else:
            with pytest.raises(TransactionFailed):
                await transactions.send_offsets({PLACE: Committed(1)}, GroupMetadata("g"))
        return transactions

    async def story() -> None:
        transactions = await fail(Coordinator())
        with pytest.raises(TransactionFailed):
            await transactions.end(is_commit=True)
        await transactions.end(is_commit=False)
        await transactions.begin()
        assert transactions.owner == (1, 2), "which the coordinator gave it at the end"

        transactions = await fail(Coordinator(ErrorCode.PRODUCER_FENCED))
        with pytest.raises(Fenced):
            await transactions.end(is_commit=False)
        with pytest.raises(Fenced):
            await transactions.begin()

    asyncio.run(story())


def test_who_is_refused_by_its_epoch_is_at_its_end_where_that_stays_from_one_transaction_to_the_next() -> None:
    async def story() -> None:
        coordinator = Coordinator()
        coordinator.version = IMPLICIT_SINCE - 1
        transactions = Transactions(cast("Cluster", coordinator), "mine", 1_000, lambda: None, lambda _: None)
        await transactions.begin()
        transactions.failed(PLACE, transactions.judged(refused(ErrorCode.INVALID_PRODUCER_EPOCH)))
        with pytest.raises(Fenced):
            transactions.check()

    asyncio.run(story())


def test_a_commit_that_is_refused_otherwise_has_an_end_that_nobody_knows() -> None:
    async def story() -> None:
        transactions = await begun(Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        with pytest.raises(KafkaError) as caught:
            await transactions.end(is_commit=True)
        assert not isinstance(caught.value, TransactionFailed)

    asyncio.run(story())


def producer_of(transactions: Transactions) -> Producer:
    """One that sends nothing by itself, with room for one record."""
    made = Producer(transactional_id="mine", buffer_memory=1)
    made.transactions, made.now_s, made.wall_ms = transactions, time.monotonic, lambda: 0
    made._cluster = cast("Cluster", SimpleNamespace(loop=asyncio.get_running_loop()))
    made._sender = cast("Any", SimpleNamespace(wake=made._let_in, quiet=lambda: asyncio.sleep(0)))
    made._topics["t"] = Topic(cast("Any", None), {0: made.accumulator.lane(PLACE)})
    return made


def test_a_transaction_with_a_record_that_could_not_be_taken_is_not_committed() -> None:
    async def story() -> None:
        producer = producer_of(await begun(Coordinator()))

        async def find_none(name: str) -> Topic:
            raise TimedOut(f"to find topic {name}")

        producer._topic = find_none  # type: ignore[method-assign]
        with pytest.raises(TimedOut):
            await producer.send("other", b"first", partition=0)
        with pytest.raises(TransactionFailed, match="to find topic other"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send("t", b"second", partition=0)

    asyncio.run(story())


@pytest.mark.parametrize(("is_another_begun", "error"), [(False, InvalidOption), (True, TransactionFailed)])
def test_a_record_that_waits_for_room_when_its_transaction_ends_is_in_no_other(
    is_another_begun: bool, error: type[KafkaError]
) -> None:
    async def story() -> None:
        producer = producer_of(await begun(Coordinator()))
        await producer.send("t", b"first", partition=0)
        waiting = asyncio.ensure_future(producer.send("t", b"second", partition=0))
        await asyncio.sleep(0)
        await producer.abort_transaction()
        if is_another_begun:
            await producer.begin_transaction()
        producer._let_in()
        with pytest.raises(error):
            await waiting
        assert not producer.accumulator.active

    asyncio.run(story())


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_record_that_is_sent_while_its_transaction_ends_is_refused_and_in_no_other(is_commit: bool) -> None:
    async def story() -> None:
        producer = producer_of(await begun(Coordinator()))
        producer.accumulator.buffer_memory = 1_000
        lane = producer.accumulator.lane(PLACE)
        lane.begin_epoch(1, 1)
        await producer.send("t", b"first", partition=0)
        batch = lane.take()
        ending = asyncio.ensure_future(producer.commit_transaction() if is_commit else producer.abort_transaction())
        await asyncio.sleep(0)
        with pytest.raises(InvalidOption, match="is being ended"):
            await producer.send("t", b"second", partition=0)
        producer.accumulator.succeed(lane, batch, 0, -1)
        await ending
        assert not producer.accumulator.active
        await producer.begin_transaction()
        await producer.send("t", b"third", partition=0)

    asyncio.run(story())


def test_a_commit_that_is_cancelled_while_records_are_under_way_leaves_its_transaction_open() -> None:
    async def story() -> None:
        producer = producer_of(await begun(Coordinator()))
        producer.accumulator.buffer_memory = 1_000
        await producer.send("t", b"first", partition=0)
        committing = asyncio.ensure_future(producer.commit_transaction())
        await asyncio.sleep(0)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        await producer.send("t", b"second", key=b"k", partition=0)

    asyncio.run(story())


def test_a_transaction_of_whose_offsets_nobody_knows_whether_they_are_in_it_is_not_committed() -> None:
    """Whoever waited for that was cancelled, by a time-out perhaps, and the program goes on."""

    async def story() -> None:
        coordinator = Coordinator()
        transactions = await begun(coordinator)
        coordinator.insist = lambda what, attempt: asyncio.sleep(3_600)  # type: ignore[method-assign]
        sending = asyncio.ensure_future(transactions.send_offsets({PLACE: Committed(1)}, GroupMetadata("g")))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        del coordinator.insist
        with pytest.raises(TransactionFailed, match="offsets of group g"):
            await transactions.end(is_commit=True)
        await transactions.end(is_commit=False)
        await transactions.begin()

    asyncio.run(story())


def test_a_transaction_whose_group_has_another_instance_by_now_is_aborted_and_the_next_one_begins() -> None:
    """It is the consumer that was fenced, and not the producer."""

    async def story() -> None:
        coordinator = Coordinator()
        transactions = await begun(coordinator)
        coordinator.of_offsets = ErrorCode.FENCED_INSTANCE_ID
        with pytest.raises(Fenced):
            await transactions.send_offsets({PLACE: Committed(1)}, GroupMetadata("g", 1, "m", "i"))
        with pytest.raises(TransactionFailed, match="FENCED_INSTANCE_ID"):
            await transactions.end(is_commit=True)
        await transactions.end(is_commit=False)
        assert isinstance(coordinator.asked[-1], EndTxnRequest)
        await transactions.begin()

    asyncio.run(story())


def test_a_transaction_of_the_first_version_that_nothing_could_be_added_to_is_aborted_without_an_error() -> None:
    """Its coordinator has none to end, and says so."""

    async def story() -> None:
        coordinator = Coordinator(ErrorCode.INVALID_TXN_STATE)
        coordinator.version, coordinator.of_partitions = 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        transactions = Transactions(cast("Cluster", coordinator), "mine", 1_000, lambda: None, lambda _: None)
        await transactions.begin()
        assert not transactions.admits(PLACE)
        assert transactions._adding is not None
        await transactions._adding
        with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            await transactions.end(is_commit=True)
        await transactions.end(is_commit=False)
        await transactions.begin()

    asyncio.run(story())


def test_a_commit_waits_for_offsets_that_are_under_way() -> None:
    async def story() -> None:
        coordinator = Coordinator()
        transactions = await begun(coordinator)
        coordinator.is_quick.clear()
        sending = asyncio.ensure_future(transactions.send_offsets({PLACE: Committed(1)}, GroupMetadata("g")))
        await asyncio.sleep(0)
        committing = asyncio.ensure_future(transactions.end(is_commit=True))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [type(each) for each in coordinator.asked] == [InitProducerIdRequest, TxnOffsetCommitRequest]
        coordinator.is_quick.set()
        await asyncio.gather(sending, committing)
        assert isinstance(coordinator.asked[-1], EndTxnRequest)

    asyncio.run(story())


def test_offsets_that_are_tried_again_when_their_transaction_is_aborted_are_in_no_other() -> None:
    """Their coordinator could not be found, and the program has gone on."""

    async def story() -> None:
        coordinator = Coordinator()
        transactions = await begun(coordinator)
        coordinator.of_offsets, coordinator.tries = ErrorCode.COORDINATOR_NOT_AVAILABLE, 2
        coordinator.is_quick.clear()
        sending = asyncio.ensure_future(transactions.send_offsets({PLACE: Committed(1)}, GroupMetadata("g")))
        await asyncio.sleep(0)
        aborting = asyncio.ensure_future(transactions.end(is_commit=False))
        await asyncio.sleep(0)
        coordinator.is_quick.set()
        with pytest.raises(TransactionFailed, match="is being aborted"):
            await sending
        await aborting
        await transactions.begin()
        for _ in range(5):
            await asyncio.sleep(0)
        epochs = [each.producer_epoch for each in coordinator.asked if isinstance(each, TxnOffsetCommitRequest)]
        assert epochs == [1]

    asyncio.run(story())


def test_a_transaction_without_offsets_and_records_is_unknown_to_its_coordinator() -> None:
    async def story() -> None:
        coordinator = Coordinator()
        transactions = Transactions(cast("Cluster", coordinator), "mine", 1_000, lambda: None, lambda _: None)
        await transactions.begin()
        await transactions.send_offsets({}, GroupMetadata("g"))
        await transactions.end(is_commit=True)
        assert [type(each) for each in coordinator.asked] == [InitProducerIdRequest]

    asyncio.run(story())

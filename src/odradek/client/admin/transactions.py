"""Transactions: list, describe, who writes to partitions, and the end of those that hang or whose producer shall not go on.

A transaction hangs when a partition has one open of which no coordinator knows. Who reads committed records alone does not come
past it; `abort_transaction` ends it.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes, by_topic, failure, outcome
from odradek.client.admin.ways import Coordinators, Leaders
from odradek.client.cluster import TRANSACTION
from odradek.client.connection import Connection
from odradek.client.errors import KafkaError, refused
from odradek.client.records import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ANY_DURATION: Final = -1
FENCING_TIMEOUT_MS: Final = 1  # of a transaction that is never begun


class ListedTransaction(Struct, frozen=True):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class Transaction(Struct, frozen=True):
    """`started_ms` is None when none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(Struct, frozen=True):
    """Who has written to a partition lately. Without a transaction, `transaction_start_offset` is None; `coordinator_epoch` is -1
    before the first one has ended."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


class FencedProducer(Struct, frozen=True):
    """What the coordinator has made of a transactional id: who had it before is refused."""

    producer_id: int
    producer_epoch: int


class Transactions(Asking):
    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms_min: int = ANY_DURATION,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> dict[str, ListedTransaction]:
        """Of all coordinators, by transactional id: those in some states ("Ongoing"), of some producers, open for so long, or
        whose ids match a pattern."""
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=duration_ms_min,
            transactional_id_pattern=pattern,
        )

        async def ask(connection: Connection, asked: list[int]) -> Outcomes[int, list[ListedTransaction]]:
            answer = await connection.post(request, ListTransactionsResponse, self._patience_ms)
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                return dict.fromkeys(asked, refused(ErrorCode.INVALID_REQUEST, f"no transaction has the state {unknown}"))
            found = [
                ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, asked[0])
                for each in answer.transaction_states
            ]
            return dict.fromkeys(asked, failure(answer) or found)

        found = await self._each_broker("to list the transactions", ask, timeout_ms)
        flat = sorted([each for held in found.values() for each in held], key=lambda each: each.transactional_id)
        return {each.transactional_id: each for each in flat}

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, Transaction]:
        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, Transaction]:
            request = DescribeTransactionsRequest(transactional_ids=asked)
            answer = await connection.post(request, DescribeTransactionsResponse, self._patience_ms)
            return {
                each.transactional_id: outcome(described(each), each.error_code, transactional_id=each.transactional_id)
                for each in answer.transaction_states
            }

        return await self._each("to describe transactions", transactional_ids, Coordinators(TRANSACTION), ask, timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Who writes to partitions, as their leaders know it."""
        kind = DescribeProducersRequest

        async def ask(
            connection: Connection, asked: list[TopicPartition]
        ) -> Outcomes[TopicPartition, tuple[ActiveProducer, ...]]:
            topics = [kind.TopicRequest(name=name, partition_indexes=parts) for name, parts in by_topic(asked).items()]
            answer = await connection.post(kind(topics=topics), DescribeProducersResponse, self._patience_ms)
            return {
                TopicPartition(topic.name, part.partition_index): outcome(
                    tuple(map(producer, part.active_producers)),
                    part.error_code,
                    part.error_message,
                    topic=topic.name,
                    partition=part.partition_index,
                )
                for topic in answer.topics
                for part in topic.partitions
            }

        return await self._each("to describe producers", partitions, Leaders(), ask, timeout_ms)

    async def abort_transaction(
        self, partition: TopicPartition, start_offset: int, *, timeout_ms: float | None = None
    ) -> ActiveProducer:
        """Ends a transaction that hangs, in one partition; gives whose it was. Aborting one that does not hang loses what its
        producer still commits."""
        active = (await self.describe_producers([partition], timeout_ms=timeout_ms))[partition]
        found = [each for each in active if each.transaction_start_offset == start_offset]
        if not found:
            reason = f"no transaction is open that begins at offset {start_offset}"
            raise refused(ErrorCode.INVALID_TXN_STATE, reason, topic=partition.topic, partition=partition.partition)
        (hanging,) = found
        kind = WriteTxnMarkersRequest
        topic = kind.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        marker = kind.WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )

        async def ask(connection: Connection, _: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
            answer = await connection.post(kind(markers=[marker]), WriteTxnMarkersResponse, self._patience_ms)
            return {
                TopicPartition(each.name, part.partition_index): outcome(
                    None, part.error_code, topic=each.name, partition=part.partition_index
                )
                for told in answer.markers
                for each in told.topics
                for part in each.partitions
            }

        await self._each("to abort a transaction", [partition], Leaders(), ask, timeout_ms)
        return hanging

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, FencedProducer]:
        """Aborts the transactions of producers, which are refused from then on."""

        async def ask(connection: Connection, asked: list[str]) -> Outcomes[str, FencedProducer]:
            return {each: await self._fence(connection, each) for each in asked}

        return await self._each("to fence producers", transactional_ids, Coordinators(TRANSACTION), ask, timeout_ms)

    async def _fence(self, connection: Connection, transactional_id: str) -> FencedProducer | KafkaError:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)
        answer = await connection.post(request, InitProducerIdResponse, self._patience_ms)
        made = FencedProducer(answer.producer_id, answer.producer_epoch)
        return outcome(made, answer.error_code, transactional_id=transactional_id)


def described(found: DescribeTransactionsResponse.TransactionState) -> Transaction:
    return Transaction(
        transactional_id=found.transactional_id,
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        started_ms=None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
        partitions=tuple(sorted(TopicPartition(topic.topic, part) for topic in found.topics for part in topic.partitions)),
    )


def producer(found: DescribeProducersResponse.ProducerState) -> ActiveProducer:
    return ActiveProducer(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        last_sequence=found.last_sequence,
        last_timestamp_ms=found.last_timestamp,
        coordinator_epoch=found.coordinator_epoch,
        transaction_start_offset=None if found.current_txn_start_offset < 0 else found.current_txn_start_offset,
    )
